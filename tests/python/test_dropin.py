"""ballast.safetensors against the package that it stands in for: the same files, results and refusals, without its defects."""

import errno
import mmap
import os
import pickle
import re
import stat
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors_bytes import length_bytes

import ballast
import ballast.safetensors as dropin
import ballast.safetensors.numpy as dropin_numpy
from dropin_cases import ARRAYS, BACKENDS, BF16, F4, F8, FULL, PLAIN, file_of, one_tensor, quick, random_array, same, table  # noqa: F401
from safetensors_mutants import mutant

MUTANTS = 25_000 if FULL else 2_000

def by_name(tensors: list[tuple[str, dict]]) -> list[tuple[str, dict]]:
    """What deserialize() gives, which is in no order there."""
    return sorted(tensors, key=lambda pair: pair[0])


def test_it_has_what_the_package_has():
    public = {name for name in vars(safetensors) if not name.startswith("_") or name in ("__version__", "_safe_open_handle")}
    modules = {name for name in public if isinstance(getattr(safetensors, name), type(sys))}
    assert public - modules <= set(dir(dropin))
    assert dropin.__version__ == safetensors.__version__
    for name in ("save", "save_file", "load", "load_file"):
        assert callable(getattr(dropin_numpy, name))


def test_errors_are_caught_as_either():
    assert issubclass(dropin.SafetensorError, Exception)
    assert issubclass(dropin.SafetensorError, ballast.BallastError)
    error = pickle.loads(pickle.dumps(dropin.SafetensorError("header too small")))
    assert type(error) is dropin.SafetensorError and str(error) == "header too small"


# Writing


def test_bytes_are_those_of_the_format():
    array = np.zeros((2, 2), np.int32)
    header = b'@\0\0\0\0\0\0\0{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}    '
    assert dropin_numpy.save({"test": array}) == header + bytes(16)
    array[1, 1] = 1
    assert dropin_numpy.save({"test": array}) == header + bytes(12) + b"\1\0\0\0"
    assert dropin_numpy.save({}) == b"\x08\0\0\0\0\0\0\0{}      "


def test_bytes_do_not_depend_on_the_order_of_the_arrays():
    a, b = np.zeros(3, "f4"), np.ones(2, "i8")
    metadata = {str(i): "x" for i in range(20)}
    assert dropin_numpy.save({"a": a, "b": b}, metadata) == dropin_numpy.save({"b": b, "a": a}, dict(reversed(metadata.items())))


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.arange(6).reshape(2, 3).T, id="transposed"),
        pytest.param(np.asfortranarray(np.arange(24, dtype="f4").reshape(2, 3, 4)), id="Fortran order"),
        pytest.param(np.arange(20, dtype="i2")[::3], id="strided"),
        pytest.param(np.arange(20, dtype="u1")[::-1], id="reversed"),
        pytest.param(np.broadcast_to(np.float16(3), (2, 3)), id="broadcast"),
        pytest.param(np.arange(6, dtype=">i4").reshape(2, 3), id="big endian"),
        pytest.param(np.arange(6, dtype=">f8").reshape(2, 3).T, id="big endian, transposed"),
        pytest.param(np.arange(6).astype(BF16).reshape(2, 3).T, id="BF16, transposed"),
        pytest.param(np.array(2.5), id="no dimensions"),
        pytest.param(np.array(2.5, BF16), id="BF16 without dimensions"),
        pytest.param(np.zeros((3, 0, 2), "f4").T, id="empty"),
        pytest.param(np.float32(7), id="a scalar of NumPy"),
        pytest.param(np.frombuffer(bytes(range(8)), "u2"), id="read-only"),
    ],
)
def test_arrays_of_any_layout_are_saved_right(tmp_path, array):
    path = tmp_path / "x.safetensors"
    dropin_numpy.save_file({"x": array}, path)
    expected = np.asarray(array, np.asarray(array).dtype.newbyteorder("<"), order="C")
    loaded = safetensors.numpy.load_file(path)["x"]
    assert loaded.shape == expected.shape and loaded.tobytes() == expected.tobytes()
    assert same(dropin_numpy.load(dropin_numpy.save({"x": array}))["x"], loaded)


