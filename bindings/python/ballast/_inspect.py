"""Descriptions of models."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from ballast import _core
from ballast._arguments import path_of
from ballast._errors import BallastError
from ballast._model import Model, open as open_model
from ballast._tensor import Path


def inspect(path: Path) -> dict[str, Any]:
    """Return a description of a model, quantized or not, without reading weights.

    The keys are those of `ballast inspect --json --tensors`. The tensors are in the order of the files. An unknown modality is
    None.

    >>> ballast.inspect(path)["tensor_count"]
    2
    """
    found, undecodable = None, None
    try:
        found = _core.describe_weights(path_of(path))
    except BallastError as error:
        undecodable = str(error)  # the stored tensors can still be listed
    if found is not None and found["format"] == "parquet":
        return _of_parquet(path, found)
    with open_model(path) as model:
        made = _of_model(model)
    tensors = made.pop("tensors")
    if found is not None and found["format"] != "plain":
        made |= {"quantization": _widths(found["tensors"]), "time_boundaries": found["time_boundaries"]}
    if found is not None:
        made["parameter_count"] = sum(math.prod(weight["shape"]) for weight in found["tensors"])
    if undecodable is not None:
        made["warnings"].append(undecodable)
    weights = [_weight(weight) for weight in found["tensors"]] if found is not None else []
    return made | {"weights": weights, "tensors": tensors}


def _weight(weight: dict[str, Any]) -> dict[str, Any]:
    keys = ("name", "dtype", "shape", "scheme", "mode", "bits", "group_size", "tensors", "bytes")
    return {key: weight[key] for key in keys}


def _of_parquet(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    tensors = found["tensors"]
    return {
        "path": _core.without_secrets(path_of(path)),
        "format": found["format"],
        "files": [{"path": file, "size": size} for file, size in found["files"]],
        "tensor_count": len(tensors),
        "parameter_count": sum(math.prod(tensor["shape"]) for tensor in tensors),
        "data_bytes": sum(tensor["bytes"] for tensor in tensors),
        "dtypes": _totals((tensor["dtype"], tensor["shape"], tensor["bytes"]) for tensor in tensors),
        "quantization": _widths(tensors),
        "time_boundaries": found["time_boundaries"],
        "metadata": {},
        "modality": found["modality"],
        "config": None if found["config"] is None else json.loads(found["config"]),
        "warnings": [],
        "weights": [_weight(tensor) for tensor in tensors],
        "tensors": [{key: tensor[key] for key in tensor if key not in ("scheme", "mode", "stored_as", "tensors")} for tensor in tensors],
    }


def _of_model(model: Model) -> dict[str, Any]:
    core = model._core
    tensors: list[dict[str, Any]] = []
    files = core.files()
    for name in core.names():
        info = core.info(name)
        assert info is not None
        dtype, shape, begin, end, file = info
        tensors.append({"name": name, "dtype": dtype, "shape": shape, "data_offsets": (begin, end), "file": files[file][0]})
    config = model.config
    return {
        "path": model.path,
        "format": model.format,
        "files": [{"path": file, "size": size, "data_start": start} for file, size, start in files],
        "tensor_count": len(tensors),
        "parameter_count": model.num_parameters,
        "data_bytes": model.nbytes,
        "dtypes": _totals((each["dtype"], each["shape"], each["data_offsets"][1] - each["data_offsets"][0]) for each in tensors),
        "metadata": model.metadata,
        "modality": model.modality,
        "config": None if config is None else config | core.usual_config,
        "warnings": model.warnings,
        "tensors": tensors,
    }


def _totals(tensors: Iterable[tuple[str, tuple[int, ...], int]]) -> dict[str, dict[str, int]]:
    """Return the number and size of the tensors of each kind, from (kind, shape, bytes)."""
    totals: dict[str, dict[str, int]] = {}
    for kind, shape, size in tensors:
        total = totals.setdefault(kind, {"tensors": 0, "parameters": 0, "bytes": 0})
        total["tensors"] += 1
        total["parameters"] += math.prod(shape)
        total["bytes"] += size
    return totals


def _widths(weights: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    return _totals((weight["stored_as"], weight["shape"], weight["bytes"]) for weight in weights)
