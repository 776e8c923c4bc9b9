"""SafeTensors files of JAX arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp  # type: ignore[import-not-found, unused-ignore]
import numpy as np
from jax import Array  # type: ignore[import-not-found, unused-ignore]

from ballast.safetensors import _open, _write, numpy
from ballast.safetensors._frameworks import Framework
from ballast.safetensors._open import safe_open

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]


def save(tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a SafeTensors file.

    >>> load(save({"a": jnp.zeros((2, 3), jnp.bfloat16)}))["a"].dtype
    dtype(bfloat16)
    """
    return numpy.save(_arrays(tensors), metadata)


def save_file(tensors: Mapping[str, Array], filename: _open.Filename, metadata: Mapping[str, str] | None = None) -> None:
    """Write a SafeTensors file."""
    numpy.save_file(_arrays(tensors), filename, metadata)


def load(data: bytes) -> dict[str, Array]:
    """Return the arrays of a file in memory."""
    return _open.load(data, "flax")


def load_file(filename: _open.Filename, *, backend: str = "mmap") -> dict[str, Array]:
    """Return the arrays of a file.

    >>> load_file(path)["bias"].shape
    (64,)
    """
    with _open.safe_open(filename, "flax", backend=backend) as file:
        made: dict[str, Array] = file.get_tensors()
        return made


def _arrays(tensors: Mapping[str, Array]) -> dict[str, np.ndarray[Any, Any]]:
    _write.check_names(tensors)
    return {name: np.asarray(array) for name, array in tensors.items()}


def _make(name: str, dtype: str, shape: tuple[int, ...], content: Any) -> Array:
    # Nothing else uses the memory, so JAX may share it.
    return jnp.asarray(numpy.array_of(name, dtype, shape, content))


def _pick(array: Array, slices: tuple[slice, ...], shape: tuple[int, ...]) -> Array:
    return array[slices].reshape(shape)


def _framework(device: Any) -> Framework:
    return Framework(_make, pick=_pick)
