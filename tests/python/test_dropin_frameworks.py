"""ballast.safetensors with MLX and JAX. test_torch_dropin.py tests it with PyTorch."""

import doctest
import importlib
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

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
    ],
)
def test_examples_in_the_documentation_hold(tmp_path, module, needs):
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    path = tmp_path / "model.safetensors"
    dropin_numpy.save_file({"embed.weight": np.zeros((64, 32), ml_dtypes.bfloat16), "bias": np.zeros(64, "f4")}, path)
    tested = dropin if module == "__init__" else importlib.import_module(f"ballast.safetensors.{module}")
    names = vars(dropin) | {"np": np, "path": path, "out": tmp_path}
    assert doctest.testmod(tested, extraglobs=names | vars(tested)).failed == 0


@pytest.mark.parametrize(("module", "needs"), [("numpy", "numpy"), ("mlx", "mlx.core"), ("flax", "jax")])
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
