"""Slices of files written by the reference, compared with NumPy slices of the same arrays."""

import os
from math import prod

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = 2_000 if os.environ.get("BALLAST_FULL") == "1" else 500
LIMITS = [-(2**63), -(2**63) + 1, 2**63 - 1]

DTYPES = [
    *(np.dtype(code) for code in ("?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8")),
    *(np.dtype(getattr(ml_dtypes, name)) for name in (
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    )),
]  # fmt: skip

# Some rows span many pages, so that some slices are read in pieces and some at once.
SHAPES = st.lists(st.integers(0, 6), max_size=4) | st.tuples(st.integers(1, 8), st.integers(1, 3_000)).map(list)


def slice_of(size: int) -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-size - 2, size + 2) | st.sampled_from(LIMITS)
    step = st.just(1) | (st.integers(-size - 2, size + 2) | st.sampled_from(LIMITS)).filter(bool)
    return st.builds(slice, bound, bound, step)


@st.composite
def arrays_and_slices(draw) -> tuple[np.ndarray, list[slice]]:
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(SHAPES)
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    content = rng.integers(0, 2 if dtype == bool else 256, prod(shape) * dtype.itemsize, np.uint8)
    array = content.view(dtype).reshape(shape)
    return array, [draw(slice_of(size)) for size in shape[: draw(st.integers(0, len(shape)))]]


def write_slice(part: slice) -> str:
    numbers = [part.start, part.stop] if part.step == 1 else [part.start, part.stop, part.step]
    return ":".join("" if number is None else str(number) for number in numbers)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("slices") / "array.safetensors"


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(case=arrays_and_slices())
def test_slice_matches_numpy(probe, path, case):
    array, slices = case
    path.unlink(missing_ok=True)
    safetensors.numpy.save_file({"x": array}, path)
    expected = np.asarray(array[tuple(slices)])
    answer = probe(f"slice {path} x {','.join(map(write_slice, slices))}")
    assert answer == {"ok": True, "shape": list(expected.shape), "bytes": expected.tobytes().hex()}
