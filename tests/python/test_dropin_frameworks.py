"""ballast.safetensors with MLX, JAX and PyTorch, where they are installed."""

import doctest
import importlib
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors

import ballast.safetensors as dropin
import ballast.safetensors.numpy as dropin_numpy

BACKENDS = ["mmap", "pread"]


def test_frameworks_are_imported_only_when_they_are_asked_for():
    code = "import sys, ballast.safetensors, ballast.safetensors.numpy; print({'torch', 'jax', 'mlx'} & set(sys.modules))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        *((module, "numpy") for module in ("__init__", "_open", "_write", "numpy")),
        ("mlx", "mlx.core"),
        ("flax", "jax"),
        ("torch", "torch"),
    ],
)
def test_examples_in_the_documentation_hold(tmp_path, module, needs):
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    path = tmp_path / "model.safetensors"
    dropin_numpy.save_file({"embed.weight": np.zeros((64, 32), ml_dtypes.bfloat16), "bias": np.zeros(64, "f4")}, path)
    tested = dropin if module == "__init__" else importlib.import_module(f"ballast.safetensors.{module}")
    names = vars(dropin) | {"np": np, "path": path, "out": tmp_path}
    assert doctest.testmod(tested, extraglobs=names | vars(tested)).failed == 0


@pytest.mark.parametrize(("module", "needs"), [("numpy", "numpy"), ("mlx", "mlx.core"), ("flax", "jax"), ("torch", "torch")])
def test_every_module_has_safe_open(module, needs):
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    assert importlib.import_module(f"ballast.safetensors.{module}").safe_open is dropin.safe_open


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """One tensor of each dtype, by its name."""
    path = tmp_path_factory.mktemp("dropin") / "table.safetensors"
    arrays = {
        np.dtype(name).name: np.arange(12).reshape(3, 4).astype(name)
        for name in ("?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8")
    }
    arrays["bfloat16"] = np.arange(12).reshape(3, 4).astype(ml_dtypes.bfloat16)
    arrays["empty"], arrays["scalar"] = np.zeros((2, 0), "f2"), np.array(7.5, "f4")
    dropin_numpy.save_file(arrays, path, {"made": "here"})
    return path, arrays


# MLX


@pytest.fixture(scope="module")
def mx():
    return pytest.importorskip("mlx.core", reason="MLX is not installed")


@pytest.fixture(scope="module")
def dropin_mlx(mx):
    import ballast.safetensors.mlx

    return ballast.safetensors.mlx


