"""What can go wrong. Each kind is also the built-in exception that Python code expects for it."""

from __future__ import annotations

import errno
import os
from typing import Any


def one_line(text: str) -> str:
    """The text with what cannot be printed escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class BallastError(Exception):
    """The base of all. Its text is one line that names the file, the tensor and the two numbers that disagree."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state |= {"errno": self.errno, "strerror": self.strerror}
        return type(self), self.args, state


class ReadError(BallastError, OSError):
    """The operating system refused or broke off a read. `errno` and `strerror` are its own, where it gave a reason."""


class WriteError(BallastError, OSError):
    """The output could not be written. `errno` and `strerror` are those of the system, where it gave a reason."""


class CorruptError(BallastError, ValueError):
    """The bytes contradict themselves, their format or each other."""


class UnsupportedError(BallastError, ValueError):
    """Well formed, but nothing here can do what was asked of it."""


class MissingError(BallastError, FileNotFoundError):
    """No such file."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.errno = errno.ENOENT
        self.strerror = os.strerror(errno.ENOENT)


class TensorNotFoundError(BallastError, KeyError):
    """No such tensor."""


class ArgumentError(BallastError, ValueError):
    """The caller's mistake."""


class BelowMinimumError(BallastError):
    """Done, and found worse than `min_accuracy` asks, with `fail_fast`."""


class CancelledError(BallastError):
    """A progress callback returned False."""
