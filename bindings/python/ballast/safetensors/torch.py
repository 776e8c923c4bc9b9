"""SafeTensors files of PyTorch tensors, and of models that use a tensor under several names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Union

import torch  # type: ignore[import-not-found, unused-ignore]

from ballast import _torch
from ballast._errors import UnsupportedError
from ballast.safetensors import _open, _write
from ballast.safetensors._errors import SafetensorError
from ballast.safetensors._frameworks import Framework
from ballast.safetensors._open import deserialize, safe_open
from ballast.safetensors._write import TensorSpec, serialize, serialize_file

__all__ = [
    "SafetensorError", "TensorSpec", "deserialize", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model",
    "serialize", "serialize_file", "storage_ptr", "storage_size",
]  # fmt: skip

Device = Union[str, int]


def save(tensors: dict[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a SafeTensors file.

    >>> load(save({"a": torch.zeros(2, 3)}))["a"].shape
    torch.Size([2, 3])
    """
    kept, items = _items(tensors)
    return _write.to_bytes(items, metadata)


def save_file(tensors: dict[str, torch.Tensor], filename: _open.Filename, metadata: Mapping[str, str] | None = None) -> None:
    """Write a SafeTensors file. Tensors must be dense and contiguous and must not share memory; save_model() accepts those that do."""
    kept, items = _items(tensors)
    _write.to_file(items, filename, metadata)


def load(data: bytes) -> dict[str, torch.Tensor]:
    """Return the tensors of a file in memory."""
    return _open.load(data, "pt")


def load_file(filename: _open.Filename, device: Device = "cpu", *, backend: str = "mmap") -> dict[str, torch.Tensor]:
    """Return the tensors of a file, read by several threads.

    >>> load_file(path)["bias"].shape
    torch.Size([64])
    """
    with _open.safe_open(filename, "pt", device, backend=backend) as file:
        made: dict[str, torch.Tensor] = file.get_tensors()
        return made


def save_model(
    model: torch.nn.Module, filename: _open.Filename, metadata: dict[str, str] | None = None, force_contiguous: bool = True
) -> None:
    """Write the tensors of a model. A tensor with several names is written once; the metadata map the other names to it.

    >>> save_model(torch.nn.Linear(3, 2), out / "linear.safetensors")
    """
    tensors = model.state_dict()
    notes = dict(metadata or {})
    for kept, dropped in _remove_duplicate_names(tensors).items():
        for name in dropped:
            notes.setdefault(name, kept)
            del tensors[name]
    if force_contiguous:
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        save_file(dict(tensors), filename, metadata=notes if notes or metadata is not None else None)
    except ValueError as error:
        raise ValueError(f"{error} Or use save_model(..., force_contiguous=True), which packs them.") from None


