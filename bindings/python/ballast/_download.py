"""Downloading files. All other functions take URIs in place of paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ballast import _core, _html
from ballast._arguments import checked, path_of, text
from ballast._progress import Progress, watched
from ballast._tensor import Path
from ballast._text import counted, size_text
from ballast._threads import in_thread


@dataclass(frozen=True)
class DownloadedFile:
    """A complete file."""

    path: str
    size: int
    already_complete: bool  #: whether nothing was fetched
    checksum: str | None  #: the checksum that was verified, "sha256" or "git"; None if only the size could be checked


@dataclass(frozen=True, repr=False)
class DownloadReport:
    """The result of download()."""

    folder: str  #: where the files are
    files: list[DownloadedFile]
    fetched_bytes: int  #: over the network

    def _facts(self) -> list[str]:
        return [counted(len(self.files), "file"), f"{size_text(self.fetched_bytes)} fetched"]

    def __repr__(self) -> str:
        return f"DownloadReport({self.folder!r}, {', '.join(self._facts())})"

    def _repr_html_(self) -> str:
        rows = (
            (file.path, size_text(file.size), file.checksum or "size only", "already complete" if file.already_complete else "fetched")
            for file in self.files
        )
        files = _html.table(("file", "size", "checked", "status"), rows, len(self.files))
        return _html.page("DownloadReport", [self.folder, *self._facts()], files)


def download(
    uri: str,
    folder: Path | None = None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    component: str | None = None,
    variant: str | None = None,
    sync: bool = True,
    force: bool = False,
    progress: Progress = None,
) -> DownloadReport:
    """Download a file or all files of a model. The next call resumes an interrupted download.

    Args:
        uri: https://..., s3://bucket/folder or hf://org/repo[@revision][/file].
        folder: Where to put the files. By default hf:// URIs go to the Hugging Face cache.
        include: Globs of the files to download. Empty: all.
        exclude: Globs of the files to leave out, applied after `include`.
        component: Download one component of a diffusers pipeline only, such as "unet".
        variant: Download the weights of one variant only, such as "fp16".
        sync: Wait until the data is on the disk.
        force: Write into a directory that has other files, which stay.
        progress: A function of (bytes done, total bytes, name), or True for a progress bar.
    """
    with watched(progress, "downloading") as callback:
        made = _core.download(
            text("uri", uri),
            None if folder is None else path_of(folder),
            **checked(include=include, exclude=exclude, component=component, variant=variant, sync=sync, force=force),
            progress=callback,
        )
    files = [DownloadedFile(**file) for file in made["files"]]
    return DownloadReport(made["folder"], files, made["fetched_bytes"])


download_async = in_thread(download)
