"""Layers in Arrow tables, from pyarrow or any library with the C stream interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ballast import _dtypes


class ArrowStream(Protocol):
    """A table of pyarrow, polars or another library."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


def is_arrow(source: Any) -> bool:
    """Return whether it is a table, a record batch or a stream of batches."""
    return not isinstance(source, Mapping) and hasattr(source, "__arrow_c_stream__")


def tensors_of_arrow(source: Any) -> list[tuple[str, str, tuple[int, ...], Any]]:
    """Return the rows of a table with layer_name, weights and optionally shape as the core takes tensors, without a copy."""
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_stream(source)
    twice = [name for name in ("layer_name", "weights", "shape") if reader.schema.names.count(name) > 1]
    if twice:
        raise ValueError(f"the table has two columns {twice[0]!r}")
    missing = [name for name in ("layer_name", "weights") if name not in reader.schema.names]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}; it needs layer_name and weights, and shape is optional")
    items = []
    for batch in reader:
        names, weights = batch.column("layer_name"), batch.column("weights")
        shapes = batch.column("shape") if "shape" in batch.schema.names else None
        if not _are_lists_of_numbers(weights.type):
            raise TypeError(f"the column weights must have lists of numbers, not {weights.type}")
        for row in range(batch.num_rows):
            items.append(_item(names[row].as_py(), weights[row], None if shapes is None else shapes[row].as_py()))
    return items


def _are_lists_of_numbers(kind: Any) -> bool:
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)))


def _item(name: Any, weights: Any, shape: Any) -> tuple[str, str, tuple[int, ...], Any]:
    if not isinstance(name, str):
        raise TypeError(f"the column layer_name must have strings, not {name!r}")
    if not weights.is_valid or weights.values.null_count:
        raise ValueError(f"layer {name!r}: the weights contain nulls")
    values = weights.values.to_numpy(zero_copy_only=True)
    if shape is not None and not isinstance(shape, list):
        raise TypeError(f"layer {name!r}: the shape must be a list, not {shape!r}")
    dims = (len(values),) if shape is None else tuple(shape)
    if not all(isinstance(dim, int) for dim in dims):
        raise TypeError(f"layer {name!r}: the shape must have integers, it is {list(dims)}")
    if any(dim < 0 for dim in dims) or int(np.prod(dims, dtype=object)) != len(values):
        raise ValueError(f"layer {name!r}: shape {list(dims)} does not match {len(values)} weights")
    return name, _dtypes.name_of(values.dtype), dims, values.view(np.uint8)
