"""Checking models."""

from __future__ import annotations

from ballast import _core
from ballast._arguments import checked, path_of
from ballast._progress import Progress, watched
from ballast._reports import VerifyReport
from ballast._tensor import Path
from ballast._threads import in_thread


def verify(
    path: Path,
    *,
    values: bool = False,
    sha256: bool = False,
    threads: int = 0,
    component: str | None = None,
    variant: str | None = None,
    progress: Progress = None,
) -> VerifyReport:
    """Check headers, offsets, shards against the index, and tensors against the config.

    Args:
        path: A path or URI of a model, quantized or not, or of a diffusers pipeline.
        values: Check every value for NaN and infinity.
        sha256: Compute the SHA-256 checksum of every file.
        threads: The number of threads. 0: one per core.
        component, variant: As in open().
        progress: A function of (bytes done, total bytes, name), or True for a progress bar.

    >>> ballast.verify(path).ok
    True
    """
    with watched(progress, "verifying") as callback:
        options = checked(values=values, sha256=sha256, threads=threads, component=component, variant=variant)
        made = _core.verify(path_of(path), **options, progress=callback)
    made["sha256"] = {file: digest for file, digest in made["sha256"].items() if digest}
    return VerifyReport(**made)


verify_async = in_thread(verify)
