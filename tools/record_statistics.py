"""Records statistics of what the layers of a model are given, which tell a quantizer what matters.

    recorder = Recorder()
    for timestep in schedule:
        ...
        recorder.add("blocks.0.attn.q_proj.weight", x, timestep)  # what the layer with this weight is given: [..., in]
    recorder.save("statistics.safetensors")

Names are those of the weights in the model's files. Timesteps are for models that run many times over, such as diffusion
models; for others leave them out. docs/formats/timecalib.md describes the file.
"""

import json
import math
import os

import numpy as np

MOST_TIMESTEPS = 100_000


class Recorder:
    """Adds up statistics in float64: 16 bytes for each input of each weight at each timestep, and with `hessian` another 8
    for each two inputs of each weight."""

    def __init__(self, hessian=False):
        self._hessian = hessian
        self._weights = {}
        self._timed = None  # whether calls have timesteps; unknown before the first

    def add(self, weight_name, x, timestep=None, y=None):
        """Takes inputs x, [..., in], of the layer with this weight, and if you like its outputs y, [..., out], by which
        timesteps with small outputs come to count as much as others. Either all calls have a timestep, or none; either
        all calls for a weight have y, or none."""
        if not isinstance(weight_name, str) or not weight_name:
            raise ValueError(f"a weight's name is a text that is not empty, not {weight_name!r}")
        x = _as_rows(f"{weight_name}: x", x)
        y = None if y is None else _as_rows(f"{weight_name}: y", y)
        if y is not None and len(y) != len(x):
            raise ValueError(f"{weight_name}: {len(x)} inputs, but {len(y)} outputs")
        if self._timed not in (None, timestep is not None):
            raise ValueError(f"{weight_name}: either all calls have a timestep, or none")
        if timestep is not None:
            timestep = _as_timestep(weight_name, timestep)
        weight = self._weights.get(weight_name) or _Weight(x.shape[1], y is not None, self._hessian)
        weight.add(weight_name, timestep, x, y)
        self._weights[weight_name] = weight
        self._timed = timestep is not None

    def save(self, path):
        """Writes a SafeTensors file, which is there under its name only when it is complete. Weights that were never given
        an input are left out."""
        weights = {name: weight for name, weight in sorted(self._weights.items()) if weight.has_inputs()}
        if not weights:
            raise ValueError("no inputs were recorded")
        timesteps = sorted({timestep for weight in weights.values() for timestep in weight.sums}) if self._timed else [None]
        if len(timesteps) > MOST_TIMESTEPS:
            raise ValueError(f"{len(timesteps)} timesteps, the format takes {MOST_TIMESTEPS}: give those that are alike one number")

        def tensors():
            for name, weight in weights.items():
                for kind, values in weight.statistics(timesteps):
                    yield f"{name}.{kind}", _as_float32(f"{name}.{kind}", values)

        metadata = {"format": "timecalib.v1"}
        if self._timed:
            metadata["timesteps"] = json.dumps([_shortest(timestep) for timestep in timesteps])
        _write_safetensors(os.fspath(path), metadata, tensors)


class _Weight:
    def __init__(self, columns, has_outputs, hessian):
        self.columns = columns
        self.has_outputs = has_outputs
        self.sums = {}  # by timestep
        self.products = np.zeros((columns, columns)) if hessian else None

    def add(self, name, timestep, x, y):
        if x.shape[1] != self.columns:
            raise ValueError(f"{name}: x has {x.shape[1]} columns, before it had {self.columns}")
        if (y is not None) != self.has_outputs:
            raise ValueError(f"{name}: either all calls have y, or none")
        if timestep not in self.sums:
            self.sums[timestep] = _Sums(self.columns)
        self.sums[timestep].add(x, y)
        if self.products is not None:
            self.products += x.T @ x

    def has_inputs(self):
        return any(sums.count > 0 for sums in self.sums.values())

    def statistics(self, timesteps):
        """Pairs of a name and its values, at each of the timesteps or, if that is None, over all."""
        all_sums = [self.sums.get(timestep) or _Sums(self.columns) for timestep in timesteps]
        rows = slice(None) if timesteps != [None] else 0
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
    """Of one weight at one timestep."""

    def __init__(self, columns):
        self.count = 0
        self.sum = np.zeros(columns)
        self.squares = np.zeros(columns)
        self.low = math.inf
        self.high = -math.inf
        self.outputs = 0
        self.output_squares = 0.0

    def add(self, x, y):
        if len(x) == 0:
            return
        self.count += len(x)
        self.sum += x.sum(axis=0)
        self.squares += np.einsum("ij,ij->j", x, x)
        self.low = min(self.low, x.min())
        self.high = max(self.high, x.max())
        if y is not None:
            self.outputs += y.size
            self.output_squares += np.vdot(y, y)


def _as_timestep(weight_name, timestep):
    if isinstance(timestep, (bool, np.bool_, str, bytes)):
        raise ValueError(f"{weight_name}: the timestep is {timestep!r}, not a number")
    number = float(timestep) + 0.0  # which makes -0.0 0.0
    if not math.isfinite(number):
        raise ValueError(f"{weight_name}: the timestep is {number}")
    return number


def _as_rows(what, values):
    values = np.asarray(values)
    if values.dtype.kind not in "fV":  # numpy takes bfloat16 and the like for V
        raise ValueError(f"{what} is {values.dtype}, it must be floating")
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"{what} has shape {list(values.shape)}, it must have columns")
    rows = values.reshape(math.prod(values.shape[:-1]), values.shape[-1]).astype(np.float64)
    if not np.isfinite(rows).all():
        raise ValueError(f"{what} has values that are NaN or infinite")
    return rows


def _as_float32(name, values):
    with np.errstate(over="ignore"):
        values = values.astype("<f4")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has values too large for float32")
    return values


def _shortest(timestep):
    return int(timestep) if timestep.is_integer() and abs(timestep) < 2**53 else timestep


def _write_safetensors(path, metadata, tensors):
    """`tensors` is called twice, for the header and for the data, so that only one of them is in memory at a time."""
    header, end = {"__metadata__": metadata}, 0
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