def of_mlx(array) -> np.ndarray:
    if str(array.dtype) == "mlx.core.bfloat16":
        import mlx.core as mx

        return np.array(array.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(array)


@pytest.mark.parametrize("backend", BACKENDS)
def test_mlx_reads_every_dtype_as_it_is(dropin_mlx, table, backend):
    path, arrays = table
    with dropin.safe_open(path, "mlx", backend=backend) as file:
        ways = [file.get_tensors(), {name: file.get_tensor(name) for name in file.keys()}]
        ways += [{name: file.get_slice(name)[...] for name in file.keys()}]
        assert of_mlx(file.get_slice("bfloat16")[1:, ::2]).tolist() == arrays["bfloat16"][1:, ::2].tolist()
    ways += [dropin_mlx.load_file(path, backend=backend), dropin_mlx.load(path.read_bytes())]
    for loaded in ways:
        assert loaded.keys() == arrays.keys()
        for name, expected in arrays.items():
            made = of_mlx(loaded[name])
            assert made.dtype == expected.dtype and made.shape == expected.shape and made.tobytes() == expected.tobytes(), name


def test_mlx_writes_the_same_file(dropin_mlx, table, tmp_path):
    path, arrays = table
    loaded = dropin_mlx.load_file(path)
    assert dropin_mlx.save(loaded, {"made": "here"}) == path.read_bytes()
    dropin_mlx.save_file(loaded, tmp_path / "x.safetensors", {"made": "here"})
    assert (tmp_path / "x.safetensors").read_bytes() == path.read_bytes()
    assert all(type(array).__module__ == "mlx.core" for array in loaded.values())  # the mapping is left alone


def test_mlx_itself_reads_what_was_written(mx, dropin_mlx, tmp_path):
    path = str(tmp_path / "x.safetensors")
    array = mx.arange(12).reshape(3, 4).astype(mx.bfloat16)
    dropin_mlx.save_file({"x": array.T, "y": array[::2, 1:]}, path)
    loaded = mx.load(path)
    assert mx.array_equal(loaded["x"], array.T) and mx.array_equal(loaded["y"], array[::2, 1:])


def test_mlx_results_do_not_look_at_the_file(dropin_mlx, tmp_path):
    path = tmp_path / "x.safetensors"
    dropin_numpy.save_file({"x": np.arange(4, dtype="f4")}, path)
    loaded = dropin_mlx.load_file(path)["x"]
    with open(path, "r+b") as file:
        file.seek(-16, 2)
        file.write(bytes(16))
    assert loaded.tolist() == [0, 1, 2, 3]


def test_mlx_has_bytes_for_f8_and_nothing_for_f4(mx, dropin_mlx):
    f8 = np.arange(4, dtype="u1").view(ml_dtypes.float8_e4m3fn)
    loaded = dropin_mlx.load(dropin_numpy.save({"x": f8}))["x"]
    assert loaded.dtype == mx.uint8 and loaded.tolist() == [0, 1, 2, 3]
    with pytest.raises(dropin.SafetensorError, match="^Dtype not understood: F4.*'x'"):
        dropin_mlx.load(dropin_numpy.save({"x": np.zeros(4, ml_dtypes.float4_e2m1fn)}))


def test_mlx_refuses_what_is_no_array(dropin_mlx):
    with pytest.raises(TypeError, match=r"tensor 'x': expected an mlx\.core\.array, not list"):
        dropin_mlx.save({"x": [0.0, 1.0]})
    assert dropin_mlx.load(dropin_mlx.save({"x": np.arange(2)}))["x"].tolist() == [0, 1]


# JAX


@pytest.fixture(scope="module")
def jnp():
    return pytest.importorskip("jax.numpy", reason="JAX is not installed")


@pytest.fixture(scope="module")
def dropin_flax(jnp):
    import ballast.safetensors.flax

    return ballast.safetensors.flax


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore:.*x64.*")
def test_jax_reads_every_dtype(jnp, dropin_flax, table, backend):
    path, arrays = table
    with dropin.safe_open(path, "jax", backend=backend) as file:
        ways = [file.get_tensors(), {name: file.get_tensor(name) for name in file.keys()}]
        assert np.array_equal(file.get_slice("float32")[1:, ::2], arrays["float32"][1:, ::2])
    ways += [dropin_flax.load_file(path, backend=backend), dropin_flax.load(path.read_bytes())]
    for loaded in ways:
        for name, expected in arrays.items():
            made = jnp.asarray(expected)  # of 64 bits 32 remain, unless JAX is told otherwise
            assert loaded[name].dtype == made.dtype and np.array_equal(loaded[name], made), name


def test_jax_writes_the_same_file(jnp, dropin_flax, tmp_path):
    arrays = {"x": jnp.arange(12, dtype=jnp.bfloat16).reshape(3, 4).T, "y": jnp.zeros((2, 0)), "z": jnp.float32(3)}
    before = dict(arrays)
    expected = dropin_numpy.save({name: np.asarray(array) for name, array in arrays.items()})
    assert dropin_flax.save(arrays) == expected
    dropin_flax.save_file(arrays, tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes() == expected
    assert all(arrays[name] is before[name] for name in before)


# PyTorch


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed: from PyPI it brings gigabytes of CUDA")


@pytest.fixture(scope="module")
def dropin_torch(torch):
    import ballast.safetensors.torch

    return ballast.safetensors.torch


@pytest.fixture(scope="module")
def reference_torch(torch):
    import safetensors.torch

    return safetensors.torch


def torch_tensors(torch) -> dict:
    names = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16", "complex64"]
    names += ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    names += ["uint16", "uint32", "uint64"]
    tensors = {name: torch.ones(3, 4).to(getattr(torch, name)) for name in names if hasattr(torch, name)}
    tensors |= {"empty": torch.empty((0, 5), dtype=torch.float16), "scalar": torch.tensor(7.5)}
    if hasattr(torch, "float4_e2m1fn_x2"):
        tensors["F4"] = torch.arange(8, dtype=torch.uint8).reshape(2, 4).view(torch.float4_e2m1fn_x2)
    return tensors


def same_tensor(torch, a, b) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.nelement() == 0 or torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def test_torch_files_are_those_of_the_reference(torch, dropin_torch, reference_torch, tmp_path):
    tensors = torch_tensors(torch)
    expected = reference_torch.save(tensors, {"k": "v"})
    assert dropin_torch.save(tensors, {"k": "v"}) == expected
    dropin_torch.save_file(tensors, tmp_path / "x.bin", {"k": "v"})
    assert (tmp_path / "x.bin").read_bytes() == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_reads_every_dtype(torch, dropin_torch, reference_torch, tmp_path, backend):
    tensors = torch_tensors(torch)
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
            assert same_tensor(torch, loaded[name], expected), name
    loaded["float32"].add_(1)


def test_torch_refuses_what_the_reference_refuses(torch, dropin_torch, reference_torch):
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


def test_torch_finds_tensors_that_overlap(torch, dropin_torch):
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


def test_torch_keeps_one_name_of_each_tensor(torch, dropin_torch, reference_torch):
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
def tied(torch):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4)
            self.b = self.a

    return Tied


def test_torch_models_with_tied_tensors_are_saved_once(torch, dropin_torch, reference_torch, tied, tmp_path):
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


def test_torch_models_that_do_not_fit_are_refused(torch, dropin_torch, tied, tmp_path):
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


def test_torch_models_are_packed_unless_told_otherwise(torch, dropin_torch, tmp_path):
    model = torch.nn.Linear(4, 4)
    model.weight = torch.nn.Parameter(torch.arange(16.0).reshape(4, 4).T)
    with pytest.raises(ValueError, match=r"use save_model\(\.\.\., force_contiguous=True\)"):
        dropin_torch.save_model(model, tmp_path / "x.safetensors", force_contiguous=False)
    dropin_torch.save_model(model, tmp_path / "x.safetensors")
    assert torch.equal(dropin_torch.load_file(tmp_path / "x.safetensors")["weight"], model.weight)


@pytest.mark.skipif(safetensors.__version__ != dropin.__version__, reason="another version of safetensors is installed")
def test_torch_has_what_the_reference_has(dropin_torch, reference_torch):
    wanted = {name for name in vars(reference_torch) if callable(getattr(reference_torch, name)) and not name.startswith("_")}
    imported = {name for name in wanted if getattr(reference_torch, name).__module__ != reference_torch.__name__}
    assert wanted - imported <= set(vars(dropin_torch))
