"""SafeTensors files of MLX arrays. MLX has no F8, so its bytes are returned as uint8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from ballast import _dtypes
from ballast.safetensors import _open, _write, numpy
from ballast.safetensors._errors import SafetensorError
from ballast.safetensors._frameworks import Framework
from ballast.safetensors._open import safe_open

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]


def save(tensors: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a SafeTensors file.

    >>> load(save({"a": mx.zeros((2, 3), dtype=mx.bfloat16)}))["a"].dtype
    mlx.core.bfloat16
    """
    return _write.to_bytes(_items(tensors), metadata)


def save_file(tensors: Mapping[str, mx.array], filename: _open.Filename, metadata: Mapping[str, str] | None = None) -> None:
    """Write a SafeTensors file."""
    _write.to_file(_items(tensors), filename, metadata)


def load(data: bytes) -> dict[str, mx.array]:
    """Return the arrays of a file in memory."""
    return _open.load(data, "mlx")


def load_file(filename: _open.Filename, *, backend: str = "mmap") -> dict[str, mx.array]:
    """Return the arrays of a file.

    >>> load_file(path)["bias"].shape
    (64,)
    """
    with _open.safe_open(filename, "mlx", backend=backend) as file:
        made: dict[str, mx.array] = file.get_tensors()
        return made


def _items(tensors: Mapping[str, mx.array]) -> list[_write.Item]:
    _write.check_names(tensors)
    return [_item(name, array) for name, array in tensors.items()]


def _item(name: str, array: Any) -> _write.Item:
    if isinstance(array, np.ndarray):
        return numpy.item_of(name, array)
    if not isinstance(array, mx.array):
        raise TypeError(f"tensor {name!r}: expected an mlx.core.array, not {type(array).__name__}")
    if array.dtype == mx.bfloat16:  # the buffer protocol has no format for it
        _, _, shape, content = numpy.item_of(name, np.asarray(array.view(mx.uint16)))
        return name, "BF16", shape, content
    return numpy.item_of(name, np.asarray(array))


def _make(name: str, dtype: str, shape: tuple[int, ...], content: Any) -> mx.array:
    if dtype == "BF16":
        return mx.array(np.ndarray(shape, np.uint16, content)).view(mx.bfloat16)
    if dtype == "F64":  # MLX makes it float32 by default
        return mx.array(np.ndarray(shape, np.float64, content), dtype=mx.float64)
    if dtype.startswith("F8"):
        return mx.array(np.ndarray(shape, np.uint8, content))
    if _dtypes.is_packed(dtype):
        raise SafetensorError(f"Dtype not understood: {dtype} (tensor {name!r}: MLX has no such dtype)")
    return mx.array(np.ndarray(shape, _dtypes.numpy_dtype(dtype), content))


def _framework(device: Any) -> Framework:
    return Framework(_make, copies=True)
