"""Models and their tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Union, overload

import numpy as np

from ballast import _core, dtypes
from ballast.arguments import checked, is_utf8, path_of
from ballast.dlpack import capsule_of
from ballast.errors import TensorNotFoundError, UnsupportedError, one_line
from ballast.progress import Progress, watched

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Array = np.ndarray[Any, np.dtype[Any]]


def as_array(dtype: str, shape: tuple[int, ...], buffer: Any) -> Array:
    """The values of a buffer without a copy; the bytes of those that are packed."""
    if dtypes.is_packed(dtype):
        return np.ndarray((len(buffer),), np.uint8, buffer)
    return np.ndarray(shape, dtypes.numpy_dtype(dtype), buffer)


def is_name(name: object) -> TypeGuard[str]:
    """Whether a tensor may be called so: names are UTF-8, which has no lone surrogates."""
    return isinstance(name, str) and is_utf8(name)


class Tensor:
    """One tensor of a model, of which nothing has been read yet.

    >>> tensor = model["embed.weight"]
    >>> tensor.dtype, tensor.shape
    ('BF16', (64, 32))
    >>> tensor[:2, 0].shape
    (2,)
    """

    __slots__ = ("_dtype", "_model", "_name", "_shape")

    def __init__(self, model: _core.OpenModel, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self._model = model
        self._name = name
        self._dtype = dtype
        self._shape = shape

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def dtype(self) -> str:
        """As SafeTensors spells it: "BF16"."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of values."""
        count = 1
        for dim in self._shape:
            count *= dim
        return count

    @property
    def nbytes(self) -> int:
        """The number of bytes that they take in the file."""
        begin, end = self._place()
        return end - begin

    def _place(self) -> tuple[int, int]:
        info = self._model.info(self._name)
        assert info is not None
        return info[2], info[3]

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("a tensor without dimensions has no length")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._shape:
            raise TypeError("a tensor without dimensions cannot be iterated over")
        return (self[i] for i in range(self._shape[0]))

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, {self._dtype}, {list(self._shape)})"

    def numpy(self, *, copy: bool = False) -> Array:
        """The values, without a copy and read-only where the file is mapped. BF16 and F8 have dtypes of ml_dtypes; F4 and F6 are
        given as their bytes. With `copy` they are read into memory of their own, which may be written to.

        The array stays valid when the model is closed. It reads the file when it is touched: cutting the file short meanwhile
        ends the process, which a copy never does.
        """
        if not copy:
            try:
                return as_array(self._dtype, self._shape, self._model.view(self._name))
            except UnsupportedError:
                pass  # it is not mapped
        return as_array(self._dtype, self._shape, self._model.read(self._name))

    def unpacked(self) -> Array:
        """The values of F4 as float4_e2m1fn of ml_dtypes, one in each byte: a copy."""
        if self._dtype != "F4":
            raise UnsupportedError(f"tensor {self._name!r}: {self._dtype} has no packing to undo, F4 has")
        import ml_dtypes

        packed = self.numpy()
        codes = np.empty(packed.size * 2, np.uint8)
        codes[0::2] = packed & 15
        codes[1::2] = packed >> 4
        values: Array = codes.view(ml_dtypes.float4_e2m1fn)
        return values.reshape(self._shape)

    def to(self, dtype: Any, *, allow_loss: bool = False) -> Array:
        """The values as another dtype, rounded once, on all cores; what a float cannot hold becomes infinite, or NaN where it has no
        infinities. From and to integers, values that do not fit are an error unless `allow_loss`.

        >>> model["embed.weight"].to("f32").dtype
        dtype('float32')
        """
        name = dtypes.name_of(dtype)
        return as_array(name, self._shape, self._model.read_as(self._name, name, **checked(allow_loss=allow_loss)))

    @overload
    def __getitem__(self, index: slice) -> Array: ...
    @overload
    def __getitem__(self, index: Any) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        """A part, by NumPy's rules for integers, slices, `...` and None, a scalar where these pick one value: without a copy where
        the file is mapped, as numpy() gives it, else reading little more than the bytes it needs. Of F4 and F6 it is given as bytes, in which it has to begin and to end."""
        if not dtypes.is_packed(self._dtype):
            try:
                whole = as_array(self._dtype, self._shape, self._model.view(self._name))
            except UnsupportedError:
                pass  # it is not mapped
            else:
                _bounds(self._name, self._shape, index if isinstance(index, tuple) else (index,))
                return whole[index]
        return read_part(self._model, self._name, self._dtype, self._shape, index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            try:
                values = as_array(self._dtype, self._shape, self._model.view(self._name))
            except UnsupportedError:
                raise UnsupportedError(f"tensor {self._name!r}: the file is not mapped, so that its values can only be copied") from None
        else:
            values = self.numpy(copy=bool(copy))
        if dtype is None or np.dtype(dtype) == values.dtype:
            return values
        if dtypes.is_packed(self._dtype):
            raise UnsupportedError(f"tensor {self._name!r}: these are bytes of {self._dtype}; to() gives numbers of F4")
        if copy is False:
            raise ValueError(f"tensor {self._name!r}: {self._dtype} cannot become {np.dtype(dtype)} without a copy")
        return values.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        # Consumers may write to what they are given, so that it is a copy.
        if options.pop("copy", None) is False:
            raise BufferError(f"tensor {self._name!r}: the file is mapped for reading only, so that DLPack gets a copy")
        if dtypes.is_packed(self._dtype):
            instead = "unpacked() and to() give its values" if self._dtype == "F4" else "numpy() gives its bytes"
            raise BufferError(f"tensor {self._name!r}: {self._dtype} is packed, which is not given to DLPack; {instead}")
        return capsule_of(self._dtype, self.numpy(copy=True), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def release(self) -> None:
        """Gives the memory of the mapped pages back to the system; they are read again when touched."""
        self._model.release(self._name)


def read_part(model: _core.OpenModel, name: str, dtype: str, shape: tuple[int, ...], index: Any) -> Any:
    items = index if isinstance(index, tuple) else (index,)
    bounds, picked = _bounds(name, shape, items)
    part_shape, buffer = model.slice(name, bounds)
    part = as_array(dtype, part_shape, buffer)
    if dtypes.is_packed(dtype):
        return part
    return part[picked] if picked != (slice(None),) * len(shape) or len(picked) != part.ndim else part


def _bounds(
    name: str, shape: tuple[int, ...], items: tuple[Any, ...]
) -> tuple[list[tuple[int | None, int | None, int]], tuple[Any, ...]]:
    """What to read of each dimension, and how to index the result: integers are read as ranges of one."""
    given = sum(1 for item in items if item is not None and item is not Ellipsis)
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise IndexError("an index can only have one ellipsis")
    if given > len(shape):
        raise IndexError(f"too many indices: tensor {name!r} has {len(shape)} dimensions, {given} were given")
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    bounds: list[tuple[int | None, int | None, int]] = []
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
    """An end or a step of a slice, which may be any number: no tensor is longer than this."""
    return max(-(2**62), min(2**62, _integer(item)))


def _integer(item: Any) -> int:
    if isinstance(item, (bool, np.bool_)):
        raise TypeError("tensors are indexed with integers, slices, ... and None; load them first to use masks")
    try:
        return int(item.__index__())
    except (AttributeError, TypeError):
        raise TypeError(
            f"tensors are indexed with integers, slices, ... and None, not {type(item).__name__}; load them first to use more"
        ) from None


class Model(Mapping[str, Tensor]):
    """The weights of a model: a mapping from names to tensors, of which nothing is read before it is asked for.

    >>> with ballast.open(path) as model:
    ...     len(model), model.num_parameters, list(model)[0]
    (2, 2112, 'embed.weight')
    """

    def __init__(self, core: _core.OpenModel) -> None:
        self._core = core

    def __getitem__(self, name: str) -> Tensor:
        info = self._core.info(name) if is_name(name) else None
        if info is None:
            raise TensorNotFoundError(f"{one_line(self._core.path)}: no tensor {name!r} among {len(self)}")
        return Tensor(self._core, name, info[0], info[1])

    def __contains__(self, name: object) -> bool:
        return is_name(name) and self._core.has(name)

    # Not by its tensors, as other mappings are: it is a file.
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

    @property
    def path(self) -> str:
        """As it was given to open()."""
        return self._core.path

    @property
    def format(self) -> str:
        """"safetensors" or "mlx-json"."""
        return self._core.format

    @property
    def files(self) -> list[str]:
        """The files of weights."""
        return [path for path, _, _ in self._core.files()]

    @property
    def file_size(self) -> int:
        """The bytes of all files."""
        return self._core.file_size

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return self._core.data_bytes

    @property
    def num_parameters(self) -> int:
        """The values of all tensors."""
        return self._core.num_parameters

    @property
    def metadata(self) -> dict[str, str]:
        """What the files say of themselves."""
        return self._core.metadata

    @property
    def config(self) -> dict[str, Any] | None:
        """The model's config.json, if there is one."""
        text = self._core.config
        return None if text is None else json.loads(text)

    @property
    def modality(self) -> Literal["text", "code", "image", "audio"] | None:
        """What the model is for, by its metadata or else by the names of its tensors."""
        return self._core.modality

    @property
    def warnings(self) -> list[str]:
        """What open() noticed and went on from."""
        return self._core.warnings

    def load(self, *, threads: int = 0, memory_limit: int = 0, progress: Progress = None) -> dict[str, Array]:
        """All tensors in one piece of memory of their own, read in large blocks by several threads; all may be written to.
        F4 and F6 are given as their bytes, and would be saved as U8: save the model or its tensors to keep them.

        >>> arrays = model.load()
        >>> arrays["bias"].shape
        (64,)
        """
        names = self._core.names()
        with watched(progress, "loading") as callback:
            buffers = self._core.load_all(**checked(threads=threads, memory_limit=memory_limit), progress=callback)
        made = {}
        for name, buffer in zip(names, buffers):
            info = self._core.info(name)
            assert info is not None
            made[name] = as_array(info[0], info[1], buffer)
        return made

    def close(self) -> None:
        """Lets go of the files. Arrays that look at them stay valid."""
        self._core.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def open(
    path: Path, *, decode: bool = False, mmap: bool = True, reference: bool = False, max_header_bytes: int = 100_000_000
) -> Model:
    """Opens a SafeTensors file, MLX JSON, an index or a model directory. Reads headers only.

    The tensors of a quantized model are those that are stored: codes and scales. With `decode` they are the weights under
    their original names, decoded when they are read; so are those of Parquet, which stores no tensors. Without `mmap` nothing
    is mapped, and every access copies. `reference` accepts exactly what the reference implementation does, duplicate names
    included.

    >>> model = ballast.open(path)
    >>> model["bias"].numpy().flags.writeable
    False
    """
    options = checked(decode=decode, mmap=mmap, reference=reference, max_header_bytes=max_header_bytes)
    return Model(_core.open(path_of(path), **options))


def from_bytes(data: Any, name: str = "<memory>", *, reference: bool = False) -> Model:
    """Opens a file that is in memory: bytes, a memoryview, an mmap, without a copy.

    >>> ballast.from_bytes(ballast.serialize({"a": np.arange(3)}))["a"].numpy()
    array([0, 1, 2])
    """
    return Model(_core.from_buffer(data, **checked(name=name, reference=reference)))
