"""How long work is watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any, Optional, Union

#: Called with (bytes done, bytes in all, what is at hand); False stops the work. True shows a bar, if tqdm is installed.
Progress = Optional[Union[bool, Callable[[int, int, str], Any]]]


def refuse_async(callback: Callable[..., Any]) -> None:
    """Nobody would await what it gives."""
    if iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__):
        raise TypeError("progress is a plain function, not one of async def")


@contextmanager
def watched(progress: Progress, title: str) -> Iterator[Callable[[int, int, str], Any] | None]:
    """The callback for the core."""
    if progress is None or progress is False:
        yield None
    elif progress is True:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ImportError("progress=True needs the package tqdm; or give a function of (done, total, what)") from None
        with tqdm(desc=title, unit="B", unit_scale=True, leave=False) as bar:

            def show(done: int, total: int, what: str) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield show
    elif callable(progress):
        refuse_async(progress)
        yield progress
    else:
        raise TypeError(f"progress is a function, True or None, not {type(progress).__name__}")
