"""ballast.safetensors.torch against safetensors.torch. Runs where PyTorch is installed."""

import doctest

import ballast.safetensors as dropin
import ballast.safetensors.numpy as dropin_numpy
import ballast.safetensors.torch as dropin_torch
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.torch as reference_torch
import torch

BACKENDS = ["mmap", "pread"]


def test_examples_in_the_documentation_hold(tmp_path):
    path = tmp_path / "model.safetensors"
    dropin_numpy.save_file({"embed.weight": np.zeros((64, 32), ml_dtypes.bfloat16), "bias": np.zeros(64, "f4")}, path)
    names = vars(dropin) | {"np": np, "path": path, "out": tmp_path} | vars(dropin_torch)
    assert doctest.testmod(dropin_torch, extraglobs=names).failed == 0


def test_module_has_safe_open():
    assert dropin_torch.safe_open is dropin.safe_open


def torch_tensors() -> dict:
    names = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16", "complex64"]
    names += ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    names += ["uint16", "uint32", "uint64"]
    tensors = {name: torch.ones(3, 4).to(getattr(torch, name)) for name in names if hasattr(torch, name)}
    tensors |= {"empty": torch.empty((0, 5), dtype=torch.float16), "scalar": torch.tensor(7.5)}
    if hasattr(torch, "float4_e2m1fn_x2"):
        tensors["F4"] = torch.arange(8, dtype=torch.uint8).reshape(2, 4).view(torch.float4_e2m1fn_x2)
    return tensors


def same_tensor(a, b) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.nelement() == 0 or torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def test_files_are_those_of_the_reference(tmp_path):
    tensors = torch_tensors()
    expected = reference_torch.save(tensors, {"k": "v"})
    assert dropin_torch.save(tensors, {"k": "v"}) == expected
    dropin_torch.save_file(tensors, tmp_path / "x.bin", {"k": "v"})
    assert (tmp_path / "x.bin").read_bytes() == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_reads_every_dtype(tmp_path, backend):
    tensors = torch_tensors()
    path = tmp_path / "x.safetensors"
    reference_torch.save_file(tensors, path)
    with dropin.safe_open(path, "pt", backend=backend) as file:
        ways = [file.get_tensors(), {name: file.get_tensor(name) for name in file.keys()}]
        ways += [{name: file.get_slice(name)[...] for name in file.keys()}]
        assert file.get_slice("float32")[1:, ::2].shape == (2, 2)
    ways += [dropin_torch.load_file(path, backend=backend), dropin_torch.load(path.read_bytes())]
    for loaded in ways:
        assert loaded.keys() == tensors.keys()
        for name, expected in tensors.items():
            assert same_tensor(loaded[name], expected), name
    loaded["float32"].add_(1)


def test_refuses_what_the_reference_refuses():
    whole = torch.zeros(4, 4)
    for tensors, kind, words in [
        ({"x": torch.sparse_coo_tensor(size=(2, 3))}, ValueError, "You are trying to save a sparse tensors: `['x']` which"),
        ({"x": whole.T[:, 1:]}, ValueError, "You are trying to save a non contiguous tensor: `x` which is not allowed."),
        ({"x": whole, "y": whole[1:]}, RuntimeError, "Some tensors share memory, this will lead to duplicate memory on disk"),
        ({"x": np.zeros(2)}, ValueError, "Key `x` is invalid, expected torch.Tensor but received <class 'numpy.ndarray'>"),
        ([whole], ValueError, "Expected a dict of [str, torch.Tensor] but received <class 'list'>"),
    ]:
        for module in (reference_torch, dropin_torch):
            with pytest.raises(kind) as error:
                module.save(tensors)
            assert words in str(error.value), module.__name__


def test_finds_tensors_that_overlap():
    a = torch.zeros(4)
    find = dropin_torch._find_shared_tensors
    assert find({"a": a, "b": a[:1]}) == [{"a", "b"}]
    assert find({"b": a[:2], "c": a[2:]}) == [{"b"}, {"c"}]
    assert find({"b": a[:2], "c": a[2:], "d": a[:1]}) == [{"b", "d"}, {"c"}]
    assert find({"a": a, "b": a[:1], "c": a[2:]}) == [{"a", "b", "c"}]  # of which the reference loses c
    meta = torch.zeros((2, 2), device="meta")
    assert find({"c": meta, "d": meta[:1]}) == []
    strided = torch.zeros(16)[::4]
    assert dropin_torch._end_ptr(strided) - strided.data_ptr() == 16 * 3 + 4
    assert dropin_torch._is_complete(a) and not dropin_torch._is_complete(a[:1]) and not dropin_torch._is_complete(a[::2])


def test_keeps_one_name_of_each_tensor():
    whole = torch.zeros(3, 3)
    names = {"a": whole, "b": whole[:1], "c": whole}
    for module in (reference_torch, dropin_torch):
        remove = module._remove_duplicate_names
        assert remove(names) == {"a": ["b", "c"]}
        assert remove(names, preferred_names=["c"]) == {"c": ["a", "b"]}
        assert remove(names, discard_names=["a"]) == {"c": ["a", "b"]}
        with pytest.raises(RuntimeError, match=r"None is covering the entire storage\.Refusing to save/load the model"):
            remove({"b": whole[:1]})


@pytest.fixture
def tied():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4)
            self.b = self.a

    return Tied


def test_models_with_tied_tensors_are_saved_once(tied, tmp_path):
    model, path = tied(), tmp_path / "model.safetensors"
    dropin_torch.save_model(model, path)
    with dropin.safe_open(path, "pt") as file:
        assert file.metadata() == {"b.bias": "a.bias", "b.weight": "a.weight"}
        assert file.keys() == ["a.bias", "a.weight"]
    for module in (reference_torch, dropin_torch):
        loaded = tied()
        assert module.load_model(loaded, path) == (set(), [])
        assert torch.equal(loaded.b.weight, model.b.weight)
    renamed = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("b.")}
    dropin_torch.save_file(renamed, path)
    loaded = tied()
    dropin_torch.load_model(loaded, path)
    assert torch.equal(loaded.a.weight, model.a.weight)


def test_models_that_do_not_fit_are_refused(tied, tmp_path):
    class Apart(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    path = tmp_path / "model.safetensors"
    dropin_torch.save_model(tied(), path)
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "b.bias", "b.weight"'):
        dropin_torch.load_model(Apart(), path)
    assert dropin_torch.load_model(Apart(), path, strict=False) == ({"b.bias", "b.weight"}, [])
    dropin_torch.save_model(Apart(), path)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "b.bias", "b.weight"'):
        dropin_torch.load_model(tied(), path)


def test_models_are_packed_unless_told_otherwise(tmp_path):
    model = torch.nn.Linear(4, 4)
    model.weight = torch.nn.Parameter(torch.arange(16.0).reshape(4, 4).T)
    with pytest.raises(ValueError, match=r"use save_model\(\.\.\., force_contiguous=True\)"):
        dropin_torch.save_model(model, tmp_path / "x.safetensors", force_contiguous=False)
    dropin_torch.save_model(model, tmp_path / "x.safetensors")
    assert torch.equal(dropin_torch.load_file(tmp_path / "x.safetensors")["weight"], model.weight)


@pytest.mark.skipif(safetensors.__version__ != dropin.__version__, reason="another version of safetensors is installed")
def test_has_what_the_reference_has():
    wanted = {name for name in vars(reference_torch) if callable(getattr(reference_torch, name)) and not name.startswith("_")}
    imported = {name for name in wanted if getattr(reference_torch, name).__module__ != reference_torch.__name__}
    assert wanted - imported <= set(vars(dropin_torch))
