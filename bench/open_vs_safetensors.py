#!/usr/bin/env python3
"""Times opening SafeTensors files with this library and with the safetensors package, turn by turn in one run.

Both must find the same tensors: names, dtypes and shapes in the order of the data, which as it is packed says where
everything lies. The data itself is a hole in the file (truncate), since opening never reads it.
"""

import argparse
import hashlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy  # imported here so that safetensors need not do so while it is timed # noqa: F401
from safetensors import SafetensorError, safe_open

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))
from safetensors_bytes import prefix  # noqa: E402

STRIDE = 7919  # visits all names, in no order that a cache would like; the driver's too
MOST_GROWTH = 10e6  # bytes of memory for a KiB of a 4 GiB file
MOST_SIZE_RATIO = 1.5  # of a 4 GiB file's time to a 4 MiB file's


def tensor_name(i):
    return f"model.layers.{i // 128}.mlp.experts.{i % 128}.down_proj.weight"


def make_file(path, count, shape, overlapping=False):
    size = 2 * shape[0] * shape[1]
    step = 0 if overlapping else size
    text = ",".join(
        f'"{tensor_name(i)}":{{"dtype":"F16","shape":[{shape[0]},{shape[1]}],"data_offsets":[{i * step},{i * step + size}]}}'
        for i in range(count)
    )
    with open(path, "wb") as file:
        start = file.write(prefix(f"{{{text}}}"))
        file.truncate(start + (count - 1) * step + size)
    return path


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


