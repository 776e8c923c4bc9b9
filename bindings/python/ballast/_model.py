"""Models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, overload

from ballast import _core, _html
from ballast._arguments import checked, is_utf8, path_of
from ballast._errors import ArgumentError, TensorNotFoundError, one_line
from ballast._progress import Progress, watched
from ballast._tensor import Array, Path, Tensor, as_array, pytorch
from ballast._text import counted, size_text

if TYPE_CHECKING:
    from torch import Tensor as TorchTensor
    from typing_extensions import TypeGuard

_Default = TypeVar("_Default")


def is_name(name: object) -> TypeGuard[str]:
    """Return whether a tensor may have this name: it must be a str that UTF-8 can encode."""
    return isinstance(name, str) and is_utf8(name)


class Model(Mapping[str, Tensor]):
    """The weights of a model: a mapping from names to tensors. Values are read when you ask for them.

    open() and from_bytes() return one.

    >>> with ballast.open(path) as model:
    ...     len(model), model.num_parameters, list(model)[0]
    (2, 2112, 'embed.weight')
    """

    def __init__(self, core: _core.OpenModel) -> None:
        self._core = core

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor. Raises TensorNotFoundError, a KeyError, that names the most similar tensor."""
        info = self._core.info(name) if is_name(name) else None
        if info is None:
            if is_name(name):
                raise TensorNotFoundError(self._core.describe_missing(name))
            raise TensorNotFoundError(f"{one_line(self._core.path)}: no tensor {name!r} among {len(self)}")
        return Tensor(self._core, name, info[0], info[1])

    @overload
    def get(self, name: str, /) -> Tensor | None: ...
    @overload
    def get(self, name: str, /, default: Tensor | _Default) -> Tensor | _Default: ...
    def get(self, name: str, /, default: Any = None) -> Any:
        """Return a tensor, or `default` if the model has none with this name."""
        return self[name] if name in self else default  # __getitem__ would look for a similar name

    def __contains__(self, name: object) -> bool:
        return is_name(name) and self._core.has(name)

    # By identity, unlike other mappings: a model is a file.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.names())

    def __len__(self) -> int:
        return self._core.count

    def __repr__(self) -> str:
        if self._core.closed:
            return "Model(closed)"
        return f"Model({self.path!r}, {len(self)} tensors, {self.num_parameters:,} parameters)"

    def _repr_html_(self) -> str:
        if self._core.closed:
            return _html.page("Model", ["closed"])
        rows = ((name, tensor.dtype, list(tensor.shape), size_text(tensor.nbytes)) for name, tensor in self.items())
        facts = [
            self.format,
            counted(len(self), "tensor"),
            f"{self.num_parameters:,} parameters",
            f"{size_text(self.file_size)} in {counted(len(self.files), 'file')}",
        ]
        tensors = _html.table(("tensor", "dtype", "shape", "size"), rows, len(self))
        return _html.page(self.path, facts, tensors, _html.notes("Warnings", self.warnings))

    @property
    def path(self) -> str:
        """The path given to open()."""
        return self._core.path

    @property
    def format(self) -> str:
        """The format: "safetensors" or "mlx-json"."""
        return self._core.format

    @property
    def files(self) -> list[str]:
        """The paths of the weight files."""
        return [path for path, _, _ in self._core.files()]

    @property
    def file_size(self) -> int:
        """The size of all weight files in bytes."""
        return self._core.file_size

    @property
    def nbytes(self) -> int:
        """The size of all tensors in bytes."""
        return self._core.data_bytes

    @property
    def num_parameters(self) -> int:
        """The number of values in all tensors."""
        return self._core.num_parameters

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata in the headers of the files."""
        return self._core.metadata

    @property
    def config(self) -> dict[str, Any] | None:
        """The contents of config.json, or None."""
        text = self._core.config
        return None if text is None else json.loads(text)

    @property
    def modality(self) -> Literal["text", "code", "image", "audio"] | None:
        """The modality in the metadata, or else the one that the names of the tensors suggest."""
        return self._core.modality

    @property
    def warnings(self) -> list[str]:
        """The warnings of open()."""
        return self._core.warnings

    @overload
    def load(
        self,
        *,
        framework: Literal["numpy"] = "numpy",
        threads: int = 0,
        memory_limit: int | str = 0,
        progress: Progress = None,
    ) -> dict[str, Array]: ...
    @overload
    def load(
        self, *, framework: Literal["torch"], threads: int = 0, memory_limit: int | str = 0, progress: Progress = None
    ) -> dict[str, TorchTensor]: ...
    def load(
        self,
        *,
        framework: Literal["numpy", "torch"] = "numpy",
        threads: int = 0,
        memory_limit: int | str = 0,
        progress: Progress = None,
    ) -> Union[dict[str, Array], dict[str, TorchTensor]]:
        """Read all tensors into memory, with several threads, and return them by name.

        Args:
            framework: "numpy" for arrays or "torch" for PyTorch tensors. Either may be written to. In NumPy F4 and F6 are
                arrays of bytes, which save() would write as U8; save the model itself to preserve them.
            threads: The number of threads. 0: one per core, more on slow disks.
            memory_limit: Raise UnsupportedError rather than allocate more: a number of bytes or a size such as "8GB". 0: no
                limit.
            progress: A function of (bytes done, total bytes, name), or True for a progress bar.

        >>> arrays = model.load()
        >>> arrays["bias"].shape
        (64,)
        """
        if framework not in ("numpy", "torch"):
            raise ArgumentError(f"framework is {framework!r}, it must be 'numpy' or 'torch'")
        names = self._core.names()
        infos = [(name, *self._described(name)) for name in names]
        make: Any = None
        if framework == "torch":
            module = pytorch()
            make = module.tensor_of
            for name, dtype, _ in infos:
                module.check(name, dtype)
        with watched(progress, "loading") as callback:
            buffers = self._core.load_all(**checked(threads=threads, memory_limit=memory_limit), progress=callback)
        if make is not None:
            return {name: make(name, dtype, shape, buffer) for (name, dtype, shape), buffer in zip(infos, buffers)}
        return {name: as_array(dtype, shape, buffer) for (name, dtype, shape), buffer in zip(infos, buffers)}

    def _described(self, name: str) -> tuple[str, tuple[int, ...]]:
        info = self._core.info(name)
        assert info is not None
        return info[0], info[1]

    def close(self) -> None:
        """Close the files. Arrays over them stay valid."""
        self._core.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._core.closed

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def open(
    path: Path,
    *,
    decode: bool = False,
    mmap: bool = True,
    reference: bool = False,
    max_header_bytes: int | str = 100_000_000,
    component: str | None = None,
    variant: str | None = None,
) -> Model:
    """Open a SafeTensors file, an MLX JSON file, an index of shards or a model directory. Reads only headers.

    Args:
        path: A path, or a URI: https://..., s3://bucket/... or hf://org/repo[@revision][/file].
        decode: Give the weights of a quantized model under their original names, decoded when they are read. By default the
            tensors are the stored codes and scales. Parquet is always decoded.
        mmap: Map the files, so that arrays share their memory. Otherwise every access copies.
        reference: Accept exactly what the reference implementation accepts, including duplicate names.
        max_header_bytes: Refuse larger headers. A number of bytes or a size such as "200MB".
        component: Open one component of a diffusers pipeline, such as "unet".
        variant: Open the weights of a variant, such as "fp16": model.fp16.safetensors.

    >>> model = ballast.open(path)
    >>> model["bias"].shape
    (64,)
    """
    options = checked(
        decode=decode, mmap=mmap, reference=reference, max_header_bytes=max_header_bytes, component=component, variant=variant
    )
    return Model(_core.open(path_of(path), **options))


def from_bytes(data: Any, name: str = "<memory>", *, reference: bool = False) -> Model:
    """Open a SafeTensors file held in memory, without a copy.

    Args:
        data: bytes, a memoryview, an mmap or another object with a buffer.
        name: The name to use in messages.
        reference: As in open().

    >>> ballast.from_bytes(ballast.serialize({"a": np.arange(3)}))["a"].numpy()
    array([0, 1, 2])
    """
    return Model(_core.from_buffer(data, **checked(name=name, reference=reference)))
