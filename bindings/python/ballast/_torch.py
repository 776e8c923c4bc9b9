"""PyTorch's tensors. Importing this module imports torch."""

from __future__ import annotations

import sys
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from ballast import _dtypes
from ballast._errors import UnsupportedError

_NAMES = _dtypes.numpy_names() | {"F4": "float4_e2m1fn_x2"}

#: The dtypes of this version of PyTorch by the names in file headers.
DTYPES: dict[str, Any] = {code: getattr(torch, name) for code, name in _NAMES.items() if hasattr(torch, name)}
#: The reverse.
CODES: dict[Any, str] = {dtype: code for code, dtype in DTYPES.items()}


def check(name: str, dtype: str) -> None:
    """Raise UnsupportedError if PyTorch has no such dtype."""
    if dtype not in DTYPES:
        instead = "numpy() returns its bytes" if dtype.startswith("F6") else "use torch.from_numpy(tensor.to('float32'))"
        raise UnsupportedError(f"tensor {name!r}: PyTorch {torch.__version__} has no dtype for {dtype}; {instead}")


def tensor_of(name: str, dtype: str, shape: tuple[int, ...], buffer: Any) -> torch.Tensor:
    """Return a tensor over a writable buffer, without a copy unless its address is not aligned."""
    check(name, dtype)
    if dtype == "F4":  # PyTorch counts pairs of values
        if not shape or shape[-1] % 2 != 0:
            raise UnsupportedError(f"tensor {name!r}: PyTorch needs an even last dimension for F4, the shape is {list(shape)}")
        shape = (*shape[:-1], shape[-1] // 2)
    if len(buffer) == 0:
        return torch.empty(shape, dtype=DTYPES[dtype])
    if sys.byteorder == "big":
        return _swapped(torch.frombuffer(buffer, dtype=DTYPES[dtype])).reshape(-1).view(DTYPES[dtype]).reshape(shape)
    tensor = torch.frombuffer(buffer, dtype=DTYPES[dtype]).reshape(shape)
    return tensor if tensor.data_ptr() % tensor.element_size() == 0 else tensor.clone()


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor on the CPU with the bytes that files hold: little endian, contiguous, with no lazy operation."""
    here = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
    return _swapped(here) if sys.byteorder == "big" else here


def stored_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the shape in values."""
    shape = tuple(tensor.shape)
    return (*shape[:-1], shape[-1] * 2) if CODES.get(tensor.dtype) == "F4" and shape else shape


def _swapped(tensor: torch.Tensor) -> torch.Tensor:
    size = 4 if tensor.dtype == torch.complex64 else tensor.element_size()
    return tensor.reshape(-1).view(torch.uint8).reshape(-1, size).flip(1)
