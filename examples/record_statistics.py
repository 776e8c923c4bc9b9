"""Record statistics of a network with two layers that removes noise step by step, as a diffusion model does.

    python examples/record_statistics.py [FILE]
"""

import json
import sys
from pathlib import Path

import numpy as np
from ballast.calibration import Recorder

WIDTH, HIDDEN, STEPS, IMAGES = 64, 128, 50, 32


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def main(path="statistics.safetensors"):
    rng = np.random.default_rng(0)
    weights = {
        "up.weight": rng.normal(0, WIDTH**-0.5, (HIDDEN, WIDTH)),
        "down.weight": rng.normal(0, HIDDEN**-0.5, (WIDTH, HIDDEN)),
    }
    shift = rng.normal(0, 1, HIDDEN)  # the timestep, as the layer sees it
    recorder = Recorder()

    def layer(name, x, timestep):
        y = x @ weights[name].T
        recorder.add(name, x, timestep, y)
        return y

    x = rng.normal(0, 1, (IMAGES, WIDTH))
    for timestep in reversed(range(STEPS)):
        hidden = gelu(layer("up.weight", x, timestep) + shift * timestep / STEPS)
        x = x - 0.1 * layer("down.weight", hidden, timestep)
    recorder.save(path)

    size = int.from_bytes(Path(path).read_bytes()[:8], "little")
    header = json.loads(Path(path).read_bytes()[8 : 8 + size])
    timesteps = json.loads(header.pop("__metadata__")["timesteps"])
    print(f"{path}: {len(header)} tensors about {len(weights)} weights at {len(timesteps)} timesteps, {timesteps[0]} to {timesteps[-1]}")
    for name in weights:
        print(f"  {name}: {header[f'{name}.x_mean']['shape'][1]} inputs")


if __name__ == "__main__":
    main(*sys.argv[1:2])
