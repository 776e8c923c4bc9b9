"""Token ids that a language model reads: from files, arrays and text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Union

import numpy as np

from ballast import _core
from ballast._arguments import checked, path_of
from ballast._errors import ArgumentError, one_line
from ballast._model import Model
from ballast._tensor import Array, Path
from ballast._tokenizer import ids_of_text

#: A file of token ids, or an array of integers in one or two dimensions.
Tokens = Union[Path, Array, Sequence[int], Sequence[Sequence[int]]]


def windows_of(
    model: Any, tokens: Tokens | None, text: Path | None, *, length: int, prefix: str = ""
) -> _core.TokenWindows:
    """Return the windows of the one of `tokens` and `text` that is given. `prefix` is that of their names in messages."""
    if (tokens is None) == (text is None):
        raise ArgumentError(f"give {prefix}tokens or {prefix}text, {'not both' if text is not None else 'one of them is needed'}")
    most = checked(length=length)["length"]
    if text is not None:
        ids = ids_of_text(_path_of_model(model), text)
        return _made(ids, most, path_of(text))
    if isinstance(tokens, (str, bytes, os.PathLike)):
        return _core.read_tokens(path_of(tokens), most)
    return _made(_ids_of_array(f"{prefix}tokens", tokens), most, f"<{prefix}tokens>".encode())


def _made(ids: Array, length: int, name: bytes) -> _core.TokenWindows:
    return _core.make_tokens(np.ascontiguousarray(ids, np.uint32), ids.shape, length, name)


def _ids_of_array(name: str, tokens: Any) -> Array:
    try:
        ids = np.asarray(tokens)
    except ValueError:
        raise ArgumentError(f"{name} has rows of different lengths") from None
    if ids.size > 0 and (ids.dtype.kind not in "iu" or ids.ndim == 0):
        shown = ids.dtype if ids.ndim > 0 and ids.dtype.kind != "O" else type(tokens).__name__
        raise TypeError(f"{name} must be a path or an array of integers, not {shown}")
    if ids.size > 0 and (ids.min() < 0 or ids.max() > 2**32 - 1):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise ArgumentError(f"{name} has {wrong}, which is not a token id")
    return ids


def _path_of_model(model: Any) -> Path:
    if not isinstance(model, Model):
        return model  # type: ignore[no-any-return]
    if not model.path or one_line(model.path).startswith("<"):
        raise ArgumentError("text needs the path of the model, whose tokenizer is beside it; the model is in memory")
    return model._core.directory or model.path