def load_model(
    model: torch.nn.Module, filename: _open.Filename, strict: bool = True, device: Device = "cpu", *, backend: str = "mmap"
) -> tuple[set[str], list[str]]:
    """Load a file into a model. A tensor with several names may be saved under any of them.

    Returns the names that only the model has and those that only the file has. With `strict`, either raises RuntimeError.
    """
    tensors = load_file(filename, device, backend=backend)
    duplicates = _remove_duplicate_names(model.state_dict(), preferred_names=tensors)
    found = model.load_state_dict(tensors, strict=False)
    missing, unexpected = set(found[0]), list(found[1])
    for name in (name for dropped in duplicates.values() for name in dropped):
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for kind, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                lines.append(f"    {kind} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(names)))
        raise RuntimeError("\n".join(lines))
    return missing, unexpected


def storage_ptr(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage, or 0 if it has none."""
    try:
        return int(_storage(tensor).data_ptr())
    except (NotImplementedError, RuntimeError):
        return 0


def storage_size(tensor: torch.Tensor) -> int:
    """Return the size of a tensor's storage in bytes."""
    return int(_storage(tensor).nbytes())


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()  # before PyTorch 2.0


def _end_ptr(tensor: torch.Tensor) -> int:
    """Return the address after the last value."""
    start = int(tensor.data_ptr())
    if tensor.nelement() == 0:
        return start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return start + (int(last) + 1) * int(tensor.element_size())


def _is_complete(tensor: torch.Tensor) -> bool:
    """Return whether a tensor covers its whole storage."""
    return bool(tensor.data_ptr() == storage_ptr(tensor) and tensor.nelement() * tensor.element_size() == storage_size(tensor))


def _find_shared_tensors(state_dict: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """Return sets of names whose tensors overlap in memory. Every tensor with memory is in one set."""
    by_storage: dict[Any, list[str]] = {}
    for name, tensor in state_dict.items():
        if tensor.device.type != "meta" and storage_ptr(tensor) != 0 and storage_size(tensor) != 0:
            by_storage.setdefault((tensor.device, storage_ptr(tensor), storage_size(tensor)), []).append(name)
    groups: list[set[str]] = []
    for names in by_storage.values():
        areas = sorted((int(state_dict[name].data_ptr()), _end_ptr(state_dict[name]), name) for name in names)
        end = -1
        for start, stop, name in areas:
            if start >= end:
                groups.append({name})
            else:
                groups[-1].add(name)
            end = max(end, stop)
    return groups


def _remove_duplicate_names(
    state_dict: Mapping[str, torch.Tensor],
    *,
    preferred_names: Iterable[str] | None = None,
    discard_names: Iterable[str] | None = None,
) -> dict[str, list[str]]:
    """Return the duplicate names by the name to keep, which covers the whole storage. Preferred names are kept first."""
    preferred, discarded = set(preferred_names or ()), set(discard_names or ())
    duplicates: dict[str, list[str]] = {}
    for shared in _find_shared_tensors(state_dict):
        complete = {name for name in shared if _is_complete(state_dict[name])}
        if not complete:
            raise RuntimeError(
                "Error while trying to find names to remove to save state dict, but found no suitable name to keep for saving"
                f" amongst: {shared}. None is covering the entire storage.Refusing to save/load the model since you could be"
                " storing much more memory than needed. Copy these tensors with .clone() first."
            )
        kept = min(complete & preferred or complete - discarded or complete)
        others = sorted(shared - {kept})
        if others:
            duplicates[kept] = others
    return duplicates


def _check(tensors: Any) -> None:
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support. Make them dense with"
            " `.to_dense()` first, which may take much more space."
        )
    shared = [names for names in _find_shared_tensors(tensors) if len(names) > 1]
    if shared:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading them"
            f" again: {shared}. Use `save_model` for a model, or `.clone()` the tensors that should be separate."
        )
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Call `.contiguous()` first, or"
                " save the tensor that it is a part of."
            )


def _items(tensors: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[_write.Item]]:
    """Return tensors as the core takes them, and the tensors that own the memory."""
    _check(tensors)
    _write.check_names(tensors)
    kept: list[torch.Tensor] = []
    items: list[_write.Item] = []
    for name, tensor in tensors.items():
        if tensor.dtype not in _torch.CODES:
            raise _write.unknown_dtype(str(tensor.dtype).removeprefix("torch."), f"tensor {name!r}")
        here = _torch.stored(tensor)
        kept.append(here)
        content = _write.memory(name, here.data_ptr(), here.nelement() * here.element_size())
        items.append((name, _torch.CODES[tensor.dtype], _torch.stored_shape(tensor), content))
    return kept, items


def _make(name: str, dtype: str, shape: tuple[int, ...], content: Any) -> torch.Tensor:
    if dtype not in _torch.DTYPES:
        raise SafetensorError(f"Dtype not understood: {dtype} (tensor {name!r}: PyTorch {torch.__version__} has no such dtype)")
    try:
        return _torch.tensor_of(name, dtype, shape, content)
    except UnsupportedError as error:
        raise SafetensorError(str(error)) from None


def _framework(device: Any) -> Framework:
    if device == "cpu":
        return Framework(_make)
    return Framework(lambda name, dtype, shape, content: _make(name, dtype, shape, content).to(device))
