"""Hooks of PyTorch modules that record the inputs of layers. Importing this module imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]
from torch import nn  # type: ignore[import-not-found, unused-ignore]

from ballast._errors import ArgumentError

if TYPE_CHECKING:
    from ballast.calibration import Recorder

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def attach(recorder: Recorder, module: Any, prefix: str, outputs: bool) -> dict[str, Any]:
    """Register a hook for each layer that can be recorded. Returns the handles by the names of the weights."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    handles = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear) or (isinstance(layer, _CONVOLUTIONS) and layer.groups == 1):
            weight = f"{prefix}{name}.weight" if name else f"{prefix}weight"
            handles[weight] = layer.register_forward_hook(_hook(recorder, weight, outputs))
    return handles


def _hook(recorder: Recorder, weight: str, outputs: bool) -> Any:
    def record(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not args:
            raise ArgumentError(f"{weight}: the layer was called without a positional argument, so its input is unknown")
        x, y = args[0].detach(), output.detach()
        if isinstance(layer, _CONVOLUTIONS):
            x, y = _unfolded(layer, x), y.movedim(-1 - len(layer.kernel_size), -1)
        recorder.add(weight, x, recorder.timestep, y if outputs else None)

    return record


def _unfolded(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the inputs of each output of a convolution, [..., in], in the order of the weight's dimensions."""
    if x.ndim == len(layer.kernel_size) + 1:
        x = x.unsqueeze(0)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    x = nn.functional.pad(x, layer._reversed_padding_repeated_twice, mode=mode)
    for dim, (size, step, dilation) in enumerate(zip(layer.kernel_size, layer.stride, layer.dilation), 2):
        x = x.unfold(dim, (size - 1) * dilation + 1, step)[..., ::dilation]
    x = x.movedim(1, 1 + len(layer.kernel_size))  # [batch, positions..., channels, kernel...]
    return x.flatten(1 + len(layer.kernel_size))
