"""Quantizing models."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import fields
from typing import Unpack

from ballast import _core
from ballast._arguments import checked, path_of
from ballast._config import QuantizeConfig, QuantizeSettings, as_fields
from ballast._errors import ArgumentError
from ballast._progress import Progress, watched
from ballast._reports import QuantizeReport, quantize_report_of
from ballast._sources import Loras, Source, core_source
from ballast._tensor import Path
from ballast._threads import in_thread
from ballast._tokens import Tokens, windows_of

_SETTINGS = {setting.name for setting in fields(QuantizeConfig)}


def quantize(
    source: Source,
    directory: Path,
    config: QuantizeConfig | None = None,
    *,
    bits: int | None = None,
    calibration: Path | None = None,
    calibration_tokens: Tokens | None = None,
    calibration_text: Path | None = None,
    lora: Loras | None = None,
    sync: bool = True,
    resume: bool = False,
    force: bool = False,
    component: str | None = None,
    variant: str | None = None,
    progress: Progress = None,
    **settings: Unpack[QuantizeSettings],
) -> QuantizeReport:
    """Quantize a model into a directory, in bounded memory.

    Of a diffusers pipeline, quantizes the transformer, UNet, prior and ControlNet, and copies text encoders, VAE and the other
    components as they are.

    Args:
        source: A path or URI, an open model, a mapping of arrays or PyTorch tensors, or an Arrow table with the columns
            layer_name, weights and, for tensors of more than one dimension, shape.
        directory: The directory to write. It appears under its name only when it is complete.
        config: Settings. Those given as arguments take precedence.
        bits: A short name of the setting bit_width.
        calibration: A file of statistics, as written by calibrate() or ballast.calibration.Recorder.
        calibration_tokens: Calibrate a language model layer by layer with these token ids, which are as `tokens` in evaluate().
        calibration_text: The same with a text file, as `text` in evaluate().
        lora: LoRA adapters to merge: a path, a mapping from paths to scales, or a sequence of paths and (path, scale). `source`
            must be a path.
        sync: Wait until the data is on the disk.
        resume: Keep partial output if the work is interrupted, and resume from it.
        force: Write into a directory that has other files, which stay.
        component, variant: As in open(). `source` must be a path.
        progress: A function of (bytes done, total bytes, name), or True for a progress bar.
        **settings: The settings of QuantizeConfig, by name.

    >>> report = ballast.quantize(path, out / "small", bits=4, group_size=32)
    >>> report
    QuantizeReport(1 quantized, 1 unquantized, 5.00 bits per weight, ...x smaller, cosine 0.99..., passed)
    """
    if config is not None and not isinstance(config, QuantizeConfig):
        raise TypeError(f"config must be a QuantizeConfig, not {type(config).__name__}; pass settings as keyword arguments")
    for name in settings:
        if name not in _SETTINGS:
            raise TypeError(f"quantize() got an unexpected keyword argument {name!r}")
    sources = [] if config is None else [config._given]
    sources.append(as_fields(_with_bits(settings, bits)))
    windows = None
    if calibration_tokens is not None or calibration_text is not None:
        windows = windows_of(source, calibration_tokens, calibration_text, length=512, prefix="calibration_")
    with ExitStack() as stack:
        made = _core.quantize(
            core_source(stack, source, component=component, variant=variant),
            path_of(directory),
            config=sources,
            calibration=None if calibration is None else path_of(calibration),
            calibration_tokens=windows,
            **checked(lora=lora, sync=sync, resume=resume, force=force, component=component, variant=variant),
            progress=stack.enter_context(watched(progress, "quantizing")),
        )
    return quantize_report_of(made)


def _with_bits(settings: QuantizeSettings, bits: int | None) -> QuantizeSettings:
    if bits is None:
        return settings
    if settings.get("bit_width") not in (None, bits):
        raise ArgumentError(f"bits is {bits} and bit_width is {settings['bit_width']}; give one of them")
    try:
        QuantizeConfig(bit_width=bits)
    except ArgumentError as error:
        raise ArgumentError(str(error).replace("bit_width", "bits", 1)) from None  # the name that the caller used
    return {**settings, "bit_width": bits}


def validate(
    original: Source,
    quantized: Path,
    *,
    lora: Loras | None = None,
    min_accuracy: float = 0.0,
    threads: int = 0,
    component: str | None = None,
    variant: str | None = None,
    progress: Progress = None,
) -> QuantizeReport:
    """Compare a quantized model on disk with its original.

    Args:
        original: The model before quantization, as `source` in quantize().
        quantized: The directory of the quantized model.
        lora: Adapters that were merged into the original, as in quantize().
        min_accuracy: The report has passed if the cosine similarity of every layer is at least this, and all unquantized
            tensors are unchanged.
        threads: The number of threads. 0: one per core.
        component, variant: Of the original, as in open().
        progress: A function of (bytes done, total bytes, name), or True for a progress bar.

    >>> ballast.validate(path, quantized).cosine_similarity > 0.99
    True
    """
    with ExitStack() as stack:
        core = core_source(stack, original, component=component, variant=variant)
        callback = stack.enter_context(watched(progress, "validating"))
        options = checked(lora=lora, min_accuracy=min_accuracy, threads=threads, component=component, variant=variant)
        made = _core.validate(core, path_of(quantized), **options, progress=callback)
    return quantize_report_of(made)


quantize_async = in_thread(quantize)
validate_async = in_thread(validate)
