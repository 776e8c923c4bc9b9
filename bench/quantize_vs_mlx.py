#!/usr/bin/env python3
"""Times quantizing 2 GiB of BF16 to 4 bits, SafeTensors in and an MLX directory out, with this program and with mlx on the CPU.

Turn by turn in one run, the source in the page cache, nobody waits for the disk, and nothing is validated. Ours is the whole
process, mlx is timed from load to saved file in a process that has imported it before. Both must give the same codes, scales
and biases. Then a 4 GiB model is quantized with `search`, and the memory that takes is watched.
"""

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
from load_vs_peers import machine, make_header, prepare, watch_memory, write_file

ROOT = Path(__file__).resolve().parents[1]
LEAST = 5.0  # how many times as fast as mlx
MOST_ANONYMOUS = 384 << 20
MLX = """
import sys, time
import mlx.core as mx
mx.set_default_device(mx.cpu)
print("ready", flush=True)
source, target = sys.stdin.readline().split()
start = time.perf_counter_ns()
out = {}
for name, weight in mx.load(source).items():
    if weight.ndim == 2:
        packed, scales, biases = mx.quantize(weight, group_size=64, bits=4)
        base = name.removesuffix(".weight")
        out |= {name: packed, base + ".scales": scales, base + ".biases": biases}
    else:
        out[name] = weight
mx.save_safetensors(target, out, metadata={"format": "mlx"})
print(time.perf_counter_ns() - start, flush=True)
"""


def make_file(path, copies=1):
    """Normally distributed weights, as the decoder of load_vs_peers.py."""
    text, end = make_header(copies)
    block = numpy.random.default_rng(1).normal(0, 0.02, 16 << 20).astype(numpy.float32)
    block = (block.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()
    return write_file(path, text, end, block)


def ours(program, source, target):
    start = time.perf_counter_ns()
    command = [program, "quantize", source, target, "--format", "mlx", "--method", "rtn", "--bits", "4"]
    subprocess.run([*command, "--group-size", "64", "--no-sync", "--json"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter_ns() - start


def theirs(python, source, target):
    with subprocess.Popen([python, "-c", MLX], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        prepare(source, "warm")
        process.stdin.write(f"{source} {target}\n")
        process.stdin.flush()
        return int(process.stdout.readline())


def check_same(a, b):
    import mlx.core as mx

    left, right = mx.load(a), mx.load(b)
    assert left.keys() == right.keys()
    for name, array in left.items():
        if not mx.array_equal(array.view(mx.uint16), right[name].view(mx.uint16)):
            sys.exit(f"{name} differs from mlx")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/ballast", type=Path)
    parser.add_argument("--folder", help="where to put the files, on a real disk (default: the system's temporary folder)")
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    times = {"ballast": [], "mlx": []}
    with tempfile.TemporaryDirectory(prefix="ballast-", dir=options.folder) as folder:
        source = make_file(os.path.join(folder, "model.safetensors"))
        targets = {"ballast": os.path.join(folder, "ours"), "mlx": os.path.join(folder, "theirs.safetensors")}
        for repetition in range(options.repetitions + 1):  # the first is for warming up
            shutil.rmtree(targets["ballast"], ignore_errors=True)
            Path(targets["mlx"]).unlink(missing_ok=True)
            os.sync()
            prepare(source, "warm")
            spent = {"ballast": ours(options.program, source, targets["ballast"]), "mlx": theirs(sys.executable, source, targets["mlx"])}
            if repetition == 0:
                check_same(os.path.join(targets["ballast"], "model.safetensors"), targets["mlx"])
            else:
                for side, ns in spent.items():
                    times[side].append(ns)
        size = os.path.getsize(source)
        for path in targets.values():
            shutil.rmtree(path, ignore_errors=True)
        os.remove(source)
        large = make_file(os.path.join(folder, "large.safetensors"), copies=3)
        runs = {}
        for form in ("parquet", "mlx"):
            command = [options.program, "quantize", large, os.path.join(folder, form), "--format", form, "--group-size", "64", "--json"]
            runs[form] = watch_memory(command)
        large_size = os.path.getsize(large)

    print(shlex.join(["bench/quantize_vs_mlx.py", *sys.argv[1:]]))
    print(f"{machine()}; {size / (1 << 30):.2f} GiB of BF16 to 4 bits in groups of 64; median (min) of {options.repetitions}, in turns\n")
    base = statistics.median(times["ballast"])
    for side, title in (("ballast", "ballast quantize --method rtn"), ("mlx", "mx.load, mx.quantize, mx.save")):
        median = statistics.median(times[side])
        print(f"{title:<30} {median / 1e6:7.0f} ms ({min(times[side]) / 1e6:.0f} ms)  {size / median:6.2f} GB/s  {median / base:5.2f}x")
    print()
    for form, (peak, seconds, report) in runs.items():
        print(f"search, {large_size / (1 << 30):.2f} GiB to {form}, synced: {seconds:.1f} s, peak RssAnon {peak / (1 << 20):.0f} MiB of "
              f"{MOST_ANONYMOUS >> 20}, cosine {report['cosine_similarity']:.5f}")  # fmt: skip
    ratio = statistics.median(times["mlx"]) / base
    if ratio < LEAST:
        sys.exit(f"{ratio:.2f} times as fast as mlx, less than {LEAST}")
    if max(peak for peak, _, _ in runs.values()) > MOST_ANONYMOUS:
        sys.exit("quantizing took more memory than its limit")


if __name__ == "__main__":
    main()
