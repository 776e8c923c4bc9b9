"""Work in threads, for event loops."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from ballast._errors import CancelledError
from ballast._progress import watched

_P = ParamSpec("_P")
_T = TypeVar("_T")


def in_thread(work: Callable[_P, _T]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Return a coroutine function that runs `work`, which has an argument `progress`, in a thread.

    Cancelling the task stops the work. The task ends when the work has stopped.
    """

    @functools.wraps(work)
    async def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        options: dict[str, Any] = dict(kwargs)
        with watched(options.pop("progress", None), work.__name__) as callback:
            return await _run(functools.partial(work, *args, **options), callback)

    run.__name__ = run.__qualname__ = f"{work.__name__}_async"
    run.__doc__ = f"Run {work.__name__}() in a thread. Cancelling the task stops the work."
    return run


async def _run(work: Callable[..., _T], callback: Callable[[int, int, str], Any] | None) -> _T:
    begun = threading.Event()
    stopped = threading.Event()

    def report(done: int, total: int, name: str) -> Any:
        if stopped.is_set():
            return False
        return None if callback is None else callback(done, total, name)

    def run() -> _T:
        begun.set()
        if stopped.is_set():
            raise CancelledError("cancelled")
        return work(progress=report)

    context = contextvars.copy_context()
    future = asyncio.get_running_loop().run_in_executor(None, context.run, run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stopped.set()
        if not begun.is_set():  # no thread was free, and run() will do nothing
            future.cancel()
            raise
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # marks the CancelledError as retrieved
        raise
