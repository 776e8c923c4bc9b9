#!/usr/bin/env python3
"""Times decoding a 4 GiB DeepSeek-shaped FP8 model to BF16, beside copying its bytes.

Runs of the program, turn by turn, with the source in the page cache and without waiting for the disk. Speed is bytes read and
written per second, as decoding writes twice what it reads. The values of one weight of each shape are compared with those of
numpy. At most one output exists at a time.
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

import ml_dtypes
import numpy
from load_vs_peers import machine, prefix, prepare, watch_memory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))
from layouts import DTYPES  # noqa: E402

MOST_ANONYMOUS = 384 << 20
LEAST = 0.8  # of the speed of a copy
BLOCK = 128
COPY = "convert, FP8 copied"
HIDDEN, INTERMEDIATE, EXPERTS = 7168, 2048, 8
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK], "activation_scheme": "dynamic"},
}


def layer_shapes():
    """The matrices of one layer; 576 rows are not a multiple of the block."""
    yield "self_attn.q_a_proj", (1536, HIDDEN)
    yield "self_attn.q_b_proj", (24576, 1536)
    yield "self_attn.kv_a_proj_with_mqa", (576, HIDDEN)
    yield "self_attn.kv_b_proj", (32768, 512)
    yield "self_attn.o_proj", (HIDDEN, 16384)
    for expert in range(EXPERTS):
        for name in ("gate_proj", "up_proj"):
            yield f"mlp.experts.{expert}.{name}", (INTERMEDIATE, HIDDEN)
        yield f"mlp.experts.{expert}.down_proj", (HIDDEN, INTERMEDIATE)


def make_model(folder, size):
    """A shard for each layer, until there are `size` bytes."""
    random = numpy.random.default_rng(1)
    codes = random.integers(0, 256, 64 << 20, dtype=numpy.uint8)
    codes[codes & 0x7F == 0x7F] = 0x38  # not NaN
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    index, total, layer = {}, 0, 0
    while total < size:
        header, end, pieces, file = {}, 0, [], f"model-{layer:05}.safetensors"
        for name, (rows, columns) in layer_shapes():
            blocks = (-(-rows // BLOCK), -(-columns // BLOCK))
            scales = random.uniform(1e-4, 2e-4, blocks).astype(numpy.float32)
            for suffix, dtype, shape, data in (
                ("weight", "F8_E4M3", (rows, columns), None),
                ("weight_scale_inv", "F32", blocks, scales.tobytes()),
            ):
                bytes_ = rows * columns if data is None else len(data)
                key = f"model.layers.{layer}.{name}.{suffix}"
                header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + bytes_]}
                pieces.append((bytes_, data))
                index[key], end = file, end + bytes_
        with open(folder / file, "wb") as out:
            out.write(prefix(header, align=True))
            for bytes_, data in pieces:
                for begin in range(0, bytes_ if data is None else 0, codes.nbytes):
                    out.write(codes[: min(codes.nbytes, bytes_ - begin)].data)
                out.write(data or b"")
            out.flush()
            os.fdatasync(out.fileno())
        total, layer = total + end, layer + 1
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}))


def size_of(folder):
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def check_values(source, decoded):
    """Compare one weight of each shape in the first layer, bit by bit."""

    def read(folder, name):
        with open(sorted(folder.glob("*.safetensors"))[0], "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entry = json.loads(file.read(length))[name]
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            return numpy.frombuffer(file.read(end - begin), DTYPES[entry["dtype"]]).reshape(entry["shape"])

    for name, (rows, columns) in list(layer_shapes())[:8]:
        weight = f"model.layers.0.{name}.weight"
        scales = read(source, f"{weight}_scale_inv")
        codes = read(source, weight).astype(numpy.float32)
        expected = codes * numpy.repeat(numpy.repeat(scales, BLOCK, 0)[:rows], BLOCK, 1)[:, :columns]
        found = read(decoded, weight)
        if not numpy.array_equal(found.view(numpy.uint16), expected.astype(ml_dtypes.bfloat16).view(numpy.uint16)):
            sys.exit(f"{weight} differs from numpy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/ballast", type=Path)
    parser.add_argument("--folder", help="where to put the files, three times the size (default: the system's temporary folder)")
    parser.add_argument("--size", type=float, default=4, help="of the model in GiB (default: 4)")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ballast-", dir=options.folder) as temporary:
        folder = Path(temporary)
        source, out = folder / "fp8", folder / "out"
        make_model(source, options.size * (1 << 30))

        def run(command, *arguments):
            shutil.rmtree(out, ignore_errors=True)
            os.sync()
            for file in source.glob("*.safetensors"):
                prepare(str(file), "warm")
            return watch_memory([options.program, command, source, out, *arguments, "--no-sync", "--json"])

        rows = {
            COPY: ("convert",),
            "convert --dtype bf16": ("convert", "--dtype", "bf16"),
            "dequantize --dtype bf16": ("dequantize", "--dtype", "bf16"),
        }
        seconds = {title: [] for title in rows}
        peaks, moved = dict.fromkeys(rows, 0), {}
        for repetition in range(options.repetitions + 1):  # the first is for warming up
            for title, arguments in rows.items():
                peak, spent, _ = run(*arguments)
                peaks[title] = max(peaks[title], peak)
                moved[title] = size_of(source) + size_of(out)
                if repetition > 0:
                    seconds[title].append(spent)
                elif "bf16" in arguments:
                    check_values(source, out)
        size = size_of(source)

    print(shlex.join(["bench/decode_vs_copy.py", *sys.argv[1:]]))
    print(f"{machine()}; {size / (1 << 30):.2f} GiB of F8_E4M3 in blocks of {BLOCK} x {BLOCK}; median (min) of {options.repetitions}, in turns\n")
    speeds = {title: moved[title] / statistics.median(times) for title, times in seconds.items()}
    copied = speeds[COPY]
    for title, times in seconds.items():
        print(f"{title:<26} {statistics.median(times):5.2f} s ({min(times):.2f} s)  {moved[title] / (1 << 30):5.2f} GiB moved  "
              f"{speeds[title] / 1e9:5.2f} GB/s  {speeds[title] / copied:4.2f} of a copy  peak RssAnon {peaks[title] >> 20:3} MiB")  # fmt: skip
    if min(speeds.values()) < LEAST * copied:
        sys.exit(f"decoding has less than {LEAST} of the speed of copying")
    if max(peaks.values()) > MOST_ANONYMOUS:
        sys.exit("decoding took more memory than its limit")


if __name__ == "__main__":
    main()
