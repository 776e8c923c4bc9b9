"""Quantizing models from SafeTensors to Parquet."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, Union

import ballast
from ballast._config import QuantizeConfig, QuantizeSettings
from ballast._errors import ArgumentError
from ballast._progress import Progress, refuse_async
from ballast._tensor import Path
from ballast.arrow_quant_v2._config import DiffusionQuantConfig

#: Called with (bytes done, total bytes, message), or with (message, fraction) if it takes two arguments.
Callback = Union[bool, Callable[..., Any], None]


class ArrowQuantV2:
    """A quantizer of models.

    The mode "diffusion" uses time-aware biases and scaled columns if there are calibration statistics and the config does not
    disable them. The mode "base" uses neither.

    >>> ArrowQuantV2(mode="turbo")
    Traceback (most recent call last):
    ...
    ballast.ArgumentError: mode is 'turbo', it must be 'diffusion' or 'base'
    """

    def __init__(self, mode: Literal["diffusion", "base"] = "diffusion") -> None:
        if mode not in ("diffusion", "base"):
            raise ArgumentError(f"mode is {mode!r}, it must be 'diffusion' or 'base'")
        self.mode = mode

    def __repr__(self) -> str:
        return f"ArrowQuantV2(mode={self.mode!r})"

    def quantize_from_safetensors(
        self,
        safetensors_path: Path,
        output_path: Path,
        bit_width: int | None = None,
        config: QuantizeConfig | None = None,
        progress_callback: Callback = None,
        *,
        calibration: Path | None = None,
        validate: bool = False,
        resume: bool = False,
        force: bool = False,
        sync: bool = True,
    ) -> dict[str, Any]:
        """Quantize a file, shards or a model directory into the directory `output_path`, in bounded memory.

        Args:
            safetensors_path: The model.
            output_path: The directory to write.
            bit_width: The bits per weight. Takes precedence over `config`.
            config: Settings.
            progress_callback: A function of (bytes done, total bytes, message) or of (message, fraction). If it returns False,
                the work ends with CancelledError and nothing is written.
            calibration: A file of statistics.
            validate: Read the files back and measure the metrics on them.
            resume, force, sync: As in ballast.quantize().

        Returns the fields of QuantizeReport as a dict, with `layers` as a list of dicts, and `model_size_mb`, `bit_width`,
        `quantization_time_s` and others.
        """
        chosen = self._config(bit_width, config)
        progress = _progress(progress_callback)
        began = time.perf_counter()
        report = ballast.quantize(
            safetensors_path,
            output_path,
            chosen,
            calibration=calibration,
            sync=sync,
            resume=resume,
            force=force,
            progress=progress,
        )
        took = time.perf_counter() - began
        metrics = _metrics(report)
        if validate:
            checked = self.validate_quality(safetensors_path, output_path, chosen.min_accuracy, progress_callback)
            metrics |= {name: checked[name] for name in _MEASURED}
        return metrics | {
            "bit_width": chosen.bit_width,
            "group_size": chosen.group_size,
            "format": chosen.format,
            "quantization_time_s": took,
            "output_path": os.fspath(output_path),
            "validated": validate,
        }

    def validate_quality(
        self, original: Path, quantized: Path, min_accuracy: float = 0.0, progress_callback: Callback = None
    ) -> dict[str, Any]:
        """Read a quantized model back and compare it with its original.

        `passed` in the result is True if the cosine similarity of every layer is at least `min_accuracy` and all unquantized
        tensors are unchanged.
        """
        return _metrics(ballast.validate(original, quantized, min_accuracy=min_accuracy, progress=_progress(progress_callback)))

    def _config(self, bit_width: int | None, config: QuantizeConfig | None) -> QuantizeConfig:
        if config is not None and not isinstance(config, QuantizeConfig):
            raise TypeError(f"config must be a DiffusionQuantConfig, not {type(config).__name__}")
        settings: QuantizeSettings = {} if bit_width is None else {"bit_width": bit_width}
        if self.mode == "base":
            settings |= {"enable_time_aware": False, "enable_spatial": False}
        return (config or DiffusionQuantConfig()).replace(**settings)


# What validate() measures by reading the files.
_MEASURED = ("bytes", "model_size_mb", "compression_ratio", "cosine_similarity", "relative_rmse", "sqnr_db", "max_error", "passed")


def _metrics(report: ballast.QuantizeReport) -> dict[str, Any]:
    return asdict(report) | {"model_size_mb": report.model_size_mb}


def _progress(callback: Callback) -> Progress:
    if callback is None or isinstance(callback, bool) or not callable(callback) or not _takes_two(callback):
        return callback
    refuse_async(callback)
    two = callback
    return lambda done, total, message: two(message, done / total)


def _takes_two(callback: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(callback)
    except ValueError:  # some functions written in C have none
        return False
    return not _fits(signature, 0, 0, "") and _fits(signature, "", 0.0)


def _fits(signature: inspect.Signature, *arguments: Any) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True