# Names that are no UTF-8 are not for all systems.
ODD_NAMES = ["\udcff", "\udcff.safetensors"] if sys.platform == "linux" else []


def test_a_file_may_have_any_name(tmp_path):
    for name in ["x", "x.bin", "x.mlx", "x.index.json", "重み.pt", "a: cannot write.safetensors", *ODD_NAMES]:
        dropin_numpy.save_file({"x": np.arange(3)}, tmp_path / name, {"a": "b"})
        for backend in BACKENDS:
            with dropin.safe_open(tmp_path / name, "np", backend=backend) as file:
                assert file.metadata() == {"a": "b"}
                assert file.get_slice("x")[1:].tolist() == [1, 2]
            assert dropin_numpy.load_file(str(tmp_path / name), backend=backend)["x"].tolist() == [0, 1, 2]
        assert [entry.name for entry in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()


@pytest.mark.parametrize("name", ["x.safetensors", "x.bin"])
def test_files_have_the_modes_that_the_umask_asks_for_and_links_stay(tmp_path, name):
    before = os.umask(0o027)
    try:
        (tmp_path / "link").symlink_to(name)
        dropin_numpy.save_file({}, tmp_path / "link")
        dropin_numpy.save_file({}, tmp_path / name)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640
    assert (tmp_path / "link").is_symlink()


def test_a_file_that_is_open_can_be_replaced(table):
    with dropin.safe_open(table, "np") as file:
        part = file.get_slice("t")
        dropin_numpy.save_file({"t": np.zeros(1)}, table)
        assert part[3].tolist() == [6, 7]
        assert file.get_tensor("t").shape == (10, 2)


def test_what_no_file_can_hold_is_refused(tmp_path):
    for array in (np.zeros(2, "c16"), np.zeros(2, "O"), np.zeros(2, "S3"), np.zeros(2, ml_dtypes.int4)):
        with pytest.raises(safetensors.SafetensorError) as expected:
            safetensors.numpy.save({"x": array})
        with pytest.raises(dropin.SafetensorError, match=re.escape(f"{expected.value} (tensor 'x')")):
            dropin_numpy.save({"x": array})
    with pytest.raises(dropin.SafetensorError, match="^Error while serializing: .*'__metadata__'"):
        dropin_numpy.save({"__metadata__": np.zeros(2)})
    long = "x" * 300
    for name, why in [
        ("", "Is a directory"), ("nowhere/x", "No such file or directory"), ("nowhere/x.safetensors", "No such file or directory"),
        ("x/", "Not a directory"), ("x.safetensors/", "Not a directory"), (long, "File name too long"),
        (f"{long}.safetensors", "File name too long"),
    ]:  # fmt: skip
        path = f"{tmp_path}/{name}"
        with pytest.raises(dropin.SafetensorError, match=rf"^Error while serializing: I/O error: {why} \({path}: "):
            dropin_numpy.save_file({}, path)
        with pytest.raises(safetensors.SafetensorError, match="^Error while serializing: I/O error: "):
            safetensors.numpy.save_file({}, path)
    with pytest.raises(dropin.SafetensorError, match="^Error while serializing: I/O error: No such file or directory"):
        dropin_numpy.save_file({}, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [[3], [[]], [{1: np.zeros(2)}], [{"x": [1, 2]}], [{}, 3], [{}, {"a": 3}], [{}, {3: "a"}]],
    ids=repr,
)
def test_arguments_of_the_wrong_type_are_type_errors(tmp_path, arguments):
    with pytest.raises(TypeError):
        dropin_numpy.save(*arguments)
    with pytest.raises(TypeError):
        dropin_numpy.save_file(arguments[0], tmp_path / "x", *arguments[1:])


class BytesPath:
    def __fspath__(self):
        return b"x.safetensors"


@pytest.mark.parametrize("filename", [3, None, b"x.safetensors", BytesPath()], ids=["number", "none", "bytes", "path"])
def test_filenames_are_paths(filename):
    with pytest.raises(TypeError, match="argument 'filename'"):
        dropin_numpy.save_file({}, filename)
    with pytest.raises(TypeError, match="argument 'filename'"):
        dropin.safe_open(filename, "np")


# TensorSpec


def spec(module, dtype="float32", shape=(2,), array=np.arange(2, dtype="f4"), **changes):
    fields = {"dtype": dtype, "shape": shape, "data_ptr": array.ctypes.data, "data_len": array.nbytes}
    return module.TensorSpec(**(fields | changes))


def test_specs_are_written_as_by_the_reference(tmp_path):
    arrays = {name: random_array(np.dtype("u1"), (16,), seed) for seed, name in enumerate("abcd")}
    kinds = {"a": ("float8_e8m0fnu", [16]), "b": ("float4_e2m1fn_x2", [2, 8]), "c": ("complex64", [2]), "d": ("bool", (4, 4))}
    both = [{name: spec(module, *kinds[name], arrays[name]) for name in arrays} for module in (safetensors, dropin)]
    assert dropin.serialize(both[1], {"k": "v"}) == safetensors.serialize(both[0], {"k": "v"})
    dropin.serialize_file(both[1], tmp_path / "x.safetensors", metadata={"k": "v"})
    assert (tmp_path / "x.safetensors").read_bytes() == safetensors.serialize(both[0], {"k": "v"})
    for expected, made in zip(both[0].values(), both[1].values()):
        assert repr(made) == repr(expected)


def test_specs_that_are_wrong_are_refused(tmp_path):
    with pytest.raises(dropin.SafetensorError, match='^Unknown dtype "F32". Supported dtypes: bool, int8, .*, complex64$'):
        spec(dropin, "F32")
    with pytest.raises(TypeError):
        dropin.TensorSpec("float32", [2], 1, 8)
    with pytest.raises(OverflowError, match="can't convert negative int to unsigned"):
        spec(dropin, shape=[-2])
    wrong_size = "^Error while serializing: invalid shape, data type, or offset for tensor"
    for size in (7, 9):
        with pytest.raises(dropin.SafetensorError, match=wrong_size):
            dropin.serialize({"x": spec(dropin, data_len=size)})
        with pytest.raises(dropin.SafetensorError, match=wrong_size):
            dropin.serialize_file({"x": spec(dropin, data_len=size)}, tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(dropin.SafetensorError, match="tensor 'x': data_ptr is 0, but data_len is 8"):
        dropin.serialize({"x": spec(dropin, data_ptr=0)})
    with pytest.raises(TypeError, match="must be a TensorSpec, not dict"):
        dropin.serialize({"x": {"dtype": "float32", "shape": [1]}})


# Reading


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_open_file_gives_what_the_reference_gives(table, backend):
    with dropin.safe_open(table, "np", backend=backend) as file, safetensors.safe_open(table, "np", backend=backend) as reference:
        assert file.keys() == reference.keys() == ["empty", "scalar", "t"]
        assert file.offset_keys() == reference.offset_keys() == ["scalar", "t", "empty"]
        assert file.metadata() == reference.metadata() == {"made": "here"}
        assert list(file.get_tensors()) == list(reference.get_tensors())
        for name in file.keys():
            part, expected = file.get_slice(name), reference.get_slice(name)
            assert (part.get_shape(), part.get_dtype()) == (expected.get_shape(), expected.get_dtype())
            for array in (file.get_tensor(name), file.get_tensors()[name], part[...], part[()]):
                assert same(array, reference.get_tensor(name))
                assert array.flags.writeable and array.flags.c_contiguous


def test_arrays_are_their_own(table):
    with dropin.safe_open(table, "np") as file:
        for take in (lambda: file.get_tensor("t"), lambda: file.get_slice("t")[:], lambda: file.get_tensors()["t"]):
            take()[:] = -1
            assert take()[0].tolist() == [0, 1]
    content = table.read_bytes()
    dropin_numpy.load(content)["t"][:] = -1
    assert content == table.read_bytes()


def test_a_file_without_metadata_says_none(tmp_path):
    for content in (file_of("{}"), file_of('{"__metadata__":null}')):
        (tmp_path / "x.safetensors").write_bytes(content)
        assert dropin.safe_open(tmp_path / "x.safetensors", "np").metadata() is None


def test_metadata_without_entries_are_kept(tmp_path):
    path = tmp_path / "x.safetensors"
    assert dropin_numpy.save({}, {}) == file_of('{"__metadata__":{}}     ')
    for module in (safetensors, dropin):
        module.numpy.save_file({"a": np.zeros(1)}, path, {})
        assert dropin.safe_open(path, "np").metadata() == safetensors.safe_open(path, "np").metadata() == {}


def test_deserialize_gives_bytes_to_write_to(table):
    content = table.read_bytes()
    assert by_name(dropin.deserialize(content)) == by_name(safetensors.deserialize(content))
    assert type(dropin.deserialize(content)[0][1]["data"]) is bytearray
    assert dropin.deserialize(memoryview(content)) == dropin.deserialize(bytearray(content)) == dropin.deserialize(content)
    for wrong in ("text", 3, None):
        with pytest.raises(TypeError, match="argument 'bytes'"):
            dropin.deserialize(wrong)


def test_a_closed_file_says_so(table):
    with dropin.safe_open(table, "np") as file:
        part = file.get_slice("t")
    uses = [file.keys, file.offset_keys, file.metadata, file.get_tensors]
    uses += [lambda: file.get_tensor("t"), lambda: file.get_slice("t")]
    for use in uses:
        with pytest.raises(dropin.SafetensorError, match="^File is closed"):
            use()
    assert part[1].tolist() == [2, 3] and part.get_shape() == [10, 2]  # as with the reference
    file.__exit__(None, None, None)


def test_names_that_are_missing_are_named(table):
    with dropin.safe_open(table, "np") as file:
        for use in (file.get_tensor, file.get_slice):
            with pytest.raises(dropin.SafetensorError, match="^File does not contain tensor nope") as error:
                use("nope")
            assert str(error.value) == "File does not contain tensor nope"
            if sys.version_info >= (3, 11):
                assert error.value.__notes__ == [f"the file is {table}, with 3 tensors"]
            with pytest.raises(TypeError, match="argument 'name'"):
                use(3)


def test_names_that_no_file_can_hold_are_refused_as_by_the_reference(table):
    for module in (safetensors, dropin):
        with pytest.raises(UnicodeEncodeError):
            module.numpy.save({"\udcff": np.zeros(1)})
        with pytest.raises(UnicodeEncodeError):
            module.numpy.save({}, {"a": "\udcff"})
        with module.safe_open(table, "np") as file, pytest.raises(UnicodeEncodeError):
            file.get_tensor("\udcff")


def test_arrays_are_aligned_wherever_they_lie(tmp_path):
    entries = '"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"y":{"dtype":"F64","shape":[2],"data_offsets":[3,19]}'
    content = file_of(f"{{{entries}}}", b"abc" + np.array([1.0, 2.0]).tobytes())
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with dropin.safe_open(path, "np") as file:
        for array in (file.get_tensor("y"), file.get_tensors()["y"], file.get_slice("y")[:], dropin_numpy.load(content)["y"]):
            assert array.flags.aligned and array.flags.writeable and array.tolist() == [1, 2]


def test_threads_share_an_open_file(table):
    with dropin.safe_open(table, "np") as file, ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda i: (file.get_tensor("t").sum(), file.get_slice("t")[i % 10, 1]), range(200)))
    assert made == [(190, i % 10 * 2 + 1) for i in range(200)]


