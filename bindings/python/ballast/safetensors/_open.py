"""Reading files: safe_open(), and files in memory."""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import Any, TypeVar, Union

from ballast import _core, _dtypes
from ballast._errors import CorruptError, ReadError, UnsupportedError
from ballast.safetensors import _slice
from ballast.safetensors._errors import MissingFileError, SafetensorError, noted, reading, without_path, worded
from ballast.safetensors._frameworks import Framework, framework_of

Filename = Union[str, "os.PathLike[str]"]
Device = Union[str, int, None]
_Self = TypeVar("_Self", bound="_Reader")

_HEADER = "Error while deserializing header"
_MEMORY = "<memory>"
_LARGEST_HEADER = 100_000_000


class _Reader:
    """An open file and the framework that its tensors are made for."""

    __slots__ = ("_framework", "_model", "_path")

    _framework: Framework
    _model: _core.OpenModel | None
    _path: str

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        # Slices hold the file themselves and remain usable.
        self._model = None

    def __repr__(self) -> str:
        if self._model is None:
            return f"{type(self).__name__}({self._path!r}, closed)"
        return f"{type(self).__name__}({self._path!r}, {self._model.count} tensors)"

    def _opened(self) -> _core.OpenModel:
        if self._model is None:
            raise noted(SafetensorError("File is closed"), f"the file is {self._path}")
        return self._model

    def _info(self, model: _core.OpenModel, name: str) -> tuple[str, tuple[int, ...]]:
        if not isinstance(name, str):
            raise TypeError(f"argument 'name': expected str, not {type(name).__name__}")
        try:
            info = model.info(name)
        except TypeError:
            name.encode()  # raises an error that says why
            raise
        if info is None:
            error = SafetensorError(f"File does not contain tensor {name}")
            raise noted(error, f"the file is {self._path}, with {model.count} tensors")
        return info[0], info[1]

    def keys(self) -> list[str]:
        """Return the names of all tensors, sorted."""
        return sorted(self._opened().names())

    def offset_keys(self) -> list[str]:
        """Return the names of all tensors in the order of the file."""
        return self._opened().names()

    def metadata(self) -> dict[str, str] | None:
        """Return the metadata of the file, or None."""
        model = self._opened()
        return model.metadata if model.has_metadata else None

    def get_tensor(self, name: str) -> Any:
        """Return a copy of a tensor.

        >>> with safe_open(path, "np") as file:
        ...     file.get_tensor("bias").shape
        (64,)
        """
        model = self._opened()
        dtype, shape = self._info(model, name)
        if self._framework.copies:
            try:
                return self._framework.make(name, dtype, shape, model.view(name))
            except UnsupportedError:
                pass  # not mapped
        try:
            content = model.read(name)
        except (CorruptError, UnsupportedError) as error:
            raise worded("Error while reading", self._path, without_path(self._path, str(error))) from None
        return self._framework.make(name, dtype, shape, content)

    def get_tensors(self) -> dict[str, Any]:
        """Return all tensors by name, in the order of the file. Reads them with several threads."""
        model = self._opened()
        names = model.names()
        if self._framework.copies:
            return {name: self.get_tensor(name) for name in names}
        with reading("Error while reading", self._path):
            contents = model.load_all(0, 0, None)
        make = self._framework.make
        made = {}
        for name, content in zip(names, contents):
            dtype, shape = self._info(model, name)
            made[name] = make(name, dtype, shape, content)
        return made

    def get_slice(self, name: str) -> PySafeSlice:
        """Return a tensor that can be indexed. Nothing is read before that.

        >>> with safe_open(path, "np") as file:
        ...     file.get_slice("embed.weight")[:, ::8].shape
        (64, 4)
        """
        model = self._opened()
        dtype, shape = self._info(model, name)
        return PySafeSlice(model, self._framework, self._path, name, dtype, shape)