class Ballast:
    """The driver, in a process of its own that times itself."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def run(self, command, *words):
        print(command, *words, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


class Safetensors:
    """The same commands by the package, in this process."""

    def run(self, command, *words):
        return getattr(self, command)(*words)

    @staticmethod
    def checksum(file):
        digest = hashlib.sha256()
        for name in file.offset_keys():
            tensor = file.get_slice(name)
            digest.update(f"{name} {tensor.get_dtype()} {tensor.get_shape()}\n".encode())
        return digest.hexdigest()

    def open(self, path):
        before = time.perf_counter_ns()
        try:
            file = safe_open(path, framework="np")
        except SafetensorError as error:
            return {"ns": time.perf_counter_ns() - before, "error": str(error)}
        ns = time.perf_counter_ns() - before
        return {"ns": ns, "tensors": len(file.keys()), "checksum": self.checksum(file)}

    def lookup(self, path):
        file = safe_open(path, framework="np")
        names = file.offset_keys()
        names = [names[i * STRIDE % len(names)] for i in range(len(names))]
        before = time.perf_counter_ns()
        for name in names:
            file.get_slice(name)
        ns = time.perf_counter_ns() - before
        return {"ns": ns, "tensors": len(names), "checksum": self.checksum(file)}

    def read1k(self, path, name):
        memory = resident()
        before = time.perf_counter_ns()
        file = safe_open(path, framework="np")
        part = file.get_slice(name)[0:1, 0:512]
        ns = time.perf_counter_ns() - before
        memory = resident() - memory
        return {"ns": ns, "rss": memory, "tensors": len(file.keys()), "checksum": hashlib.sha256(part.tobytes()).hexdigest()}


class Row:
    def __init__(self, title, *command):
        self.title = title
        self.command = command
        self.ours = []
        self.theirs = []

    def add(self, ours, theirs):
        refused = "error" in ours and "error" in theirs
        same = refused or (ours.get("checksum"), ours.get("tensors")) == (theirs.get("checksum"), theirs.get("tensors"))
        if not same:
            sys.exit(f"{self.title}: results differ:\n  ballast     {ours}\n  safetensors {theirs}")
        self.ours.append(ours["ns"])
        self.theirs.append(theirs["ns"])

    def median(self):
        return statistics.median(self.ours)

    def figures(self):
        peer = {"median_ns": statistics.median(self.theirs), "min_ns": min(self.theirs)}
        mine = {"median_ns": self.median(), "min_ns": min(self.ours)}
        ratio = peer["median_ns"] / mine["median_ns"]
        return {"title": self.title, "ballast": mine, "safetensors": peer, "ratio": round(ratio, 2)}


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown CPU")
    return f"{model}, {os.cpu_count()} cores"


def show_time(ns):
    return f"{ns / 1e6:.2f} ms" if ns >= 1e6 else f"{ns / 1e3:.1f} µs"


def print_table(result):
    print(result["command"])
    print(f"{result['machine']}; median (min) of {result['repetitions']}, taken in turns; data sparse, headers cached\n")
    lines = [("", "ballast", "safetensors", "ratio")]
    for row in result["rows"]:
        cells = [f"{show_time(row[who]['median_ns'])} ({show_time(row[who]['min_ns'])})" for who in ("ballast", "safetensors")]
        lines.append((row["title"], *cells, f"{row['ratio']:.1f}x"))
    growth = [f"{result['rss'][who] / 1e6:.2f} MB" for who in ("ballast", "safetensors")]
    lines.append(("memory for 1 KiB of 4 GiB", *growth, ""))
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    for line in lines:
        print(line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:])), sep="  ")
    print(f"\n4 GiB opens in {result['size_ratio']:.2f} of the time of 4 MiB (at most {MOST_SIZE_RATIO})")
    print("a lookup is find() in Ballast and get_slice(), a Python call, in safetensors")


def measure(driver, folder, repetitions):
    def file(name, *arguments, **options):
        return make_file(os.path.join(folder, f"{name}.safetensors"), *arguments, **options)

    large = file("4gib", 1024, (2048, 1024))
    small = file("4mib", 1024, (2, 1024))
    rows = [
        Row("open, 100,000 tensors", "open", file("100000", 100_000, (32, 64))),
        Row("open, 1,000 tensors", "open", file("1000", 1_000, (32, 64))),
        Row("open, 4 GiB in 1,024 tensors", "open", large),
        Row("open, 4 MiB in 1,024 tensors", "open", small),
        Row("refuse 100,000 overlapping", "open", file("overlapping", 100_000, (32, 64), overlapping=True)),
        Row("10,000 lookups", "lookup", file("10000", 10_000, (32, 64))),
    ]
    name = tensor_name(1023)
    theirs = Safetensors()
    with Ballast(driver) as fresh:  # memory that earlier work has left behind would hide what this takes
        mine, peer = fresh.run("read1k", large, name), theirs.run("read1k", large, name)
    Row("1 KiB of 4 GiB").add(mine, peer)
    with Ballast(driver) as ours:
        for row in rows:
            for side in (ours, theirs):
                side.run(*row.command)
        for _ in range(repetitions):
            for row in rows:
                row.add(ours.run(*row.command), theirs.run(*row.command))
    by_title = {row.title: row for row in rows}
    return {
        "command": shlex.join(["bench/open_vs_safetensors.py", *sys.argv[1:]]),
        "machine": machine(),
        "repetitions": repetitions,
        "rows": [row.figures() for row in rows],
        "size_ratio": by_title["open, 4 GiB in 1,024 tensors"].median() / by_title["open, 4 MiB in 1,024 tensors"].median(),
        "rss": {"ballast": mine["rss"], "safetensors": peer["rss"]},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", default=ROOT / "build/release/bench/open_driver", help="the program built from open_driver.cc")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print figures for a machine to read")
    options = parser.parse_args()
    if not os.access(options.driver, os.X_OK):
        parser.error(f"no driver at {options.driver}: build the release preset, or name it with --driver")
    with tempfile.TemporaryDirectory(prefix="ballast-") as folder:
        result = measure(options.driver, folder, options.repetitions)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)
    if result["size_ratio"] > MOST_SIZE_RATIO:
        sys.exit(f"opening depends on the size of the data: {result['size_ratio']:.2f} > {MOST_SIZE_RATIO}")
    if result["rss"]["ballast"] > MOST_GROWTH:
        sys.exit(f"memory grew by {result['rss']['ballast']} bytes, at most {MOST_GROWTH:.0f} are allowed")


if __name__ == "__main__":
    main()
