#!/usr/bin/env python3
"""Times what the Python package does beside its peers, turn by turn in one run, and prints one table of ratios.

Every figure is of a process of its own that has imported all it needs, and what comes of the work is compared. Run bench/peers,
which installs the peers first.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
from load_vs_peers import machine, make_header, prefix, prepare, write_file

TASKS = Path(__file__).with_name("peer_tasks.py")
PEERS = ("safetensors", "mlx", "fastsafetensors", "runai")


class Row:
    """One task, with the times that each took."""

    def __init__(self, title, task, source, peers, state="warm"):
        self.title, self.task, self.source, self.state = title, task, source, state
        self.times = {name: [] for name in ("ballast", *peers)}
        self.missing = {}

    def measure(self, folder, is_counted):
        checksums = {}
        for name, times in self.times.items():
            answer = None if name in self.missing else self.ask(name, folder)
            if answer is None:
                continue
            checksums[name] = answer["checksum"]
            if is_counted:
                times.append(answer["ns"])
        if len(set(checksums.values())) > 1:
            sys.exit(f"{self.title}: the results differ: {checksums}")

    def ask(self, name, folder):
        target = os.path.join(folder, "out.safetensors" if self.task == "save" else "out")
        command = [sys.executable, TASKS, name, self.task]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as process:
            ready = process.stdout.readline()
            if ready == "ready\n":
                prepare(self.source, self.state)
                answer, errors = process.communicate(f"{self.source}\t{target}\n")
            else:
                answer, errors = ready, process.stderr.read()
        for made in (target, target + ".safetensors"):
            shutil.rmtree(made, ignore_errors=True)
            Path(made).unlink(missing_ok=True)
        try:
            answer = json.loads(answer.splitlines()[-1])
        except (IndexError, json.JSONDecodeError):
            sys.exit(f"{self.title}: {name} gave no answer:\n{errors}")
        if "missing" in answer:
            self.missing[name] = answer["missing"]
            return None
        return answer

    def median(self, name):
        return statistics.median(self.times[name])

    def ratio(self, name):
        return self.median(name) / self.median("ballast") if self.times.get(name) else None


def make_decoder(path):
    """Normal numbers of BF16, shaped as the decoder of load_vs_peers.py."""
    header, size = make_header()
    return write_file(path, header, size, (normal_numbers().view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())


def make_vectors(path, count, length):
    """`count` tensors of F32, of `length` normal numbers each."""
    places = [[i * length * 4, (i + 1) * length * 4] for i in range(count)]
    header = {f"layers.{i}.weight": {"dtype": "F32", "shape": [length], "data_offsets": place} for i, place in enumerate(places)}
    return write_file(path, prefix(header, align=True), count * length * 4, normal_numbers().tobytes())


def normal_numbers():
    return numpy.random.default_rng(1).normal(0, 0.02, 4 << 20).astype(numpy.float32)


def duration(ns):
    return f"{ns / 1e3:.0f} us" if ns < 1e6 else f"{ns / 1e6:.1f} ms" if ns < 1e8 else f"{ns / 1e6:.0f} ms"


def print_table(rows, repetitions, size):
    print(shlex.join(["bench/peers", *sys.argv[1:]]))
    print(f"{machine()}; {size / (1 << 30):.2f} GiB of BF16; median of {repetitions}, taken in turns, results compared")
    print("how many times as long as ballast each takes\n")
    lines = [("", "ballast", *PEERS)]
    for row in rows:
        ratios = [row.ratio(peer) for peer in PEERS]
        lines.append((row.title, duration(row.median("ballast")), *("-" if ratio is None else f"{ratio:.2f}x" for ratio in ratios)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print(line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:])), sep="  ")
    missing = {name: why for row in rows for name, why in row.missing.items()}
    for name, why in missing.items():
        print(f"\n{name}: {why}")


def draw(rows, path):
    """A bar for each ratio, longer is slower than ballast; the line is ballast."""
    bars = [(row.title, peer, row.ratio(peer)) for row in rows for peer in PEERS if row.ratio(peer)]
    longest = max(ratio for *_, ratio in bars)
    height, left, unit = 22, 320, 360 / longest
    parts, top, before = [], 34, None
    colours = dict(zip(PEERS, ("#d08a2e", "#7a6fb0", "#4f8f6f", "#a0616a")))
    for title, peer, ratio in bars:
        if title != before:
            parts.append(f'<text x="12" y="{top + 15}" font-weight="bold">{title}</text>')
            before = title
        width = ratio * unit
        parts.append(f'<text x="{left - 8}" y="{top + 15}" text-anchor="end">{peer}</text>')
        parts.append(f'<rect x="{left}" y="{top + 3}" width="{width:.1f}" height="{height - 7}" fill="{colours[peer]}"/>')
        parts.append(f'<text x="{left + width + 6:.1f}" y="{top + 15}">{ratio:.1f}x</text>')
        top += height
    line = f'<line x1="{left + unit:.1f}" y1="28" x2="{left + unit:.1f}" y2="{top}" stroke="#333" stroke-dasharray="4 3"/>'
    head = f'<text x="{left + unit:.1f}" y="20" text-anchor="middle">ballast</text>'
    size = f'width="{left + 440}" height="{top + 12}"'
    body = "\n".join([head, *parts, line])
    style = 'font-family="sans-serif" font-size="13" fill="#333"'
    Path(path).write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="where to put the files, on a real disk (default: the system's temporary folder)")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--rows", help="only those whose titles contain this")
    parser.add_argument("--svg", help="also draw a chart, into this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ballast-", dir=options.folder) as folder:
        model = make_decoder(os.path.join(folder, "model.safetensors"))
        many = make_vectors(os.path.join(folder, "many.safetensors"), 10_000, 1024)
        wide = make_vectors(os.path.join(folder, "wide.safetensors"), 8, 16 << 20)
        rows = [
            Row("open, 146 tensors", "open", model, ["safetensors", "mlx"]),
            Row("open, 10,000 tensors", "open", many, ["safetensors", "mlx"]),
            Row("every array, 10,000 tensors", "lazy", many, ["safetensors"]),
            Row("load, in the page cache", "load", model, PEERS),
            Row("load, from the disk", "load", model, PEERS, "cold"),
            Row("64 columns of 2,048", "slice", model, ["safetensors"]),
            Row("save", "save", model, ["safetensors", "mlx"]),
            Row("F32 to BF16", "convert", wide, ["safetensors", "mlx"]),
            Row("quantize to 4 bits", "quantize", model, ["mlx"]),
        ]
        rows = [row for row in rows if options.rows is None or options.rows in row.title]
        for repetition in range(options.repetitions + 1):  # the first is for warming up
            for row in rows:
                row.measure(folder, repetition > 0)
        size = os.path.getsize(model)
    print_table(rows, options.repetitions, size)
    if options.svg:
        draw(rows, options.svg)


if __name__ == "__main__":
    main()
