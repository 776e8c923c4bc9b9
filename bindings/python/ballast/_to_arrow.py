"""Arrow tables of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ballast import _core
from ballast._model import Model, open as open_model
from ballast._sources import Tensors, items_of
from ballast._tensor import Array, Path, Tensor

if TYPE_CHECKING:
    import pyarrow as pa


def to_arrow(source: Path | Model | Tensors) -> pa.Table:
    """Return a pyarrow.Table that quantize() takes, with one row for each tensor.

    The columns are layer_name, weights (lists of float32) and shape. F32 is not copied. Integers that float32 cannot hold raise
    UnsupportedError.

    Args:
        source: A path or URI, an open model, or a mapping of arrays.

    >>> ballast.to_arrow(path).column("shape").to_pylist()
    [[64, 32], [64]]
    """
    if isinstance(source, Model):
        return _table_of((name, _floats(tensor)) for name, tensor in source.items())
    if isinstance(source, Mapping):
        with Model(_core.from_tensors(items_of(source), "<memory>", None)) as model:
            return _table_of((name, _floats(model[name])) for name in source)
    with open_model(source) as model:
        return to_arrow(model)


def _floats(tensor: Tensor) -> Array:
    return tensor.numpy() if tensor.dtype == "F32" else tensor.to("f32")


def _table_of(layers: Iterable[tuple[str, Array]]) -> pa.Table:
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
