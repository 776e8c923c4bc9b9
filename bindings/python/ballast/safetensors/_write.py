"""Files that are written."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ballast import _core
from ballast.errors import ArgumentError, UnsupportedError, WriteError
from ballast.safetensors._errors import SafetensorError, without_path, worded
from ballast.safetensors._open import Filename, path_of, shown

#: A tensor as the core takes it: its name, dtype, shape and bytes.
Item = tuple[str, str, tuple[int, ...], Any]

_DOING = "Error while serializing"

# The names that TensorSpec takes, and what files call them.
DTYPES = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64",
    "uint64": "U64", "float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2": "F8_E5M2", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4", "complex64": "C64",
}  # fmt: skip

_memory_of = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_of.restype = ctypes.py_object
_memory_of.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_READ = 0x100


def unknown_dtype(dtype: str, of: str = "") -> SafetensorError:
    text = f'Unknown dtype "{dtype}". Supported dtypes: {", ".join(DTYPES)}'
    return SafetensorError(f"{text} ({of})" if of else text)


class TensorSpec:
    """A tensor that is to be written: `data_len` bytes at the address `data_ptr`, which must stay valid until it is.

    Two values of float4_e2m1fn_x2 share a byte. `shape` is given in bytes for it, and then has its last dimension doubled.

    >>> array = np.zeros(2, np.float32)
    >>> TensorSpec(dtype="float32", shape=[2], data_ptr=array.ctypes.data, data_len=8).dtype
    'F32'
    """

    __slots__ = ("data_len", "data_ptr", "dtype", "shape")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        if not isinstance(dtype, str):
            raise TypeError(f"argument 'dtype': expected str, not {type(dtype).__name__}")
        if dtype not in DTYPES:
            raise unknown_dtype(dtype)
        #: As files spell it: "F32".
        self.dtype = DTYPES[dtype]
        #: The length of each dimension, in values.
        self.shape = [_unsigned(dim) for dim in shape]
        if self.dtype == "F4" and self.shape:
            self.shape[-1] *= 2
        #: Where its bytes are.
        self.data_ptr = _unsigned(data_ptr)
        #: How many they are.
        self.data_len = _unsigned(data_len)

    def __repr__(self) -> str:
        return f"TensorSpec(dtype={self.dtype!r}, shape={self.shape}, data_ptr={self.data_ptr}, data_len={self.data_len})"


def _unsigned(number: int) -> int:
    whole = operator.index(number)
    if whole < 0:
        raise OverflowError(f"can't convert negative int to unsigned: {whole}")
    if whole >= 2**64:
        raise OverflowError(f"{whole} is too large for 64 bits")
    return whole


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a SafeTensors file.

    >>> serialize({})
    b'\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00{}      '
    """
    return to_bytes(_items(tensor_dict), metadata)


def serialize_file(tensor_dict: Mapping[str, TensorSpec], filename: Filename, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a SafeTensors file. It is there under its name only when it is complete."""
    to_file(_items(tensor_dict), filename, metadata)


def _items(tensors: Mapping[str, TensorSpec]) -> list[Item]:
    check_names(tensors)
    items: list[Item] = []
    for name, spec in tensors.items():
        if not isinstance(spec, TensorSpec):
            raise TypeError(f"argument 'tensor_dict': {name!r} is an object of {type(spec).__name__}, not of TensorSpec")
        items.append((name, spec.dtype, tuple(spec.shape), memory(name, spec.data_ptr, spec.data_len)))
    return items


def memory(name: str, address: int, size: int) -> Any:
    """What is there, without a copy."""
    if size == 0:
        return b""
    if address == 0:
        raise SafetensorError(f"{_DOING}: tensor {name!r}: {size} bytes at no address")
    return _memory_of(address, size, _READ)


def check_names(tensors: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise TypeError(f"argument 'tensor_dict': expected a mapping from names to tensors, not {type(tensors).__name__}")
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"argument 'tensor_dict': tensors have names that are texts, not {type(name).__name__}")


def _texts(metadata: Any) -> dict[str, str] | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"argument 'metadata': expected a mapping from texts to texts, not {type(metadata).__name__}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"argument 'metadata': keys and values are texts, not {key!r}: {value!r}")
    return dict(metadata)


@contextlib.contextmanager
def _naming_what_is_no_text(items: Sequence[Item], texts: Mapping[str, str] | None) -> Iterator[None]:
    """Tells which name it was that the core did not take, by the error that encoding it gives."""
    try:
        yield
    except TypeError:
        for text in (*(item[0] for item in items), *(texts or {}), *(texts or {}).values()):
            text.encode()
        raise


def to_bytes(items: Sequence[Item], metadata: Mapping[str, str] | None) -> bytes:
    texts = _texts(metadata)
    try:
        with _naming_what_is_no_text(items, texts):
            return _core.serialize(items, texts)
    except (ArgumentError, UnsupportedError, WriteError) as error:
        raise worded(_DOING, "<memory>", str(error)) from None


def to_file(items: Sequence[Item], filename: Filename, metadata: Mapping[str, str] | None) -> None:
    path = path_of(filename)
    texts = _texts(metadata)
    if "://" in path:
        raise SafetensorError(f"{_DOING}: I/O error: cannot write to a URI; give a local path ({shown(path)})")
    if why := _no_place(path):
        raise SafetensorError(f"{_DOING}: I/O error: {why} ({path}: cannot write)")
    # The core goes by the ending, and takes a name without one for a directory.
    given = path if path.endswith(".safetensors") else _beside(path)
    try:
        with _naming_what_is_no_text(items, texts):
            _core.save(given, items, texts, False, 0)
    except ArgumentError as error:
        raise worded(_DOING, path, str(error).removeprefix(f"{given}: ")) from None
    except (UnsupportedError, WriteError) as error:
        raise worded(_DOING, path, without_path(given, str(error))) from None
    if given != path:
        try:
            os.replace(given, os.path.realpath(path))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(given)
            raise SafetensorError(f"{_DOING}: I/O error: {error.strerror} ({path}: cannot write)") from None


def _no_place(path: str) -> str | None:
    """Why no file can be written there."""
    if not path:
        return "No such file or directory"
    if os.path.isdir(path):
        return "Is a directory"
    if path.endswith("/"):
        return "Not a directory"
    return "not a regular file" if os.path.exists(path) and not os.path.isfile(path) else None


def _beside(path: str) -> str:
    return os.path.join(os.path.dirname(os.path.realpath(path)), f".{secrets.token_hex(8)}.safetensors")
