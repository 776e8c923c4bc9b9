"""What is done to whole models."""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

import numpy as np

from ballast import _core, dtypes
from ballast.arguments import checked, is_utf8, mapping, path_of
from ballast.arrow import ArrowStream, is_arrow, table_of, tensors_of_arrow
from ballast.config import QuantizeConfig, as_fields
from ballast.errors import ArgumentError, BallastError, CancelledError
from ballast.model import Model, Path, Tensor, open as open_model
from ballast.progress import Progress, watched

if TYPE_CHECKING:
    import pyarrow as pa

Tensors = Mapping[str, Any]
Source = Union[Path, Model, Tensors, ArrowStream]
_T = TypeVar("_T")
_LIMIT = 384 << 20
_SETTINGS = {setting.name for setting in fields(QuantizeConfig)}


@dataclass(frozen=True)
class LayerReport:
    """What became of one tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bits: int
    planned_bits: int
    group_size: int
    parameters: int
    bytes: int
    method: str
    equalized: bool
    cosine_similarity: float
    relative_rmse: float
    sqnr_db: float
    max_error: float
    output_error: float | None


@dataclass(frozen=True)
class CalibrationReport:
    """What statistics of activations were good for."""

    covered: int
    uncovered: list[str]
    timesteps: int
    recorded_timesteps: int
    time_groups: int
    boundaries: list[float]


@dataclass(frozen=True)
class QuantizeReport:
    """What was written, or validated. All figures are of the bytes in the files."""

    layers: list[LayerReport] = field(repr=False)
    kept: int
    files: list[str]
    source_bytes: int
    bytes: int
    compression_ratio: float
    bits_per_weight: float
    cosine_similarity: float
    relative_rmse: float
    sqnr_db: float
    max_error: float
    modality: str | None
    calibration: CalibrationReport | None
    passed: bool
    was_done: bool
    warnings: list[str]

    @property
    def model_size_mb(self) -> float:
        """What was written, in 10^6 bytes."""
        return self.bytes / 1e6


@dataclass(frozen=True)
class ConvertReport:
    """What was written."""

    files: list[str]
    tensors: int
    converted: int
    data_bytes: int
    warnings: list[str]


@dataclass(frozen=True)
class VerifyReport:
    """What was checked, and what is wrong."""

    ok: bool
    checks: list[str]
    defects: list[tuple[str, str]]
    skipped: list[str]
    warnings: list[str]
    tensors: int
    bytes: int
    sha256: dict[str, str]

    def __bool__(self) -> bool:
        return self.ok


def _quantize_report(made: dict[str, Any]) -> QuantizeReport:
    made["layers"] = [LayerReport(**layer) for layer in made["layers"]]
    if made["calibration"] is not None:
        made["calibration"] = CalibrationReport(**made["calibration"])
    return QuantizeReport(**made)


def as_item(name: str, value: Any) -> tuple[str, str, tuple[int, ...], Any]:
    """A tensor as the core takes it: its name, dtype, shape, and its bytes in C order and little endian."""
    if not isinstance(name, str):
        raise TypeError(f"tensors have names that are texts, not {type(name).__name__}")
    if not is_utf8(name):
        raise ArgumentError(f"tensor {name!r}: its name cannot be written as UTF-8")
    if isinstance(value, Tensor):
        values = value.numpy()
        return name, value.dtype, value.shape, _bytes_of(values)
    values = np.asarray(value)
    plain = _plain_name(values.dtype)
    if plain is not None and values.flags.c_contiguous:
        return name, plain, values.shape, values
    if values.dtype.byteorder == ">" or (values.dtype.byteorder == "=" and np.little_endian is False):
        values = values.astype(values.dtype.newbyteorder("<"))
    if values.dtype.name == "float4_e2m1fn":
        return name, "F4", values.shape, _packed(values)
    try:
        dtype = dtypes.name_of(values.dtype)
    except TypeError:
        raise TypeError(f"tensor {name!r}: SafeTensors has no dtype for {values.dtype}") from None
    return name, dtype, values.shape, _bytes_of(values)


@lru_cache(maxsize=None)
def _plain_name(dtype: np.dtype[Any]) -> str | None:
    """What files call a dtype, if its arrays have a buffer that can be written as it is: ml_dtypes' do not."""
    if dtype.kind not in "biufc" or not dtype.isnative or not np.little_endian:
        return None
    try:
        return dtypes.name_of(dtype)
    except TypeError:
        return None


