"""Progress callbacks and bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any, Optional, Union

#: A function of (bytes done, total bytes, name of the current item), which cancels the work by returning False; or True for a
#: progress bar, which needs tqdm.
Progress = Optional[Union[bool, Callable[[int, int, str], Any]]]


def refuse_async(callback: Callable[..., Any]) -> None:
    """Raise TypeError for a coroutine function: nothing would await its result."""
    if iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__):
        raise TypeError("progress must be a plain function, not an async one")


@contextmanager
def watched(progress: Progress, title: str) -> Iterator[Callable[[int, int, str], Any] | None]:
    """Yield the callback for the core."""
    if progress is None or progress is False:
        yield None
    elif progress is True:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ImportError("progress=True needs tqdm: pip install tqdm, or pass a function of (done, total, name)") from None
        with tqdm(desc=title, unit="B", unit_scale=True, leave=False) as bar:

            def show(done: int, total: int, name: str) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield show
    elif callable(progress):
        refuse_async(progress)
        yield progress
    else:
        raise TypeError(f"progress must be a function, True or None, not {type(progress).__name__}")
