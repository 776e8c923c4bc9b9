"""Models, tensors and files in Python, held against numpy and the safetensors package."""

import copy
import errno
import gc
import json
import os
import pickle
import threading
from pathlib import Path

import ballast
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ballast._dtypes import name_of
from quantized_files import read_safetensors
from safetensors.numpy import load_file, save_file
from safetensors_bytes import prefix

FULL = bool(os.environ.get("BALLAST_FULL"))
DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16, "F16": np.float16, "I32": np.int32,
    "U32": np.uint32, "F32": np.float32, "C64": np.complex64, "F64": np.float64, "I64": np.int64, "U64": np.uint64,
    "BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip

NAMES = [
    ("F4", "F4"), ("I8", "I8"), ("U8", "U8"), ("int8", "I8"), (np.uint8, "U8"), ("bf16", "BF16"), ("torch.bfloat16", "BF16"),
    ("fp32", "F32"), ("fp64", "F64"), ("double", "F64"), ("bool", "BOOL"), (bool, "BOOL"), (np.int64, "I64"),
    ("torch.float8_e4m3fn", "F8_E4M3"), (ml_dtypes.float8_e5m2, "F8_E5M2"), ("f8_e4m3", "F8_E4M3"), ("F6_E2M3", "F6_E2M3"),
    ("mlx.core.float16", "F16"), (np.dtype(ml_dtypes.bfloat16), "BF16"),
]  # fmt: skip


def address(array):
    return array.__array_interface__["data"][0]


def file_of(data, **tensors):
    """A SafeTensors file, from dtypes and shapes by name and the data of all."""
    header, begin = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + size]}
        begin += size
    return prefix(header, align=True) + data


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(5)
    return {
        "cube": rng.normal(size=(5, 6, 7)).astype(np.float32),
        "half": rng.normal(size=(64, 32)).astype(ml_dtypes.bfloat16),
        "line": np.arange(11, dtype=np.int64),
        "scalar": np.array(2.5),
    }


