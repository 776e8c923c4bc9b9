"""Weights of other quantizers: what `dequantize` writes, against decoders in numpy."""

import json

import numpy as np
import pytest
from quantized_files import done

layouts = pytest.importorskip("layouts", reason="the numpy decoders are not here")

SCHEMES = {"fp8", "fbgemm_fp8", "mxfp4", "comfyui"}
NAMES = [name for name, layout in layouts.LAYOUTS.items() if layout.scheme in SCHEMES and "plain" not in name]


def write_model(folder, name, rows, columns):
    """A model of one quantized weight and one plain tensor; returns the weight's name and values."""
    layout = layouts.LAYOUTS[name]
    stored = layout.make(np.random.default_rng(11), rows, columns)
    config = layout.config(["a"])
    folder.mkdir()
    plain = {"norm.weight": np.ones(4, np.float32)}
    layouts.write(folder / "model.safetensors", stored.named("a") | plain | config.tensors, config.metadata)
    files = {"config.json": {"model_type": "unknown"} | config.keys} | config.files
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content))
    return "a" + stored.weight, stored.dense


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(64, 96), (288, 160)], ids=["small", "ragged"])
def test_dequantize_gives_the_values_of_the_layout(run, tmp_path, name, shape):
    weight, dense = write_model(tmp_path / "m", name, *shape)
    done(run("dequantize", tmp_path / "m", tmp_path / "out", "--dtype", "f32"))
    found = layouts.read_all(tmp_path / "out")
    assert set(found) == {weight, "norm.weight"}
    assert found[weight].dtype == np.float32 and found[weight].shape == dense.shape
    np.testing.assert_array_equal(found[weight].view(np.uint32), np.ascontiguousarray(dense).view(np.uint32))
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    for path in (tmp_path / "out").glob("*.safetensors"):
        assert "_quantization_metadata" not in layouts.read(path)[1]
