"""Tensors of a model."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Union, overload

import numpy as np

from ballast import _core, _dtypes
from ballast._arguments import checked, flag
from ballast._dlpack import capsule_of
from ballast._errors import UnsupportedError
from ballast._index import bounds_of

if TYPE_CHECKING:
    from torch import Tensor as TorchTensor

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Array = np.ndarray[Any, np.dtype[Any]]


def as_array(dtype: str, shape: tuple[int, ...], buffer: Any) -> Array:
    """Return an array over a buffer, without a copy. Packed dtypes give an array of their bytes."""
    if _dtypes.is_packed(dtype):
        return np.ndarray((len(buffer),), np.uint8, buffer)
    return np.ndarray(shape, _dtypes.numpy_dtype(dtype), buffer)


def pytorch() -> ModuleType:
    """Import ballast._torch."""
    try:
        return importlib.import_module("ballast._torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("PyTorch is not installed: pip install torch", name="torch") from None


class Tensor:
    """One tensor of a model. Its values are read when you ask for them.

    >>> tensor = model["embed.weight"]
    >>> tensor
    Tensor('embed.weight', BF16, [64, 32])
    >>> tensor[:2, 0].shape
    (2,)
    """

    __slots__ = ("_dtype", "_model", "_name", "_shape")

    def __init__(self, model: _core.OpenModel, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self._model = model
        self._name = name
        self._dtype = dtype
        self._shape = shape

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self._name

    @property
    def dtype(self) -> str:
        """The dtype, as SafeTensors spells it: "BF16"."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes in the file."""
        info = self._model.info(self._name)
        assert info is not None
        return info[3] - info[2]

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("a tensor without dimensions has no length")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._shape:
            raise TypeError("a tensor without dimensions cannot be iterated over")
        return (self[i] for i in range(self._shape[0]))

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, {self._dtype}, {list(self._shape)})"

    def numpy(self, *, copy: bool = False) -> Array:
        """Return the values as an array.

        Without `copy` the array is read-only and shares the memory of the mapped file. Files that are not mapped are copied.
        BF16 and F8 have dtypes of ml_dtypes. F4 and F6 are returned as bytes.

        The array stays valid after the model is closed. If another process truncates the file, touching the array ends this
        process with SIGBUS; a copy is safe from that.

        >>> model["bias"].numpy().flags.writeable
        False
        """
        if not copy:
            try:
                return as_array(self._dtype, self._shape, self._model.view(self._name))
            except UnsupportedError:
                pass  # not mapped
        return as_array(self._dtype, self._shape, self._model.read(self._name))

    def torch(self, *, copy: bool = False) -> TorchTensor:
        """Return the values as a PyTorch tensor on the CPU.

        Without `copy` the tensor shares the memory of the mapped file with numpy(). It may be written to: the changes are
        seen by all views of this model and never reach the file. Files that are not mapped are copied.

        Raises UnsupportedError if the installed PyTorch has no such dtype: F8 needs 2.1 or later, U16 to U64 2.3.
        """
        module = pytorch()
        module.check(self._name, self._dtype)
        if not flag("copy", copy):
            try:
                buffer = self._model.writable_view(self._name)
            except UnsupportedError:
                pass  # not mapped
            else:
                return module.tensor_of(self._name, self._dtype, self._shape, buffer)
        return module.tensor_of(self._name, self._dtype, self._shape, self._model.read(self._name))

    def unpacked(self) -> Array:
        """Return the values of an F4 tensor as float4_e2m1fn of ml_dtypes, one in each byte. Always copies."""
        if self._dtype != "F4":
            raise UnsupportedError(f"tensor {self._name!r}: unpacked() needs F4, this is {self._dtype}")
        import ml_dtypes

        packed = self.numpy()
        codes = np.empty(packed.size * 2, np.uint8)
        codes[0::2] = packed & 15
        codes[1::2] = packed >> 4
        values: Array = codes.view(ml_dtypes.float4_e2m1fn)
        return values.reshape(self._shape)

    def to(self, dtype: Any, *, allow_loss: bool = False) -> Array:
        """Return the values converted to another dtype, on all cores.

        `dtype` is a name such as "bf16", "float16" or "F8_E4M3", or a dtype of NumPy or PyTorch. Values are rounded once. A
        value too large for a float becomes infinite, or NaN if the dtype has no infinities. An integer that does not fit
        raises UnsupportedError unless `allow_loss` is set.

        >>> model["embed.weight"].to("f32").dtype
        dtype('float32')
        """
        name = _dtypes.name_of(dtype)
        return as_array(name, self._shape, self._model.read_as(self._name, name, **checked(allow_loss=allow_loss)))

    @overload
    def __getitem__(self, index: slice) -> Array: ...
    @overload
    def __getitem__(self, index: Any) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        """Return a part, indexed as in NumPy by integers, slices, `...` and None.

        Mapped files are not copied. Of other files little more than the part is read. Parts of F4 and F6 are returned as bytes
        and must begin and end on a byte.
        """
        if not _dtypes.is_packed(self._dtype):
            try:
                whole = as_array(self._dtype, self._shape, self._model.view(self._name))
            except UnsupportedError:
                pass  # not mapped
            else:
                bounds_of(self._name, self._shape, index)
                return whole[index]
        bounds, picked = bounds_of(self._name, self._shape, index)
        shape, buffer = self._model.slice(self._name, bounds)
        part = as_array(self._dtype, shape, buffer)
        if _dtypes.is_packed(self._dtype) or picked == (slice(None),) * part.ndim:
            return part
        return part[picked]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            try:
                values = as_array(self._dtype, self._shape, self._model.view(self._name))
            except UnsupportedError:
                raise UnsupportedError(f"tensor {self._name!r}: the file is not mapped, so its values must be copied") from None
        else:
            values = self.numpy(copy=bool(copy))
        if dtype is None or np.dtype(dtype) == values.dtype:
            return values
        if _dtypes.is_packed(self._dtype):
            raise UnsupportedError(f"tensor {self._name!r}: these are bytes of {self._dtype}; to() converts F4 to numbers")
        if copy is False:
            raise ValueError(f"tensor {self._name!r}: {self._dtype} cannot become {np.dtype(dtype)} without a copy")
        return values.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        # Consumers may write to the memory, so it is always a copy.
        if options.pop("copy", None) is False:
            raise BufferError(f"tensor {self._name!r}: the file is mapped read-only, so DLPack needs a copy")
        if _dtypes.is_packed(self._dtype):
            instead = "use unpacked() or to()" if self._dtype == "F4" else "numpy() returns its bytes"
            raise BufferError(f"tensor {self._name!r}: DLPack has no packed {self._dtype}; {instead}")
        return capsule_of(self._dtype, self.numpy(copy=True), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def release(self) -> None:
        """Return the memory of the mapped pages to the system. They are read again when touched.

        Changes made through torch() are lost.
        """
        self._model.release(self._name)
