"""Tensors of a model as matrices."""

from __future__ import annotations

from typing import TypeVar

from ballast._tensor import Array, Path
from ballast.arrow_quant_v2.python.safetensors_loader import SafeTensorsLoader

_Adapter = TypeVar("_Adapter", bound="SafeTensorsAdapter")


class SafeTensorsAdapter(SafeTensorsLoader):
    """A loader that also returns tensors as matrices of float32.

    >>> adapter = SafeTensorsAdapter.load(path)
    >>> {name: matrix.shape for name, matrix in adapter.get_all_tensors_2d().items()}
    {'embed.weight': (64, 32), 'bias': (64, 1)}
    """

    @classmethod
    def load(cls: type[_Adapter], path: Path) -> _Adapter:
        """Open a model. Raises FileNotFoundError if the file does not exist, and ValueError if it is damaged or unsupported."""
        return cls(path)

    def get_tensor_2d(self, name: str) -> Array:
        """Return a tensor as a matrix: the first dimension by all others. A vector [n] becomes [n, 1], a scalar [1, 1]."""
        shape = self._model[name].shape
        rows = shape[0] if shape else 1
        columns = 1
        for dim in shape[1:]:
            columns *= dim
        return self.get_tensor(name).reshape(rows, columns)

    def get_all_tensors_2d(self) -> dict[str, Array]:
        """Return all tensors as matrices. Takes four bytes of memory for each parameter."""
        return {name: self.get_tensor_2d(name) for name in self._model}