class PySafeSlice:
    """A tensor of a file that can be indexed with integers, slices and `...`."""

    __slots__ = ("_dtype", "_framework", "_model", "_name", "_path", "_shape")

    def __init__(
        self, model: _core.OpenModel, framework: Framework, path: str, name: str, dtype: str, shape: tuple[int, ...]
    ) -> None:
        self._model = model
        self._framework = framework
        self._path = path
        self._name = name
        self._dtype = dtype
        self._shape = shape

    def __repr__(self) -> str:
        return f"PySafeSlice({self._name!r}, {self._dtype}, {list(self._shape)})"

    def get_shape(self) -> list[int]:
        """Return the length of each dimension."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """Return the dtype as the file spells it: "BF16"."""
        return self._dtype

    def __getitem__(self, index: Any) -> Any:
        """Read a part, and little more than its bytes."""
        try:
            bounds, shape = _slice.parse(index, self._shape)
        except SafetensorError as error:
            raise noted(error, self._place())
        if 0 in shape:
            return self._framework.make(self._name, self._dtype, shape, bytearray())
        with reading("Error during slicing", self._path):
            try:
                _, content = self._model.slice(self._name, bounds)
            except UnsupportedError:
                if not _dtypes.is_packed(self._dtype):
                    raise
                if self._dtype != "F4" or self._framework.pick is None:
                    raise noted(_slice.misaligned(index, self._shape), self._place()) from None
                # The part begins or ends within a byte, so the whole tensor is unpacked.
                whole = self._framework.make(self._name, self._dtype, self._shape, self._model.read(self._name))
                return self._framework.pick(whole, tuple(slice(*bound) for bound in bounds), shape)
            return self._framework.make(self._name, self._dtype, shape, content)

    def _place(self) -> str:
        return f"tensor {self._name!r} of {self._path}"


class safe_open(_Reader):
    """An open SafeTensors file. Tensors are read when you ask for them.

    Args:
        filename: A path or a URI.
        framework: "np", "pt", "flax" or "mlx".
        device: The device of PyTorch tensors. Other frameworks only have "cpu".
        backend: "mmap", or "pread" to read without mapping the file.

    >>> with safe_open(path, framework="np") as file:
    ...     file.keys(), file.get_tensor("bias").shape
    (['bias', 'embed.weight'], (64,))
    """

    __slots__ = ()

    def __init__(self, filename: Filename, framework: str, device: Device = "cpu", *, backend: str = "mmap") -> None:
        path = path_of(filename)
        self._framework = framework_of(framework, device)
        is_mapped = _is_mapped(backend)
        self._path = shown(path)
        self._model = _open(path, is_mapped)


class _safe_open_handle(_Reader):
    """A safe_open() of a file that Python has opened. Reads it from the start."""

    __slots__ = ()

    def __init__(self, f: Any, framework: str, device: Device = "cpu", *, backend: str = "mmap") -> None:
        descriptor = f.fileno()
        self._framework = framework_of(framework, device)
        is_mapped = _is_mapped(backend)
        self._path = str(f.name)
        self._model = _open_descriptor(descriptor, self._path, is_mapped)


def path_of(filename: Filename) -> str:
    if not isinstance(filename, (str, os.PathLike)):
        raise TypeError(f"argument 'filename': expected str or os.PathLike object, not {type(filename).__name__}")
    path = os.fspath(filename)
    if not isinstance(path, str):
        raise TypeError(f"argument 'filename': expected a str path, not {type(path).__name__}")
    return path


def shown(path: str) -> str:
    """Return a path for messages, without the secrets of a URI."""
    return _core.without_secrets(path) if "://" in path else path


def _is_mapped(backend: str) -> bool:
    if not isinstance(backend, str):
        raise TypeError(f"argument 'backend': expected str, not {type(backend).__name__}")
    if backend not in ("mmap", "pread"):
        raise SafetensorError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
    return backend == "mmap"


def _open(path: str, is_mapped: bool) -> _core.OpenModel:
    if "://" in path:
        with reading(_HEADER, shown(path)):
            return _core.open(path, decode=False, mmap=is_mapped, reference=True, max_header_bytes=_LARGEST_HEADER)
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(errno.ENOENT, "No such file or directory", path) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    is_file = stat.S_ISREG(mode)  # opening a pipe would wait for its other end
    if is_file and path.endswith((".mlx", ".index.json")):  # which mean something else to the core
        with open(path, "rb") as file:
            return _open_descriptor(file.fileno(), path, is_mapped)
    with reading(_HEADER, path):
        try:
            return _core.open(path, decode=False, mmap=is_mapped, reference=True, max_header_bytes=_LARGEST_HEADER)
        except ReadError:
            if is_file:
                open(path, "rb").close()  # raises the error that Python code expects
            raise


def _open_descriptor(descriptor: int, path: str, is_mapped: bool) -> _core.OpenModel:
    given = f"/proc/self/fd/{descriptor}"
    try:
        return _core.open(given, decode=False, mmap=is_mapped, reference=True, max_header_bytes=_LARGEST_HEADER)
    except (CorruptError, UnsupportedError) as error:
        raise worded(_HEADER, path, without_path(given, str(error))) from None


def from_memory(data: Any, name: str, doing: str) -> _core.OpenModel:
    """Open a SafeTensors file in memory, whatever its name."""
    try:
        content = memoryview(data)
    except TypeError:
        raise TypeError(f"argument 'bytes': expected bytes, not {type(data).__name__}") from None
    try:
        return _core.from_buffer(content, _MEMORY, True)
    except (CorruptError, UnsupportedError) as error:
        raise worded(doing, name, str(error).removeprefix(f"{_MEMORY}: ")) from None


def load(data: Any, framework: str) -> dict[str, Any]:
    """Return all tensors of a file in memory."""
    reader = _Reader()
    reader._framework = framework_of(framework, "cpu")
    reader._path = _MEMORY
    reader._model = from_memory(data, _MEMORY, "Error while deserializing")
    return reader.get_tensors()


def deserialize(bytes: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the dtypes, shapes and bytes of all tensors of a file in memory.

    >>> from ballast.safetensors import deserialize, serialize
    >>> deserialize(serialize({}))
    []
    """
    model = from_memory(bytes, _MEMORY, "Error while deserializing")
    made: list[tuple[str, dict[str, Any]]] = []
    for name in model.names():
        info = model.info(name)
        assert info is not None
        made.append((name, {"shape": list(info[1]), "dtype": info[0], "data": bytearray(model.view(name))}))
    return made
