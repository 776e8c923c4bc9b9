"""Errors with the messages of `safetensors`, which programs look for, followed by Ballast's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ballast._errors import BallastError, CorruptError, UnsupportedError, one_line


class SafetensorError(BallastError):
    """An error in a file or an argument."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(one_line(each) if isinstance(each, str) else each for each in args))


class MissingFileError(FileNotFoundError):
    """The file does not exist."""

    def __str__(self) -> str:
        return f"{self.strerror}: {one_line(self.filename)}"


MISALIGNED = "The slice is slicing for subbytes dtypes, and the slice does not end up at a byte boundary, this is invalid."

_TENSOR = r"tensor '(?P<name>(?:[^'\\]|\\.)*)'(?: \(\d+ bytes\))?: "

# Patterns of Ballast's messages, and the messages of `safetensors`. The first match counts.
_WORDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"file of \d+ bytes is too small", "header too small"),
        (r"header of \d+ bytes exceeds|not a SafeTensors file", "header too large"),
        (r"header of \d+ bytes ends past", "invalid header length"),
        (r"invalid UTF-8 in header", "invalid UTF-8 in header"),
        (rf"({_TENSOR})?invalid JSON in header", "invalid JSON in header"),
        (rf"{_TENSOR}unknown dtype", "invalid JSON in header"),
        (rf"{_TENSOR}data (begins|ends) at byte", "invalid offset for tensor `{name}`"),
        (rf"{_TENSOR}(the )?size of shape .* overflows", "overflow computing buffer size from shape and/or element type"),
        (rf"{_TENSOR}\d+ values of .* bits(, which is not a whole number of| do not fill whole) bytes", MISALIGNED),
        (rf"{_TENSOR}shape .* of \w+ needs", "invalid shape, data type, or offset for tensor"),
        (rf"{_TENSOR}\w+ \[.*\] needs \d+ bytes, got \d+", "invalid shape, data type, or offset for tensor"),
        (r"(tensors are incomplete|tensor index \d+)", "invalid shape, data type, or offset for tensor"),
        (r"(tensors cover|file is truncated)", "incomplete metadata, file not fully covered"),
        (r"cannot (write|move the file into place): (?P<why>[^;]*)", "I/O error: {why}"),
    )
)


def worded(doing: str, path: str, said: str) -> SafetensorError:
    """Return an error with the message of `safetensors`, followed by the core's message about the file `path`."""
    for pattern, words in _WORDS:
        if found := pattern.match(said):
            return SafetensorError(f"{doing}: {words.format(**found.groupdict())} ({path}: {said})")
    return SafetensorError(f"{doing}: {path}: {said}")


def without_path(path: str, message: str) -> str:
    """Remove the path from the start of a message. In the message the path is escaped."""
    if message.startswith(f"{path}: "):
        return message[len(path) + 2 :]
    if message.startswith("tensor '"):  # about an argument, not about the file
        return message
    return message.split(": ", path.count(": ") + 1)[-1]


@contextmanager
def reading(doing: str, path: str) -> Iterator[None]:
    """Translate errors about the contents of a file. OSError passes unchanged."""
    try:
        yield
    except (CorruptError, UnsupportedError) as error:
        raise worded(doing, path, without_path(path, str(error))) from None


def noted(error: SafetensorError, note: str) -> SafetensorError:
    """Add a note to an error whose message programs compare as a whole."""
    if hasattr(error, "add_note"):
        error.add_note(one_line(note))
    return error
