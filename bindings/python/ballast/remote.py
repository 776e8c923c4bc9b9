"""Whole files from servers. Everything else takes URIs where it takes paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ballast import _core
from ballast.arguments import checked, path_of, text
from ballast.model import Path
from ballast.progress import Progress, watched
from ballast.work import off_the_loop


@dataclass(frozen=True)
class DownloadedFile:
    """A file that is whole. `checked` names the kind of sum, "sha256" or "git", that it was compared by, if the server told one."""

    path: str
    size: int
    was_there: bool
    checked: str | None


@dataclass(frozen=True)
class DownloadReport:
    """What is in `folder` now."""

    folder: str
    files: list[DownloadedFile]
    fetched_bytes: int


def download(
    uri: str,
    folder: Path | None = None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    sync: bool = True,
    progress: Progress = None,
) -> DownloadReport:
    """Fetches a file or a model's files: https://..., s3://bucket/folder or hf://org/repo[@revision][/file].

    What breaks off is gone on from by the next call. Without a folder, a model of the hub goes to the hub's cache.
    """
    with watched(progress, "downloading") as callback:
        made = _core.download(
            text("uri", uri),
            None if folder is None else path_of(folder),
            **checked(include=include, exclude=exclude, sync=sync),
            progress=callback,
        )
    files = [DownloadedFile(**file) for file in made["files"]]
    return DownloadReport(made["folder"], files, made["fetched_bytes"])


async def download_async(uri: str, folder: Path | None = None, **options: Any) -> DownloadReport:
    """download() without blocking the event loop; cancelling the task stops it."""
    return await off_the_loop(download, uri, folder, **options)
