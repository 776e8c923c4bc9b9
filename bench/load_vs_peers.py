#!/usr/bin/env python3
"""Times loading a 2 GiB SafeTensors file into owned memory with this library and with its peers, turn by turn in one run.

Every load runs in a process of its own that is given fresh memory, times itself from opening to owned bytes, and hashes them
afterwards: all must agree. Warm means that the file is in the page cache, cold that it is not, both checked with mincore before
every load. A virtual machine's host may still have it cached, for everyone alike.
"""

import argparse
import ctypes
import json
import mmap
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))
from safetensors_bytes import prefix  # noqa: E402

PEERS = Path(__file__).with_name("load_peers.py")
LEAST = {"warm": 3.0, "cold": 1.5}  # how many times as fast as safetensors
STATES = ("warm", "cold")


def tensor_shapes(copies=1):
    """A decoder of 16 layers: 146 tensors; more copies have more layers."""
    yield "model.embed_tokens.weight", (65536, 2048)
    for layer in range(16 * copies):
        prefix = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}.{name}.weight", (2048,)
        for name, rows in (("q", 2048), ("k", 512), ("v", 512), ("o", 2048)):
            yield f"{prefix}.self_attn.{name}_proj.weight", (rows, 2048)
        yield f"{prefix}.mlp.gate_proj.weight", (8192, 2048)
        yield f"{prefix}.mlp.up_proj.weight", (8192, 2048)
        yield f"{prefix}.mlp.down_proj.weight", (2048, 8192)
    yield "model.norm.weight", (2048,)


def make_header(copies=1):
    """The beginning of a file of BF16, and the bytes of data that follow."""
    header, end = {}, 0
    for name, shape in tensor_shapes(copies):
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    return prefix(header, align=True), end


def write_file(path, header, size, block):
    """`size` bytes of one block after another, on the disk."""
    with open(path, "wb") as file:
        file.write(header)
        for begin in range(0, size, len(block)):
            file.write(block[: min(len(block), size - begin)])
        file.flush()
        os.fdatasync(file.fileno())
    return path


def make_file(path):
    text, end = make_header()
    random = numpy.random.default_rng(1)
    with open(path, "wb") as file:
        file.write(text)
        for begin in range(0, end, 64 << 20):
            values = min(64 << 20, end - begin) // 2
            file.write(random.integers(1, 1 << 16, values, dtype=numpy.uint16).data)
        file.flush()
        os.fdatasync(file.fileno())
    return path


def resident_share(file, size):
    """How much of the file is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = numpy.zeros((size + mmap.PAGESIZE - 1) // mmap.PAGESIZE, dtype=numpy.uint8)
    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as memory:
        view = numpy.frombuffer(memory, dtype=numpy.uint8)
        arguments = (ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(pages.ctypes.data))
        if libc.mincore(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        del view
    return float((pages & 1).mean())


def prepare(path, state):
    size = os.path.getsize(path)
    with open(path, "rb+", buffering=0) as file:
        if state == "warm":
            block = bytearray(8 << 20)
            while file.readinto(block):
                pass
        else:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        share = resident_share(file, size)
    if abs(share - (1 if state == "warm" else 0)) > 0.001:
        sys.exit(f"{share:.1%} of {path} is in the page cache, which is not {state}")


class Contender:
    """One way to load, with the times that it took."""

    def __init__(self, title, command, environment=None, cold_environment=None):
        self.title = title
        self.command = [str(word) for word in command]
        self.environment = {"warm": environment or {}, "cold": cold_environment or environment or {}}
        self.times = {state: [] for state in STATES}
        self.missing = None

    def load(self, path, state):
        """The answer of a process that loads once, or nothing if what it needs is not installed."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(self.command, env={**os.environ, **self.environment[state]}, **pipes) as process:
            ready = process.stdout.readline()
            if ready == "ready\n":
                prepare(path, state)
                answer, errors = process.communicate(path + "\n")
            else:
                answer, errors = ready, process.stderr.read()
        try:
            answer = json.loads(answer.splitlines()[-1])
        except (IndexError, json.JSONDecodeError):
            sys.exit(f"{self.title} gave no answer:\n{errors}")
        self.missing = answer.get("missing")
        if "error" in answer:
            sys.exit(f"{self.title}: {answer['error']}")
        return None if self.missing else answer


def contenders(driver):
    def peer(title, *arguments, **environments):
        return Contender(title, [sys.executable, PEERS, *arguments], **environments)

    direct, buffered = ({"FASTSAFETENSORS_ODIRECT": value} for value in "10")
    threads = {"RUNAI_STREAMER_FS_STRATEGY": "sync_buffered", "RUNAI_STREAMER_CONCURRENCY": str(os.cpu_count())}
    uring = {"RUNAI_STREAMER_FS_STRATEGY": "io_uring_direct", "RUNAI_STREAMER_FS_CHUNK_BYTESIZE": str(8 << 20)}
    return [
        Contender("ballast", [driver]),
        peer("safetensors, mmap", "safetensors", "mmap"),
        peer("safetensors, pread", "safetensors", "pread"),
        peer("fastsafetensors", "fastsafetensors"),
        peer("fastsafetensors, tuned", "fastsafetensors", 8, 16 << 20, environment=buffered, cold_environment=direct),
        peer("runai streamer", "runai"),
        peer("runai streamer, tuned", "runai", environment=threads, cold_environment=uring),
    ]


