#!/usr/bin/env python3
"""Times loading a file from nginx on this machine into memory beside curl fetching the same bytes, turn by turn.

Both have the same number of connections; curl's go to /dev/null. The checksum of what was loaded is compared with the file's.
"""

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import safetensors.numpy

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "build/release/python"), str(ROOT / "tests/python")]
import ballast  # noqa: E402
from load_peers import wake_memory  # noqa: E402
from nginx_server import nginx  # noqa: E402

CONNECTIONS = 16  # as ballast has
BLOCK = 8 << 20


def fetch_with_curl(url, size):
    """One curl process, with the blocks that ballast asks for, on as many connections."""
    config = "".join(
        f'url = "{url}"\nrange = "{begin}-{min(begin + BLOCK, size) - 1}"\noutput = "/dev/null"\nnext\n' for begin in range(0, size, BLOCK)
    )
    with tempfile.NamedTemporaryFile("w", suffix=".curl") as file:
        file.write(config.removesuffix("next\n"))
        file.flush()
        command = ["curl", "--silent", "--fail", "--parallel", "--parallel-immediate", "--parallel-max", str(CONNECTIONS), "--config", file.name]
        before = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return time.perf_counter() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--gigabytes", type=float, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, nginx(folder) as server:
        values = numpy.random.default_rng(1).integers(0, 256, 1 << 20, numpy.uint8)
        count = int(options.gigabytes * 1e9) >> 20
        path = Path(folder) / "model.safetensors"
        safetensors.numpy.save_file({f"t{i:05}": numpy.roll(values, i) for i in range(count)}, path)
        expected = {name: hashlib.sha256(tensor.numpy()).digest() for name, tensor in ballast.open(path).items()}
        url, size = f"{server}/model.safetensors", path.stat().st_size
        times = {"ballast": [], "curl": []}
        for _ in range(options.repetitions):
            wake_memory(size // 4 * 5)
            before = time.perf_counter()
            loaded = ballast.open(url).load()
            times["ballast"].append(time.perf_counter() - before)
            if {name: hashlib.sha256(array).digest() for name, array in loaded.items()} != expected:
                sys.exit("the bytes differ")
            del loaded
            times["curl"].append(fetch_with_curl(url, size))
        print(f"bench/remote_vs_curl.py --repetitions {options.repetitions} --gigabytes {options.gigabytes:g}")
        print(f"{os.cpu_count()} cores, nginx on the same; {size / 1e9:.2f} GB on {CONNECTIONS} connections; median (min)\n")
        for name, all_times in times.items():
            median = statistics.median(all_times)
            ratio = statistics.median(times["curl"]) / median
            print(f"{name:<8} {median * 1e3:6.0f} ms ({min(all_times) * 1e3:.0f} ms)  {size / median / 1e9:5.2f} GB/s  {ratio:.2f}x")


if __name__ == "__main__":
    main()
