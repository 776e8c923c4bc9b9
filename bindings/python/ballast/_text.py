"""Counts and sizes as text."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return "1 file" or "2 files"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size_text(size: float) -> str:
    """Return a number of bytes in kB, MB or GB."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            break
    return f"{size:,.2f} {unit}"