@pytest.mark.parametrize("name", ["pipe.safetensors", "pipe.mlx", "pipe"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    code = f"import ballast.safetensors.numpy as n; n.load_file({str(tmp_path / name)!r})"
    environment = os.environ | {"PYTHONPATH": str(Path(ballast.__file__).parents[1])}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 1 and f"{name}: " in result.stderr.splitlines()[-1]


def test_texts_are_one_line_whatever_the_path(tmp_path):
    path = tmp_path / "a\n\x1b[31m.safetensors"
    path.write_bytes(b"short")
    with pytest.raises(dropin.SafetensorError) as caught:
        dropin.safe_open(path, "np")
    assert str(caught.value).isprintable() and "a\\n\\x1b[31m.safetensors" in str(caught.value)
    dropin_numpy.save_file({"t": np.zeros(2)}, path)
    with dropin.safe_open(path, "np") as file, pytest.raises(dropin.SafetensorError) as caught:
        file.get_tensor("b\n")
    assert str(caught.value) == "File does not contain tensor b\\n"
    assert all(note.isprintable() for note in caught.value.__notes__)


def test_open_files_tell_what_they_are(table):
    with dropin.safe_open(table, "np") as file:
        assert repr(file) == f"safe_open({str(table)!r}, 3 tensors)"
        assert repr(file.get_slice("t")) == "PySafeSlice('t', F32, [10, 2])"
    assert repr(file) == f"safe_open({str(table)!r}, closed)"


def test_files_that_are_missing_are_named(tmp_path):
    missing = str(tmp_path / "missing.safetensors")
    for use in (lambda: dropin.safe_open(missing, "np"), lambda: dropin_numpy.load_file(missing)):
        with pytest.raises(FileNotFoundError) as error:
            use()
        for seen in (error.value, pickle.loads(pickle.dumps(error.value))):
            assert str(seen) == f"No such file or directory: {missing}"
            assert (seen.errno, seen.strerror, seen.filename) == (errno.ENOENT, "No such file or directory", missing)
    (tmp_path / "file").touch()
    for name in ("", f"{tmp_path}/file/", f"{tmp_path}/file/x"):
        for module in (safetensors, dropin):
            with pytest.raises(FileNotFoundError, match=f"^No such file or directory: {name}$"):
                module.safe_open(name, "np")
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        dropin.safe_open(tmp_path, "np")
    if os.getuid() != 0:
        Path(missing).write_bytes(file_of("{}"))
        Path(missing).chmod(0)
        with pytest.raises(PermissionError, match="missing.safetensors"):
            dropin.safe_open(missing, "np")


def test_settings_that_are_wrong_are_refused_as_by_the_reference(table):
    for arguments, options in [
        (("x",), {}), (("NumPy",), {}), (("np", "gpu"), {}), (("np", "cuda"), {}), (("np", "cuda:1"), {}), (("np", "mps"), {}),
        (("np", 0), {}), (("np", 1.5), {}), (("mlx", "cuda"), {}), (("np",), {"backend": "x"}), (("np", "cpu:0"), {}),
        (("np", -1), {}), (("np", True), {}), (("np", np.int64(2)), {}),
    ]:  # fmt: skip
        with pytest.raises(safetensors.SafetensorError) as expected:
            safetensors.safe_open(table, *arguments, **options)
        with pytest.raises(dropin.SafetensorError, match=f"^{re.escape(str(expected.value))}"):
            dropin.safe_open(table, *arguments, **options)
    with pytest.raises(TypeError):
        dropin.safe_open(table, None)
    with pytest.raises(TypeError):
        dropin.safe_open(table, "np", "cpu", "mmap")
    for backend in (None, 1, b"mmap"):
        with pytest.raises(TypeError, match="argument 'backend'"):
            dropin.safe_open(table, "np", backend=backend)
    assert dropin.safe_open(table, "numpy", None).keys()


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_a_handle_is_read_from_the_start(table, mode):
    with open(table, mode) as handle, dropin._safe_open_handle(handle, framework="np", device="cpu") as file:
        handle.seek(20)
        assert file.get_tensor("t").tolist() == np.arange(20).reshape(10, 2).tolist()
        assert file.get_slice("t")[2, 1] == 5
    table.write_bytes(b"")
    with open(table, mode) as handle, pytest.raises(dropin.SafetensorError, match=f"header too small.*{re.escape(str(table))}"):
        dropin._safe_open_handle(handle, "np")


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts the bytes that were read in /proc/self/io")
def test_slices_read_only_what_they_need(tmp_path):
    path = tmp_path / "wide.safetensors"
    dropin_numpy.save_file({"x": np.arange(1 << 21, dtype="i4").reshape(2048, 1024)}, path)

    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    with dropin.safe_open(path, "np", backend="pread") as file:
        part, before = file.get_slice("x"), bytes_read()
        assert part[1000:1003, 5].tolist() == [row * 1024 + 5 for row in range(1000, 1003)]
        assert bytes_read() - before < 64 << 10


# Dtypes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [*PLAIN, BF16, *F8, F4], ids=str)
def test_all_dtypes_on_all_paths(tmp_path, dtype, backend):
    array = random_array(dtype, (4, 6))
    path = tmp_path / "x.safetensors"
    dropin_numpy.save_file({"x": array}, path)
    assert path.read_bytes() == dropin_numpy.save({"x": array})
    with dropin.safe_open(path, "np", backend=backend) as file:
        for loaded in (file.get_tensor("x"), file.get_tensors()["x"], dropin_numpy.load(path.read_bytes())["x"]):
            assert same(loaded, array) and loaded.flags.writeable
        for index in (np.s_[1:3], np.s_[1:4:2, 2:4], np.s_[:, 1:4], np.s_[..., 3], np.s_[::3, ::2], np.s_[-1, -2]):
            assert same(file.get_slice("x")[index], np.asarray(array[index])), index
    if dtype != F4:
        assert path.read_bytes() == safetensors.numpy.save({"x": array})


def test_f4_is_packed_low_nibble_first():
    content = one_tensor("F4", [2, 2], 0, 2, b"\x21\x43")
    assert dropin_numpy.load(content)["x"].astype("f4").tolist() == [[0.5, 1], [1.5, 2]]
    assert dropin_numpy.load(dropin_numpy.save(dropin_numpy.load(content)))["x"].view("u1").tolist() == [[1, 2], [3, 4]]
    with pytest.raises(dropin.SafetensorError, match="does not end up at a byte boundary"):
        dropin_numpy.save({"x": np.zeros(3, F4)})


def test_f4_of_an_odd_count_is_refused(tmp_path):
    array = random_array(F4, (3,))
    words = "The slice is slicing for subbytes dtypes, .*tensor 'x': 3 values of 4 bits do not fill whole bytes"
    with pytest.raises(dropin.SafetensorError, match=f"^Error while serializing: {words}"):
        dropin_numpy.save({"x": array})
    with pytest.raises(dropin.SafetensorError, match=f"^Error while serializing: {words}"):
        dropin_numpy.save_file({"x": array}, tmp_path / "x.safetensors")


def test_f6_has_bytes_and_no_values(tmp_path):
    content = one_tensor("F6_E2M3", [8], 0, 6, bytes(6))
    (tmp_path / "x.safetensors").write_bytes(content)
    assert dropin.deserialize(content) == [("x", {"dtype": "F6_E2M3", "shape": [8], "data": bytearray(6)})]
    with dropin.safe_open(tmp_path / "x.safetensors", "np") as file:
        for use in (file.get_tensors, lambda: file.get_tensor("x")):
            with pytest.raises(dropin.SafetensorError, match="^Dtype not understood: F6_E2M3"):
                use()
        with pytest.raises(dropin.SafetensorError, match=r"^Error during slicing \[1:2\] with shape \[8\]: .* byte boundary"):
            file.get_slice("x")[1:2]


# Files that are not as they should be

CORRUPT = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a length of 2^64 - something": bytes.fromhex("3c00000000ffffff") + b"{}",
    "a length past the limit": length_bytes(10**8 + 1) + b"{}",
    "a length past the end": length_bytes(10**8) + b"{}",
    "a length alone": length_bytes(60),
    "no UTF-8": file_of(b"\xff"),
    "half an object": file_of("{"),
    "an empty header": file_of(""),
    "a list": file_of("[]"),
    "metadata that are no texts": file_of('{"__metadata__":{"a":1}}'),
    "an unknown dtype": one_tensor("F99", [1], 0, 1, b"a"),
    "a missing field": file_of('{"x":{"dtype":"U8","shape":[1]}}', b"a"),
    "a negative dimension": one_tensor("U8", [-1], 0, 1, b"a"),
    "half a dimension": one_tensor("U8", [1.5], 0, 1, b"a"),
    "a hole": one_tensor("U8", [1], 1, 2, b"aa"),
    "an end before the beginning": one_tensor("U8", [1], 1, 0, b"a"),
    "an overflow": one_tensor("U8", [2, 2**64 - 2], 0, 1, b"a"),
    "an overflow by the dtype": one_tensor("I32", [2, 2**63 - 1], 0, 1, b"a"),
    "half a byte": one_tensor("F4", [1, 3], 0, 1, b"a"),
    "a shape that is too large": one_tensor("I32", [2, 2], 0, 4, b"aaaa"),
    "bytes that are too many": one_tensor("U8", [1], 0, 1, b"a" * 35),
    "bytes that are too few": one_tensor("U8", [4], 0, 4, b"aa"),
}


def words_of(text: str) -> str:
    """What the reference says of a file, without what its JSON reader says besides."""
    return re.match(r"Error while deserializing(?: header)?: (?:invalid (?:JSON|UTF-8) in header|.*)", text, re.DOTALL)[0]


@pytest.mark.parametrize("content", CORRUPT.values(), ids=CORRUPT)
def test_corrupt_files_are_refused_in_the_same_words(tmp_path, content):
    path = tmp_path / "c: tensors cover 'x'.safetensors"  # which is no part of the message
    path.write_bytes(content)
    attempts = [lambda module: module.deserialize(content), lambda module: module.numpy.load(content)]
    attempts += [lambda module, backend=backend: module.safe_open(path, "np", backend=backend) for backend in BACKENDS]
    for attempt in attempts:
        with pytest.raises(safetensors.SafetensorError) as expected:
            attempt(safetensors)
        with pytest.raises(dropin.SafetensorError) as error:
            attempt(dropin)
        words = words_of(str(expected.value))
        assert str(error.value).startswith(words)
        name = path if "header:" in words else "<memory>"
        assert f" ({name}: " in str(error.value)


def test_mutants_have_the_verdicts_and_words_of_the_reference():
    counts = Counter()
    for index in range(MUTANTS):
        content = mutant(7, index).content
        try:
            expected = safetensors.deserialize(content)
        except safetensors.SafetensorError as error:
            words = words_of(str(error))
            try:
                dropin.deserialize(content)
            except dropin.SafetensorError as ours:
                # Names are shown escaped, and of two faults either may be found first.
                is_same = str(ours).startswith(words.split("`")[0])
                counts["same words" if is_same else f"{words} / {ours}"[:200]] += 1
            else:
                pytest.fail(f"mutant(7, {index}) is accepted: {error}")
        else:
            made = dropin.deserialize(content)
            assert by_name(made) == by_name(expected), index
            counts["accepted"] += 1
    assert counts["accepted"] > 0.3 * MUTANTS
    assert counts.total() - counts["accepted"] - counts["same words"] <= MUTANTS // 10_000, counts


def test_a_name_that_is_there_twice_is_read_as_the_reference_reads_it():
    entry = '"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    content = file_of(f"{{{entry},{entry}}}", b"a")
    assert dropin.deserialize(content) == safetensors.deserialize(content)


def test_a_file_that_is_truncated_while_it_is_open_is_an_error(tmp_path):
    path = tmp_path / "x.safetensors"
    dropin_numpy.save_file({"x": np.zeros(1 << 20, "u1")}, path)
    with dropin.safe_open(path, "np") as file:
        os.truncate(path, mmap.PAGESIZE)
        for use in (lambda: file.get_tensor("x"), file.get_tensors, lambda: file.get_slice("x")[-10:]):
            with pytest.raises((OSError, dropin.SafetensorError), match="x.safetensors"):
                use()


# Random files

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda name: name != "__metadata__")
METADATA = st.none() | st.dictionaries(NAMES, NAMES, max_size=1)


