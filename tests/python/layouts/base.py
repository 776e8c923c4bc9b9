"""What every layout has, and files of tensors of any dtype."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors_bytes import data_start, prefix

from .elements import BF16, F8_E4M3, F8_E5M2, F8_E8M0

Tensors = dict[str, np.ndarray]

DTYPES = {
    "BOOL": np.dtype(bool), "U8": np.dtype(np.uint8), "I8": np.dtype(np.int8), "I16": np.dtype(np.int16), "U16": np.dtype(np.uint16),
    "I32": np.dtype(np.int32), "U32": np.dtype(np.uint32), "I64": np.dtype(np.int64), "U64": np.dtype(np.uint64),
    "F16": np.dtype(np.float16), "BF16": BF16, "F32": np.dtype(np.float32), "F64": np.dtype(np.float64),
    "F8_E4M3": F8_E4M3, "F8_E5M2": F8_E5M2, "F8_E8M0": F8_E8M0,
}  # fmt: skip
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Stored:
    """One quantized weight: its tensors by what follows the module's name, and its values in F32."""

    tensors: Tensors
    dense: np.ndarray
    weight: str = ".weight"

    def named(self, module: str) -> Tensors:
        return {module + suffix: tensor for suffix, tensor in self.tensors.items()}


@dataclass(frozen=True)
class Config:
    """What a checkpoint says about its quantization: keys of config.json, other files, header metadata, tensors of the model."""

    keys: dict = field(default_factory=dict)
    files: dict[str, dict] = field(default_factory=dict)
    metadata: dict[str, str] | None = None
    tensors: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """One way to store a quantized weight. `exact` is false where the original's formula rounds in an order that it does not define."""

    name: str
    scheme: str = ""
    bits: int = 4
    exact: bool = True

    def make(self, rng: np.random.Generator, rows: int, columns: int) -> Stored:
        """Return a weight of random codes and scales."""
        raise NotImplementedError

    def decode(self, tensors: Tensors) -> np.ndarray:
        """Return the values of one weight in F32, from its tensors alone."""
        raise NotImplementedError

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        """Return the config of a model of which the linear layers `modules` are quantized and `ignored` are not."""
        raise NotImplementedError

    def group(self, rows: int, columns: int) -> int | None:
        """Return the columns per scale, or None where a scale covers whole rows or more than one row."""
        return None


def write(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a SafeTensors file in the order of the mapping, with an aligned header."""
    header, end = {"__metadata__": dict(metadata)} if metadata else {}, 0
    for name, tensor in tensors.items():
        tensor = np.asarray(tensor)
        header[name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + tensor.nbytes],
        }
        end += tensor.nbytes
    with open(path, "wb") as file:
        file.write(prefix(json.dumps(header, separators=(",", ":")), align=True))
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def read(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors of a SafeTensors file and its metadata."""
    raw = path.read_bytes()
    start = data_start(raw)
    header = json.loads(raw[8:start])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = raw[start + begin : start + end]
        tensors[name] = np.frombuffer(data, DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def read_all(folder: Path) -> Tensors:
    """Return the tensors of all SafeTensors files of a folder."""
    tensors: Tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        found, _ = read(path)
        assert not tensors.keys() & found.keys(), path
        tensors |= found
    return tensors
