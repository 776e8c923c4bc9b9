#!/usr/bin/env python3
"""Makes the files of this folder, and expected.json: what every front end must find in them.

Files are written by the reference, values come from NumPy and ml_dtypes. Of errors and metrics of quantization it is what the
Python package says, so that all front ends say the same; F6, which the reference cannot write, is written by hand.
"""

import hashlib
import json
import math
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors.numpy

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parents[1] / "build/release/python"), str(FOLDER.parent / "python")]
import ballast  # noqa: E402
from safetensors_bytes import length_bytes, prefix  # noqa: E402

DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16, "F16": np.float16, "I32": np.int32,
    "U32": np.uint32, "F32": np.float32, "C64": np.complex64, "F64": np.float64, "I64": np.int64, "U64": np.uint64,
    "BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
# Each is [start, stop, step], an index, or null for all of a dimension of [4, 3, 2].
SLICES = [[1], [-1], [[1, 3]], [None, 2], [[None, None, 2], [1, None]], [[None, None, -1], None, 0], [[5, 1, -2], [-2, 9], -1], [[3, 1]]]


def values_of(dtype):
    """24 values that are not all small and positive."""
    kind = np.dtype(DTYPES[dtype])
    if dtype == "BOOL":
        return (np.arange(24) % 3 == 0).reshape(4, 3, 2)
    if dtype == "C64":
        return (np.arange(24) - 1j * np.linspace(-2, 2, 24)).astype(kind).reshape(4, 3, 2)
    if kind.kind in "iu":
        ends = np.array([np.iinfo(kind).min, np.iinfo(kind).max], kind)
        return np.concatenate([ends, np.arange(22).astype(kind)]).reshape(4, 3, 2)
    if dtype == "F8_E8M0":
        return (2.0 ** np.arange(-12, 12)).astype(kind).reshape(4, 3, 2)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-3])
    return np.concatenate([special, np.linspace(-3, 3, 18)]).astype(kind).reshape(4, 3, 2)


def number(value):
    value = float(value)
    return value if math.isfinite(value) else str(value)


def tensor(dtype, values):
    made = {"dtype": dtype, "shape": list(values.shape), "hex": values.tobytes().hex()}
    made["slices"] = [{"of": each, "hex": np.ascontiguousarray(values[index(each)]).tobytes().hex()} for each in SLICES]
    if dtype not in ("C64", "I32", "U32", "I64", "U64"):  # which F32 does not hold
        with np.errstate(over="ignore"):
            made["f32"] = [number(each) for each in values.astype(np.float32).ravel()]
    return made


def index(slices):
    return tuple(slice(None) if each is None else each if isinstance(each, int) else slice(*each) for each in slices)


def with_header(header, data=b""):
    return prefix(header) + data


def bad_files():
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    yield "empty", b""
    yield "no-header", b"\x10\0\0\0\0\0\0\0{}"
    yield "truncated", with_header({"a": one}, bytes(4))
    yield "overlap", with_header({"a": one, "b": one}, bytes(8))
    yield "wrong-size", with_header({"a": one | {"shape": [3]}}, bytes(8))
    yield "unknown-dtype", with_header({"a": one | {"dtype": "F7"}}, bytes(8))
    yield "twice", with_header(b'{"a":' + json.dumps(one).encode() + b',"a":' + json.dumps(one).encode() + b"}", bytes(8))
    yield "huge-header", length_bytes(2**40) + b"{}"


def error_of(path):
    try:
        ballast.open(path)
    except ballast.BallastError as error:
        return {"error": type(error).__name__, "message": str(error).removeprefix(f"{path}: ")}
    raise AssertionError(path)


def quantized(path):
    """The reports in both formats, and the checksum of the bytes written."""
    found = {}
    for name, settings in {
        "mlx": {"format": "mlx", "method": "search", "bit_width": 4, "group_size": 32},
        "parquet": {"method": "search", "bit_width": 3, "group_size": 64},
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            report = ballast.quantize(path, Path(folder) / "q", **settings)
            metrics = ["bits_per_weight", "cosine_similarity", "relative_rmse", "sqnr_db", "max_error", "unquantized", "passed"]
            if name == "mlx":  # sizes of Parquet files depend on Arrow
                metrics += ["bytes", "compression_ratio"]
            found[name] = {"settings": settings, "report": {each: getattr(report, each) for each in metrics}}
            if name == "mlx":
                found[name]["sha256"] = hashlib.sha256(Path(report.files[0]).read_bytes()).hexdigest()
    return found


def main():
    values = {f"t.{dtype}": values_of(dtype) for dtype in DTYPES}
    metadata = {"made_by": "the reference", "naïve": "✓ \"quoted\""}
    safetensors.numpy.save_file(values, FOLDER / "dtypes.safetensors", metadata)
    expected = {"dtypes.safetensors": {"metadata": metadata, "tensors": {name: tensor(name[2:], each) for name, each in values.items()}}}

    packed = bytes(range(24))
    kinds = {"F4": 48, "F6_E2M3": 32, "F6_E3M2": 32}
    header = {f"t.{kind}": {"dtype": kind, "shape": [count], "data_offsets": [i * 24, i * 24 + 24]} for i, (kind, count) in enumerate(kinds.items())}
    (FOLDER / "packed.safetensors").write_bytes(with_header(header, packed * 3))
    f4 = np.frombuffer(packed, np.uint8)
    codes = np.stack([f4 & 15, f4 >> 4], axis=1).ravel().astype(np.uint8).view(ml_dtypes.float4_e2m1fn)
    expected["packed.safetensors"] = {
        "metadata": {},
        "tensors": {
            f"t.{kind}": {"dtype": kind, "shape": [count], "hex": packed.hex(), "slices": [{"of": [[4, 12]], "hex": packed[4 * bits // 8 : 12 * bits // 8].hex()}]}
            for kind, count, bits in (("F4", 48, 4), ("F6_E2M3", 32, 6), ("F6_E3M2", 32, 6))
        },
    }
    expected["packed.safetensors"]["tensors"]["t.F4"]["f32"] = [number(each) for each in codes.astype(np.float32)]

    rng = np.random.default_rng(7)
    weights = {"up.weight": rng.normal(0, 0.02, (16, 128)).astype(ml_dtypes.bfloat16), "bias": rng.normal(0, 0.02, 16).astype(np.float32)}
    safetensors.numpy.save_file(weights, FOLDER / "weights.safetensors")

    bad = {}
    for name, content in bad_files():
        path = FOLDER / f"bad-{name}.safetensors"
        path.write_bytes(content)
        bad[path.name] = error_of(str(path))
    made = {"files": expected, "bad": bad, "quantized": {"weights.safetensors": quantized(FOLDER / "weights.safetensors")}}
    (FOLDER / "expected.json").write_text(json.dumps(made, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
