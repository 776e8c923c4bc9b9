"""Tensor.torch(), load(framework="torch") and PyTorch tensors as input. Runs where PyTorch is installed."""

import gc
import json
import subprocess
import sys
import warnings
from pathlib import Path

import ballast
import ml_dtypes
import numpy as np
import pytest
import torch
from ballast._dtypes import name_of, numpy_dtype
from python_samples import write_sample_model
from sessions import blocks

# Those of every PyTorch since 1.13, and those that only later ones have.
SHARED = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
}  # fmt: skip
LATER = {
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}  # fmt: skip
BITS = {"F4": 4}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def write(path, dtype, data=bytes(range(64)), shape=None):
    """A file with the tensor 'x'."""
    size = len(data) * 8 // (BITS.get(dtype) or numpy_dtype(dtype).itemsize * 8)
    header = json.dumps({"x": {"dtype": dtype, "shape": shape or [size], "data_offsets": [0, len(data)]}}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def raw(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.nelement() else b""


class TestTensor:
    @pytest.mark.parametrize("mmap", [True, False])
    @pytest.mark.parametrize("dtype", SHARED)
    def test_has_the_bytes_of_the_file(self, tmp_path, dtype, mmap):
        data = bytes(range(64)) if dtype != "BOOL" else bytes([0, 1] * 32)
        with ballast.open(write(tmp_path / "m.safetensors", dtype, data), mmap=mmap) as model:
            for tensor in (model["x"].torch(), model["x"].torch(copy=True), model.load(framework="torch")["x"]):
                assert tensor.dtype == SHARED[dtype] and raw(tensor) == data
                assert tensor.shape == torch.Size(model["x"].shape) and tensor.is_contiguous()

    @pytest.mark.parametrize("dtype", LATER)
    def test_needs_the_dtype(self, tmp_path, dtype):
        with ballast.open(write(tmp_path / "m.safetensors", dtype)) as model:
            if hasattr(torch, LATER[dtype]):
                assert model["x"].torch().dtype == getattr(torch, LATER[dtype]) and raw(model["x"].torch()) == bytes(range(64))
                return
            message = f"^tensor 'x': PyTorch .* has no dtype for {dtype}; use torch.from_numpy\\(tensor.to\\('float32'\\)\\)$"
            for work in (model["x"].torch, lambda: model.load(framework="torch")):
                with pytest.raises(ballast.UnsupportedError, match=message):
                    work()
            if dtype not in ("U32", "U64"):
                assert torch.from_numpy(model["x"].to("float32")).dtype == torch.float32

    def test_f6_has_no_dtype(self, tmp_path):
        path = write(tmp_path / "m.safetensors", "F6_E2M3", bytes(48), [64])
        with ballast.open(path) as model, pytest.raises(ballast.UnsupportedError, match=r"F6_E2M3; numpy\(\) returns its bytes"):
            model["x"].torch()

    @pytest.mark.parametrize("shape", [[], [0], [2, 0, 3], [1], [2, 3, 4]])
    def test_has_every_shape(self, tmp_path, shape):
        ballast.save({"x": np.ones(shape, np.float32)}, tmp_path / "m.safetensors", sync=False)
        with ballast.open(tmp_path / "m.safetensors") as model:
            for tensor in (model["x"].torch(), model["x"].torch(copy=True), model.load(framework="torch")["x"]):
                assert list(tensor.shape) == shape and tensor.dtype == torch.float32 and bool((tensor == 1).all())

    def test_misaligned_values_are_copied(self, tmp_path):
        header = b'{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
        path = tmp_path / "m.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\1" + np.array([1, 2], "<f4").tobytes())
        with ballast.open(path) as model:
            assert model["x"].torch().tolist() == [1, 2] and model["x"].torch().data_ptr() % 4 == 0

    def test_wrong_arguments(self, tmp_path):
        with ballast.open(write(tmp_path / "m.safetensors", "F32")) as model:
            with pytest.raises(TypeError, match="copy must be True or False, not str"):
                model["x"].torch(copy="yes")
            with pytest.raises(ballast.ArgumentError, match="framework is 'tf', it must be 'numpy' or 'torch'"):
                model.load(framework="tf")


class TestMemory:
    @pytest.fixture
    def path(self, tmp_path):
        return write(tmp_path / "m.safetensors", "F32", np.arange(16, dtype="<f4").tobytes())

    def test_is_shared_with_numpy(self, path):
        with ballast.open(path) as model:
            tensor, array = model["x"].torch(), model["x"].numpy()
            assert tensor.data_ptr() == array.ctypes.data
            assert model["x"].torch(copy=True).data_ptr() != tensor.data_ptr()

    def test_changes_stay_in_the_process(self, path):
        before = path.read_bytes()
        with ballast.open(path) as model:
            array = model["x"].numpy()
            tensor = model["x"].torch()
            tensor.mul_(2)
            assert tensor.tolist() == array.tolist() == model["x"].torch().tolist() == [2.0 * i for i in range(16)]
            assert model["x"].numpy(copy=True).tolist() == list(range(16))
        assert path.read_bytes() == before

    def test_outlives_the_model(self, path):
        model = ballast.open(path)
        tensor = model["x"].torch()
        model.close()
        del model
        gc.collect()
        tensor.add_(1)
        assert tensor.tolist() == list(range(1, 17))

    def test_of_memory_and_unmapped_files_is_a_copy(self, path):
        data = path.read_bytes()
        with ballast.open(path, mmap=False) as unmapped, ballast.from_bytes(data) as held:
            for model in (unmapped, held):
                model["x"].torch().add_(1)
                assert model["x"].torch().tolist() == list(range(16))
        assert path.read_bytes() == data

    def test_what_load_returns_may_be_written_to(self, path):
        with ballast.open(path) as model:
            loaded = model.load(framework="torch")["x"]
            loaded.zero_()
            assert model["x"].torch().tolist() == list(range(16))


class TestSaving:
    @pytest.mark.parametrize("dtype", SHARED)
    def test_tensors_are_written_as_they_are(self, tmp_path, dtype):
        tensor = torch.arange(12).reshape(3, 4).to(SHARED[dtype])
        path = tmp_path / "m.safetensors"
        ballast.save({"a": tensor, "t": tensor.T, "s": tensor[0, 1], "e": tensor[:0]}, path, sync=False)
        with ballast.open(path) as model:
            loaded = model.load(framework="torch")
        assert {name: each.dtype for name, each in loaded.items()} == dict.fromkeys(loaded, SHARED[dtype])
        assert torch.equal(loaded["a"], tensor) and torch.equal(loaded["t"], tensor.T) and torch.equal(loaded["s"], tensor[0, 1])
        assert loaded["e"].shape == (0, 4)

    def test_parameters_and_lazy_views_are_resolved(self):
        conjugate = torch.tensor([1 + 2j], dtype=torch.complex64).conj()
        data = ballast.serialize({"p": torch.nn.Parameter(torch.ones(2)), "c": conjugate})
        with ballast.from_bytes(data) as model:
            assert model["p"].numpy().tolist() == [1, 1] and model["c"].numpy().tolist() == [1 - 2j]

    def test_state_dicts_are_quantized(self, tmp_path):
        module = torch.nn.Linear(64, 32).to(torch.bfloat16)
        report = ballast.quantize(module.state_dict(), tmp_path / "q", bits=8, group_size=32, sync=False, format="mlx")
        assert [layer.dtype for layer in report.layers] == ["BF16"] and report.unquantized == 1

    def test_what_files_cannot_have_is_refused(self):
        with pytest.raises(TypeError, match=r"tensor 'x' is sparse; pass its \.to_dense\(\)"):
            ballast.serialize({"x": torch.sparse_coo_tensor(size=(2, 3))})
        with pytest.raises(TypeError, match="tensor 'x': SafeTensors has no dtype for torch.complex128"):
            ballast.serialize({"x": torch.zeros(2, dtype=torch.complex128)})


def test_dtypes_of_torch_are_understood():
    for name, dtype in SHARED.items():
        assert name_of(dtype) == name_of(str(dtype)) == name
    assert name_of(torch.float) == "F32" and name_of(torch.half) == "F16" and name_of(torch.long) == "I64"
    model = ballast.from_bytes(ballast.serialize({"a": np.ones(2, np.float32)}))
    assert model["a"].to(torch.bfloat16).dtype == ml_dtypes.bfloat16
    with pytest.raises(ballast.ArgumentError, match="unknown dtype 'torch.complex128'"):
        model["a"].to(torch.complex128)


def test_torch_is_imported_only_when_it_is_needed(tmp_path):
    path = write(tmp_path / "m.safetensors", "F32")
    code = "import sys, ballast, ballast.calibration; ballast.open(sys.argv[1]).load(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout == "False\n"


def test_without_torch_the_error_says_what_to_install(tmp_path):
    path = write(tmp_path / "m.safetensors", "F32")
    code = "import sys; sys.modules['torch'] = None; import ballast; ballast.open(sys.argv[1])['x'].torch()"
    result = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert result.stderr.endswith("ImportError: PyTorch is not installed: pip install torch\n")


def test_sample_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_sample_model(tmp_path / "model.safetensors")
    sample, _ = blocks((Path(__file__).resolve().parents[2] / "docs/python.md").read_text(), "py")
    exec(compile(sample, "<sample>", "exec"), {})
    doubled, original = (ballast.open(name)["embed.weight"].to("f32") for name in ("doubled.safetensors", "model.safetensors"))
    np.testing.assert_array_equal(doubled, original * 2)
