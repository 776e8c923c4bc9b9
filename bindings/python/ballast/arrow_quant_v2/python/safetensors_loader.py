"""The contents of a model, and its tensors as float32."""

from __future__ import annotations

import os
from collections import Counter
from types import TracebackType
from typing import Any, Literal, TypeVar

import ballast
from ballast._tensor import Array, Path
from ballast._text import counted, size_text

_Loader = TypeVar("_Loader", bound="SafeTensorsLoader")


class Names(list[str]):
    """Names of tensors. It may be called: `tensor_names` and `tensor_names()` are the same."""

    def __call__(self) -> list[str]:
        return list(self)


class SafeTensorsLoader:
    """A SafeTensors file, an index of shards or a model directory. Weights are read when you ask for them.

    >>> loader = SafeTensorsLoader(path)
    >>> loader.tensor_names, loader.get_num_parameters()
    (['embed.weight', 'bias'], 2112)
    >>> loader.get_tensor("embed.weight").dtype
    dtype('float32')
    """

    def __init__(self, path: Path) -> None:
        self._model = ballast.open(path)
        #: The metadata in the headers of the files.
        self.metadata: dict[str, str] = self._model.metadata

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    @property
    def path(self) -> str:
        """The path given."""
        return self._model.path

    @property
    def tensor_names(self) -> Names:
        """The names of all tensors, in the order of the files."""
        return Names(self._model)

    def get_tensor_info(self, name: str) -> dict[str, Any]:
        """Return the name, dtype, shape, number of parameters and bytes of a tensor, without reading it.

        >>> SafeTensorsLoader(path).get_tensor_info("bias")
        {'name': 'bias', 'dtype': 'F32', 'shape': (64,), 'num_parameters': 64, 'nbytes': 256}
        """
        tensor = self._model[name]
        return {
            "name": name,
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "num_parameters": tensor.size,
            "nbytes": tensor.nbytes,
        }

    def get_tensor(self, name: str) -> Array:
        """Return a copy of the values as float32. F64 and large integers are rounded. F6 and C64 raise ValueError."""
        return self._model[name].to("f32", allow_loss=True)

    def get_all_tensors(self) -> dict[str, Array]:
        """Return all tensors as float32. Takes four bytes of memory for each parameter."""
        return {name: self.get_tensor(name) for name in self._model}

    def detect_modality(self) -> Literal["text", "code", "image", "audio"] | None:
        """Return the modality in the metadata, or else the one that the names of the tensors suggest, or None."""
        return self._model.modality

    def get_model_size_mb(self) -> float:
        """Return the size of the files in MB, 10^6 bytes."""
        return self._model.file_size / 1e6

    def get_num_parameters(self) -> int:
        """Return the number of values in all tensors."""
        return self._model.num_parameters

    def summary(self) -> str:
        """Return a description of a few lines.

        >>> print(SafeTensorsLoader("model.safetensors").summary())
        model.safetensors: safetensors, modality unknown
        2 tensors, 2,112 parameters, 4.51 kB in 1 file
          BF16: 1 tensor, 2,048 parameters
          F32: 1 tensor, 64 parameters
        """
        model = self._model
        lines = [
            f"{os.fspath(self.path)}: {model.format}, modality {model.modality or 'unknown'}",
            f"{counted(len(model), 'tensor')}, {model.num_parameters:,} parameters, {size_text(model.file_size)} in"
            f" {counted(len(model.files), 'file')}",
        ]
        tensors: Counter[str] = Counter()
        parameters: Counter[str] = Counter()
        for tensor in model.values():
            tensors[tensor.dtype] += 1
            parameters[tensor.dtype] += tensor.size
        lines += [f"  {dtype}: {counted(tensors[dtype], 'tensor')}, {parameters[dtype]:,} parameters" for dtype in tensors]
        lines += [f"  {key} = {value}" for key, value in self.metadata.items()]
        return "\n".join(lines)

    def close(self) -> None:
        """Close the files."""
        self._model.close()

    def __enter__(self: _Loader) -> _Loader:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