def _bytes_of(values: np.ndarray[Any, Any]) -> Any:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _packed(values: np.ndarray[Any, Any]) -> Any:
    """Two values of F4 in each byte, the first in the lower half. A last one alone is left out, and its shape refused later."""
    codes = np.ascontiguousarray(values).reshape(-1).view(np.uint8) & 15
    even = codes[: codes.size // 2 * 2]
    return even[0::2] | (even[1::2] << 4)


def _items(tensors: Tensors) -> list[tuple[str, str, tuple[int, ...], Any]]:
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors are a mapping from names to arrays, not {type(tensors).__name__}")
    for name, value in tensors.items():
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"tensor {name!r} is a masked array, and files have no masks: give its .filled()")
    return [as_item(name, value) for name, value in tensors.items()]


def save(
    tensors: Tensors,
    path: Path,
    *,
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int = 0,
    sync: bool = True,
    progress: Progress = None,
) -> None:
    """Writes arrays, or tensors of a model, to a file (.safetensors, .mlx) or else to a model directory, with shards if
    `max_shard_bytes` is given. It is there under its name only when it is complete.

    >>> ballast.save({"a": np.eye(3, dtype=np.float16)}, out / "a.safetensors", metadata={"made": "here"})
    >>> ballast.open(out / "a.safetensors")["a"].dtype
    'F16'
    """
    options = checked(sync=sync, max_shard_bytes=max_shard_bytes)
    with watched(progress, "saving") as callback:
        _core.save(path_of(path), _items(tensors), _texts(metadata), **options, progress=callback)


def serialize(tensors: Tensors, *, metadata: Mapping[str, str] | None = None) -> bytes:
    """The same as the bytes of a SafeTensors file.

    >>> ballast.serialize({"a": np.zeros(2, np.float32)})[:8]
    b'8\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    return _core.serialize(_items(tensors), _texts(metadata))


def _texts(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata are a mapping from texts to texts, not {type(metadata).__name__}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata are texts, not {key!r}: {value!r}")
        if not is_utf8(key) or not is_utf8(value):
            raise ArgumentError(f"metadata {key!r}: {value!r} cannot be written as UTF-8")
    return dict(metadata)


def to_arrow(source: Path | Model | Tensors) -> pa.Table:
    """A pyarrow.Table that quantize() takes: layer_name, weights as lists of float32, and shape, with a row for each tensor. F32 is
    not copied; integers that float32 cannot hold are an UnsupportedError.

    >>> ballast.to_arrow(path).column("shape").to_pylist()
    [[64, 32], [64]]
    """
    if isinstance(source, Model):
        return table_of((name, _floats(tensor)) for name, tensor in source.items())
    if isinstance(source, Mapping):
        with Model(_core.from_tensors(_items(source), "<memory>", None)) as model:
            return table_of((name, _floats(model[name])) for name in source)
    with open_model(source) as model:
        return to_arrow(model)


def _floats(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.numpy() if tensor.dtype == "F32" else tensor.to("f32")


class _Opened:
    """The core's model of anything that stands for one; closed at the end if it was opened for this."""

    def __init__(self, source: Any) -> None:
        self._own: _core.OpenModel | None = None
        if isinstance(source, Model):
            self.core = source._core
        elif is_arrow(source):
            self.core = self._own = _core.from_tensors(tensors_of_arrow(source), "<arrow>", None)
        elif isinstance(source, Mapping):
            self.core = self._own = _core.from_tensors(_items(source), "<memory>", None)
        else:
            self.core = self._own = open_model(source)._core

    def __enter__(self) -> _core.OpenModel:
        return self.core

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.close()


def convert(
    source: Source,
    path: Path,
    *,
    dtype: Any = None,
    dtype_rules: Mapping[str, Any] | None = None,
    format: Literal["safetensors", "mlx-json"] | None = None,
    max_shard_bytes: int = 0,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    allow_loss: bool = False,
    sync: bool = True,
    resume: bool = False,
    threads: int = 0,
    memory_limit: int = _LIMIT,
    progress: Progress = None,
) -> ConvertReport:
    """Writes a model with other dtypes, names, shards or in another format, in bounded memory.

    `dtype` is for all tensors of its kind, `dtype_rules` for those whose names match a glob. `metadata` is in place of the model's.

    >>> ballast.convert(path, out / "half.safetensors", dtype="f16").converted
    2
    """
    rules = mapping("dtype_rules", {} if dtype_rules is None else dtype_rules)
    options = checked(
        dtype_rules={pattern: dtypes.name_of(to) for pattern, to in rules.items()},
        format=format,
        max_shard_bytes=max_shard_bytes,
        include=include,
        exclude=exclude,
        rename={} if rename is None else rename,
        allow_loss=allow_loss,
        sync=sync,
        resume=resume,
        threads=threads,
        memory_limit=memory_limit,
    )
    with ExitStack() as stack:
        is_given = isinstance(source, (Model, Mapping)) or is_arrow(source)
        made = _core.convert(
            stack.enter_context(_Opened(source)) if is_given else path_of(source),
            path_of(path),
            dtype=None if dtype is None else dtypes.name_of(dtype),
            metadata=_texts(metadata),
            **options,
            progress=stack.enter_context(watched(progress, "converting")),
        )
    return ConvertReport(**made)


