"""Parts of tensors through ballast.safetensors: those of the package that it stands in for, without its defects."""

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from dropin_cases import ARRAYS, BACKENDS, one_tensor, quick, same, table  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

import ballast.safetensors as dropin

REFUSED = [
    np.s_[19], np.s_[10], np.s_[:19], np.s_[:11], np.s_[10:], np.s_[11:], np.s_[10:10], np.s_[20:3], np.s_[12:19], np.s_[:19:2],
    np.s_[0:19:1], np.s_[19::2], np.s_[: 2**63], np.s_[-11], np.s_[-11, 5], np.s_[:, 2], np.s_[:, :3], np.s_[0:19, 0:5],
    np.s_[:19, 1], np.s_[2:19, -1], np.s_[-1, 5], np.s_[..., 2], np.s_[1:2, ..., 5], np.s_[::2, 2], np.s_[:, 3:1], np.s_[1, 1, 1],
    np.s_[:, :, :], np.s_[::-1], np.s_[::0], np.s_[::-1, 5], np.s_[..., ...], np.s_[None], np.s_[:, None], "a", np.s_[:, "a"],
    1.5, [1, 2], np.s_[[0, 1], :], np.s_[:, []], np.array([1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", REFUSED, ids=str)
def test_slices_are_refused_in_the_same_words(table, index, backend):
    with dropin.safe_open(table, "np", backend=backend) as file, safetensors.safe_open(table, "np", backend=backend) as reference:
        with pytest.raises(safetensors.SafetensorError) as expected:
            reference.get_slice("t")[index]
        with pytest.raises(dropin.SafetensorError) as error:
            file.get_slice("t")[index]
        assert str(error.value) == str(expected.value)
        assert error.value.__notes__ == [f"tensor 't' of {table}"]


@pytest.mark.parametrize("index", [np.s_["a":], np.s_[1:2.5], np.s_[::"a"]], ids=str)
def test_bounds_that_are_no_numbers_are_type_errors(table, index):
    with dropin.safe_open(table, "np") as file, pytest.raises(TypeError):
        file.get_slice("t")[index]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "index"),
    [
        *(("t", index) for index in (np.s_[-3:], np.s_[:-3], np.s_[-20:], np.s_[: -(2**63)])),
        *(("t", index) for index in (np.s_[5:2], np.s_[8:3:2], np.s_[1 : -1 : 2**70])),
        *(("empty", index) for index in (np.s_[:, :], np.s_[:, 0:0], np.s_[:, 0:], np.s_[..., 1], np.s_[:, -1:])),
    ],
    ids=str,
)
def test_slices_that_the_reference_gets_wrong_are_those_of_numpy(table, name, index, backend):
    with dropin.safe_open(table, "np", backend=backend) as file:
        assert same(file.get_slice(name)[index], np.asarray(safetensors.numpy.load_file(table)[name][index]))


@pytest.mark.parametrize("dtype", ["F32", "F4"])
@pytest.mark.parametrize("shape, index, expected", [
    ([0, 2**63, 4], (..., 0, 0), (0,)), ([0, 2**63, 4], np.s_[:, :2], (0, 2, 4)), ([0, 2**63, 4], np.s_[:, :: 2**63, 1], (0, 1)),
    ([2**64 - 1, 0], 0, (0,)), ([2**64 - 1, 0], np.s_[-3:], (3, 0)), ([2**64 - 1, 0], np.s_[:0], (0, 0)),
], ids=repr)  # fmt: skip
def test_parts_without_values_may_be_of_any_shape(tmp_path, dtype, shape, index, expected):
    path = tmp_path / "x.safetensors"
    path.write_bytes(one_tensor(dtype, shape, 0, 0, b""))
    with dropin.safe_open(path, "np") as file:
        part = file.get_slice("x")[index]
        assert part.shape == expected and part.flags.writeable
        with pytest.raises(ValueError):  # of NumPy, as from get_tensor()
            file.get_slice("x")[...]


def test_indices_that_are_no_slices_of_numpy(table):
    with dropin.safe_open(table, "np") as file:
        assert file.get_slice("t")[[]].shape == (0, 2)
        assert file.get_slice("t")[True].tolist() == [2, 3]
        assert file.get_slice("t")[np.int64(2), np.uint8(1)].shape == ()
        with pytest.raises(dropin.SafetensorError, match="more slicing indexes than dimensions in tensor"):
            file.get_slice("scalar")[:]
        assert file.get_slice("scalar")[()] == 3.5


# Random ones


def index_of(size: int) -> st.SearchStrategy:
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = st.none() | st.integers(-1, size + 2)
    return st.builds(slice, bound, bound, step) | st.integers(-size - 2, size + 2) | st.just(...)


@st.composite
def arrays_and_indices(draw) -> tuple[np.ndarray, tuple]:
    array = draw(ARRAYS)
    sizes = [*array.shape, 1][: draw(st.integers(0, array.ndim + 1))]
    return array, tuple(draw(index_of(size)) for size in sizes)


def is_a_known_defect(array: np.ndarray, index: tuple) -> bool:
    """Bounds below 0, a start behind the stop, and dimensions without length, which the reference gets wrong."""
    ranges = [part for part in index if isinstance(part, slice)]
    below = any(bound is not None and bound < 0 for part in ranges for bound in (part.start, part.stop))
    crossed = any(None not in (part.start, part.stop) and part.start > part.stop for part in ranges)
    return below or crossed or 0 in array.shape


def is_refused(shape: tuple[int, ...], index: tuple) -> bool:
    if index.count(...) > 1 or len(index) - index.count(...) > len(shape):
        return True
    before, after = (index[: index.index(...)], index[index.index(...) + 1 :]) if ... in index else (index, ())
    for part, size in [*zip(before, shape), *zip(reversed(after), reversed(shape))]:
        if isinstance(part, int):
            if not -size <= part < size:
                return True
        elif part.step is not None and part.step < 1:
            return True
        elif (part.start or 0) >= max(size, 1) or (part.stop or 0) > size:
            return True
    return False


@quick
@given(case=arrays_and_indices(), backend=st.sampled_from(BACKENDS))
def test_random_slices_are_those_of_the_reference(tmp_path, case, backend):
    array, index = case
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"x": array}, path)
    with dropin.safe_open(path, "np", backend=backend) as file, safetensors.safe_open(path, "np", backend=backend) as reference:
        try:
            made = file.get_slice("x")[index]
        except dropin.SafetensorError as error:
            made = str(error)
        else:
            assert same(made, np.asarray(array[index]))
            assert made.flags.writeable
        assert isinstance(made, str) == is_refused(array.shape, index)
        if is_a_known_defect(array, index):
            return
        try:
            expected = reference.get_slice("x")[index]
        except safetensors.SafetensorError as error:
            assert made == str(error)
        else:
            assert same(made, expected)
