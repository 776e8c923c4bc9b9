"""Statistics of the inputs of a model's layers, for `quantize(calibration=...)`.

>>> from ballast.calibration import Recorder
>>> recorder = Recorder()
>>> recorder.add("up.weight", np.ones((8, 4)))  # the inputs of the layer with this weight: [..., in]
>>> recorder.save(out / "statistics.safetensors")

attach() records all layers of a PyTorch module. docs/formats/timecalib.md describes the file.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ballast._arguments import flag
from ballast._errors import ArgumentError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Attachment", "Recorder"]

_MOST_TIMESTEPS = 100_000
_Path = Union[str, "os.PathLike[str]"]
_Rows = np.ndarray[Any, np.dtype[np.float64]]


class Recorder:
    """A recorder of statistics, which it adds up in float64.

    It takes 16 bytes of memory for each input of each weight at each timestep, and with `hessian` another 8 bytes for each pair
    of inputs of each weight.

    Args:
        hessian: Record what GPTQ needs.
    """

    def __init__(self, hessian: bool = False) -> None:
        #: The timestep of the inputs that attach() records, for models that run once per timestep, as diffusion models do.
        self.timestep: float | None = None
        self._hessian = flag("hessian", hessian)
        self._weights: dict[str, _Weight] = {}
        self._timed: bool | None = None  # whether calls have timesteps; None before the first

    def __repr__(self) -> str:
        timesteps = {timestep for weight in self._weights.values() for timestep in weight.sums} if self._timed else set()
        return f"Recorder({len(self._weights)} weights, {len(timesteps)} timesteps)"

    def add(self, weight_name: str, x: Any, timestep: float | None = None, y: Any = None) -> None:
        """Add inputs of a layer.

        Args:
            weight_name: The name of the layer's weight in the model's files.
            x: The inputs, [..., in], of any float dtype. For a convolution `in` is the product of all dimensions of the weight
                but the first, so the inputs must be unfolded.
            timestep: The timestep, in all calls or in none.
            y: The outputs, [..., out], in all calls for a weight or in none. With them, timesteps with small outputs count as
                much as others.
        """
        if not isinstance(weight_name, str) or not weight_name:
            raise ArgumentError(f"weight_name must be a non-empty str, not {weight_name!r}")
        inputs = _as_rows(f"{weight_name}: x", x)
        outputs = None if y is None else _as_rows(f"{weight_name}: y", y)
        if outputs is not None and len(outputs) != len(inputs):
            raise ArgumentError(f"{weight_name}: x has {len(inputs)} rows, y has {len(outputs)}")
        if self._timed not in (None, timestep is not None):
            raise ArgumentError(f"{weight_name}: give a timestep in all calls or in none")
        when = None if timestep is None else _as_timestep(weight_name, timestep)
        weight = self._weights.get(weight_name) or _Weight(inputs.shape[1], outputs is not None, self._hessian)
        weight.add(weight_name, when, inputs, outputs)
        self._weights[weight_name] = weight
        self._timed = when is not None

    def attach(self, module: nn.Module, *, prefix: str = "", outputs: bool = False) -> Attachment:
        """Record the inputs of all linear and convolutional layers of a PyTorch module while it runs.

        Set `timestep` before each run of a model that has timesteps:

            with recorder.attach(unet):
                for t in scheduler.timesteps:
                    recorder.timestep = t
                    ...

        Args:
            module: A torch.nn.Module. Convolutions with groups and transposed ones are not recorded.
            prefix: A prefix of the weights' names in the model's files, such as "model.".
            outputs: Record the outputs too.

        Returns an Attachment, which ends the recording at the end of a `with` block or by remove().
        """
        from ballast._hooks import attach

        handles = attach(self, module, prefix, flag("outputs", outputs))
        if not handles:
            raise ArgumentError(f"{type(module).__name__} has no linear or convolutional layer")
        return Attachment(handles)

    def save(self, path: _Path) -> None:
        """Write the statistics to a SafeTensors file. It appears under its name only when it is complete.

        Weights without inputs are left out.
        """
        weights = {name: weight for name, weight in sorted(self._weights.items()) if weight.has_inputs()}
        if not weights:
            raise ArgumentError("no inputs were recorded")
        recorded = sorted({timestep for weight in weights.values() for timestep in weight.sums if timestep is not None})
        timesteps: Sequence[float | None] = recorded or [None]
        if len(timesteps) > _MOST_TIMESTEPS:
            raise ArgumentError(f"{len(timesteps)} timesteps, the format allows {_MOST_TIMESTEPS}; give similar ones the same number")

        def tensors() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
            for name, weight in weights.items():
                for kind, values in weight.statistics(timesteps):
                    yield f"{name}.{kind}", _as_float32(f"{name}.{kind}", values)

        metadata = {"format": "timecalib.v1"}
        if recorded:
            metadata["timesteps"] = json.dumps([_shortest(timestep) for timestep in recorded])
        _write_safetensors(os.fspath(path), metadata, tensors)


class Attachment:
    """A recording of a PyTorch module, as returned by Recorder.attach()."""

    def __init__(self, handles: dict[str, Any]) -> None:
        self._handles = handles
        #: The names of the recorded weights.
        self.weights: list[str] = list(handles)

    def __repr__(self) -> str:
        return f"Attachment({len(self.weights)} weights{'' if self._handles else ', removed'})"

    def remove(self) -> None:
        """End the recording."""
        for handle in self._handles.values():
            handle.remove()
        self._handles = {}

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


class _Weight:
    """The sums of one weight."""

    def __init__(self, columns: int, has_outputs: bool, hessian: bool) -> None:
        self.columns = columns
        self.has_outputs = has_outputs
        self.sums: dict[float | None, _Sums] = {}  # by timestep
        self.products = np.zeros((columns, columns)) if hessian else None

    def add(self, name: str, timestep: float | None, x: _Rows, y: _Rows | None) -> None:
        if x.shape[1] != self.columns:
            raise ArgumentError(f"{name}: x has {x.shape[1]} columns, earlier inputs had {self.columns}")
        if (y is not None) != self.has_outputs:
            raise ArgumentError(f"{name}: give y in all calls or in none")
        if timestep not in self.sums:
            self.sums[timestep] = _Sums(self.columns)
        self.sums[timestep].add(x, y)
        if self.products is not None:
            self.products += x.T @ x

    def has_inputs(self) -> bool:
        return any(sums.count > 0 for sums in self.sums.values())

    def statistics(self, timesteps: Sequence[float | None]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Yield names and values, one row for each timestep, or without a dimension for timesteps if they are [None]."""
        all_sums = [self.sums.get(timestep) or _Sums(self.columns) for timestep in timesteps]
        rows: Any = 0 if timesteps == [None] else slice(None)
        yield "count", np.array([sums.count for sums in all_sums])
        if self.products is not None:
            yield "hessian", self.products / sum(sums.count for sums in all_sums)
        yield "x_max", np.array([sums.high if sums.count else 0 for sums in all_sums])
        yield "x_mean", np.array([sums.sum / max(sums.count, 1) for sums in all_sums])[rows]
        yield "x_min", np.array([sums.low if sums.count else 0 for sums in all_sums])
        yield "x_sqmean", np.array([sums.squares / max(sums.count, 1) for sums in all_sums])[rows]
        if self.has_outputs:
            yield "y_sqmean", np.array([sums.output_squares / max(sums.outputs, 1) for sums in all_sums])


