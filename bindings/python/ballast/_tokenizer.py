"""Text as token ids, by the tokenizer.json beside a model."""

from __future__ import annotations

import os
import re
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ballast import _core
from ballast._arguments import path_of
from ballast._download import download
from ballast._errors import CorruptError, MissingError, ReadError, UnsupportedError, one_line
from ballast._tensor import Array, Path

FILE = "tokenizer.json"
_URI = re.compile(r"(https?|s3|hf)://", re.IGNORECASE)
_HUB = re.compile(r"(hf://[^/]+/[^/]+)", re.IGNORECASE)
_WEIGHTS = (".safetensors", ".mlx", ".json")


def ids_of_text(model: Path, text: Path) -> Array:
    """Return the token ids of a text file in UTF-8, as an array of int32.

    The text is encoded as a whole, without special tokens, except one that the tokenizer puts before every text: most models
    expect it there.
    """
    shown = one_line(os.fsdecode(path_of(text)))
    content = _read(text, shown)
    tokenizer = _tokenizer_of(os.fsdecode(path_of(model)))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    probe = tokenizer.encode("a", add_special_tokens=True)
    first = probe.ids[:1] if probe.special_tokens_mask[:1] == [1] else []
    return np.array(first + tokenizer.encode(content, add_special_tokens=False).ids, np.int32)


def _read(text: Path, shown: str) -> str:
    try:
        with open(path_of(text), "rb") as file:
            return file.read().decode()
    except FileNotFoundError:
        raise MissingError(f"{shown}: no such file") from None
    except OSError as error:
        raise ReadError(f"{shown}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CorruptError(f"{shown}: byte {error.start} is not UTF-8; text must be in UTF-8") from None


def _tokenizer_of(model: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ImportError("text needs the package tokenizers; install it: pip install 'ballast[text]'") from None
    with TemporaryDirectory(prefix="ballast-") as folder:
        file = _fetched(model, folder) if _URI.match(model) else _beside(model)
        try:
            return Tokenizer.from_file(file)
        except Exception as error:  # the package raises no narrower class
            raise UnsupportedError(f"{one_line(file)}: tokenizers cannot read it: {one_line(str(error))}") from None


def _beside(model: str) -> str:
    file = os.path.join(model if os.path.isdir(model) else os.path.dirname(model), FILE)
    if not os.path.isfile(file):
        raise MissingError(f"{one_line(file)}: no such file; text needs the model's tokenizer, or give token ids instead")
    return file


def _fetched(model: str, folder: str) -> str:
    """Fetch the file, for the Hugging Face Hub into its cache."""
    if hub := _HUB.match(model):
        return download(hub[1], include=[FILE]).files[0].path
    if "?" in model:
        raise UnsupportedError(f"{_core.without_secrets(model)}: {FILE} cannot be found beside a URI with a query; give token ids instead")
    base = model.rpartition("/")[0] if model.lower().endswith(_WEIGHTS) else model.rstrip("/")
    return download(f"{base}/{FILE}", folder).files[0].path
