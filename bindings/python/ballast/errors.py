"""What can go wrong. Each kind is also the built-in exception that Python code expects for it."""

from __future__ import annotations

import errno


class BallastError(Exception):
    """The base of all. Its text is one line that names the file, the tensor and the two numbers that disagree."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ReadError(BallastError, OSError):
    """The operating system refused or broke off a read."""


class WriteError(BallastError, OSError):
    """The output could not be written."""


class CorruptError(BallastError, ValueError):
    """The bytes contradict themselves, their format or each other."""


class UnsupportedError(BallastError, ValueError):
    """Well formed, but nothing here can do what was asked of it."""


class MissingError(BallastError, FileNotFoundError):
    """No such file."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.errno = errno.ENOENT


class TensorNotFoundError(BallastError, KeyError):
    """No such tensor."""


class ArgumentError(BallastError, ValueError):
    """The caller's mistake."""


class BelowMinimumError(BallastError):
    """Done, and found worse than `min_accuracy` asks, with `fail_fast`."""


class CancelledError(BallastError):
    """A progress callback returned False."""
