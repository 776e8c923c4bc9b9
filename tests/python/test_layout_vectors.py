"""The decoders of tests/python/layouts, and Ballast, against weights that the packages themselves stored and decoded."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from layouts import DTYPES, LAYOUTS, read, read_all, write
from quantized_files import done

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "layouts"


def cases():
    for path in sorted(FOLDER.glob("*.safetensors")):
        _, metadata = read(path)
        for case, said in json.loads(metadata["layouts"]).items():
            yield pytest.param(path, case, said, id=f"{path.stem}-{case}")


MODULE = "model.layers.0.mlp.up_proj"
CASES = list(cases())


def parts(path, case, said):
    """The layout of a case, its tensors by suffix, and the values that the package decoded."""
    every, _ = read(path)
    tensors = {name.removeprefix(case + "/"): tensor for name, tensor in every.items() if name.startswith(case + "/")}
    dense = tensors.pop("dense")
    layout = replace(LAYOUTS[said["layout"]], **{name: tuple(value) for name, value in said.get("change", {}).items()})
    return layout, {name if name.startswith("_") else "." + name: tensor for name, tensor in tensors.items()}, dense


@pytest.mark.parametrize(("path", "case", "said"), CASES)
def test_values_of_the_package(path, case, said):
    layout, tensors, dense = parts(path, case, said)
    np.testing.assert_array_equal(
        layout.decode(tensors)[: len(dense)], dense
    )  # of any zero; ModelOpt and bitsandbytes lose the sign of some


@pytest.mark.parametrize(("path", "case", "said"), CASES)
def test_ballast_decodes_it(run, tmp_path, path, case, said):
    """A checkpoint of one layer, and a norm beside it."""
    layout, tensors, dense = parts(path, case, said)
    config = layout.config([MODULE])
    stored = {MODULE + suffix: tensor for suffix, tensor in tensors.items()} | {"model.norm.weight": np.ones(64, np.float32)}
    (tmp_path / "m").mkdir()
    write(tmp_path / "m" / "model.safetensors", stored | config.tensors, config.metadata)
    (tmp_path / "m" / "config.json").write_text(json.dumps({"model_type": "some", "torch_dtype": "bfloat16"} | config.keys))
    done(run("dequantize", tmp_path / "m", tmp_path / "out", "--dtype", "f32"))
    found = read_all(tmp_path / "out")[MODULE + ("" if case == "mxfp4-experts" else ".weight")]
    assert found.dtype == np.float32
    if layout.scheme == "mlx":  # decoded in the dtype of the scales, which is F32 here
        assert tensors[".scales"].dtype in (np.float32, np.uint8)
    if layout.exact:
        np.testing.assert_array_equal(found[: len(dense)], dense)
    else:
        np.testing.assert_allclose(found[: len(dense)], dense, rtol=2**-22)


def test_the_files_say_how_they_were_made():
    assert {path.stem for path in FOLDER.glob("*.safetensors")} >= {
        "compressed_tensors",
        "bitsandbytes",
        "transformers",
        "modelopt",
        "mlx",
        "awq",
    }
    for path in FOLDER.glob("*.safetensors"):
        tensors, metadata = read(path)
        assert metadata["package"] and metadata["version"][0].isdigit() and metadata["torch"]
        assert {tensor.dtype for tensor in tensors.values()} <= set(DTYPES.values())
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < 300_000