def measure(sides, path, repetitions):
    """Takes turns, so that whatever else the machine does falls on everyone."""
    reference = None
    for repetition in range(repetitions + 1):  # the first is for warming up
        for state in STATES:
            for side in sides:
                answer = None if side.missing else side.load(path, state)
                if answer is None:
                    continue
                reference = reference or answer
                if (answer["checksum"], answer["tensors"]) != (reference["checksum"], reference["tensors"]):
                    sys.exit(f"{side.title} loaded other bytes than {sides[0].title}")
                if repetition > 0:
                    side.times[state].append(answer["ns"])


def figures(sides, path):
    size = os.path.getsize(path)
    rows = []
    for side in sides:
        row = {"title": side.title}
        if side.missing:
            row["missing"] = side.missing
        for state in STATES if not side.missing else ():
            median = statistics.median(side.times[state])
            row[state] = {
                "median_ns": median,
                "min_ns": min(side.times[state]),
                "bytes_per_second": round(size / median * 1e9),
                "ratio": round(median / statistics.median(sides[0].times[state]), 2),
            }
        rows.append(row)
    return rows


def watch_memory(command):
    """The peak of RssAnon in bytes and the seconds that a command takes, and the JSON that it prints."""
    start, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as out, subprocess.Popen(command, stdout=out) as process:
        while process.poll() is None:
            with open(f"/proc/{process.pid}/status") as status:
                anonymous = [int(line.split()[1]) for line in status if line.startswith("RssAnon:")]
            peak = max(peak, *anonymous, 0)
            time.sleep(0.002)
        seconds = time.perf_counter() - start
        out.seek(0)
        report = json.load(out)
    if process.returncode != 0:
        sys.exit(process.returncode)
    return peak * 1024, seconds, report


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown CPU")
    return f"{model}, {os.cpu_count()} cores"


def print_table(result):
    print(result["command"])
    print(f"{result['machine']}; {result['filesystem']}; {result['size'] / (1 << 30):.2f} GiB of BF16 in {result['tensors']} tensors")
    print(f"median (min) of {result['repetitions']}, taken in turns, fresh memory, bytes compared; the host may cache what is cold\n")
    lines = [("", *(cell for state in STATES for cell in (state, "", "ratio")))]
    for row in result["rows"]:
        cells = []
        for state in STATES:
            if state in row:
                figure = row[state]
                time = f"{figure['median_ns'] / 1e6:.0f} ms ({figure['min_ns'] / 1e6:.0f} ms)"
                cells += [time, f"{figure['bytes_per_second'] / 1e9:.2f} GB/s", f"{figure['ratio']:.2f}x"]
            else:
                cells += ["not installed", "", ""]
        lines.append((row["title"], *cells))
    widths = [max(len(line[i]) for line in lines) for i in range(7)]
    for line in lines:
        print(line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:])), sep="  ")
    print()
    for row in result["rows"]:
        if "missing" in row:
            print(f"{row['title']}: {row['missing']}; see bench/requirements.txt")
    print("fastsafetensors is its nogds loader with paddle; tuned: 8 threads, 16 MiB blocks, O_DIRECT for a cold file only.")
    print("runai streamer is its C library, as its Python package needs torch; tuned: a buffered thread per core, cold io_uring.")


def shortfalls(rows):
    for row in rows[1:]:
        least = LEAST if row["title"].startswith("safetensors") else dict.fromkeys(STATES, 1.0)
        for state in STATES:
            if state in row and row[state]["ratio"] < least[state]:
                yield f"{state}: {row[state]['ratio']:.2f} of {row['title']}, less than {least[state]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", default=ROOT / "build/release/bench/load_driver", help="the program built from load_driver.cc")
    parser.add_argument("--folder", help="where to put the file, on a real disk (default: the system's temporary folder)")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print figures for a machine to read")
    options = parser.parse_args()
    if not os.access(options.driver, os.X_OK):
        parser.error(f"no driver at {options.driver}: build the release preset, or name it with --driver")
    with tempfile.TemporaryDirectory(prefix="ballast-", dir=options.folder) as folder:
        filesystem = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
        if filesystem in ("tmpfs", "ramfs"):
            parser.error(f"{folder} is memory, not a disk: choose another with --folder")
        path = make_file(os.path.join(folder, "model.safetensors"))
        sides = contenders(options.driver)
        measure(sides, path, options.repetitions)
        result = {
            "command": shlex.join(["bench/load_vs_peers.py", *sys.argv[1:]]),
            "machine": machine(),
            "filesystem": filesystem,
            "size": os.path.getsize(path),
            "tensors": sum(1 for _ in tensor_shapes()),
            "repetitions": options.repetitions,
            "rows": figures(sides, path),
        }
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)
    if missed := list(shortfalls(result["rows"])):
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
