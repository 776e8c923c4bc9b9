"""Weights of compressed-tensors and ModelOpt, decoded to the last bit as numpy and the packages decode them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from layouts import LAYOUTS, read, read_all, write
from quantized_files import done, listing, refused

MODULES = ["model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"]
NAMES = [name for name, layout in LAYOUTS.items() if layout.scheme in ("compressed-tensors", "modelopt")]
VECTORS = Path(__file__).resolve().parents[1] / "golden" / "layouts"


def write_model(folder, layout, tensors):
    folder.mkdir()
    described = layout.config(MODULES)
    keys = {"model_type": "made-up", "torch_dtype": "float32"} | described.keys
    for name, content in ({"config.json": keys} | described.files).items():
        (folder / name).write_text(json.dumps(content))
    write(folder / "model.safetensors", tensors | described.tensors, described.metadata)


def save(folder, layout, shape):
    """Write a model of two quantized weights and one plain one, and return the values of all."""
    rng = np.random.default_rng(11)
    plain = rng.standard_normal((4, 32), np.float32)
    tensors, dense = {"lm_head.weight": plain}, {"lm_head.weight": plain}
    for module in MODULES:
        stored = layout.make(rng, *shape)
        tensors |= stored.named(module)
        dense[module + stored.weight] = stored.dense
    write_model(folder, layout, tensors)
    return dense


def dequantized(run, folder):
    done(run("dequantize", folder / "model", folder / "out", "--dtype", "f32"))
    return read_all(folder / "out")


@pytest.mark.parametrize("shape", [(64, 96), (288, 160)])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_exact(run, tmp_path, name, shape):
    dense = save(tmp_path / "model", LAYOUTS[name], shape)
    found = dequantized(run, tmp_path)
    assert found.keys() == dense.keys()
    for tensor, values in dense.items():
        assert found[tensor].dtype == np.float32
        np.testing.assert_array_equal(found[tensor].view(np.uint32), np.ascontiguousarray(values).view(np.uint32), tensor)
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    assert "hf_quant_config.json" not in listing(tmp_path / "out")


def vectors():
    for stem in ("compressed_tensors", "compressed_tensors_old", "modelopt"):
        path = VECTORS / f"{stem}.safetensors"
        for case, said in json.loads(read(path)[1]["layouts"]).items():
            yield pytest.param(path, case, said, id=f"{stem}-{case}")


@pytest.mark.parametrize(("path", "case", "said"), list(vectors()))
def test_values_are_those_of_the_package(run, tmp_path, path, case, said):
    """The packages lose the sign of some zeros."""
    layout = replace(LAYOUTS[said["layout"]], **{name: tuple(value) for name, value in said.get("change", {}).items()})
    every = {name.removeprefix(case): tensor for name, tensor in read(path)[0].items() if name.startswith(case + "/")}
    dense = every.pop("/dense")
    write_model(tmp_path / "model", layout, {MODULES[0] + name.replace("/", "."): tensor for name, tensor in every.items()})
    found = dequantized(run, tmp_path)[MODULES[0] + ".weight"]
    np.testing.assert_array_equal(found[: len(dense)], dense)


@pytest.mark.parametrize("name", NAMES)
def test_inspect_reports_the_storage(run, tmp_path, name):
    layout, shape = LAYOUTS[name], (64, 96)
    save(tmp_path / "model", layout, shape)
    weights = json.loads(done(run("inspect", tmp_path / "model", "--json")).stdout)["weights"]
    found = {weight["name"]: weight for weight in weights}
    assert found.keys() == {"lm_head.weight", *(f"{module}.weight" for module in MODULES)}
    assert found["lm_head.weight"]["scheme"] == "plain"
    for module in MODULES:
        weight = found[f"{module}.weight"]
        assert (weight["scheme"], weight["bits"], tuple(weight["shape"])) == (layout.scheme, layout.bits, shape)
        assert weight["group_size"] == (layout.group(*shape) or weight["group_size"])


@pytest.mark.parametrize("name", NAMES)
def test_verify_accepts_what_the_quantizer_writes(run, tmp_path, name):
    save(tmp_path / "model", LAYOUTS[name], (64, 96))
    done(run("verify", tmp_path / "model"))


@pytest.mark.parametrize("name", ["ct-pack4-group", "ct-nvfp4", "modelopt-nvfp4", "modelopt-fp8-block"])
def test_quantize_takes_the_decoded_weights(run, tmp_path, name):
    save(tmp_path / "model", LAYOUTS[name], (64, 96))
    dequantized(run, tmp_path)
    for source in ("model", "out"):
        done(run("quantize", tmp_path / source, tmp_path / f"{source}-mlx", "--format", "mlx", "--bits", "8", "--group-size", "32"))
    first, second = (read_all(tmp_path / f"{source}-mlx") for source in ("model", "out"))
    assert first.keys() == second.keys()
    for tensor, values in first.items():
        np.testing.assert_array_equal(values.view(np.uint8), second[tensor].view(np.uint8), tensor)


def test_a_lone_shard_needs_its_directory(run, tmp_path):
    save(tmp_path / "model", LAYOUTS["ct-pack4-group"], (64, 96))
    (tmp_path / "model" / "config.json").unlink()
    result = run("dequantize", tmp_path / "model" / "model.safetensors", tmp_path / "out")
    refused(result, 3, "weight_packed", "open the directory with its config.json")
