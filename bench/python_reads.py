#!/usr/bin/env python3
"""Times what Python sees of one file of 2 GiB: opening it, taking an array, and reading with one thread and with two.

The two threads read two tensors, the one thread reads both, turn by turn; the copies are compared with the map.
"""

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "build/release/python"))
import ballast  # noqa: E402
from load_peers import wake_memory  # noqa: E402

SIZE = 2 << 30
READ = 256 << 20


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def timed(work):
    before = time.perf_counter()
    made = work()
    return made, time.perf_counter() - before


def read(model, names):
    return [model[name].numpy(copy=True) for name in names]


def read_on_threads(model, names):
    threads = [threading.Thread(target=read, args=(model, [name])) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    names = ["a", "b"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        block = numpy.random.default_rng(1).integers(0, 256, READ, numpy.uint8)
        ballast.save({name: block for name in [*names, *(f"more{i}" for i in range(SIZE // READ - 2))]}, path, sync=False)
        ballast.open(path).close()
        before = resident()
        opened = [timed(lambda: ballast.open(path)) for _ in range(100)]
        taken = [timed(lambda: model["b"].numpy()) for model, _ in opened]
        grown = (resident() - before) / len(opened)
        model = opened[0][0]
        assert all((copy == block).all() for copy in read(model, names))
        times = {1: [], 2: []}
        for _ in range(options.repetitions):
            for count, work in ((1, read), (2, read_on_threads)):
                wake_memory(READ // 4 * 10)
                times[count].append(timed(lambda: work(model, names))[1])
        one, two = (statistics.median(times[count]) for count in (1, 2))
        print(f"bench/python_reads.py --repetitions {options.repetitions}")
        print(f"{os.cpu_count()} cores; {path.stat().st_size / (1 << 30):.2f} GiB in the page cache; medians\n")
        print(f"open            {statistics.median(ns for _, ns in opened) * 1e6:6.0f} us")
        print(f"take an array   {statistics.median(ns for _, ns in taken) * 1e6:6.0f} us more")
        print(f"memory of both  {grown / 1e3:6.0f} kB")
        print(f"read 512 MiB    {one * 1e3:6.0f} ms on one thread, {two * 1e3:.0f} ms on two: {one / two:.2f}x")


if __name__ == "__main__":
    main()
