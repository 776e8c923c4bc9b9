"""Metadata of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ballast import _core
from ballast._arguments import checked, path_of
from ballast._progress import Progress, watched
from ballast._tensor import Path
from ballast._threads import in_thread


def edit_metadata(
    path: Path,
    *,
    set: Mapping[str, str] | None = None,
    unset: Sequence[str] = (),
    progress: Progress = None,
) -> Literal["unchanged", "in place", "rewritten"]:
    """Change the metadata of a SafeTensors file and nothing else.

    Overwrites the header if the new metadata fits into it. Otherwise writes a new file and renames it over the old one.

    Args:
        path: The file.
        set: Keys and their new values.
        unset: Keys to remove, before `set` is applied. A key that does not exist raises ArgumentError.
        progress: A function of (bytes done, total bytes, name), or True for a progress bar.

    Returns "unchanged" if the metadata already had these values, else "in place" or "rewritten".

    >>> ballast.save({"a": np.zeros(2)}, out / "a.safetensors", metadata={"source": "example"})
    >>> ballast.edit_metadata(out / "a.safetensors", set={"license": "MIT"}, unset=["source"])
    'in place'
    >>> ballast.open(out / "a.safetensors").metadata
    {'license': 'MIT'}
    """
    options = checked(set={} if set is None else set, unset=unset)
    with watched(progress, "rewriting") as callback:
        return _core.edit_metadata(path_of(path), **options, progress=callback)


edit_metadata_async = in_thread(edit_metadata)
