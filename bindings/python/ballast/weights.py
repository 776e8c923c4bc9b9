"""Quantized weights of MLX and of Parquet V2 Extended, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ballast import _core, dtypes
from ballast.arguments import path_of
from ballast.errors import TensorNotFoundError
from ballast.model import Array, Path, as_array, is_name


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """One weight with what belongs to it.

    Values are `code * scale + bias` for MLX's affine mode and `(code - zero_point) * scale` for Parquet.
    """

    name: str
    scheme: str  #: mlx or parquet
    shape: tuple[int, ...]  #: original
    dtype: str  #: original
    bits: int
    group_size: int
    mode: str  #: affine for Parquet
    packed: Array  #: codes, the lowest bits first; of Parquet uint8 [rows, bytes of a row]
    scales: Array  #: of Parquet float32 [rows, groups]
    biases: Array | None  #: of MLX
    zero_points: Array | None  #: of Parquet, float32 [rows, groups]
    restore: Array | None  #: what columns are to be multiplied by after all else


class QuantizedWeights(Mapping[str, QuantizedWeight]):
    """The quantized weights of a directory, by name; `others` are the tensors that are not quantized.

    >>> weights = ballast.load_quantized_weights(mlx)
    >>> weights["embed"].bits, sorted(weights.others)
    (4, ['bias'])
    >>> weights.dequantize("embed", "f32").shape
    (64, 32)
    """

    def __init__(self, core: _core.Weights) -> None:
        self._core = core
        self._names: list[str] = core.names()
        #: Tensors that are not quantized.
        self.others: dict[str, Array] = {name: as_array(*array) for name, array in core.others()}

    def __repr__(self) -> str:
        return f"QuantizedWeights({len(self)} weights, {len(self.others)} others)"

    def __getitem__(self, name: str) -> QuantizedWeight:
        found = self._core.find(name) if is_name(name) else None
        if found is None:
            raise TensorNotFoundError(f"no quantized weight {name!r} among {len(self)}")
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
        """The numbers that a weight stands for, as F32, F16 or BF16."""
        if not is_name(name) or self._core.find(name) is None:
            raise TensorNotFoundError(f"no quantized weight {name!r} among {len(self)}")
        return as_array(*self._core.dequantize(name, dtypes.name_of(dtype)))


def load_quantized_weights(directory: Path) -> QuantizedWeights:
    """Reads all tensors of a directory of MLX or of Parquet V2 Extended, after checking every size."""
    return QuantizedWeights(_core.load_quantized_weights(path_of(directory)))
