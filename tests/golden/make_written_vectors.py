#!/usr/bin/env python3
"""Records what compressed-tensors makes of weights that Ballast wrote, in tests/golden/written.safetensors.

    .venv-oracle/bin/python tests/golden/make_written_vectors.py build/release/ballast

For each variant of tests/python/runtime_formats.py the file has the stored tensors and the first rows of what the package
decompresses them to; and for F32 weights rounded to nearest, the tensors that the package itself stores.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

import compressed_tensors  # noqa: E402
from compressed_oracle import compressed, decompressed, section_of  # noqa: E402
from runtime_formats import VARIANTS  # noqa: E402

MODULE = "model.layers.0.mlp.down_proj"
FILE = ROOT / "tests/golden/written.safetensors"


def weight() -> torch.Tensor:
    generator = torch.Generator().manual_seed(22)
    values = torch.randn(16, 256, generator=generator) * 0.02
    values[:, 3] *= 12
    values[1, :128] = 0
    return values


def quantize(program: str, folder: Path, method: str, options: tuple) -> Path:
    out = folder / method
    command = [program, "quantize", folder / "in.safetensors", out, "--method", method, "--min-accuracy", "0", "--no-sync", *options]
    subprocess.run([str(each) for each in command], check=True, capture_output=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    program = parser.parse_args().program
    dense = weight()
    tensors = {"weight": dense}
    for variant, options in VARIANTS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            save_file({f"{MODULE}.weight": dense}, folder / "in.safetensors")
            out = quantize(program, folder, "search", options)
            own = {name.removeprefix(f"{MODULE}."): tensor for name, tensor in load_file(out / "model.safetensors").items()}
            tensors |= {f"{variant}/{name}": tensor for name, tensor in own.items()}
            if variant != "hf-fp8":
                tensors[f"{variant}/restored"] = decompressed(own, section_of(out), MODULE)[:4].contiguous()
                made = compressed(dense, section_of(out), MODULE)
                tensors |= {f"{variant}/package/{name}": tensor.contiguous() for name, tensor in made.items()}
    said = {"compressed-tensors": compressed_tensors.__version__, "torch": torch.__version__, "module": MODULE}
    save_file(tensors, FILE, said)
    print(f"{FILE.relative_to(ROOT)}: {len(VARIANTS)} variants, {FILE.stat().st_size} bytes, {json.dumps(said)}")


if __name__ == "__main__":
    main()