@quick
@given(arrays=st.dictionaries(NAMES, ARRAYS, max_size=5), metadata=METADATA)
def test_random_files_are_the_same_and_read_the_same(tmp_path, arrays, metadata):
    assume(arrays or metadata != {})  # of which the reference makes a file that it cannot read
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    dropin_numpy.save_file(arrays, ours, metadata)
    safetensors.numpy.save_file(arrays, theirs, metadata)
    assert ours.read_bytes() == theirs.read_bytes() == dropin_numpy.save(arrays, metadata)
    for loaded in (dropin_numpy.load_file(theirs), dropin_numpy.load(theirs.read_bytes()), safetensors.numpy.load_file(ours)):
        assert loaded.keys() == arrays.keys()
        assert all(same(loaded[name], arrays[name]) for name in arrays)
    with dropin.safe_open(ours, "np") as file, safetensors.safe_open(ours, "np") as reference:
        assert (file.keys(), file.metadata()) == (reference.keys(), reference.metadata())
        filled = [name for name in reference.offset_keys() if arrays[name].size]  # those without bytes are in no order there
        assert [name for name in file.offset_keys() if arrays[name].size] == filled


@quick
@given(arrays=st.dictionaries(NAMES, ARRAYS, max_size=3), metadata=st.dictionaries(NAMES, NAMES, max_size=5))
def test_metadata_of_many_entries_are_read_the_same(tmp_path, arrays, metadata):
    path = tmp_path / "x.safetensors"
    dropin_numpy.save_file(arrays, path, metadata)
    for module in (dropin, safetensors):
        with module.safe_open(path, "np") as file:
            assert file.metadata() == metadata


