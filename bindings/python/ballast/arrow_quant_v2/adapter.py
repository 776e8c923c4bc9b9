"""The tensors of a model as matrices, which is how they are quantized."""

from __future__ import annotations

from typing import TypeVar

from ballast.arrow_quant_v2.python.safetensors_loader import SafeTensorsLoader
from ballast.model import Array, Path

_Adapter = TypeVar("_Adapter", bound="SafeTensorsAdapter")


class SafeTensorsAdapter(SafeTensorsLoader):
    """A loader that also gives matrices of float32.

    >>> adapter = SafeTensorsAdapter.load(path)
    >>> {name: matrix.shape for name, matrix in adapter.get_all_tensors_2d().items()}
    {'embed.weight': (64, 32), 'bias': (64, 1)}
    """

    @classmethod
    def load(cls: type[_Adapter], path: Path) -> _Adapter:
        """Opens a model. No file is a FileNotFoundError, one that is damaged or of another kind a ValueError."""
        return cls(path)

    def get_tensor_2d(self, name: str) -> Array:
        """The first dimension by all others; a vector [n] is [n, 1], a scalar [1, 1]."""
        shape = self._model[name].shape
        rows = shape[0] if shape else 1
        columns = 1
        for dim in shape[1:]:
            columns *= dim
        return self.get_tensor(name).reshape(rows, columns)

    def get_all_tensors_2d(self) -> dict[str, Array]:
        """All of them, which takes four bytes for each parameter."""
        return {name: self.get_tensor_2d(name) for name in self._model}
