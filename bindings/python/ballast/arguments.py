"""What callers give, checked before the core sees it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ballast.errors import ArgumentError

_BROKEN_URI = re.compile(rb"(https?|s3|hf):/[^/]", re.IGNORECASE)


def checked(**arguments: Any) -> dict[str, Any]:
    """The arguments as the core takes them: each is checked for what its name stands for."""
    return {name: _KINDS[name](name, value) for name, value in arguments.items()}


def path_of(path: Any) -> bytes:
    """As the system has it. A URI is a text."""
    given = os.fsencode(path)
    if isinstance(path, os.PathLike) and _BROKEN_URI.match(given):
        raise ArgumentError("a path was made of a URI, which lost a slash by it: give it as a text")
    return given


def is_utf8(text: str) -> bool:
    """Whether it has no lone surrogates."""
    try:
        return text.isascii() or len(text.encode()) > 0
    except UnicodeEncodeError:
        return False


def text(name: str, value: Any) -> str:
    """A text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a text, not {type(value).__name__}")
    if not is_utf8(value):
        raise ArgumentError(f"{name} is {value!r}, which cannot be written as UTF-8")
    return value


def mapping(name: str, value: Any) -> Mapping[Any, Any]:
    """Pairs."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is a mapping, not {type(value).__name__}")
    return value


def _optional_text(name: str, value: Any) -> str | None:
    return None if value is None else text(name, value)


def _texts(name: str, value: Any) -> list[str]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is a sequence of texts, not {type(value).__name__}")
    return [text(name, each) for each in value]


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    return [(text(name, key), text(name, each)) for key, each in mapping(name, value).items()]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is True or False, not {type(value).__name__}")
    return bool(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is a number, not {type(value).__name__}")
    return float(value)


def _whole(most: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
        number = int(value.__index__())
        if not 0 <= number <= most:
            raise ArgumentError(f"{name} is {number}, it must be from 0 to {most}")
        return number

    return check


_KINDS: dict[str, Callable[[str, Any], Any]] = {
    "allow_loss": _flag,
    "dtype_rules": _pairs,
    "exclude": _texts,
    "format": _optional_text,
    "include": _texts,
    "max_header_bytes": _whole(2**63 - 1),
    "max_shard_bytes": _whole(2**63 - 1),
    "memory_limit": _whole(2**63 - 1),
    "min_accuracy": _number,
    "mmap": _flag,
    "decode": _flag,
    "name": text,
    "reference": _flag,
    "rename": _pairs,
    "resume": _flag,
    "sha256": _flag,
    "sync": _flag,
    "threads": _whole(1024),
    "values": _flag,
}
