"""The dtypes of SafeTensors, by the names that its headers have, and what they are in NumPy."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

# None where a value is smaller than a byte, which NumPy has nothing for: these are seen as raw bytes.
_NUMPY: dict[str, str | None] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16", "I32": "int32",
    "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64", "U64": "uint64",
    "BF16": "bfloat16", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": None, "F6_E2M3": None, "F6_E3M2": None,
}  # fmt: skip

#: All names, as headers spell them.
NAMES: tuple[str, ...] = tuple(_NUMPY)

# How people spell them besides. In lower case F4, I8 and U8 are NumPy's float32, int64 and uint64.
_ALIASES = {name.lower(): name for name in _NUMPY if name not in ("F4", "I8", "U8")}
_ALIASES |= {numpy: name for name, numpy in _NUMPY.items() if numpy is not None}
_ALIASES |= {"half": "F16", "double": "F64", "f8_e4m3fn": "F8_E4M3"}


@lru_cache(maxsize=None)
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a SafeTensors dtype: one of ml_dtypes for BF16 and F8, uint8 for what is packed."""
    numpy = _NUMPY[name]
    if numpy is None:
        return np.dtype(np.uint8)
    if numpy.startswith(("bfloat", "float8")):
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, numpy))
        return extended
    return np.dtype(numpy)


def is_packed(name: str) -> bool:
    """Whether values are smaller than a byte."""
    return _NUMPY[name] is None


def name_of(dtype: Any) -> str:
    """The SafeTensors dtype that is meant by a name, such as "bf16", or by anything that NumPy takes for a dtype."""
    if isinstance(dtype, str) and dtype in _NUMPY:
        return dtype
    if isinstance(dtype, str) and dtype.lower() in _ALIASES:
        return _ALIASES[dtype.lower()]
    if isinstance(dtype, str) and re.fullmatch("[a-zA-Z][0-9]+", dtype):
        raise TypeError(f"no dtype: {dtype!r}; NumPy counts bytes there, SafeTensors bits, so say float64, int32 and so on")
    if dtype is None:  # which NumPy takes for float64
        raise TypeError("no dtype: None")
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"no dtype: {dtype!r}") from None
    if found.name in _ALIASES:
        return _ALIASES[found.name]
    raise TypeError(f"SafeTensors has no dtype for {found}")
