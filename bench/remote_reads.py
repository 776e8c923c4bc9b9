#!/usr/bin/env python3
"""Counts what reading parts of a model on a server takes: bytes, requests, time with a delay before each response, and memory."""

import argparse
import mmap
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy
import safetensors.numpy

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "build/release/python"), str(ROOT / "tests/python")]
import ballast  # noqa: E402
from nginx_server import nginx  # noqa: E402
from processes import peak_memory  # noqa: E402
from range_server import RangeServer  # noqa: E402
from safetensors_bytes import prefix  # noqa: E402

ROWS, COLUMNS = 65_536, 4_096


def write_large(path):
    """2 GiB of BF16 in four tensors, with holes."""
    nbytes = ROWS * COLUMNS * 2
    header = {f"layers.{i}.weight": {"dtype": "BF16", "shape": [ROWS, COLUMNS], "data_offsets": [i * nbytes, (i + 1) * nbytes]} for i in range(4)}
    with open(path, "wb") as file:
        start = file.write(prefix(header))
        file.truncate(start + 4 * nbytes)


def count(server, what, needed, work):
    server.forget()
    before = time.perf_counter()
    work()
    seconds = time.perf_counter() - before
    over = f"{server.sent / needed:6.3f}x" if needed else ""
    print(f"{what:<34} {len(server.requests):8} {server.sent:14,} {over:>8} {seconds * 1e3:9.0f} ms")


def part_reads(folder):
    path = folder / "large.safetensors"
    write_large(path)
    with RangeServer() as server, open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        server.files["/large.safetensors"] = content
        server.etags["/large.safetensors"] = '"large"'
        uri = f"{server.url}/large.safetensors"
        print(f"{'of a file of 2 GiB':<34} {'requests':>8} {'bytes':>14} {'/needed':>8} {'time':>12}")
        opened = []
        count(server, "open", 0, lambda: opened.append(ballast.open(uri)))
        tensor = opened[0]["layers.1.weight"]
        count(server, "one tensor of 512 MiB", ROWS * COLUMNS * 2, lambda: tensor[...])
        count(server, "1000 rows", 1000 * COLUMNS * 2, lambda: tensor[500:1500])
        count(server, "one row", COLUMNS * 2, lambda: tensor[7])
        count(server, "every other of 1000 rows", 500 * COLUMNS * 2, lambda: tensor[:1000:2])
        count(server, "2500 of 4096 columns of 1000 rows", 1000 * 2500 * 2, lambda: tensor[:1000, :2500])
        server.files.clear()


def small_tensors(milliseconds):
    tensors = {f"t{i}": numpy.full(64, i, numpy.float32) for i in range(10_000)}
    with RangeServer({"/many.safetensors": safetensors.numpy.save(tensors)}) as server:
        server.delay = milliseconds / 1e3
        uri = f"{server.url}/many.safetensors"
        print(f"\n10,000 tensors, {milliseconds:g} ms before each response")
        before = time.perf_counter()
        loaded = ballast.open(uri).load()
        all_together = time.perf_counter() - before
        if any((loaded[name] != array).any() for name, array in tensors.items()):
            sys.exit("the values differ")
        print(f"{'load()':<34} {len(server.requests):8} requests  {all_together:9.2f} s")
        opened, some = ballast.open(uri), 500
        server.forget()
        before = time.perf_counter()
        for name in [f"t{9_999 - i}" for i in range(some)]:
            opened[name][...]
        each = (time.perf_counter() - before) / some
        print(f"{'one by one':<34} {10_000:8} requests  {each * 10_000:9.2f} s, estimated from {some}: {each * 10_000 / all_together:.0f}x")


def memory(folder):
    generator = numpy.random.default_rng(1)
    weights = {f"layers.{i}.weight": generator.standard_normal((8192, 4096), dtype=numpy.float32) for i in range(10)}
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    size = (folder / "model.safetensors").stat().st_size
    ballast_program = ROOT / "build/release/ballast"
    print(f"\npeak RssAnon, of {size / 1e9:.2f} GB")
    with nginx(folder) as url:
        uri = f"{url}/model.safetensors"
        for name, arguments in {
            "quantize --method rtn": ["quantize", uri, folder / "q", "--method", "rtn"],
            "convert --dtype bf16": ["convert", uri, folder / "c.safetensors", "--dtype", "bf16"],
            "verify --values --sha256": ["verify", uri, "--values", "--sha256"],
            "download": ["download", uri, folder / "d"],
        }.items():
            print(f"{name:<34} {peak_memory([str(each) for each in [ballast_program, *arguments]]) / (1 << 20):8.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=20, metavar="MS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"bench/remote_reads.py --delay {options.delay:g}\n{os.cpu_count()} cores, the servers on the same\n")
        part_reads(Path(folder))
        small_tensors(options.delay)
        memory(Path(folder))


if __name__ == "__main__":
    main()
