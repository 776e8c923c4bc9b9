"""Writing files."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ballast import _core
from ballast._errors import ArgumentError, UnsupportedError, WriteError
from ballast.safetensors._errors import SafetensorError, without_path, worded
from ballast.safetensors._open import Filename, path_of, shown

#: A tensor as the core takes it: name, dtype, shape and bytes.
Item = tuple[str, str, tuple[int, ...], Any]

_DOING = "Error while serializing"

# The dtype names that TensorSpec takes, and those in files.
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
    """A tensor to write: `data_len` bytes at the address `data_ptr`, which must stay valid until they are written.

    For float4_e2m1fn_x2, which has two values in a byte, `shape` counts bytes; the attribute has its last dimension doubled.

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
        #: The dtype as files spell it: "F32".
        self.dtype = DTYPES[dtype]
        #: The length of each dimension, in values.
        self.shape = [_unsigned(dim) for dim in shape]
        if self.dtype == "F4" and self.shape:
            self.shape[-1] *= 2
        #: The address of the bytes.
        self.data_ptr = _unsigned(data_ptr)
        #: The number of bytes.
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
    """Return the bytes of a SafeTensors file.

    >>> serialize({})
    b'\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00{}      '
    """
    return to_bytes(_items(tensor_dict), metadata)


def serialize_file(tensor_dict: Mapping[str, TensorSpec], filename: Filename, metadata: Mapping[str, str] | None = None) -> None:
    """Write a SafeTensors file. It appears under its name only when it is complete."""
    to_file(_items(tensor_dict), filename, metadata)


def _items(tensors: Mapping[str, TensorSpec]) -> list[Item]:
    check_names(tensors)
    items: list[Item] = []
    for name, spec in tensors.items():
        if not isinstance(spec, TensorSpec):
            raise TypeError(f"argument 'tensor_dict': {name!r} must be a TensorSpec, not {type(spec).__name__}")
        items.append((name, spec.dtype, tuple(spec.shape), memory(name, spec.data_ptr, spec.data_len)))
    return items


def memory(name: str, address: int, size: int) -> Any:
    """Return a view of memory."""
    if size == 0:
        return b""
    if address == 0:
        raise SafetensorError(f"{_DOING}: tensor {name!r}: data_ptr is 0, but data_len is {size}")
    return _memory_of(address, size, _READ)


def check_names(tensors: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise TypeError(f"argument 'tensor_dict': expected a mapping from names to tensors, not {type(tensors).__name__}")
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"argument 'tensor_dict': names must be str, not {type(name).__name__}")


def _texts(metadata: Any) -> dict[str, str] | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"argument 'metadata': expected a mapping from str to str, not {type(metadata).__name__}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"argument 'metadata': keys and values must be str; it has {key!r}: {value!r}")
    return dict(metadata)


@contextlib.contextmanager
def _naming_invalid_utf8(items: Sequence[Item], texts: Mapping[str, str] | None) -> Iterator[None]:
    """Replace the core's TypeError by the UnicodeEncodeError of the name or text that is not valid UTF-8."""
    try:
        yield
    except TypeError:
        for text in (*(item[0] for item in items), *(texts or {}), *(texts or {}).values()):
            text.encode()
        raise


def to_bytes(items: Sequence[Item], metadata: Mapping[str, str] | None) -> bytes:
    texts = _texts(metadata)
    try:
        with _naming_invalid_utf8(items, texts):
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
    # The core would write a directory if the path had no such suffix.
    given = path if path.endswith(".safetensors") else _beside(path)
    try:
        with _naming_invalid_utf8(items, texts):
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
    """Return why a file cannot be written there, or None."""
    if not path:
        return "No such file or directory"
    if os.path.isdir(path):
        return "Is a directory"
    if path.endswith("/"):
        return "Not a directory"
    return "not a regular file" if os.path.exists(path) and not os.path.isfile(path) else None


def _beside(path: str) -> str:
    return os.path.join(os.path.dirname(os.path.realpath(path)), f".{secrets.token_hex(8)}.safetensors")
