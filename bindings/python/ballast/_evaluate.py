"""Running language models over tokens, to measure them and to record statistics of their layers' inputs."""

from __future__ import annotations

import os
from typing import Any, Union

from ballast import _core
from ballast._arguments import checked, path_of
from ballast._errors import ArgumentError
from ballast._model import Model
from ballast._progress import Progress, watched
from ballast._reports import CalibrateReport, EvaluateReport, evaluate_report_of
from ballast._tensor import Path
from ballast._threads import in_thread
from ballast._tokens import Tokens, windows_of

#: What language models are given as.
LanguageModel = Union[Path, Model]


def evaluate(
    model: LanguageModel,
    *,
    tokens: Tokens | None = None,
    text: Path | None = None,
    against: LanguageModel | None = None,
    length: int = 512,
    threads: int = 0,
    memory_limit: int | str = 0,
    component: str | None = None,
    variant: str | None = None,
    progress: Progress = None,
) -> EvaluateReport:
    """Measure the perplexity of a language model, layer by layer in bounded memory.

    Needs OpenBLAS: Debian's libopenblas0, or pip install 'ballast[text]'.

    Args:
        model: A path or URI, or an open model. Quantized weights are decoded to F32; pass open(path, decode=True) rather than an
            open model with stored codes.
        tokens: Token ids, as an array of integers or the path of a .npy file, a .safetensors file or a text file with numbers.
            Of two dimensions, each row is a window; otherwise the ids are cut into windows of `length`.
        text: The path of a text file in UTF-8, in place of `tokens`. It is tokenized by the tokenizer.json beside the model,
            without special tokens, except one that the tokenizer puts before every text. Needs pip install 'ballast[text]'.
        against: The original that the model was made from, to measure how much its predictions differ.
        length: The number of tokens in a window.
        threads: The number of threads. 0: one per core.
        memory_limit: A number of bytes or a size such as "2GiB". 0: 1 GiB, or two layers in F32 if these are larger.
        component, variant: As in open(), for both models. `model` must be a path.
        progress: A function of (work done, total work, name), or True for a progress bar.
    """
    options = checked(threads=threads, memory_limit=memory_limit, component=component, variant=variant)
    windows = windows_of(model, tokens, text, length=length)
    original = None if against is None else _core_model("against", against, component, variant)
    with watched(progress, "evaluating") as callback:
        core = _core_model("model", model, component, variant)
        made = _core.evaluate(core, windows, against=original, **options, progress=callback)
    return evaluate_report_of(made)


def calibrate(
    model: LanguageModel,
    out: Path,
    *,
    tokens: Tokens | None = None,
    text: Path | None = None,
    samples: int | None = None,
    length: int = 512,
    hessian: bool = False,
    resume: bool = False,
    sync: bool = True,
    threads: int = 0,
    memory_limit: int | str = 0,
    component: str | None = None,
    variant: str | None = None,
    progress: Progress = None,
) -> CalibrateReport:
    """Run a language model over tokens and write statistics of its layers' inputs, for the `calibration` of quantize().

    Args:
        model: As in evaluate().
        out: The file to write, a .safetensors file.
        tokens, text, length: As in evaluate().
        samples: Use this many windows, evenly spread over all. None: all.
        hessian: Also record the products of the inputs, which GPTQ needs.
        resume: Keep finished layers in OUT.incomplete if the work is interrupted, and resume from them.
        sync: Wait until the data is on the disk.
        threads, memory_limit, component, variant, progress: As in evaluate().
    """
    flags = checked(hessian=hessian, resume=resume, sync=sync, samples=0 if samples is None else samples)
    options = checked(threads=threads, memory_limit=memory_limit, component=component, variant=variant)
    windows = _core.spread_tokens(windows_of(model, tokens, text, length=length), flags.pop("samples"))
    with watched(progress, "calibrating") as callback:
        core = _core_model("model", model, component, variant)
        return CalibrateReport(**_core.calibrate(core, path_of(out), windows, **flags, **options, progress=callback))


def _core_model(argument: str, model: Any, component: str | None, variant: str | None) -> _core.OpenModel | bytes:
    if isinstance(model, (str, bytes, os.PathLike)):
        return path_of(model)
    if not isinstance(model, Model):
        raise TypeError(f"{argument} must be a path or an open model, not {type(model).__name__}")
    for name, value in (("component", component), ("variant", variant)):
        if value is not None:
            raise ArgumentError(f"{name} is {value!r}, but the model is already open; give its path")
    return model._core


evaluate_async = in_thread(evaluate)
calibrate_async = in_thread(calibrate)
