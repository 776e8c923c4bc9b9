"""Inputs of layers to record statistics of, and what quantized layers make of inputs that were not recorded."""

import json

import numpy as np
import pyarrow.parquet as pq
from ballast.calibration import Recorder
from quantized_files import NUMPY, decode_block, done, read_mlx, read_safetensors
from safetensors import safe_open

FORMATS = ("parquet", "mlx")


def outliers(rng, columns):
    """One column in a hundred is ten times as large, which makes about half of the energy."""
    return np.where(rng.permutation(columns) < columns // 100, 10.0, 1.0)


def correlated(rng, columns):
    """draw(count): mixtures of a quarter as many sources, with some noise of each column, and outliers."""
    sources = columns // 4
    mix = rng.standard_normal((sources, columns)) / np.sqrt(sources)
    size = outliers(rng, columns)
    return lambda count: (rng.standard_normal((count, sources)) @ mix + rng.standard_normal((count, columns)) / 2) * size


def independent(rng, columns):
    return lambda count: rng.standard_normal((count, columns))


def changing(rng, columns):
    """draw(count, timestep): spreads and means that go from one state, at 0, to another, at 1000; and outliers."""
    spread = np.exp(rng.standard_normal((2, columns)) / 2) * outliers(rng, columns)
    mean = rng.standard_normal((2, columns)) * 0.3

    def draw(count, timestep):
        u = timestep / 1000
        values = (1 - u) * mean[0] + u * mean[1] + rng.standard_normal((count, columns))
        return values * spread[0] ** (1 - u) * spread[1] ** u

    return draw


def after_gelu(rng, columns):
    """draw(count, timestep): GELU of normal numbers whose means go half around a circle, about as far as they spread. What comes
    out has means that are not 0 and that drift, and outliers."""
    mean = rng.standard_normal((2, columns))
    size = outliers(rng, columns)

    def draw(count, timestep):
        angle = np.pi * timestep / 1000
        x = mean[0] * np.cos(angle) + mean[1] * np.sin(angle) + 0.8 * rng.standard_normal((count, columns))
        return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2 * size

    return draw


def record(path, inputs, hessian=False):
    """Statistics of inputs by weight and timestep, which is None for plain ones."""
    recorder = Recorder(hessian=hessian)
    for (name, timestep), x in inputs.items():
        recorder.add(name, x, timestep)
    recorder.save(path)
    return path


def load(path):
    """Metadata and tensors that may be written to."""
    with safe_open(path, framework="numpy") as file:
        return dict(file.metadata() or {}), {name: np.array(file.get_tensor(name)) for name in file.keys()}


def settings(path, **fields):
    path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in fields.items()))
    return ["--config", path]


def parquet_rows(folder):
    parts = [part["file"] for part in json.loads((folder / "metadata.json").read_text())["parts"]]
    return [row for part in parts for row in pq.read_table(folder / part).to_pylist()]


def time_parameters(folder):
    """Boundaries, and {weight: {"time_bias": [groups, rows], "act_scale": …}} from the files of either format."""
    if not (folder / "metadata.json").exists():
        path = folder / "timeaware.safetensors"
        if not path.exists():
            return [], {}
        metadata, tensors = load(path)
        assert metadata["format"] == "timeaware.v1"
        layers = {}
        for name, values in tensors.items():
            module, kind = name.rsplit(".", 1)
            layers.setdefault(f"{module}.weight", {})[kind] = values
        return json.loads(metadata["boundaries"]), layers
    boundaries, layers = [], {}
    for row in parquet_rows(folder):
        if row["time_aware_quant_json"] is None:
            continue
        block = json.loads(row["time_aware_quant_json"])
        boundaries = block.pop("boundaries")
        block = {kind: np.array(values, np.float32) for kind, values in block.items()}
        layer = layers.setdefault(row["layer_name"], block)
        if layer is not block:
            layer["time_bias"] = np.concatenate([layer["time_bias"], block["time_bias"]], axis=1)
    return boundaries, layers


def column_scales(folder):
    """What the columns of each equalized weight are multiplied by, from the files of either format."""
    if (folder / "metadata.json").exists():
        found = {row["layer_name"]: row["spatial_quant_json"] for row in parquet_rows(folder)}
        return {
            name: np.array(json.loads(text)["equalization_scales"], np.float32) for name, text in found.items() if text is not None
        }
    path = folder / "equalization.safetensors"
    tensors = load(path)[1] if path.exists() else {}
    return {name.replace(".equalization_scales", ".weight"): values for name, values in tensors.items()}


def decode(folder, report):
    """All quantized tensors as float32, from the bytes alone, columns restored."""
    if (folder / "metadata.json").exists():
        return decode_parquet(folder)
    scales = column_scales(folder)
    values = {layer["name"]: read_mlx(folder, layer, NUMPY[layer["dtype"]]) for layer in report["layers"]}
    return {name: array * scales.get(name, np.float32(1)) for name, array in values.items()}


def decode_parquet(folder):
    blocks, shapes = {}, {}
    for row in parquet_rows(folder):
        if row["quant_type"] == "none":
            continue
        values = decode_block(row)
        if row["spatial_quant_json"] is not None:
            values = values * np.array(json.loads(row["spatial_quant_json"])["equalization_scales"], np.float32)
        blocks.setdefault(row["layer_name"], []).append(values)
        shapes[row["layer_name"]] = row["shape"]
    return {name: np.concatenate(parts).reshape(shapes[name]) for name, parts in blocks.items()}


def dequantized(run, folder):
    path = folder.with_name(f"{folder.name}.f32.safetensors")
    done(run("dequantize", folder, path, "--dtype", "f32"))
    tensors = read_safetensors(path)
    path.unlink()
    return tensors


def output_errors(run, folder, weights, inputs):
    """The mean square of what is wrong with the outputs, for each weight and timestep, time biases added."""
    restored = dequantized(run, folder)
    wrong_weights = {name: restored[name].astype(np.float64) - weight.astype(np.float64) for name, weight in weights.items()}
    boundaries, layers = time_parameters(folder)
    errors = {}
    for (name, timestep), x in inputs.items():
        wrong = x @ wrong_weights[name].T
        if name in layers:
            wrong += layers[name]["time_bias"][np.searchsorted(boundaries, timestep or 0, side="right")]
        errors[name, timestep] = np.mean(wrong**2)
    return errors


def percent(errors, reference, weight):
    """The output error of one weight, root mean square over all timesteps, where that of the reference is 100."""
    total, whole = (sum(error for (name, _), error in each.items() if name == weight) for each in (errors, reference))
    return 100 * np.sqrt(total / whole)
