"""Checks of arguments, before they reach the core."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ballast._errors import ArgumentError

_BROKEN_URI = re.compile(rb"(https?|s3|hf):/[^/]", re.IGNORECASE)
_SIZE = re.compile(r"(\d+\.?\d*|\.\d+) *([a-z]*)", re.IGNORECASE | re.ASCII)
_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
    "M": 10**6, "G": 10**9,
}  # fmt: skip


def checked(**arguments: Any) -> dict[str, Any]:
    """Convert the arguments to what the core takes. Each is checked by its name."""
    return {name: _CHECKS[name](name, value) for name, value in arguments.items()}


def path_of(path: Any) -> bytes:
    """Encode a path as the file system does. URIs must be str or bytes."""
    given = os.fsencode(path)
    if isinstance(path, os.PathLike) and _BROKEN_URI.match(given):
        raise ArgumentError("a URI must be a str: pathlib.Path removes one of its slashes")
    return given


def is_utf8(text: str) -> bool:
    """Return whether the text has no lone surrogates."""
    try:
        return text.isascii() or len(text.encode()) > 0
    except UnicodeEncodeError:
        return False


def text(name: str, value: Any) -> str:
    """Return the value if it is a str that UTF-8 can encode."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not is_utf8(value):
        raise ArgumentError(f"{name} is {value!r}, which is not valid UTF-8")
    return value


def mapping(name: str, value: Any) -> Mapping[Any, Any]:
    """Return the value if it is a mapping."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")
    return value


def size(name: str, value: Any) -> int:
    """Return a number of bytes, given as an int or as a size such as "300MB", "5GB" or "2GiB"."""
    if not isinstance(value, str):
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be a number of bytes or a size such as '5GB', not {type(value).__name__}")
        return _integer(2**63 - 1)(name, value)
    found = _SIZE.fullmatch(value)
    unit = _UNITS.get(found[2].upper()) if found else None
    amount = int(float(found[1]) * unit) if found and unit else 0
    if not 1 <= amount <= 2**62:
        raise ArgumentError(f"{name} is {value!r}, which is not a size; write it like '300MB', '5GB' or '2GiB'")
    return amount


def flag(name: str, value: Any) -> bool:
    """Return the value if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
    return bool(value)


def metadata_of(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the metadata of a file as a dict, or None."""
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping from str to str, not {type(metadata).__name__}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata must be a mapping from str to str; it has {key!r}: {value!r}")
        if not is_utf8(key) or not is_utf8(value):
            raise ArgumentError(f"metadata {key!r}: {value!r} is not valid UTF-8")
    return dict(metadata)


def _optional_text(name: str, value: Any) -> str | None:
    return None if value is None else text(name, value)


def _texts(name: str, value: Any) -> list[str]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a sequence of str, not {type(value).__name__}")
    return [text(name, each) for each in value]


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    return [(text(name, key), text(name, each)) for key, each in mapping(name, value).items()]


def _number(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    return float(value)


def _integer(highest: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
        number = int(value.__index__())
        if not 0 <= number <= highest:
            raise ArgumentError(f"{name} is {number}, it must be from 0 to {highest}")
        return number

    return check


def _loras(name: str, value: Any) -> list[tuple[bytes, float]]:
    """Return adapters, given as a path, a mapping from paths to scales, or a sequence of paths and (path, scale)."""
    if value is None:
        return []
    if isinstance(value, (str, bytes, os.PathLike)):
        return [(path_of(value), 1.0)]
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a path, a mapping from paths to scales or a sequence, not {type(value).__name__}")
    found = []
    for each in value.items() if isinstance(value, Mapping) else value:
        path, scale = each if isinstance(each, tuple) and len(each) == 2 else (each, 1.0)
        if not isinstance(path, (str, bytes, os.PathLike)):
            raise TypeError(f"{name} must consist of paths and (path, scale), not {type(path).__name__}")
        found.append((path_of(path), _number(f"the scale in {name}", scale)))
    return found


def _name(name: str, value: Any) -> str:
    """Return a component or variant; "" for None."""
    if value is None:
        return ""
    found = text(name, value)
    if not found:
        raise ArgumentError(f"{name} is empty")
    return found


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "allow_loss": flag,
    "component": _name,
    "decode": flag,
    "dtype_rules": _pairs,
    "exclude": _texts,
    "force": flag,
    "format": _optional_text,
    "hessian": flag,
    "include": _texts,
    "length": _integer(2**20),
    "lora": _loras,
    "max_header_bytes": size,
    "max_shard_size": size,
    "memory_limit": size,
    "min_accuracy": _number,
    "mmap": flag,
    "name": text,
    "reference": flag,
    "rename": _pairs,
    "resume": flag,
    "samples": _integer(2**31),
    "set": _pairs,
    "sha256": flag,
    "sync": flag,
    "threads": _integer(1024),
    "unset": _texts,
    "values": flag,
    "variant": _name,
}
