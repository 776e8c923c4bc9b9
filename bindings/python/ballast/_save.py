"""Writing tensors."""

from __future__ import annotations

from collections.abc import Mapping

from ballast import _core
from ballast._arguments import checked, metadata_of, path_of
from ballast._progress import Progress, watched
from ballast._sources import Tensors, items_of
from ballast._tensor import Path
from ballast._threads import in_thread


def save(
    tensors: Tensors,
    path: Path,
    *,
    metadata: Mapping[str, str] | None = None,
    max_shard_size: int | str = 0,
    sync: bool = True,
    progress: Progress = None,
) -> None:
    """Write tensors to a file or a model directory. The output appears under its name only when it is complete.

    Args:
        tensors: A mapping from names to arrays, PyTorch tensors or tensors of a model; an open model is one.
        path: A file ending in .safetensors or .mlx. Any other path becomes a directory.
        metadata: Metadata for the header.
        max_shard_size: Split the tensors of a directory into files of at most this size: a number of bytes or a size such as
            "5GB". 0 writes one file.
        sync: Wait until the data is on the disk.
        progress: A function of (bytes done, total bytes, name), or True for a progress bar.

    >>> ballast.save({"a": np.eye(3, dtype=np.float16)}, out / "a.safetensors", metadata={"source": "example"})
    >>> ballast.open(out / "a.safetensors")["a"].dtype
    'F16'
    """
    options = checked(sync=sync, max_shard_size=max_shard_size)
    with watched(progress, "saving") as callback:
        _core.save(path_of(path), items_of(tensors), metadata_of(metadata), **options, progress=callback)


save_async = in_thread(save)


def serialize(tensors: Tensors, *, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a SafeTensors file. The arguments are those of save().

    >>> ballast.serialize({"a": np.zeros(2, np.float32)})[:8]
    b'8\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    return _core.serialize(items_of(tensors), metadata_of(metadata))
