"""Quantized models read with pyarrow, numpy and mlx alone, and weights to make them of."""

import json

import ml_dtypes
import numpy as np
from conftest import one_error_line
from safetensors import deserialize

BF16 = np.dtype(ml_dtypes.bfloat16)
NUMPY = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": BF16, "F64": np.dtype(np.float64),
         "I64": np.dtype(np.int64), "I32": np.dtype(np.int32), "U32": np.dtype(np.uint32), "U8": np.dtype(np.uint8),
         "BOOL": np.dtype(bool)}  # fmt: skip


def gauss(rng, *shape, dtype=BF16, scale=0.02):
    return (rng.standard_normal(shape, np.float32) * np.float32(scale)).astype(dtype)


def done(result):
    assert result.returncode == 0, result.stderr
    return result


def quantize(run, source, out, *options, **more):
    """The JSON of a run that must not fail."""
    return json.loads(done(run("quantize", source, out, "--no-sync", "--json", *options, **more)).stdout)


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(result, code, *parts):
    """One line of error that has all the parts."""
    message = one_error_line(result, code)
    for part in parts:
        assert str(part) in message, message


def read_safetensors(path):
    return {
        name: np.frombuffer(tensor["data"], NUMPY[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in deserialize(path.read_bytes())
    }


def unpack(stream, rows, columns, bits):
    """Codes of rows that are streams of bits, the lowest first, each beginning at a byte."""
    stream = np.frombuffer(stream, np.uint8).reshape(rows, -1)
    codes = np.unpackbits(stream, axis=1, count=columns * bits, bitorder="little").reshape(rows, columns, bits)
    return np.packbits(codes, axis=2, bitorder="little")[:, :, 0]


def each_column(values, rows, columns, group):
    return np.repeat(np.asarray(values, np.float32).reshape(rows, -1), group, axis=1)[:, :columns]


def decode_block(row):
    """One row of Parquet V2 Extended, as a mapping, to the numbers that it stands for."""
    if row["quant_type"] == "none":
        return np.frombuffer(row["data"], np.uint8)
    rows, bits, group = row["row_count"], row["bit_width"], row["group_size"]
    assert row["quant_type"] == f"int{bits}" and row["quant_axis"] == 1
    columns = row["num_params"] // rows
    codes = unpack(row["data"], rows, columns, bits).astype(np.float32)
    zero_points, scales = (each_column(row[name], rows, columns, group) for name in ("zero_points", "scales"))
    return (codes - zero_points) * scales


def join_blocks(rows):
    """Tensors by name of all rows of a model."""
    blocks = {}
    for row in rows:
        blocks.setdefault(row["layer_name"], []).append(row)
    tensors = {}
    for name, parts in blocks.items():
        assert [part["block"] for part in parts] == list(range(parts[0]["block_count"])), name
        whole = np.concatenate([decode_block(part) for part in parts])
        if parts[0]["quant_type"] == "none":
            whole = whole.view(NUMPY[parts[0]["dtype"]])
        tensors[name] = whole.reshape(parts[0]["shape"])
    return tensors


def read_parquet(folder):
    import pyarrow.parquet as pq

    parts = [part["file"] for part in json.loads((folder / "metadata.json").read_text())["parts"]]
    return join_blocks(row for part in parts for row in pq.read_table(folder / part).to_pylist())


def read_mlx(folder, layer, dtype):
    """The numbers of one layer in float32, from the bytes alone."""
    tensors = read_safetensors(folder / "model.safetensors")
    base = layer["name"].removesuffix(".weight")
    weight, scales, biases = (tensors[f"{base}.{part}"] for part in ("weight", "scales", "biases"))
    assert scales.dtype == biases.dtype == dtype
    rows, columns = layer["shape"]
    codes = unpack(weight.tobytes(), rows, columns, layer["bits"]).astype(np.float32)
    scales, biases = (each_column(a.astype(np.float32), rows, columns, layer["group_size"]) for a in (scales, biases))
    return codes * scales + biases


def figures(original, restored):
    """Cosine and relative RMSE, in double precision."""
    a, b = original.astype(np.float64).ravel(), restored.astype(np.float64).ravel()
    return a @ b / np.sqrt((a @ a) * (b @ b)), np.sqrt(((a - b) @ (a - b)) / (a @ a))
