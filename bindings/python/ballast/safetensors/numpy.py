"""SafeTensors files of NumPy arrays. BF16, F8 and F4 have dtypes of ml_dtypes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ballast import _dtypes
from ballast._sources import item_of as any_item_of
from ballast.safetensors import _open, _write
from ballast.safetensors._open import deserialize, safe_open
from ballast.safetensors._write import TensorSpec, serialize, serialize_file
from ballast.safetensors._errors import SafetensorError
from ballast.safetensors._frameworks import Framework

__all__ = [
    "SafetensorError", "TensorSpec", "deserialize", "load", "load_file", "safe_open", "save", "save_file", "serialize", "serialize_file",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]


def save(tensor_dict: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a SafeTensors file.

    >>> load(save({"a": np.arange(3)}))["a"]
    array([0, 1, 2])
    """
    return _write.to_bytes(items_of(tensor_dict), metadata)


def save_file(tensor_dict: Mapping[str, Array], filename: _open.Filename, metadata: Mapping[str, str] | None = None) -> None:
    """Write a SafeTensors file in one pass. Arrays may have any layout and byte order.

    >>> save_file({"a": np.eye(3, dtype=np.float16).T}, out / "a.safetensors", metadata={"source": "example"})
    """
    _write.to_file(items_of(tensor_dict), filename, metadata)


def load(data: bytes) -> dict[str, Array]:
    """Return the arrays of a file in memory. They are copies and may be written to."""
    return _open.load(data, "np")


def load_file(filename: _open.Filename, *, backend: str = "mmap") -> dict[str, Array]:
    """Return the arrays of a file, read by several threads. They may be written to.

    >>> load_file(path)["bias"].shape
    (64,)
    """
    with _open.safe_open(filename, "np", backend=backend) as file:
        made: dict[str, Array] = file.get_tensors()
        return made


def items_of(tensors: Mapping[str, Any]) -> list[_write.Item]:
    """Return arrays as the core takes them."""
    _write.check_names(tensors)
    return [item_of(name, array) for name, array in tensors.items()]


def item_of(name: str, array: Any) -> _write.Item:
    if not isinstance(array, (np.ndarray, np.generic)):
        raise TypeError(f"tensor {name!r}: expected a numpy.ndarray, not {type(array).__name__}")
    code, is_plain = _code(array.dtype)
    if code is None:
        raise _write.unknown_dtype(array.dtype.name, f"tensor {name!r}")
    if is_plain and array.flags.c_contiguous:
        return name, code, array.shape, array
    return any_item_of(name, array)


@lru_cache(maxsize=None)
def _code(dtype: np.dtype[Any]) -> tuple[str | None, bool]:
    """Return the name of a dtype in files, and whether the memory of its arrays can be written as it is."""
    if dtype.name == "float4_e2m1fn":
        return "F4", False
    try:
        code = _dtypes.name_of(dtype)
    except TypeError:
        return None, False
    return code, dtype.isnative and dtype.isbuiltin == 1 and sys.byteorder == "little"


def array_of(name: str, dtype: str, shape: tuple[int, ...], content: Any) -> Array:
    """Return an array over these bytes. Copies if they are not aligned, or if F4 must be unpacked to one value in each byte."""
    if not _dtypes.is_packed(dtype):
        array: Array = np.ndarray(shape, _dtypes.numpy_dtype(dtype), content)
        return array if array.flags.aligned else array.copy()
    if dtype != "F4":
        raise SafetensorError(f"Dtype not understood: {dtype} (tensor {name!r}: NumPy has no such dtype)")
    import ml_dtypes

    packed = np.frombuffer(content, np.uint8)
    codes = np.empty(packed.size * 2, np.uint8)
    np.bitwise_and(packed, 15, out=codes[0::2])
    np.right_shift(packed, 4, out=codes[1::2])
    values: Array = codes.view(ml_dtypes.float4_e2m1fn)
    return values.reshape(shape)


def _pick(array: Array, slices: tuple[slice, ...], shape: tuple[int, ...]) -> Array:
    part = array[slices]
    if part.dtype.isbuiltin == 1:
        return part.copy().reshape(shape)
    # NumPy copies dtypes of other packages value by value.
    codes: Array = part.view(f"u{part.dtype.itemsize}")
    return codes.copy().view(part.dtype).reshape(shape)


def _framework(device: Any) -> Framework:
    return Framework(array_of, pick=_pick)
