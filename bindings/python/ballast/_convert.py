"""Converting models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

from ballast import _core, _dtypes
from ballast._arguments import checked, mapping, metadata_of, path_of
from ballast._progress import Progress, watched
from ballast._reports import ConvertReport, convert_report_of
from ballast._sources import Loras, Source, core_source
from ballast._tensor import Path
from ballast._threads import in_thread

_MEMORY_LIMIT = 384 << 20


def convert(
    source: Source,
    path: Path,
    *,
    dtype: Any = None,
    dtype_rules: Mapping[str, Any] | None = None,
    format: Literal["safetensors", "mlx-json"] | None = None,
    max_shard_size: int | str = 0,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    lora: Loras | None = None,
    metadata: Mapping[str, str] | None = None,
    allow_loss: bool = False,
    sync: bool = True,
    resume: bool = False,
    force: bool = False,
    threads: int = 0,
    memory_limit: int | str = _MEMORY_LIMIT,
    component: str | None = None,
    variant: str | None = None,
    progress: Progress = None,
) -> ConvertReport:
    """Write a model with other dtypes, names, shards or in another format, in bounded memory.

    Of a diffusers pipeline, converts all components into a directory of the same structure.

    Args:
        source: A path or URI, an open model, a mapping of arrays, or an Arrow table as in quantize().
        path: The file or directory to write, as in save().
        dtype: The new dtype: a float dtype applies to all float tensors, an integer dtype to all integer tensors.
        dtype_rules: Dtypes of the tensors whose names match a glob. They override `dtype`.
        format: "safetensors" or "mlx-json". By default the path decides.
        max_shard_size: As in save().
        include: Globs of the tensors to write. Empty: all.
        exclude: Globs of the tensors to leave out, applied after `include`.
        rename: New names by glob, such as {"model.*": "decoder.*"}.
        lora: LoRA adapters to merge: a path, a mapping from paths to scales, or a sequence of paths and (path, scale). `source`
            must be a path.
        metadata: Metadata that replaces the model's.
        allow_loss: Convert integers that do not fit the new dtype.
        sync: Wait until the data is on the disk.
        resume: Keep partial output if the conversion is interrupted, and resume from it.
        force: Write into a directory that has other files, which stay.
        threads: The number of threads. 0: one per core.
        memory_limit: The memory for buffers: a number of bytes or a size such as "300MB".
        component, variant: As in open(). `source` must be a path.
        progress: A function of (bytes done, total bytes, name), or True for a progress bar.

    >>> ballast.convert(path, out / "half.safetensors", dtype="fp16").converted
    2
    """
    rules = mapping("dtype_rules", {} if dtype_rules is None else dtype_rules)
    options = checked(
        dtype_rules={pattern: _dtypes.name_of(to) for pattern, to in rules.items()},
        format=format,
        max_shard_size=max_shard_size,
        include=include,
        exclude=exclude,
        rename={} if rename is None else rename,
        lora=lora,
        allow_loss=allow_loss,
        sync=sync,
        resume=resume,
        force=force,
        threads=threads,
        memory_limit=memory_limit,
        component=component,
        variant=variant,
    )
    with ExitStack() as stack:
        made = _core.convert(
            core_source(stack, source, component=component, variant=variant),
            path_of(path),
            dtype=None if dtype is None else _dtypes.name_of(dtype),
            metadata=metadata_of(metadata),
            **options,
            progress=stack.enter_context(watched(progress, "converting")),
        )
    return convert_report_of(made)


def dequantize(
    quantized: Path,
    path: Path,
    *,
    dtype: Any = None,
    format: Literal["safetensors", "mlx-json"] | None = None,
    max_shard_size: int | str = 0,
    sync: bool = True,
    force: bool = False,
    memory_limit: int | str = _MEMORY_LIMIT,
    component: str | None = None,
    progress: Progress = None,
) -> ConvertReport:
    """Decode a quantized model and write its weights.

    Args:
        quantized: The directory of the quantized model.
        path: The file or directory to write, as in save().
        dtype: The dtype of the decoded weights. By default the original one.
        format, max_shard_size, sync, force, memory_limit, component, progress: As in convert().

    >>> ballast.dequantize(quantized, out / "decoded.safetensors").tensors
    2
    """
    with watched(progress, "dequantizing") as callback:
        made = _core.dequantize(
            path_of(quantized),
            path_of(path),
            dtype=None if dtype is None else _dtypes.name_of(dtype),
            **checked(
                format=format,
                max_shard_size=max_shard_size,
                sync=sync,
                force=force,
                memory_limit=memory_limit,
                component=component,
            ),
            progress=callback,
        )
    return convert_report_of(made)


convert_async = in_thread(convert)
dequantize_async = in_thread(dequantize)