def quantize(
    source: Source,
    directory: Path,
    config: QuantizeConfig | None = None,
    *,
    calibration: Path | None = None,
    sync: bool = True,
    resume: bool = False,
    progress: Progress = None,
    **settings: Any,
) -> QuantizeReport:
    """Quantizes a model into a directory, in bounded memory. `source` is a path, an open model, a mapping of names to arrays, or an
    Arrow table with the columns layer_name, weights and, if they have more dimensions than one, shape.

    Settings are those of QuantizeConfig, and go before what `config` has.

    >>> report = ballast.quantize(path, out / "small", bit_width=4, group_size=32)
    >>> [layer.bits for layer in report.layers], report.passed
    ([4], True)
    """
    if config is not None and not isinstance(config, QuantizeConfig):
        raise TypeError(f"config is a QuantizeConfig, not {type(config).__name__}; settings are given by their names")
    for name in settings:
        if name not in _SETTINGS:
            raise TypeError(f"quantize() got an unexpected keyword argument {name!r}")
    sources = [] if config is None else [config._given]
    sources.append(as_fields(settings))
    with ExitStack() as stack:
        core = stack.enter_context(_Opened(source))
        made = _core.quantize(
            core,
            path_of(directory),
            config=sources,
            calibration=None if calibration is None else path_of(calibration),
            **checked(sync=sync, resume=resume),
            progress=stack.enter_context(watched(progress, "quantizing")),
        )
    return _quantize_report(made)


def dequantize(
    quantized: Path,
    path: Path,
    *,
    dtype: Any = None,
    format: Literal["safetensors", "mlx-json"] | None = None,
    max_shard_bytes: int = 0,
    sync: bool = True,
    memory_limit: int = _LIMIT,
    progress: Progress = None,
) -> ConvertReport:
    """Writes the numbers that a quantized model stands for, by default as the dtypes that they had.

    >>> ballast.dequantize(quantized, out / "again.safetensors").tensors
    2
    """
    with watched(progress, "dequantizing") as callback:
        made = _core.dequantize(
            path_of(quantized),
            path_of(path),
            dtype=None if dtype is None else dtypes.name_of(dtype),
            **checked(format=format, max_shard_bytes=max_shard_bytes, sync=sync, memory_limit=memory_limit),
            progress=callback,
        )
    return ConvertReport(**made)


def validate(
    original: Source, quantized: Path, *, min_accuracy: float = 0.0, threads: int = 0, progress: Progress = None
) -> QuantizeReport:
    """Measures a quantized model, as it is on the disk, against the original.

    >>> ballast.validate(path, quantized).cosine_similarity > 0.99
    True
    """
    with ExitStack() as stack:
        core = stack.enter_context(_Opened(original))
        callback = stack.enter_context(watched(progress, "validating"))
        made = _core.validate(core, path_of(quantized), **checked(min_accuracy=min_accuracy, threads=threads), progress=callback)
    return _quantize_report(made)


def verify(path: Path, *, values: bool = False, sha256: bool = False, threads: int = 0, progress: Progress = None) -> VerifyReport:
    """Checks headers, offsets, shards against the index, tensors against the config, and with `values` every value.

    >>> ballast.verify(path).ok
    True
    """
    with watched(progress, "verifying") as callback:
        made = _core.verify(path_of(path), **checked(values=values, sha256=sha256, threads=threads), progress=callback)
    made["sha256"] = {file: digest for file, digest in made["sha256"].items() if digest}
    return VerifyReport(**made)


