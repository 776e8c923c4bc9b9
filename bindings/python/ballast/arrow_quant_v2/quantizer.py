"""Models quantized from SafeTensors to Parquet."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, Union

import ballast
from ballast.arrow_quant_v2.config import DiffusionQuantConfig
from ballast.config import QuantizeConfig
from ballast.errors import ArgumentError
from ballast.model import Path
from ballast.progress import Progress, refuse_async

#: Called with (bytes done, bytes in all, message), or with (message, fraction) if it takes two arguments.
Callback = Union[bool, Callable[..., Any], None]


class ArrowQuantV2:
    """Quantizes models. The mode "diffusion" has what goes by timestep and what scales columns, if there are statistics for it
    and the config does not turn it off; "base" has neither.

    >>> ArrowQuantV2(mode="turbo")
    Traceback (most recent call last):
    ...
    ballast.errors.ArgumentError: mode is 'turbo', it must be 'diffusion' or 'base'
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
        sync: bool = True,
    ) -> dict[str, Any]:
        """Writes a file, shards or a model directory with fewer bits into the directory `output_path`, in bounded memory.

        `bit_width` goes before what `config` has. The figures are those of QuantizeReport, of the bytes written, with
        `model_size_mb` in 10^6 bytes, `bit_width`, `quantization_time_s`, and `layers` with one dict for each tensor quantized. With
        `validate` they are measured on the files, read back.

        A callback that returns False stops the work with CancelledError, and nothing is written.
        """
        chosen = self._config(bit_width, config)
        progress = _progress(progress_callback)
        began = time.perf_counter()
        report = ballast.quantize(
            safetensors_path, output_path, chosen, calibration=calibration, sync=sync, resume=resume, progress=progress
        )
        took = time.perf_counter() - began
        figures = _figures(report)
        if validate:
            checked = self.validate_quality(safetensors_path, output_path, chosen.min_accuracy, progress_callback)
            figures |= {name: checked[name] for name in _MEASURED}
        return figures | {
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
        """Reads a quantized model back and measures it against its original. `passed` says whether every layer has a cosine of at
        least `min_accuracy` and all that was not quantized is the same to the byte."""
        return _figures(ballast.validate(original, quantized, min_accuracy=min_accuracy, progress=_progress(progress_callback)))

    def _config(self, bit_width: int | None, config: QuantizeConfig | None) -> QuantizeConfig:
        if config is not None and not isinstance(config, QuantizeConfig):
            raise TypeError(f"config is a DiffusionQuantConfig, not {type(config).__name__}")
        settings: dict[str, Any] = {} if bit_width is None else {"bit_width": bit_width}
        if self.mode == "base":
            settings |= {"enable_time_aware": False, "enable_spatial": False}
        return (config or DiffusionQuantConfig()).replace(**settings)


# What validate() finds by reading the files.
_MEASURED = ("bytes", "model_size_mb", "compression_ratio", "cosine_similarity", "relative_rmse", "sqnr_db", "max_error", "passed")


def _figures(report: ballast.QuantizeReport) -> dict[str, Any]:
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
    except ValueError:  # some that are written in C have none
        return False
    return not _fits(signature, 0, 0, "") and _fits(signature, "", 0.0)


def _fits(signature: inspect.Signature, *arguments: Any) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True
