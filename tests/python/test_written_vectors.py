"""What quantize writes for compressed-tensors, against what that package made of it: tests/golden/make_written_vectors.py."""

from pathlib import Path

import numpy as np
import pytest
from layouts import read, read_all, write
from quantized_files import BF16, done, quantize
from runtime_formats import VARIANTS

VECTORS, SAID = read(Path(__file__).resolve().parents[1] / "golden/written.safetensors")
MODULE = SAID["module"]
OTHER_TIES = ("mxfp4", "nvfp4")  # the package rounds halves of E2M1 to even codes, and has zeros with a sign


def of(variant):
    return {name.removeprefix(f"{variant}/"): tensor for name, tensor in VECTORS.items() if name.startswith(f"{variant}/")}


def without_signs_of_zero(packed):
    codes = np.stack([packed & 15, packed >> 4], axis=-1)
    return np.where(codes == 8, 0, codes)


def written(run, tmp_path, variant, method):
    write(tmp_path / "in.safetensors", {f"{MODULE}.weight": VECTORS["weight"]})
    quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *VARIANTS[variant], "--method", method, "--min-accuracy", 0)
    return {name.removeprefix(f"{MODULE}."): tensor for name, tensor in read_all(tmp_path / "out").items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_package_decompresses_what_is_written_to_what_dequantize_gives(run, tmp_path, variant):
    golden = of(variant)
    found = written(run, tmp_path, variant, "search")
    assert found.keys() == {name for name in golden if not name.startswith(("package/", "restored"))}
    for name, tensor in found.items():
        assert tensor.dtype == golden[name].dtype
        np.testing.assert_array_equal(tensor.view(np.uint8), golden[name].view(np.uint8))
    if "restored" not in golden:
        return
    dtype = "bf16" if golden["restored"].dtype == BF16 else "f32"
    done(run("dequantize", tmp_path / "out", tmp_path / "back.safetensors", "--dtype", dtype))
    values = read(tmp_path / "back.safetensors")[0][f"{MODULE}.weight"]
    np.testing.assert_array_equal(values[:4].astype(np.float32), golden["restored"].astype(np.float32))


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "hf-fp8"])
def test_round_to_nearest_stores_what_the_package_stores(run, tmp_path, variant):
    """In F32, where the package computes as Ballast does. Of groups of zeros it stores another scale."""
    package = {name.removeprefix("package/"): tensor for name, tensor in of(variant).items() if name.startswith("package/")}
    found = written(run, tmp_path, variant, "rtn")
    assert found.keys() == package.keys()
    for name, tensor in found.items():
        if name == "weight_scale" and variant.startswith(("mx", "nv")):
            groups = VECTORS["weight"].reshape(16, -1, 256 // tensor.shape[1])
            used = groups.any(axis=2)
            np.testing.assert_array_equal(tensor.view(np.uint8)[used], package[name].view(np.uint8)[used])
        elif name == "weight_packed" and variant in OTHER_TIES:
            assert (without_signs_of_zero(tensor) == without_signs_of_zero(package[name])).mean() > 0.99
        else:
            np.testing.assert_array_equal(tensor.reshape(package[name].shape).view(np.uint8), package[name].view(np.uint8))


def test_the_file_says_how_it_was_made():
    assert SAID["compressed-tensors"][0].isdigit() and SAID["torch"][0].isdigit()
