"""Checkpoints of GPTQ, AWQ, AutoRound and bitsandbytes: the program decodes them as the programs that wrote them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import one_error_line
from layouts import LAYOUTS, read, read_all, write
from quantized_files import done

MODULE = "model.layers.0.mlp.up_proj"
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "layouts"
PACKED = {name: layout for name, layout in LAYOUTS.items() if layout.scheme in ("gptq", "awq", "bitsandbytes")}


def write_model(folder, config, tensors):
    folder.mkdir()
    write(folder / "model.safetensors", {"model.norm.weight": np.ones(8, np.float32)} | tensors)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "torch_dtype": "bfloat16"} | config.keys))
    for name, content in config.files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def decoded(run, folder, out):
    done(run("dequantize", folder, out, "--dtype", "f32"))
    return read_all(out)[f"{MODULE}.weight"]


def same_bits(found, expected):
    assert found.dtype == np.float32 and found.shape == expected.shape
    np.testing.assert_array_equal(found.view(np.uint32), np.ascontiguousarray(expected).view(np.uint32))


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("shape", [(64, 96), (288, 160), (32, 128)])
def test_values(run, tmp_path, name, shape):
    layout = PACKED[name]
    stored = layout.make(np.random.default_rng(1), *shape)
    model = write_model(tmp_path / "m", layout.config([MODULE]), stored.named(MODULE))
    same_bits(decoded(run, model, tmp_path / "out"), stored.dense)
    found = json.loads(done(run("inspect", model, "--json")).stdout)
    assert "corrupt" not in json.dumps(found)


def package_cases():
    for path in sorted(GOLDEN.glob("*.safetensors")):
        for case, said in json.loads(read(path)[1]["layouts"]).items():
            if said["layout"] in PACKED:
                yield pytest.param(path, case, said, id=f"{path.stem}-{case}")


@pytest.mark.parametrize(("path", "case", "said"), list(package_cases()))
def test_values_of_the_packages(run, tmp_path, path, case, said):
    tensors = {name.removeprefix(case + "/"): tensor for name, tensor in read(path)[0].items() if name.startswith(case + "/")}
    dense = tensors.pop("dense")
    layout = replace(LAYOUTS[said["layout"]], **{name: tuple(value) for name, value in said.get("change", {}).items()})
    named = {f"{MODULE}.{name}": tensor for name, tensor in tensors.items()}
    found = decoded(run, write_model(tmp_path / "m", layout.config([MODULE]), named), tmp_path / "out")
    np.testing.assert_array_equal(found[: len(dense)], dense)


@pytest.mark.parametrize("packing", ["auto_round:auto_gptq", "auto_round", "auto_round:auto_awq"])
def test_auto_round(run, tmp_path, packing):
    name = {"auto_round:auto_gptq": "gptq4-carry", "auto_round": "gptq4-v2-asym", "auto_round:auto_awq": "awq4"}[packing]
    stored = PACKED[name].make(np.random.default_rng(2), 64, 96)
    config = PACKED[name].config([MODULE])
    section = {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "group_size": 32, "sym": False}
    tensors = {key: tensor for key, tensor in stored.named(MODULE).items() if not key.endswith("g_idx")}
    model = write_model(tmp_path / "m", replace(config, keys={"quantization_config": section}, files={}), tensors)
    same_bits(decoded(run, model, tmp_path / "out"), stored.dense)


@pytest.mark.parametrize("name", [name for name, layout in PACKED.items() if layout.scheme == "bitsandbytes"])
def test_a_shard_of_bitsandbytes_is_enough(run, tmp_path, name):
    stored = PACKED[name].make(np.random.default_rng(3), 64, 96)
    write(tmp_path / "shard.safetensors", stored.named(MODULE))
    same_bits(decoded(run, tmp_path / "shard.safetensors", tmp_path / "out"), stored.dense)


@pytest.mark.parametrize(("name", "missing"), [("gptq4", "bits, group_size and checkpoint_format"), ("awq4", "group_size and version")])
def test_a_shard_of_others_is_not(run, tmp_path, name, missing):
    stored = PACKED[name].make(np.random.default_rng(3), 64, 96)
    write(tmp_path / "shard.safetensors", stored.named(MODULE))
    line = one_error_line(run("dequantize", tmp_path / "shard.safetensors", tmp_path / "out"), 3)
    assert f"tensor '{MODULE}.qweight': codes of" in line and missing in line
