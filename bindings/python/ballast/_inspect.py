"""Descriptions of models."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ballast import _core
from ballast._arguments import checked, path_of
from ballast._errors import ArgumentError, BallastError
from ballast._model import Model, open as open_model
from ballast._tensor import Path


@dataclass(frozen=True)
class Component:
    """A subfolder that the model_index.json of a diffusers pipeline names."""

    name: str
    library: str
    class_name: str
    path: str
    has_weights: bool  #: False for a tokenizer, a scheduler and the like
    is_denoiser: bool  #: whether quantize() quantizes it with the pipeline
    variants: list[str]  #: of its weights; plain weights are ""


def components(path: Path) -> list[Component]:
    """Return the components of a diffusers pipeline, in the order of its model_index.json. Empty for any other path.

    >>> ballast.components(path)
    []
    """
    return [Component(**each) for each in _core.list_components(path_of(path))]


def inspect(path: Path, *, component: str | None = None, variant: str | None = None) -> dict[str, Any]:
    """Return a description of a model, quantized or not, without reading weights.

    `component` and `variant` are as in open(). A diffusers pipeline has a list of `components`, each with a `model`.

    The keys are those of `ballast inspect --json --tensors`. The tensors are in the order of the files. An unknown modality is
    None.

    >>> ballast.inspect(path)["tensor_count"]
    2
    """
    options = checked(component=component, variant=variant)
    found, undecodable = None, None
    try:
        found = _core.describe_weights(path_of(path), **options)
    except ArgumentError:
        parts = [] if component is not None else components(path)
        if not parts:
            raise
        return _of_pipeline(path, parts, variant)
    except BallastError as error:
        undecodable = str(error)  # the stored tensors can still be listed
    if found is not None and found["format"] == "parquet":
        return _of_parquet(path, found)
    with open_model(path, component=component, variant=variant) as model:
        made = _of_model(model)
    tensors = made.pop("tensors")
    if found is not None and found["format"] != "plain":
        made |= {"quantization": _widths(found["tensors"]), "time_boundaries": found["time_boundaries"]}
    if found is not None:
        made["parameter_count"] = sum(math.prod(weight["shape"]) for weight in found["tensors"])
    if undecodable is not None:
        made["warnings"].append(undecodable)
    weights = [_weight(weight) for weight in found["tensors"]] if found is not None else [_plain(tensor) for tensor in tensors]
    return made | {"weights": weights, "tensors": tensors}


def _plain(tensor: dict[str, Any]) -> dict[str, Any]:
    begin, end = tensor["data_offsets"]
    return {
        "name": tensor["name"], "dtype": tensor["dtype"], "shape": tensor["shape"], "scheme": "plain", "mode": None, "bits": 0,
        "group_size": 0, "tensors": [tensor["name"]], "bytes": end - begin,
    }  # fmt: skip


def _weight(weight: dict[str, Any]) -> dict[str, Any]:
    keys = ("name", "dtype", "shape", "scheme", "mode", "bits", "group_size", "tensors", "bytes")
    return {key: weight[key] for key in keys}


def _of_pipeline(path: Path, parts: list[Component], variant: str | None) -> dict[str, Any]:
    described: list[dict[str, Any]] = []
    totals = {"tensor_count": 0, "parameter_count": 0, "data_bytes": 0}
    for part in parts:
        made: dict[str, Any] = {
            "name": part.name, "library": part.library, "class": part.class_name, "path": part.path,
            "has_weights": part.has_weights, "denoiser": part.is_denoiser, "variants": part.variants,
        }  # fmt: skip
        if part.has_weights:
            own = None if variant not in part.variants and "" in part.variants else variant
            made["model"] = inspect(part.path, variant=own)
            for key in totals:
                totals[key] += made["model"][key]
        described.append(made)
    return {"path": _core.without_secrets(path_of(path)), "format": "pipeline", "components": described, **totals}


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