# Where the core has another meaning for a name, or Python has opened the file, it is still read as safe_open() says.
@pytest.mark.parametrize("name", ["x.mlx", "x.index.json", "x\udcff.safetensors", "x.bin", "x.safetensors"])
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_file_that_is_truncated_while_it_is_open(tmp_path, name, backend):
    path = str(tmp_path / name)
    dropin_numpy.save_file({"a": np.arange(4096), "b": np.ones(4096)}, path)
    with open(path, "rb") as opened:
        readers = [dropin.safe_open(path, "np", backend=backend), dropin._safe_open_handle(opened, "np", backend=backend)]
        for reader in readers:
            assert reader.get_tensor("a")[7] == 7
        os.truncate(path, 1000)
        for reader in readers:
            with pytest.raises(OSError, match="truncated"):
                reader.get_tensor("b")


@pytest.mark.parametrize("wrong, error", [
    ({"data_ptr": 2**70}, OverflowError), ({"data_ptr": 2**64}, OverflowError), ({"data_len": 2**64 + 16}, OverflowError),
    ({"shape": [2**70]}, OverflowError), ({"shape": [-1]}, OverflowError), ({"shape": [1.5]}, TypeError), ({"dtype": 3}, TypeError),
])  # fmt: skip
def test_specs_that_no_tensor_can_have(wrong, error):
    with pytest.raises(error):
        dropin.TensorSpec(**({"dtype": "float32", "shape": [4], "data_ptr": 4096, "data_len": 16} | wrong))


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    for name in ("pipe", "pipe.safetensors"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(dropin.SafetensorError):
            dropin_numpy.save_file({"a": np.zeros(2)}, tmp_path / name)
        assert stat.S_ISFIFO(os.stat(tmp_path / name).st_mode)


def test_one_array_does_not_keep_the_others(tmp_path):
    dropin_numpy.save_file({"a": np.ones(4), "b": np.ones(8 << 20)}, tmp_path / "x.safetensors")

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    kept = [dropin_numpy.load_file(tmp_path / "x.safetensors")["a"] for _ in range(4)]
    assert resident() - before < 64 << 20 and all((array == 1).all() for array in kept)