class _Sums:
    """The sums of one weight at one timestep."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self.sum = np.zeros(columns)
        self.squares = np.zeros(columns)
        self.low = math.inf
        self.high = -math.inf
        self.outputs = 0
        self.output_squares = 0.0

    def add(self, x: _Rows, y: _Rows | None) -> None:
        if len(x) == 0:
            return
        self.count += len(x)
        self.sum += x.sum(axis=0)
        self.squares += np.einsum("ij,ij->j", x, x)
        self.low = min(self.low, float(x.min()))
        self.high = max(self.high, float(x.max()))
        if y is not None:
            self.outputs += y.size
            self.output_squares += float(np.vdot(y, y))


def _as_timestep(weight_name: str, timestep: Any) -> float:
    if isinstance(timestep, (bool, np.bool_, str, bytes)):
        raise ArgumentError(f"{weight_name}: timestep must be a number, not {timestep!r}")
    number = float(timestep) + 0.0  # makes -0.0 0.0
    if not math.isfinite(number):
        raise ArgumentError(f"{weight_name}: timestep is {number}, it must be finite")
    return number


def _as_rows(what: str, values: Any) -> _Rows:
    if "torch" in sys.modules and isinstance(values, sys.modules["torch"].Tensor):
        here = values.detach().cpu()
        values = here.double().numpy() if here.is_floating_point() else here.numpy()  # NumPy has no bfloat16
    array = np.asarray(values)
    if array.dtype.kind not in "fV":  # the dtypes of ml_dtypes have the kind V
        raise ArgumentError(f"{what} must have floats, not {array.dtype}")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ArgumentError(f"{what} has shape {list(array.shape)}, it must have at least one column")
    rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1]).astype(np.float64)
    if not np.isfinite(rows).all():
        raise ArgumentError(f"{what} has NaN or infinite values")
    return rows


def _as_float32(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        values = values.astype("<f4")
    if not np.isfinite(values).all():
        raise ArgumentError(f"{name} has values too large for float32")
    return values


def _shortest(timestep: float) -> float:
    return int(timestep) if timestep.is_integer() and abs(timestep) < 2**53 else timestep


def _write_safetensors(
    path: str, metadata: dict[str, str], tensors: Callable[[], Iterator[tuple[str, np.ndarray[Any, Any]]]]
) -> None:
    """Write a file. `tensors` is called twice, for the header and for the data, so that only one of them is in memory."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, values in tensors():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    incomplete = f"{path}.{os.getpid()}.incomplete"
    try:
        with open(incomplete, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, values in tensors():
                file.write(np.ascontiguousarray(values).data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(incomplete, path)
    except BaseException:
        if os.path.exists(incomplete):
            os.remove(incomplete)
        raise
