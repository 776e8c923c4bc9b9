"""Indices of get_slice(), with the limits of `safetensors`, which are stricter than NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from ballast.safetensors._errors import MISALIGNED, SafetensorError


class Part(NamedTuple):
    """What to read of a tensor, and the shape of the result, without the dimensions that are indexed by an integer."""

    bounds: list[tuple[int | None, int | None, int]]
    shape: tuple[int, ...]


_Range = tuple["int | None", "int | None", int]


def parse(index: Any, shape: Sequence[int]) -> Part:
    """Parse an index. Bounds past the end are errors, negative ones count from the end, a start after the stop selects nothing."""
    items = _items(index, shape)
    if len(items) > len(shape):
        raise _refused(items, shape, "more slicing indexes than dimensions in tensor")
    for place in reversed(range(len(items))):
        past = _past_the_end(items[place], shape[place])
        if past is not None:
            raise _refused(items, shape, f"index {past} out of bounds for tensor dimension #{place} of size {shape[place]}")
    bounds: list[tuple[int | None, int | None, int]] = []
    kept: list[int] = []
    for item, size in zip(items, shape):
        if isinstance(item, int):
            bounds.append((item, item + 1, 1))
        else:
            taken = range(size)[slice(*item)]
            bounds.append((taken.start, max(taken.start, taken.stop), min(taken.step, max(size, 1))))
            kept.append(max(0, -((taken.start - taken.stop) // taken.step)))  # len() is limited to sys.maxsize
    return Part(bounds, (*kept, *shape[len(items) :]))


def _items(index: Any, shape: Sequence[int]) -> list[int | _Range]:
    """Return one item for each indexed dimension: an integer counted from the start, or the bounds of a range."""
    if isinstance(index, list):
        if index:
            raise SafetensorError("Non empty lists are not implemented")
        return [(0, 0, 1)]
    given = index if isinstance(index, tuple) else (index,)
    ellipses = sum(1 for item in given if item is Ellipsis)
    if ellipses > 1:
        raise SafetensorError("Only one ellipsis (...) is allowed in slice index")
    items: list[int | _Range] = []
    for position, item in enumerate(given):
        if item is Ellipsis:
            items += [(None, None, 1)] * (len(shape) - len(given) + 1)
        elif isinstance(item, slice):
            items.append(_range(item))
        else:
            items.append(_number(item, position, len(items), shape))
    return items


def _number(item: Any, position: int, dim: int, shape: Sequence[int]) -> int:
    try:
        number = operator.index(item)
    except TypeError:
        raise SafetensorError(f"Unsupported slice index at position {position}: expected slice, int, or ellipsis") from None
    size = shape[dim] if dim < len(shape) else 0
    if number < -size:
        raise SafetensorError(f"Invalid index {number} for dimension {dim} of size {size}")
    return number if number >= 0 else number + size


def _range(item: slice) -> _Range:
    step = 1 if item.step is None else operator.index(item.step)
    if step < 1:
        raise SafetensorError(f"Slice step must be a positive integer, got {step}")
    return (
        None if item.start is None else operator.index(item.start),
        None if item.stop is None else operator.index(item.stop),
        step,
    )


def _past_the_end(item: int | _Range, size: int) -> int | None:
    """Return the first index past the end, or None."""
    if isinstance(item, int):
        return item if item >= size else None
    start, stop, _ = item
    if start is not None and start >= max(size, 1):
        return start
    return stop - 1 if stop is not None and stop > size else None


def misaligned(index: Any, shape: Sequence[int]) -> SafetensorError:
    """Return the error for a part of packed values that begins or ends within a byte."""
    return _refused(_items(index, shape), shape, MISALIGNED)


def _refused(items: Sequence[int | _Range], shape: Sequence[int], why: str) -> SafetensorError:
    given = ", ".join(str(item) if isinstance(item, int) else _text(*item) for item in items)
    return SafetensorError(f"Error during slicing [{given}] with shape {list(shape)}: {why}")


def _text(start: int | None, stop: int | None, step: int) -> str:
    bounds = f"{'' if start is None else start}:{'' if stop is None else stop}"
    return bounds if step == 1 else f"{bounds}:{step}"
