#!/usr/bin/env python3
"""Times saving 2 GiB of tensors from memory with this library and with the safetensors package, turn by turn in one run; then
converts a 4 GiB model from F32 to BF16 and watches the memory that takes.

The files written must be the same, byte for byte. safetensors does not wait for the disk, so the comparison is with fsync off;
with it, what is timed is mostly the disk. Before every save the file of the last one is removed and the disk is idle.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ml_dtypes  # noqa: F401  numpy needs it to know bfloat16
import numpy
from load_vs_peers import machine, make_file, prefix, watch_memory
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[1]
MOST_ANONYMOUS = 384 << 20


class Driver:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def save(self, path, mode):
        print(path, mode, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def measure_saving(driver, folder, repetitions):
    model = make_file(os.path.join(folder, "model.safetensors"))
    arrays = load_file(model)
    ours = Driver(driver, model)
    paths = {side: os.path.join(folder, f"{side}.safetensors") for side in ("ballast", "safetensors", "synced")}

    def theirs(path):
        start = time.perf_counter_ns()
        save_file(arrays, path)
        return time.perf_counter_ns() - start

    sides = {
        "ballast": lambda path: ours.save(path, "nosync"),
        "safetensors": theirs,
        "synced": lambda path: ours.save(path, "sync"),
    }
    times = {side: [] for side in sides}
    for repetition in range(repetitions + 1):  # the first is for warming up
        for side, save in sides.items():
            if os.path.exists(paths[side]):
                os.remove(paths[side])
            os.sync()
            spent = save(paths[side])
            if repetition > 0:
                times[side].append(spent)
    ours.close()
    for side in ("safetensors", "synced"):
        subprocess.run(["cmp", paths["ballast"], paths[side]], check=True)
    size = os.path.getsize(model)
    for path in (model, *paths.values()):
        os.remove(path)
    return size, times


def make_f32(path, size):
    """F32 in 64 tensors, as a hole that reads as zeros in all but the first MiB of each, so that the disk is not what is timed."""
    count, each = 64, size // 64
    header = {f"layers.{i}.weight": {"dtype": "F32", "shape": [each // 4096, 1024], "data_offsets": [i * each, (i + 1) * each]} for i in range(count)}
    values = numpy.random.default_rng(1).standard_normal(1 << 18, dtype=numpy.float32).tobytes()
    with open(path, "wb") as file:
        start = file.write(prefix(header, align=True))
        for i in range(count):
            file.seek(start + i * each)
            file.write(values)
        file.truncate(start + size)
    return path


def measure_conversion(program, folder, size):
    source = make_f32(os.path.join(folder, "f32.safetensors"), size)
    target = os.path.join(folder, "bf16.safetensors")
    peak, seconds, report = watch_memory([program, "convert", source, target, "--dtype", "bf16", "--json"])
    return {"seconds": seconds, "peak_rss_anon": peak, "read": os.path.getsize(source), "written": report["files"][0]["size"]}


def print_table(result):
    print(result["command"])
    print(f"{result['machine']}; {result['size'] / (1 << 30):.2f} GiB of BF16 in 146 tensors")
    print(f"median (min) of {result['repetitions']}, taken in turns, files compared\n")
    titles = {"ballast": "save", "safetensors": "safetensors save_file", "synced": "save, with fsync"}
    base = statistics.median(result["times"]["ballast"])
    for side, title in titles.items():
        times = result["times"][side]
        median = statistics.median(times)
        rate = f"{result['size'] / median:.2f} GB/s"
        print(f"{title:<22}  {median / 1e6:6.0f} ms ({min(times) / 1e6:.0f} ms)  {rate:>10}  {median / base:5.2f}x")
    conversion = result["conversion"]
    print(f"\nF32 to BF16, {conversion['read'] / (1 << 30):.0f} GiB read, {conversion['written'] / (1 << 30):.0f} GiB written and synced: "
          f"{conversion['seconds']:.1f} s, peak RssAnon {conversion['peak_rss_anon'] / (1 << 20):.0f} MiB of {MOST_ANONYMOUS >> 20}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=ROOT / "build/release", help="where the program and the benchmarks were built", type=Path)
    parser.add_argument("--folder", help="where to put the files, on a real disk (default: the system's temporary folder)")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print figures for a machine to read")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ballast-", dir=options.folder) as folder:
        size, times = measure_saving(options.build / "bench/save_driver", folder, options.repetitions)
        result = {
            "command": shlex.join(["bench/save_vs_safetensors.py", *sys.argv[1:]]),
            "machine": machine(),
            "repetitions": options.repetitions,
            "size": size,
            "times": times,
            "conversion": measure_conversion(options.build / "ballast", folder, 4 << 30),
        }
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)
    if statistics.median(times["ballast"]) > statistics.median(times["safetensors"]):
        sys.exit("saving is slower than safetensors")
    if result["conversion"]["peak_rss_anon"] > MOST_ANONYMOUS:
        sys.exit("the conversion took more memory than its limit")


if __name__ == "__main__":
    main()
