"""Bytes of SafeTensors files written by hand, so that tests can make files that no library would write."""

from __future__ import annotations

import json
from collections.abc import Mapping


def length_bytes(length: int) -> bytes:
    """Return the eight bytes at the start of a file that hold the length of its header."""
    return length.to_bytes(8, "little")


def prefix(header: bytes | str | Mapping[str, object], *, align: bool = False) -> bytes:
    """Return the length and the header. A mapping is written as JSON; `align` pads the header with spaces to 8 bytes."""
    if isinstance(header, Mapping):
        header = json.dumps(header)
    text = header if isinstance(header, bytes) else header.encode()
    if align:
        text += b" " * (-len(text) % 8)
    return length_bytes(len(text)) + text


def data_start(content: bytes) -> int:
    """Return the offset of the tensor data, given at least the first eight bytes of a file."""
    return 8 + int.from_bytes(content[:8], "little")
