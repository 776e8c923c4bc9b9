"""Exceptions. Each one is also the built-in exception that Python code expects for its case."""

from __future__ import annotations

import errno
import os
from typing import Any


def one_line(text: str) -> str:
    """Escape the characters that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class BallastError(Exception):
    """Base class of all errors. The message is one line that names the file, the tensor and the values that disagree."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state |= {"errno": self.errno, "strerror": self.strerror}
        return type(self), self.args, state


class ReadError(BallastError, OSError):
    """A read failed. `errno` and `strerror` are the system's, if the system gave a reason."""


class WriteError(BallastError, OSError):
    """The output could not be written. `errno` and `strerror` are the system's, if the system gave a reason."""


class CorruptError(BallastError, ValueError):
    """A file contradicts itself, its format or another file of the model."""


class UnsupportedError(BallastError, ValueError):
    """The input is well formed, but the operation does not support it."""


class MissingError(BallastError, FileNotFoundError):
    """The file does not exist."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.errno = errno.ENOENT
        self.strerror = os.strerror(errno.ENOENT)


class TensorNotFoundError(BallastError, KeyError):
    """The model has no tensor with this name."""


class ArgumentError(BallastError, ValueError):
    """An argument has the right type but a wrong value."""


class BelowMinimumError(BallastError):
    """A layer is less accurate than `min_accuracy`, and `fail_fast` is set."""


class CancelledError(BallastError):
    """A progress callback returned False."""
