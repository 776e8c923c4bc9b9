"""Indices of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

#: What to read of each dimension: start, stop and step.
Bounds = list[tuple["int | None", "int | None", int]]

_TAKEN = "tensors take integers, slices, ... and None as indices"


def bounds_of(name: str, shape: tuple[int, ...], index: Any) -> tuple[Bounds, tuple[Any, ...]]:
    """Return what to read of each dimension, and the index into what is read. Integers are read as ranges of one."""
    items = index if isinstance(index, tuple) else (index,)
    given = sum(1 for item in items if item is not None and item is not Ellipsis)
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise IndexError("an index can only have one ellipsis")
    if given > len(shape):
        raise IndexError(f"too many indices: tensor {name!r} has {len(shape)} dimensions, {given} were given")
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    bounds: Bounds = []
    picked: list[Any] = []
    for item in items:
        if item is Ellipsis:
            rest = len(shape) - given
            bounds += [(None, None, 1)] * rest
            picked += [slice(None)] * rest
        elif item is None:
            picked.append(None)
        elif isinstance(item, slice):
            step = 1 if item.step is None else _bound(item.step)
            if step == 0:
                raise ValueError("slice step cannot be zero")
            bounds.append((None if item.start is None else _bound(item.start), None if item.stop is None else _bound(item.stop), step))
            picked.append(slice(None))
        else:
            place, dim = _integer(item), shape[len(bounds)]
            if not -dim <= place < dim:
                raise IndexError(f"index {place} is out of bounds for dimension {len(bounds)} with size {dim} of tensor {name!r}")
            place %= dim
            bounds.append((place, place + 1, 1))
            picked.append(0)
    return bounds, tuple(picked)


def _bound(item: Any) -> int:
    """Clamp a bound or step of a slice to 63 bits, which no dimension exceeds."""
    return max(-(2**62), min(2**62, _integer(item)))


def _integer(item: Any) -> int:
    if isinstance(item, (bool, np.bool_)):
        raise TypeError(f"{_TAKEN}, not bool; call numpy() first to use masks")
    try:
        return int(item.__index__())
    except (AttributeError, TypeError):
        raise TypeError(f"{_TAKEN}, not {type(item).__name__}; call numpy() first to use others") from None
