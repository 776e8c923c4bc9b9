"""What is in a model, and its tensors as float32."""

from __future__ import annotations

import os
from collections import Counter
from types import TracebackType
from typing import Any, Literal, TypeVar

import ballast
from ballast.model import Array, Path

_Loader = TypeVar("_Loader", bound="SafeTensorsLoader")


class Names(list[str]):
    """Names of tensors, which may also be asked for with a call: `tensor_names` and `tensor_names()` are the same."""

    def __call__(self) -> list[str]:
        return list(self)


class SafeTensorsLoader:
    """A SafeTensors file, an index of shards or a model directory. Weights are read when they are asked for.

    >>> loader = SafeTensorsLoader(path)
    >>> loader.tensor_names, loader.get_num_parameters()
    (['embed.weight', 'bias'], 2112)
    >>> loader.get_tensor("embed.weight").dtype
    dtype('float32')
    """

    def __init__(self, path: Path) -> None:
        self._model = ballast.open(path)
        #: What the files say of themselves.
        self.metadata: dict[str, str] = self._model.metadata

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    @property
    def path(self) -> str:
        """As it was given."""
        return self._model.path

    @property
    def tensor_names(self) -> Names:
        """In the order of the files."""
        return Names(self._model)

    def get_tensor_info(self, name: str) -> dict[str, Any]:
        """Its name, dtype as SafeTensors spells it, shape, number of parameters and bytes; nothing is read.

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
        """Its values as float32, in memory of their own. F64 and large integers are rounded; F6 and C64 are a ValueError."""
        return self._model[name].to("f32", allow_loss=True)

    def get_all_tensors(self) -> dict[str, Array]:
        """All of them as float32, which takes four bytes for each parameter."""
        return {name: self.get_tensor(name) for name in self._model}

    def detect_modality(self) -> Literal["text", "code", "image", "audio"] | None:
        """What the model is for: by its metadata, else by the names of its tensors, else None."""
        return self._model.modality

    def get_model_size_mb(self) -> float:
        """Of the files, in 10^6 bytes."""
        return self._model.file_size / 1e6

    def get_num_parameters(self) -> int:
        """The values of all tensors."""
        return self._model.num_parameters

    def summary(self) -> str:
        """A few lines for people.

        >>> print(SafeTensorsLoader("model.safetensors").summary())
        model.safetensors: safetensors, modality unknown
        2 tensors, 2,112 parameters, 4.51 kB in 1 file
          BF16: 1 tensor, 2,048 parameters
          F32: 1 tensor, 64 parameters
        """
        model = self._model
        lines = [
            f"{os.fspath(self.path)}: {model.format}, modality {model.modality or 'unknown'}",
            f"{_count(len(model), 'tensor')}, {model.num_parameters:,} parameters, {_size(model.file_size)} in"
            f" {_count(len(model.files), 'file')}",
        ]
        tensors: Counter[str] = Counter()
        parameters: Counter[str] = Counter()
        for tensor in model.values():
            tensors[tensor.dtype] += 1
            parameters[tensor.dtype] += tensor.size
        lines += [f"  {dtype}: {_count(tensors[dtype], 'tensor')}, {parameters[dtype]:,} parameters" for dtype in tensors]
        lines += [f"  {key} = {value}" for key, value in self.metadata.items()]
        return "\n".join(lines)

    def close(self) -> None:
        """Lets go of the files."""
        self._model.close()

    def __enter__(self: _Loader) -> _Loader:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _size(size: float) -> str:
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            break
    return f"{size:,.2f} {unit}"
