"""Layers in Arrow tables, of pyarrow or of anything that has the C stream interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ballast import dtypes

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowStream(Protocol):
    """Tables of pyarrow, polars and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


def is_arrow(source: Any) -> bool:
    """Whether it is a table, a record batch or a stream of them."""
    return not isinstance(source, Mapping) and hasattr(source, "__arrow_c_stream__")


def tensors_of_arrow(source: Any) -> list[tuple[str, str, tuple[int, ...], Any]]:
    """The rows of layer_name, weights and perhaps shape, as the core takes tensors. Nothing is copied."""
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_stream(source)
    twice = [name for name in ("layer_name", "weights", "shape") if reader.schema.names.count(name) > 1]
    if twice:
        raise ValueError(f"the table has the column {twice[0]!r} twice")
    missing = [name for name in ("layer_name", "weights") if name not in reader.schema.names]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}; it needs layer_name and weights, and may have shape")
    items = []
    for batch in reader:
        names, weights = batch.column("layer_name"), batch.column("weights")
        shapes = batch.column("shape") if "shape" in batch.schema.names else None
        if not _are_lists_of_numbers(weights.type):
            raise TypeError(f"weights are lists of numbers, not {weights.type}")
        for row in range(batch.num_rows):
            items.append(_item(names[row].as_py(), weights[row], None if shapes is None else shapes[row].as_py()))
    return items


def table_of(layers: Iterable[tuple[str, np.ndarray[Any, Any]]]) -> pa.Table:
    """A row for each array of float32, whose memory is not copied."""
    import pyarrow as pa

    names, weights, shapes = [], [], []
    for name, values in layers:
        flat = np.require(values, requirements=["C", "A"]).reshape(-1)
        names.append(name)
        weights.append(pa.LargeListArray.from_arrays(pa.array([0, flat.size], pa.int64()), pa.array(flat)))
        shapes.append(values.shape)
    return pa.table(
        {
            "layer_name": pa.array(names, pa.string()),
            "weights": pa.chunked_array(weights, pa.large_list(pa.float32())),
            "shape": pa.array(shapes, pa.list_(pa.int64())),
        }
    )


def _are_lists_of_numbers(kind: Any) -> bool:
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)))


def _item(name: Any, weights: Any, shape: Any) -> tuple[str, str, tuple[int, ...], Any]:
    if not isinstance(name, str):
        raise TypeError(f"layer_name has {name!r} where a text must be")
    if not weights.is_valid or weights.values.null_count:
        raise ValueError(f"layer {name!r}: there are nulls among its weights")
    values = weights.values.to_numpy(zero_copy_only=True)
    if shape is not None and not isinstance(shape, list):
        raise TypeError(f"layer {name!r}: its shape is {shape!r}, not a list")
    dims = (len(values),) if shape is None else tuple(shape)
    if not all(isinstance(dim, int) for dim in dims):
        raise TypeError(f"layer {name!r}: its shape is {list(dims)}, which are not whole numbers")
    if any(dim < 0 for dim in dims) or int(np.prod(dims, dtype=object)) != len(values):
        raise ValueError(f"layer {name!r}: has {len(values)} weights, its shape is {list(dims)}")
    return name, dtypes.name_of(values.dtype), dims, values.view(np.uint8)
