"""Quantized weights as they are stored, of MLX and of Parquet V2 Extended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ballast import _core, _dtypes, _html
from ballast._arguments import path_of
from ballast._errors import TensorNotFoundError
from ballast._model import is_name
from ballast._tensor import Array, Path, as_array


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedWeight:
    """A quantized weight: codes, scales and biases or zero points.

    Values are `code * scale + bias` in MLX's affine mode and `(code - zero_point) * scale` in Parquet.
    """

    name: str
    scheme: str  #: "mlx" or "parquet"
    shape: tuple[int, ...]  #: original
    dtype: str  #: original
    bits: int
    group_size: int
    mode: str  #: "affine" for Parquet
    packed: Array  #: codes, lowest bits first; Parquet: uint8 [rows, bytes of a row]
    scales: Array  #: Parquet: float32 [rows, groups]
    biases: Array | None  #: MLX only
    zero_points: Array | None  #: Parquet only, float32 [rows, groups]
    restore: Array | None  #: factors of the columns, to multiply with last

    def __repr__(self) -> str:
        return (
            f"QuantizedWeight({self.name!r}, {self.scheme}, {self.bits} bits, group_size {self.group_size},"
            f" {self.dtype} {list(self.shape)})"
        )


class QuantizedWeights(Mapping[str, QuantizedWeight]):
    """The quantized weights of a directory by name. `others` has the unquantized tensors.

    >>> weights = ballast.load_quantized_weights(mlx)
    >>> weights["embed"]
    QuantizedWeight('embed', mlx, 4 bits, group_size 32, BF16 [64, 32])
    >>> weights.dequantize("embed", "f32").shape
    (64, 32)
    """

    def __init__(self, core: _core.Weights) -> None:
        self._core = core
        self._names: list[str] = core.names()
        #: The unquantized tensors by name.
        self.others: dict[str, Array] = {name: as_array(*array) for name, array in core.others()}

    def __repr__(self) -> str:
        return f"QuantizedWeights({len(self)} quantized, {len(self.others)} others)"

    def _repr_html_(self) -> str:
        rows = ((each.name, each.scheme, each.bits, each.group_size, each.dtype, list(each.shape)) for each in self.values())
        columns = ("name", "scheme", "bits", "group", "dtype", "shape")
        facts = [f"{len(self):,} quantized", f"{len(self.others):,} others"]
        return _html.page("QuantizedWeights", facts, _html.table(columns, rows, len(self)))

    def __getitem__(self, name: str) -> QuantizedWeight:
        found = self._core.find(name) if is_name(name) else None
        if found is None:
            raise self._missing(name)
        for part in ("packed", "scales"):
            found[part] = as_array(*found[part])
        for part in ("biases", "zero_points"):
            found[part] = None if found[part] is None else as_array(*found[part])
        found["restore"] = np.array(found["restore"], np.float32) if found["restore"] else None
        return QuantizedWeight(**found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def dequantize(self, name: str, dtype: Any = "f32") -> Array:
        """Return the values of a weight as F32, F16 or BF16."""
        if not is_name(name) or self._core.find(name) is None:
            raise self._missing(name)
        return as_array(*self._core.dequantize(name, _dtypes.name_of(dtype)))

    def _missing(self, name: object) -> TensorNotFoundError:
        message = self._core.describe_missing(name) if is_name(name) else f"no quantized weight {name!r} among {len(self)}"
        return TensorNotFoundError(message)


def load_quantized_weights(directory: Path) -> QuantizedWeights:
    """Read all tensors of a directory in the format of MLX or Parquet V2 Extended, and check every size.

    >>> ballast.load_quantized_weights(mlx)
    QuantizedWeights(1 quantized, 1 others)
    """
    return QuantizedWeights(_core.load_quantized_weights(path_of(directory)))
