"""The dtypes of SafeTensors by the names in its headers, and their counterparts in NumPy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ballast._errors import ArgumentError

# None: values smaller than a byte, for which NumPy has no dtype; arrays of these hold raw bytes.
_NUMPY: dict[str, str | None] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16", "I32": "int32",
    "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64", "U64": "uint64",
    "BF16": "bfloat16", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": None, "F6_E2M3": None, "F6_E3M2": None,
}  # fmt: skip

# Other names, in lower case.
_ALIASES = {name.lower(): name for name in _NUMPY if name not in ("F4", "I8", "U8")}
_ALIASES |= {numpy: name for name, numpy in _NUMPY.items() if numpy is not None}
_ALIASES |= {"fp16": "F16", "half": "F16", "fp32": "F32", "fp64": "F64", "double": "F64", "f8_e4m3fn": "F8_E4M3"}

# Names that mean different dtypes in different libraries. NumPy counts bytes in "f4", SafeTensors bits in "F4".
_AMBIGUOUS = {
    "float": "'float32' or 'float64'", "int": "'int32' or 'int64'", "uint": "'uint32' or 'uint64'", "complex": "'complex64'",
    "fp8": "'float8_e4m3fn' or 'float8_e5m2'", "float8": "'float8_e4m3fn' or 'float8_e5m2'",
    "f2": "'float16'", "f4": "'float32' or 'F4'", "f8": "'float64', 'float8_e4m3fn' or 'float8_e5m2'", "i1": "'int8'",
    "i2": "'int16'", "i4": "'int32'", "i8": "'int64' or 'int8'", "u1": "'uint8'", "u2": "'uint16'", "u4": "'uint32'",
    "u8": "'uint64' or 'uint8'", "c8": "'complex64'",
}  # fmt: skip


@lru_cache(maxsize=None)
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a SafeTensors dtype: from ml_dtypes for BF16 and F8, uint8 for F4 and F6."""
    numpy = _NUMPY[name]
    if numpy is None:
        return np.dtype(np.uint8)
    if numpy.startswith(("bfloat", "float8")):
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, numpy))
        return extended
    return np.dtype(numpy)


def numpy_names() -> dict[str, str]:
    """Return the names in NumPy and ml_dtypes, by those in SafeTensors."""
    return {name: numpy for name, numpy in _NUMPY.items() if numpy is not None}


def is_packed(name: str) -> bool:
    """Return whether values are smaller than a byte."""
    return _NUMPY[name] is None


def name_of(dtype: Any) -> str:
    """Return the SafeTensors name of a dtype given as a name, such as "bf16", or as a dtype of NumPy, PyTorch, JAX or MLX."""
    if isinstance(dtype, str):
        return _named(dtype)
    if type(dtype).__module__.partition(".")[0] in ("torch", "mlx"):
        return _named(str(dtype))
    if dtype is float or dtype is int or dtype is complex:
        raise _ambiguous(dtype.__name__)
    if dtype is None:  # NumPy's float64
        raise TypeError("dtype must be a name or a dtype, not None")
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype must be a name or a dtype, not {dtype!r}") from None
    if found.name in _ALIASES:
        return _ALIASES[found.name]
    raise TypeError(f"SafeTensors has no dtype for {found}")


def _named(name: str) -> str:
    plain = name.removeprefix("torch.").removeprefix("mlx.core.").removeprefix("np.").removeprefix("numpy.")
    if plain in _NUMPY:
        return plain
    lower = plain.lower()
    if lower in _ALIASES:
        return _ALIASES[lower]
    if lower in _AMBIGUOUS:
        raise _ambiguous(name)
    known = ", ".join(numpy or name for name, numpy in _NUMPY.items())
    raise ArgumentError(f"unknown dtype {name!r}; use {known}, or a SafeTensors name such as BF16")


def _ambiguous(name: str) -> ArgumentError:
    wanted = _AMBIGUOUS[name.rpartition(".")[2].lower()]
    return ArgumentError(f"dtype {name!r} is ambiguous; use {wanted}")
