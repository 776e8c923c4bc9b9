"""The frameworks that tensors are made for."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from ballast.safetensors._errors import SafetensorError


class Framework(NamedTuple):
    """How to make tensors of a framework."""

    #: make(name, dtype, shape, content) returns a tensor over these bytes, or a copy of them if `copies`.
    make: Callable[[str, str, tuple[int, ...], Any], Any]
    #: Whether make() copies the bytes, so that they may be a view of the file.
    copies: bool = False
    #: pick(tensor, slices, shape) returns a part of a whole tensor, for values that are packed in the file only.
    pick: Callable[[Any, tuple[slice, ...], tuple[int, ...]], Any] | None = None


_MODULES = {
    "np": "numpy", "numpy": "numpy", "pt": "torch", "torch": "torch", "pytorch": "torch", "jax": "flax", "flax": "flax",
    "mlx": "mlx",
}  # fmt: skip
_DEVICES = ("cuda", "mps", "npu", "xpu", "xla", "mlu", "musa", "hpu")


def framework_of(name: str, device: Any) -> Framework:
    """Import the framework called `name`."""
    if not isinstance(name, str):
        raise TypeError(f"argument 'framework': expected str, not {type(name).__name__}")
    if name not in _MODULES:
        raise SafetensorError(f"framework {name} is invalid (expected one of: {', '.join(_MODULES)})")
    device = _device(device)
    if device != "cpu" and _MODULES[name] != "torch":
        raise SafetensorError(f"Device {device} is not supported for framework {_MODULES[name]}")
    module = importlib.import_module(f"ballast.safetensors.{_MODULES[name]}")
    made: Framework = module._framework(device)
    return made


def _device(device: Any) -> Any:
    if device is None or str(device) == "cpu":
        return "cpu"
    if hasattr(device, "__index__") and operator.index(device) >= 0:
        return operator.index(device)
    kind, colon, number = str(device).partition(":")
    if kind not in _DEVICES or (colon and not number.isdecimal()):
        raise SafetensorError(f"device {device} is invalid")
    return kind if kind == "mps" else f"{kind}:{number or 0}"
