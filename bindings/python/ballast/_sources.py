"""What stands for a model: a path, an open model, a mapping of arrays, or an Arrow table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, Union

import numpy as np

from ballast import _core, _dtypes
from ballast._arguments import is_utf8, path_of
from ballast._arrow import ArrowStream, is_arrow, tensors_of_arrow
from ballast._errors import ArgumentError
from ballast._model import Model, open as open_model
from ballast._tensor import Array, Path, Tensor, pytorch

#: Adapters to merge: a path, a mapping from paths to scales, or a sequence of paths and (path, scale).
Loras = Union[Path, Mapping[Path, float], Sequence[Union[Path, tuple[Path, float]]]]
Tensors = Mapping[str, Any]
Source = Union[Path, Model, Tensors, ArrowStream]
#: A tensor as the core takes it: name, dtype, shape and bytes.
Item = tuple[str, str, tuple[int, ...], Any]


class Opened:
    """A context manager over the core's model of any source. Closes the model if it opened it."""

    def __init__(self, source: Any, *, decode: bool = False) -> None:
        self._own: _core.OpenModel | None = None
        if isinstance(source, Model):
            self.core = source._core
        elif is_arrow(source):
            self.core = self._own = _core.from_tensors(tensors_of_arrow(source), "<arrow>", None)
        elif isinstance(source, Mapping):
            self.core = self._own = _core.from_tensors(items_of(source), "<memory>", None)
        else:
            self.core = self._own = open_model(source, decode=decode)._core

    def __enter__(self) -> _core.OpenModel:
        return self.core

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.close()


def core_source(stack: ExitStack, source: Any, *, component: str | None, variant: str | None) -> _core.OpenModel | bytes:
    """Return an open model, or the path of one: the core opens it, because it may be a pipeline."""
    if not isinstance(source, (Model, Mapping)) and not is_arrow(source):
        return path_of(source)
    for name, value in (("component", component), ("variant", variant)):
        if value is not None:
            raise ArgumentError(f"{name} is {value!r}, but the model is already open; give its path")
    return stack.enter_context(Opened(source))


def items_of(tensors: Tensors) -> list[Item]:
    """Return the tensors of a mapping as the core takes them."""
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors must be a mapping from names to arrays, not {type(tensors).__name__}")
    for name, value in tensors.items():
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"tensor {name!r} is a masked array, and files have no masks; pass its .filled()")
    return [item_of(name, value) for name, value in tensors.items()]


def item_of(name: str, value: Any) -> Item:
    """Return one tensor as the core takes it, with its bytes in C order and little endian."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor must be a str, not {type(name).__name__}")
    if not is_utf8(name):
        raise ArgumentError(f"tensor {name!r}: the name is not valid UTF-8")
    if isinstance(value, Tensor):
        return name, value.dtype, value.shape, _bytes_of(value.numpy())
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        return _item_of_torch(name, value)
    values = np.asarray(value)
    plain = _plain_name(values.dtype)
    if plain is not None and values.flags.c_contiguous:
        return name, plain, values.shape, values
    if values.dtype.byteorder == ">" or (values.dtype.byteorder == "=" and np.little_endian is False):
        values = values.astype(values.dtype.newbyteorder("<"))
    if values.dtype.name == "float4_e2m1fn":
        return name, "F4", values.shape, _packed(values)
    try:
        dtype = _dtypes.name_of(values.dtype)
    except TypeError:
        raise TypeError(f"tensor {name!r}: SafeTensors has no dtype for {values.dtype}") from None
    return name, dtype, values.shape, _bytes_of(values)


def _item_of_torch(name: str, value: Any) -> Item:
    module = pytorch()
    torch = sys.modules["torch"]
    if value.layout != torch.strided:
        raise TypeError(f"tensor {name!r} is sparse; pass its .to_dense()")
    if value.dtype not in module.CODES:
        raise TypeError(f"tensor {name!r}: SafeTensors has no dtype for {value.dtype}")
    content = module.stored(value).reshape(-1).view(torch.uint8).numpy()
    return name, module.CODES[value.dtype], module.stored_shape(value), content


@lru_cache(maxsize=None)
def _plain_name(dtype: np.dtype[Any]) -> str | None:
    """Return the SafeTensors name of a dtype if arrays of it export a buffer that can be written as it is: not those of ml_dtypes."""
    if dtype.kind not in "biufc" or not dtype.isnative or not np.little_endian:
        return None
    try:
        return _dtypes.name_of(dtype)
    except TypeError:
        return None


def _bytes_of(values: Array) -> Any:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _packed(values: Array) -> Any:
    """Pack two values of F4 into each byte, the first in the low half. Drops an odd last one: the core then refuses the shape."""
    codes = np.ascontiguousarray(values).reshape(-1).view(np.uint8) & 15
    even = codes[: codes.size // 2 * 2]
    return even[0::2] | (even[1::2] << 4)