@pytest.fixture(scope="module")
def path(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / "model.safetensors"
    save_file(arrays, path, {"format": "np"})
    return path


@pytest.fixture
def model(path):
    with ballast.open(path) as model:
        yield model


class TestModel:
    def test_is_a_mapping_of_tensors_that_are_not_read(self, model, arrays):
        assert set(model) == set(arrays) and len(model) == 4
        assert "cube" in model and "cub" not in model and 3 not in model
        assert model.get("cub") is None
        assert {name: tensor.shape for name, tensor in model.items()} == {name: array.shape for name, array in arrays.items()}
        assert repr(model["half"]) == "Tensor('half', BF16, [64, 32])"

    def test_tells_what_it_is(self, model, path, arrays):
        assert (model.path, model.files, model.format) == (str(path), [str(path)], "safetensors")
        assert model.file_size == path.stat().st_size
        assert model.nbytes == sum(array.nbytes for array in arrays.values())
        assert model.num_parameters == sum(array.size for array in arrays.values())
        assert model.metadata == {"format": "np"} and model.config is None and model.modality is None and model.warnings == []

    def test_tensors_tell_what_they_are(self, model, arrays):
        for name, array in arrays.items():
            tensor = model[name]
            assert (tensor.name, tensor.shape, tensor.ndim, tensor.size, tensor.nbytes) == (
                name, array.shape, array.ndim, array.size, array.nbytes)  # fmt: skip
        assert len(model["cube"]) == 5
        with pytest.raises(TypeError, match="no length"):
            len(model["scalar"])

    @pytest.mark.parametrize("name", ["name", "dtype", "shape"])
    def test_what_tensors_are_cannot_be_changed(self, model, name):
        with pytest.raises(AttributeError):
            setattr(model["cube"], name, getattr(model["line"], name))

    def test_tensors_are_iterated_over_by_their_first_dimension(self, model, arrays):
        np.testing.assert_array_equal(list(model["cube"]), arrays["cube"])
        assert list(model["line"]) == list(range(11))
        with pytest.raises(TypeError, match="without dimensions"):
            iter(model["scalar"])

    def test_is_equal_to_itself_alone(self, model, path):
        assert model == model and model in {model}
        with ballast.open(path) as other:
            assert model != other

    def test_closed_models_say_so(self, path):
        model = ballast.open(path)
        tensor = model["cube"]
        model.close()
        model.close()
        assert model.closed and repr(model) == "Model(closed)"
        uses = [lambda: model["cube"], lambda: list(model), lambda: len(model), lambda: "cube" in model, tensor.numpy, model.load,
                lambda: tensor[0], lambda: tensor.to("f16"), lambda: model.path, lambda: ballast.convert(model, "x.safetensors"),
                lambda: np.asarray(tensor), lambda: tensor.nbytes]  # fmt: skip
        for use in uses:
            with pytest.raises(ValueError, match="the model is closed"):
                use()

    def test_config_of_a_directory_is_a_dict(self, tiny):
        with ballast.open(tiny) as model:
            assert model.config["model_type"] == "qwen3" and model.modality == "text" and len(model) == 46

    def test_a_file_in_memory_is_held(self, arrays):
        data = bytearray(ballast.serialize(arrays))
        model = ballast.from_bytes(data)
        values = model["cube"].numpy()
        begin = address(np.frombuffer(data, np.uint8))
        assert begin <= address(values) < begin + len(data)
        with pytest.raises(BufferError):
            data.clear()
        del model
        gc.collect()
        with pytest.raises(BufferError):
            data.clear()
        np.testing.assert_array_equal(values, arrays["cube"])
        del values
        gc.collect()
        data.clear()

    def test_load_gives_memory_that_may_be_written_to(self, model, arrays, path):
        loaded = model.load()
        assert list(loaded) == list(model)
        for name, array in loaded.items():
            np.testing.assert_array_equal(array, arrays[name], strict=True)
            array[...] = 0
        np.testing.assert_array_equal(model["cube"].numpy(), arrays["cube"])


class TestZeroCopy:
    def test_arrays_look_at_the_mapped_file(self, model):
        first, second = model["cube"].numpy(), model["cube"].numpy()
        assert address(first) == address(second)
        assert not first.flags.writeable and not first.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            first[0] = 1

    def test_a_map_is_in_the_files_that_the_process_has_mapped(self, model, path):
        begin = address(model["cube"].numpy())
        ranges = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
        assert any(int(low, 16) <= begin < int(high, 16) for low, high in ranges)

    def test_arrays_outlive_the_model(self, path, arrays):
        model = ballast.open(path)
        values = model["cube"].numpy()
        model.close()
        del model
        gc.collect()
        np.testing.assert_array_equal(values, arrays["cube"])

    def test_copies_are_their_own(self, model, arrays):
        values = model["cube"].numpy(copy=True)
        values[...] = 0
        np.testing.assert_array_equal(model["cube"].numpy(), arrays["cube"])

    def test_without_a_map_everything_is_a_copy(self, path, arrays):
        with ballast.open(path, mmap=False) as model:
            assert address(model["cube"].numpy()) != address(model["cube"].numpy(copy=True))
            for name, array in arrays.items():
                np.testing.assert_array_equal(model[name].numpy(), array, strict=True)
            with pytest.raises(ValueError, match="tensor 'cube': the file is not mapped, so its values must be copied"):
                np.array(model["cube"], copy=False)

    def test_pages_that_were_released_are_read_again(self, model, arrays):
        values = model["cube"].numpy()
        model["cube"].release()
        np.testing.assert_array_equal(values, arrays["cube"])


class TestInterchange:
    def test_asarray_does_not_copy(self, model, arrays):
        tensor = model["cube"]
        assert address(np.asarray(tensor)) == address(tensor.numpy())
        assert np.array(tensor, copy=True).flags.writeable
        np.testing.assert_array_equal(np.asarray(tensor, np.float64), arrays["cube"].astype(np.float64), strict=True)
        with pytest.raises(ValueError, match="without a copy"):
            np.array(tensor, np.float64, copy=False)

    def test_dlpack_gives_a_copy(self, model, arrays):
        values = np.from_dlpack(model["cube"])
        np.testing.assert_array_equal(values, arrays["cube"], strict=True)
        assert address(values) != address(model["cube"].numpy()) and model["cube"].__dlpack_device__() == (1, 0)
        with pytest.raises(BufferError, match="mapped read-only"):
            np.from_dlpack(model["cube"], copy=False)

    @pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
    @pytest.mark.parametrize("name", DTYPES)
    def test_dlpack_has_the_dtype(self, name, options):
        jax = pytest.importorskip("jax")
        data = bytes(range(32)) if name != "BOOL" else bytes([0, 1] * 16)
        dtype = np.dtype(DTYPES[name])
        tensor = ballast.from_bytes(file_of(data, a=(name, [2, 16 // dtype.itemsize], 32)))["a"]

        class Given:
            def __dlpack__(self, **asked):
                return tensor.__dlpack__(**options)

            def __dlpack_device__(self):
                return tensor.__dlpack_device__()

        if dtype.isbuiltin != 1:
            with pytest.raises(RuntimeError, match="Unsupported dtype"):
                np.from_dlpack(Given())
        else:
            np.testing.assert_array_equal(np.from_dlpack(Given()), tensor.numpy(), strict=True)
        if options:
            return  # which JAX does not take
        with jax.enable_x64(True):
            array = np.asarray(jax.dlpack.from_dlpack(tensor))
        assert array.dtype == dtype and array.shape == tensor.shape and array.tobytes() == data

    def test_mlx_takes_bf16_for_what_it_is(self, model, arrays):
        mx = pytest.importorskip("mlx.core")
        array = mx.array(model["half"])
        assert array.dtype == mx.bfloat16
        np.testing.assert_array_equal(np.asarray(array.astype(mx.float32)), arrays["half"].astype(np.float32))

    @pytest.mark.parametrize("name", DTYPES)
    def test_every_dtype_is_that_of_numpy(self, name):
        data = bytes(range(32)) if name != "BOOL" else bytes([0, 1] * 16)
        dtype = np.dtype(DTYPES[name])
        model = ballast.from_bytes(file_of(data, a=(name, [32 // dtype.itemsize], 32)))
        values = model["a"].numpy()
        assert values.dtype == dtype and values.tobytes() == data
        assert ballast.serialize(model) == ballast.serialize({"a": values})
        assert ballast.from_bytes(ballast.serialize({"a": values}))["a"].dtype == name

    def test_dtypes_go_by_many_names(self, model, arrays):
        for dtype in ("f16", "F16", "fp16", "half", "float16", "torch.float16", "np.float16", np.float16, np.dtype("<f2"), np.dtype(">f2")):
            assert model["cube"].to(dtype, allow_loss=True).dtype == np.float16
        np.testing.assert_array_equal(model["half"].to("f32"), arrays["half"].astype(np.float32), strict=True)
        for dtype, name in NAMES:
            assert name_of(dtype) == name

    @pytest.mark.parametrize(
        "dtype, message",
        [("float", "dtype 'float' is ambiguous; use 'float32' or 'float64'"), (float, "dtype 'float' is ambiguous; use 'float32' or 'float64'"),
         ("torch.float", "dtype 'torch.float' is ambiguous; use 'float32' or 'float64'"), (int, "dtype 'int' is ambiguous; use 'int32' or 'int64'"),
         ("f4", "dtype 'f4' is ambiguous; use 'float32' or 'F4'"), ("i8", "dtype 'i8' is ambiguous; use 'int64' or 'int8'"),
         ("fp8", "dtype 'fp8' is ambiguous; use 'float8_e4m3fn' or 'float8_e5m2'"),
         ("f13", "unknown dtype 'f13'; use bool, uint8, int8, int16, .*, or a SafeTensors name such as BF16"), ("U4", "'U4' is ambiguous; use 'uint32'"),
         ("<f4", "unknown dtype '<f4'"), ("single", "unknown dtype 'single'"), ("", "unknown dtype ''")],
    )  # fmt: skip
    def test_names_of_dtypes_are_unambiguous(self, model, tmp_path, dtype, message):
        for work in (model["cube"].to, lambda dtype: ballast.convert(model, tmp_path / "m.safetensors", dtype=dtype)):
            with pytest.raises(ballast.ArgumentError, match=message):
                work(dtype)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "dtype, message",
        [(None, "dtype must be a name or a dtype, not None"), (3, "dtype must be a name or a dtype, not 3"), (object, "no dtype for object"),
         (np.complex128, "no dtype for complex128"), (str, "no dtype for <U0")],
    )  # fmt: skip
    def test_other_dtypes_are_type_errors(self, model, dtype, message):
        with pytest.raises(TypeError, match=message):
            model["cube"].to(dtype)

    def test_loss_is_refused_unless_allowed(self):
        model = ballast.from_bytes(ballast.serialize({"i": np.array([2**24 + 1, 1]), "f": np.array([1e30, 1.0], np.float32)}))
        with pytest.raises(ValueError, match="tensor 'i': 1 of 2 values of I64 cannot be represented as F32, the first at index 0"):
            model["i"].to("f32")
        assert model["i"].to("f32", allow_loss=True).tolist() == [2**24, 1]
        assert np.isinf(model["f"].to("f16")[0])


class TestPacked:
    @pytest.fixture
    def packed(self):
        return ballast.from_bytes(file_of(bytes(range(28)), q=("F4", [4, 8], 16), s=("F6_E2M3", [4, 4], 12)))

    def test_values_are_given_as_bytes(self, packed):
        assert packed["q"].shape == (4, 8) and packed["q"].numpy().tobytes() == bytes(range(16))
        assert packed["s"].numpy().tobytes() == bytes(range(16, 28))

    def test_unpacked_has_the_values_of_f4(self, packed):
        codes = np.array([code for byte in range(16) for code in (byte & 15, byte >> 4)], np.uint8)
        values = packed["q"].unpacked()
        np.testing.assert_array_equal(values, codes.view(ml_dtypes.float4_e2m1fn).reshape(4, 8), strict=True)
        np.testing.assert_array_equal(values.astype(np.float32), packed["q"].to("f32"))
        with pytest.raises(ValueError, match=r"tensor 's': unpacked\(\) needs F4, this is F6_E2M3"):
            packed["s"].unpacked()

    def test_parts_are_bytes_too(self, packed):
        assert packed["q"][1:3].tobytes() == bytes(range(4, 12)) and packed["q"][2].tobytes() == bytes(range(8, 12))
        assert packed["q"][:, 2:4].tolist() == [1, 5, 9, 13]
        with pytest.raises(ValueError, match="byte"):
            packed["q"][:, 1:4]

    def test_dlpack_does_not_get_them(self, packed):
        with pytest.raises(BufferError, match=r"tensor 'q': DLPack has no packed F4; use unpacked\(\) or to\(\)"):
            np.from_dlpack(packed["q"])
        with pytest.raises(BufferError, match=r"tensor 's': DLPack has no packed F6_E2M3; numpy\(\) returns its bytes"):
            np.from_dlpack(packed["s"])

    def test_they_are_saved_as_they_are(self, packed):
        again = ballast.from_bytes(ballast.serialize(packed))
        assert again["q"].dtype == "F4" and again["q"].shape == (4, 8) and again["s"].numpy().tobytes() == bytes(range(16, 28))

    def test_what_load_gives_is_bytes_to_save_too(self, packed):
        again = ballast.from_bytes(ballast.serialize(packed.load()))
        assert again["q"].dtype == again["s"].dtype == "U8" and again["q"].numpy().tobytes() == bytes(range(16))


ends = st.none() | st.integers(-9, 9) | st.sampled_from([2**63, -(2**63), 2**80])
steps = st.none() | st.integers(-4, 4).filter(bool) | st.sampled_from([2**62, -(2**63)])
slices = st.builds(slice, ends, ends, steps)
indices = st.lists(st.integers(-8, 8) | st.integers(-5, 4).map(np.int32) | slices | st.just(None), max_size=5)
indices |= st.tuples(indices, indices).map(lambda pair: [*pair[0][:2], ..., *pair[1][:2]])


class TestSlices:
    @given(index=indices.map(tuple) | slices | st.integers(-8, 8))
    def test_parts_are_those_of_numpy(self, arrays, path, index):
        with ballast.open(path) as model:
            for name in ("cube", "line", "scalar"):
                try:
                    expected = arrays[name][index]
                except IndexError:
                    with pytest.raises(IndexError):
                        model[name][index]
                    continue
                np.testing.assert_array_equal(model[name][index], expected)
                assert np.shape(model[name][index]) == expected.shape

    def test_parts_of_a_mapped_file_are_views_and_others_copies(self, model, arrays):
        part = model["cube"][1:3]
        assert not part.flags.writeable and np.shares_memory(part, model["cube"].numpy())
        with ballast.open(model.path, mmap=False) as unmapped:
            part = unmapped["cube"][1:3]
            part[...] = 0
            np.testing.assert_array_equal(unmapped["cube"][1:3], arrays["cube"][1:3])

    @pytest.mark.parametrize("index", [True, [0, 1], np.array([0, 1]), np.ones(5, bool), "a", 1.0, slice("a"), slice(0, 1.5)])
    def test_other_indices_are_refused(self, model, index):
        with pytest.raises(TypeError, match="integers, slices"):
            model["cube"][index]

    def test_mistakes_have_the_exceptions_of_numpy(self, model):
        with pytest.raises(IndexError, match="too many indices"):
            model["line"][0, 0]
        with pytest.raises(IndexError, match="one ellipsis"):
            model["cube"][..., ...]
        with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 5 of tensor 'cube'"):
            model["cube"][5]
        with pytest.raises(ValueError, match="step cannot be zero"):
            model["cube"][::0]


class TestSaving:
    LAYOUTS = {
        "transposed": lambda a: a.T,
        "every other": lambda a: a[::2, ::-3],
        "fortran": np.asfortranarray,
        "big endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
        "big endian, transposed": lambda a: a.astype(a.dtype.newbyteorder(">")).T,
        "broadcast": lambda a: np.broadcast_to(a[0], (3, a.shape[1])),
        "empty": lambda a: a[:0],
        "empty inside": lambda a: np.zeros((3, 0, 2), a.dtype),
        "without dimensions": lambda a: a[0, 0].reshape(()),
        "scalar": lambda a: a[1, 1],
        "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype),
    }

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
    def test_every_layout_is_read_right_by_the_reference(self, tmp_path, layout, dtype):
        array = self.LAYOUTS[layout](np.arange(48).reshape(6, 8).astype(dtype))
        ballast.save({"a": array, "b": np.ones(3, np.float32)}, tmp_path / "m.safetensors", sync=False)
        read = load_file(tmp_path / "m.safetensors")["a"]
        np.testing.assert_array_equal(read, array)
        assert read.shape == np.shape(array) and read.dtype == np.dtype(dtype)

    def test_files_are_those_of_the_reference_to_the_byte(self, arrays, path, tmp_path):
        ballast.save(arrays, tmp_path / "m.safetensors", metadata={"format": "np"}, sync=False)
        assert (tmp_path / "m.safetensors").read_bytes() == path.read_bytes()
        assert ballast.serialize(arrays, metadata={"format": "np"}) == path.read_bytes()

    def test_a_model_may_be_saved_over_itself(self, arrays, tmp_path):
        save_file(arrays, tmp_path / "m.safetensors")
        with ballast.open(tmp_path / "m.safetensors") as model:
            values = model["cube"].numpy()
            ballast.save({"cube": model["cube"]}, tmp_path / "m.safetensors", sync=False)
        np.testing.assert_array_equal(values, arrays["cube"])
        assert list(load_file(tmp_path / "m.safetensors")) == ["cube"]

    def test_shards_have_an_index(self, arrays, tmp_path):
        ballast.save(arrays, tmp_path / "d", max_shard_size="3kB", sync=False)
        index = json.loads((tmp_path / "d/model.safetensors.index.json").read_text())["weight_map"]
        assert set(index) == set(arrays) and len(set(index.values())) > 1
        for name, file in index.items():
            np.testing.assert_array_equal(read_safetensors(tmp_path / "d" / file)[name], arrays[name])

    @pytest.mark.parametrize(
        "tensors, message",
        [({"a": np.array(["x"])}, "tensor 'a': SafeTensors has no dtype for <U1"), ({"a": np.array([None])}, "no dtype for object"),
         ({"a": np.zeros(2, np.complex128)}, "complex128"), ({1: np.zeros(2)}, "the name of a tensor must be a str, not int"),
         ([np.zeros(2)], "a mapping from names to arrays, not list"), (None, "not NoneType")],
    )  # fmt: skip
    def test_wrong_types_are_told(self, tmp_path, tensors, message):
        with pytest.raises(TypeError, match=message):
            ballast.save(tensors, tmp_path / "m.safetensors")
        assert list(tmp_path.iterdir()) == []

    def test_metadata_are_strings(self):
        with pytest.raises(TypeError, match="metadata must be a mapping from str to str; it has 'n': 1"):
            ballast.serialize({}, metadata={"n": 1})


class TestExceptions:
    KINDS = [("MissingError", FileNotFoundError), ("ReadError", OSError), ("WriteError", OSError), ("CorruptError", ValueError),
             ("UnsupportedError", ValueError), ("ArgumentError", ValueError), ("TensorNotFoundError", KeyError),
             ("BelowMinimumError", Exception), ("CancelledError", Exception)]  # fmt: skip

    @pytest.mark.parametrize("name, builtin", KINDS)
    def test_are_built_in_ones_and_survive_pickling(self, name, builtin):
        kind = getattr(ballast, name)
        assert issubclass(kind, builtin) and issubclass(kind, ballast.BallastError)
        error = kind("m.safetensors: tensor 'a': 3 is not 4")
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is kind and str(again) == str(error) == "m.safetensors: tensor 'a': 3 is not 4"

    def test_are_raised_for_what_they_say(self, model, tmp_path):
        with pytest.raises(FileNotFoundError, match="none.safetensors: cannot open"):
            ballast.open(tmp_path / "none.safetensors")
        (tmp_path / "bad.safetensors").write_bytes(b"123")
        with pytest.raises(ballast.CorruptError, match="file of 3 bytes is too small"):
            ballast.open(tmp_path / "bad.safetensors")
        with pytest.raises(KeyError) as caught:
            model["nothing"]
        assert str(caught.value) == f"{model.path}: no tensor 'nothing' among 4"
        with pytest.raises(ballast.TensorNotFoundError) as caught:
            model["scaler"]
        assert str(caught.value) == f"{model.path}: no tensor 'scaler' among 4; did you mean 'scalar'?"
        with pytest.raises(ballast.WriteError, match="cannot write"):
            ballast.save({"a": np.zeros(2)}, tmp_path / "no/such/m.safetensors")
        with pytest.raises(ballast.ArgumentError, match="group_size is 48"):
            ballast.QuantizeConfig(group_size=48)
        with pytest.raises(ballast.BelowMinimumError, match="nothing was written"):
            ballast.quantize(model, tmp_path / "out", bit_width=2, min_accuracy=0.9999, fail_fast=True)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("path", [None, 3, ["m"]])
    def test_paths_of_other_types_are_type_errors(self, path):
        with pytest.raises(TypeError):
            ballast.open(path)

    def test_mistakes_in_arguments_have_their_exceptions(self, model, tmp_path):
        for work, error in (
            (lambda: ballast.open("a\0b"), ValueError),
            (lambda: ballast.save({"a": np.zeros(1)}, "a\0b.safetensors"), ValueError),
            (lambda: ballast.open(model.path, max_header_bytes=-1), ValueError),
            (lambda: ballast.save({"\ud800": np.zeros(1)}, tmp_path / "a.safetensors"), ValueError),
            (lambda: ballast.save({"a": np.zeros(1)}, tmp_path / "a.safetensors", metadata={"a": "\ud800"}), ValueError),
            (lambda: ballast.save({"a": np.zeros(1)}, tmp_path / "a.safetensors", metadata=[1]), TypeError),
            (lambda: ballast.quantize(model, tmp_path / "out", {"bit_width": 4}), TypeError),
            (lambda: ballast.from_bytes(None), TypeError),
        ):
            with pytest.raises(error):
                work()
        assert not any(tmp_path.glob("a*")) and not (tmp_path / "out").exists()

    def test_the_systems_reasons_are_told(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        for work, kind, number in (
            (lambda: ballast.open(tmp_path / "none.safetensors"), ballast.MissingError, errno.ENOENT),
            (lambda: ballast.open(tmp_path / "file/m.safetensors"), ballast.MissingError, errno.ENOTDIR),
            (lambda: ballast.open(tmp_path / ("x" * 300)), ballast.ReadError, errno.ENAMETOOLONG),
            (lambda: ballast.save({"a": np.zeros(2)}, tmp_path / "no/m.safetensors"), ballast.WriteError, errno.ENOENT),
            (lambda: ballast.save({"a": np.zeros(2)}, tmp_path / "no/such/model"), ballast.WriteError, errno.ENOENT),
            (lambda: ballast.save({"a": np.zeros(2)}, tmp_path / "file"), ballast.WriteError, None),
        ):
            with pytest.raises(kind) as caught:
                work()
            for error in (caught.value, pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
                assert type(error) is type(caught.value) and str(error) == str(caught.value)
                assert getattr(error, "errno", None) == number
                if number is not None:
                    assert error.strerror == os.strerror(number)

    def test_paths_need_not_be_utf8(self, tmp_path):
        path = os.fsdecode(os.fsencode(tmp_path) + b"/w\xff.safetensors")
        ballast.save({"a": np.arange(3)}, path)
        for each in (path, os.fsencode(path), Path(path)):
            with ballast.open(each) as model:
                assert model.path == path and model.files == [path] and model["a"][1] == 1

    def test_a_tensor_that_is_missing_is_told_in_one_line(self, tmp_path):
        path = tmp_path / "a\n\x1b[31m.safetensors"
        ballast.save({"a": np.arange(3)}, path)
        with pytest.raises(KeyError) as caught:
            ballast.open(path)["b\n"]
        assert str(caught.value) == f"{tmp_path}/a\\n\\x1b[31m.safetensors: no tensor 'b\\n' among 1"

    def test_names_that_no_tensor_can_have(self, model):
        assert "\ud800" not in model
        with pytest.raises(KeyError):
            model["\ud800"]

    def test_quantizing_nothing_like_a_model_is_a_type_error(self, tmp_path):
        with pytest.raises(TypeError):
            ballast.quantize(np.zeros((4, 4)), tmp_path / "out")


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class TestLargeFiles:
    def test_two_gibibytes_are_opened_and_taken_without_being_read(self, tmp_path):
        path = tmp_path / "large.safetensors"
        half = 1 << 30
        table = ",".join(f'"{name}":{{"dtype":"U8","shape":[{half}],"data_offsets":[{at},{at + half}]}}' for name, at in (("a", 0), ("b", half)))
        with open(path, "wb") as file:
            start = file.write(prefix(f"{{{table}}}"))
            file.truncate(start + 2 * half)  # sparse
        ballast.open(path).close()
        before = resident()
        with ballast.open(path) as model:
            array = model["b"].numpy()
        assert array.shape == (half,) and array[half // 2] == 0
        assert resident() - before < 1 << 20


class TestManyTimes:
    @pytest.mark.parametrize("times", [10_000, pytest.param(100_000, marks=pytest.mark.skipif(not FULL, reason="BALLAST_FULL"))])
    def test_opening_and_closing_keeps_no_memory(self, path, times):
        def open_and_look(count):
            for i in range(count):
                with ballast.open(path) as model:
                    model["cube"].numpy()
                    if i % 4 == 0:
                        model["line"][2:4]
            gc.collect()

        open_and_look(times // 10)
        files, before = len(os.listdir("/proc/self/fd")), resident()
        open_and_look(times)
        assert resident() - before < 4 << 20
        assert len(os.listdir("/proc/self/fd")) == files

    def test_threads_read_at_once(self, path, arrays):
        wrong = []
        with ballast.open(path) as model:

            def read():
                for _ in range(200):
                    for name, array in arrays.items():
                        if model[name].numpy(copy=True).tobytes() != array.tobytes() or model[name][...].tobytes() != array.tobytes():
                            wrong.append(name)

            threads = [threading.Thread(target=read) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert wrong == []