def inspect(path: Path) -> dict[str, Any]:
    """What a model is made of, quantized or not, without reading weights: what `ballast inspect --json --tensors` prints, with tensors
    in the order of the files, and None for a modality that is not known.

    >>> ballast.inspect(path)["tensor_count"]
    2
    """
    found, undecodable = None, None
    try:
        found = _core.describe_quantized(path_of(path))
    except BallastError as error:
        undecodable = str(error)  # its tensors can still be shown
    if found is not None and found["format"] == "parquet":
        tensors = found["tensors"]
        return {
            "path": _core.without_secrets(path_of(path)),
            "format": found["format"],
            "files": [{"path": file, "size": size} for file, size in found["files"]],
            "tensor_count": len(tensors),
            "parameter_count": sum(math.prod(tensor["shape"]) for tensor in tensors),
            "data_bytes": sum(tensor["bytes"] for tensor in tensors),
            "dtypes": _totals((tensor["dtype"], tensor["shape"], tensor["bytes"]) for tensor in tensors),
            "quantization": _widths(tensors),
            "time_boundaries": found["time_boundaries"],
            "metadata": {},
            "modality": found["modality"],
            "config": None if found["config"] is None else json.loads(found["config"]),
            "warnings": [],
            "tensors": tensors,
        }
    with open_model(path) as model:
        core = model._core
        tensors = []
        files = core.files()
        for name in core.names():
            info = core.info(name)
            assert info is not None
            dtype, shape, begin, end, file = info
            tensors.append({"name": name, "dtype": dtype, "shape": shape, "data_offsets": (begin, end), "file": files[file][0]})
        config = model.config
        made: dict[str, Any] = {
            "path": model.path,
            "format": model.format,
            "files": [{"path": file, "size": size, "data_start": start} for file, size, start in files],
            "tensor_count": len(tensors),
            "parameter_count": model.num_parameters,
            "data_bytes": model.nbytes,
            "dtypes": _totals((each["dtype"], each["shape"], each["data_offsets"][1] - each["data_offsets"][0]) for each in tensors),
            "metadata": model.metadata,
            "modality": model.modality,
            "config": None if config is None else config | core.usual_config,
            "warnings": model.warnings,
        }
        if found is not None:
            made |= {"quantization": _widths(found["tensors"]), "time_boundaries": found["time_boundaries"]}
        if undecodable is not None:
            made["warnings"].append(undecodable)
        return made | {"tensors": tensors}


def _totals(tensors: Iterable[tuple[str, tuple[int, ...], int]]) -> dict[str, dict[str, int]]:
    """How many there are of each kind, and how large: of (kind, shape, bytes)."""
    totals: dict[str, dict[str, int]] = {}
    for kind, shape, size in tensors:
        total = totals.setdefault(kind, {"tensors": 0, "parameters": 0, "bytes": 0})
        total["tensors"] += 1
        total["parameters"] += math.prod(shape)
        total["bytes"] += size
    return totals


def _widths(tensors: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    def width(tensor: dict[str, Any]) -> str:
        return f"int{tensor['bits']} of {tensor['group_size']}" if tensor["bits"] else "kept"

    return _totals((width(tensor), tensor["shape"], tensor["bytes"]) for tensor in tensors)


async def off_the_loop(work: Callable[..., _T], *args: Any, progress: Progress = None, **options: Any) -> _T:
    """Runs it in a thread. Cancelling the task stops the work, and waits until it has stopped, if it has begun."""
    begun = threading.Event()
    stopped = threading.Event()
    with watched(progress, work.__name__) as callback:

        def report(done: int, total: int, what: str) -> Any:
            if stopped.is_set():
                return False
            return None if callback is None else callback(done, total, what)

        def run() -> _T:
            begun.set()
            if stopped.is_set():
                raise CancelledError("cancelled")
            return work(*args, progress=report, **options)

        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(None, context.run, run)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stopped.set()
            if not begun.is_set():  # no thread was free, and now it does nothing
                future.cancel()
                raise
            await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # which is that it was stopped
            raise


async def save_async(tensors: Tensors, path: Path, **options: Any) -> None:
    """save() without blocking the event loop; cancelling the task stops it."""
    await off_the_loop(save, tensors, path, **options)


async def convert_async(source: Source, path: Path, **options: Any) -> ConvertReport:
    """convert() without blocking the event loop; cancelling the task stops it."""
    return await off_the_loop(convert, source, path, **options)


async def quantize_async(source: Source, directory: Path, config: QuantizeConfig | None = None, **options: Any) -> QuantizeReport:
    """quantize() without blocking the event loop; cancelling the task stops it."""
    return await off_the_loop(quantize, source, directory, config, **options)


async def dequantize_async(quantized: Path, path: Path, **options: Any) -> ConvertReport:
    """dequantize() without blocking the event loop; cancelling the task stops it."""
    return await off_the_loop(dequantize, quantized, path, **options)


async def validate_async(original: Source, quantized: Path, **options: Any) -> QuantizeReport:
    """validate() without blocking the event loop; cancelling the task stops it."""
    return await off_the_loop(validate, original, quantized, **options)


async def verify_async(path: Path, **options: Any) -> VerifyReport:
    """verify() without blocking the event loop; cancelling the task stops it."""
    return await off_the_loop(verify, path, **options)
