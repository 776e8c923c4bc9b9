"""Comparing models."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from ballast import _core, _html
from ballast._arguments import checked
from ballast._errors import UnsupportedError
from ballast._progress import Progress, watched
from ballast._sources import Opened, Source
from ballast._text import counted
from ballast._threads import in_thread


@dataclass(frozen=True)
class TensorDifference:
    """A tensor whose dtype, shape or values differ. The four numbers are None if the values cannot be compared."""

    name: str
    dtype: tuple[str, str]  #: in a and b
    shape: tuple[tuple[int, ...], tuple[int, ...]]  #: in a and b
    different_values: int | None  #: how many values differ
    values: int | None  #: how many values were compared
    first_difference: int | None  #: the index of the first value that differs, in C order; None if none does
    max_difference: float | None  #: the largest |a - b|; infinite if one of them is not finite


@dataclass(frozen=True, repr=False)
class DiffReport:
    """The result of diff()."""

    equal: bool  #: whether all tensors are equal; metadata does not count
    same: int  #: tensors with equal dtype, shape and values
    only_in_a: list[str]
    only_in_b: list[str]
    changed: list[TensorDifference]
    metadata: list[str]  #: metadata keys whose values differ
    warnings: list[str]

    def _facts(self) -> list[str]:
        facts = ["equal" if self.equal else "different", f"{counted(self.same, 'tensor')} the same"]
        facts += [f"{len(self.changed):,} changed"] if self.changed else []
        facts += [f"{len(self.only_in_a):,} only in a"] if self.only_in_a else []
        facts += [f"{len(self.only_in_b):,} only in b"] if self.only_in_b else []
        return facts

    def __repr__(self) -> str:
        return f"DiffReport({', '.join(self._facts())})"

    def _repr_html_(self) -> str:
        columns = ("changed", "dtype", "shape", "values differ", "max |a − b|")
        return _html.page(
            "DiffReport",
            self._facts(),
            _html.table(columns, map(_row, self.changed), len(self.changed)),
            _html.table(("only in a",), ((name,) for name in self.only_in_a), len(self.only_in_a)),
            _html.table(("only in b",), ((name,) for name in self.only_in_b), len(self.only_in_b)),
            _html.notes("Different metadata", self.metadata),
            _html.notes("Warnings", self.warnings),
        )


def _row(tensor: TensorDifference) -> tuple[object, ...]:
    def pair(a: object, b: object) -> str:
        return str(a) if a == b else f"{a} → {b}"

    if tensor.different_values is None:
        values = "–"
    else:
        values = f"{tensor.different_values:,} of {tensor.values:,}" if tensor.different_values else "equal"
    shapes = (list(shape) for shape in tensor.shape)
    largest = tensor.max_difference if tensor.different_values else ""
    return tensor.name, pair(*tensor.dtype), pair(*shapes), values, largest


def diff(a: Source, b: Source, *, threads: int = 0, progress: Progress = None) -> DiffReport:
    """Compare two models: names, dtypes, shapes and values. Ignores the order of tensors and the division into files.

    Quantized models given by path are compared by their decoded weights.

    Args:
        a, b: Paths or URIs, open models, mappings of arrays, or Arrow tables as in quantize().
        threads: The number of threads. 0: one per core.
        progress: A function of (bytes done, total bytes, name), or True for a progress bar.

    >>> report = ballast.diff(path, {"bias": model["bias"]})
    >>> report
    DiffReport(different, 1 tensor the same, 1 only in a)
    >>> report.equal, report.only_in_a
    (False, ['embed.weight'])
    """
    options = checked(threads=threads)
    warnings: list[str] = []
    with ExitStack() as stack:
        first = stack.enter_context(_opened(a, warnings))
        second = stack.enter_context(_opened(b, warnings))
        warnings += [*first.warnings, *second.warnings]
        made = _core.diff(first, second, **options, progress=stack.enter_context(watched(progress, "comparing")))
    made["changed"] = [TensorDifference(**tensor) for tensor in made["changed"]]
    return DiffReport(**made, warnings=warnings)


def _opened(source: Source, warnings: list[str]) -> Opened:
    try:
        return Opened(source, decode=True)
    except UnsupportedError as error:
        stored = Opened(source)
        warnings.append(f"{error}; the stored tensors are compared")
        return stored


diff_async = in_thread(diff)
