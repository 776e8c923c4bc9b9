"""Small checkpoints in the form in which they are published."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from layouts import Tensors, write
from layouts.elements import BF16

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
Shapes = dict[str, tuple[int, ...]]

# Commands that a kind may refuse. All others must succeed.
QUANTIZE, DEQUANTIZE, VALIDATE = "quantize", "dequantize", "validate"


@dataclass(frozen=True)
class Made:
    """A checkpoint on disk: what to open, its stored tensors, and its logical weights in F32 by name."""

    path: Path
    stored: Tensors
    dense: Tensors
    quantized: frozenset[str] = frozenset()
    parts: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """`refused` has the commands that must exit with 2 or 3, and a part of the message or "" where that is free."""

    name: str
    make: Callable[[Path], Made]
    refused: Mapping[str, str] = field(default_factory=lambda: {DEQUANTIZE: "not a quantized model"})
    layout: str = ""


def values(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the same values for the same name: around 1 for norms and scales, otherwise small."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    spread = rng.standard_normal(shape, np.float32)
    if len(shape) < 2 and "norm" in name.lower() and not name.endswith("bias"):
        return np.asarray(1 + spread * np.float32(0.1)).astype(dtype)
    return np.asarray(spread * np.float32(0.02)).astype(dtype)


def fill(shapes: Shapes, dtype: np.dtype = BF16, **dtypes: np.dtype) -> Tensors:
    """Return tensors of the shapes; `dtypes` gives those of names that end in the key."""
    tensors = {}
    for name, shape in shapes.items():
        kind = next((found for end, found in dtypes.items() if name.endswith(end)), dtype)
        tensors[name] = np.arange(np.prod(shape), dtype=kind).reshape(shape) if kind.kind in "iu" else values(name, shape, kind)
    return tensors


def in_f32(tensors: Tensors) -> Tensors:
    """Return the floats in F32 and all other tensors as they are."""
    return {name: tensor if tensor.dtype.kind in "iub" else tensor.astype(np.float32) for name, tensor in tensors.items()}


def write_json(folder: Path, files: Mapping[str, object]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2))


def write_shards(folder: Path, tensors: Tensors, count: int, stem: str = "model") -> None:
    names = [f"{stem}-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    owner = {name: names[i * count // len(tensors)] for i, name in enumerate(tensors)}
    for shard in names:
        write(folder / shard, {name: tensor for name, tensor in tensors.items() if owner[name] == shard}, {"format": "pt"})
    total = sum(tensor.nbytes for tensor in tensors.values())
    write_json(folder, {f"{stem}.safetensors.index.json": {"metadata": {"total_size": total}, "weight_map": owner}})


def plain(
    name: str,
    tensors: Callable[[], Tensors],
    config: Mapping[str, object] | None,
    *,
    file: str = "model.safetensors",
    shards: int = 0,
    files: Mapping[str, object] | None = None,
    **more: object,
) -> Kind:
    """Return an unquantized checkpoint."""

    def make(folder: Path) -> Made:
        folder.mkdir(parents=True)
        stored = tensors()
        write_json(folder, {**({"config.json": dict(config)} if config else {}), **(files or {})})
        if shards:
            write_shards(folder, stored, shards)
        else:
            write(folder / file, stored, {"format": "pt"})
        return Made(folder, stored, in_f32(stored))

    return Kind(name, make, **more)
