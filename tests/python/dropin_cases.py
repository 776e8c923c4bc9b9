"""Files, arrays and settings that the tests of ballast.safetensors share."""

import os
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from safetensors_bytes import prefix

FULL = os.environ.get("BALLAST_FULL") == "1"
EXAMPLES = 2_000 if FULL else 200

# What the reference writes and reads, then what it only writes.
PLAIN = [np.dtype(code) for code in ("?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8")]
BF16 = np.dtype(ml_dtypes.bfloat16)
F8 = [
    np.dtype(getattr(ml_dtypes, name))
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
]
F4 = np.dtype(ml_dtypes.float4_e2m1fn)
BACKENDS = ["mmap", "pread"]

# tmp_path is the same for all examples, which write over each other's files.
quick = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def file_of(header: str | bytes, data: bytes = b"") -> bytes:
    return prefix(header) + data


def one_tensor(dtype: str, shape: object, begin: int, end: int, data: bytes) -> bytes:
    return file_of(f'{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}}}', data)


def random_array(dtype: np.dtype, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    highest = 2 if dtype == bool else 16 if dtype == F4 else 256
    content = np.random.default_rng(seed).integers(0, highest, prod(shape) * dtype.itemsize, np.uint8)
    return content.view(dtype).reshape(shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
ARRAYS = st.builds(random_array, st.sampled_from([*PLAIN, BF16]), SHAPES, st.integers(0, 9))


@pytest.fixture
def table(tmp_path) -> Path:
    """t F32 [10, 2] of 0, 1, 2, ..., empty I8 [2, 0, 3], scalar F64 of 3.5, with metadata."""
    path = tmp_path / "table.safetensors"
    arrays = {"t": np.arange(20, dtype="f4").reshape(10, 2), "empty": np.zeros((2, 0, 3), "i1"), "scalar": np.array(3.5)}
    safetensors.numpy.save_file(arrays, path, {"made": "here"})
    return path
