"""Where checkpoints say how they are quantized, and models of which the layers differ: the values are decoded all the same."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from checkpoint_kinds import QUANTIZED_KINDS
from checkpoint_kinds.base import F32, Made, fill, write_shards
from checkpoint_kinds.quantized import BASES, save, store
from conftest import one_error_line
from layouts import LAYOUTS, Config, read_all, write
from quantized_files import done


def decodes(run, made: Made, out) -> None:
    found = json.loads(run("verify", made.path, "--json").stdout or "{}")
    assert found.get("ok"), found.get("defects", [])[:2]
    done(run("dequantize", made.path, out, "--dtype", "f32"))
    found = read_all(out)
    assert found.keys() == made.dense.keys()
    for weight in made.quantized:
        np.testing.assert_array_equal(found[weight], made.dense[weight], err_msg=weight)


def edit(folder, change) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def drop_section(config):
    del config["quantization_config"]


def nest(config):
    config["text_config"] = {"model_type": config["model_type"], "quantization_config": config.pop("quantization_config")}


def rename(old, new):
    return lambda config: config.__setitem__(new, config.pop(old))


def forget(key):
    return lambda config: config["quantization_config"].pop(key)


PLACES = {
    "gptq4 in quantize_config.json": ("gptq4", drop_section),
    "gptq8-v2-asym in quantize_config.json": ("gptq8-v2-asym", drop_section),
    "awq4 in quant_config.json": ("awq4", drop_section),
    "ct-pack4-group in compression_config": ("ct-pack4-group", rename("quantization_config", "compression_config")),
    "ct-fp8-channel in text_config": ("ct-fp8-channel", nest),
    "fp8-block in text_config": ("fp8-block", nest),
    "bnb-nf4 without a method": ("bnb-nf4", forget("quant_method")),
    "bnb-int8 without a method": ("bnb-int8", forget("quant_method")),
    "mlx4 in quantization": ("mlx4", lambda config: config.pop("quantization_config")),
    "mlx4 in quantization_config": ("mlx4", lambda config: config.pop("quantization")),
}


@pytest.mark.parametrize("place", PLACES)
def test_places_of_the_config(run, tmp_path, place):
    name, change = PLACES[place]
    made = QUANTIZED_KINDS[name].make(tmp_path / "m")
    edit(made.path, change)
    decodes(run, made, tmp_path / "out")


@pytest.mark.parametrize(
    "name",
    [
        "ct-pack4-group-asym",
        "ct-nvfp4",
        "fp8-block",
        "modelopt-nvfp4",
        "gptq4",
        "awq4",
        "bnb-nf4-nested",
        "bnb-int8",
        "mxfp4-experts",
        "mlx4",
    ],
)
def test_parts_of_a_weight_in_several_shards(run, tmp_path, name):
    made = QUANTIZED_KINDS[name].make(tmp_path / "m")
    (made.path / "model.safetensors").unlink()
    by_part = dict(sorted(made.stored.items(), key=lambda item: item[0][::-1]))  # all scales, then all codes and so on
    write_shards(made.path, by_part, 4)
    decodes(run, made, tmp_path / "out")


def mixed(folder, base_name, layouts, keys=None, files=None) -> Made:
    """A model whose modules have the layouts of the first key that their names contain."""
    base = BASES[base_name]
    chosen = {module: LAYOUTS[name] for module in base.modules() for part, name in layouts.items() if part in module}
    return save(folder, base, Config(keys or {}, files or {}), store(chosen, fill(base.shapes(), e_score_correction_bias=F32)))


def test_gptq_with_rules_for_layers(run, tmp_path):
    section = LAYOUTS["gptq4"].config([]).keys["quantization_config"]
    rules = {"-:.*down_proj.*": {}, r"+:.*\.1\.mlp\.gate_proj.*": {"bits": 8}}
    layouts = {"self_attn": "gptq4", "up_proj": "gptq4", "layers.0.mlp.gate_proj": "gptq4", "layers.1.mlp.gate_proj": "gptq8"}
    decodes(run, mixed(tmp_path / "m", "qwen2", layouts, {"quantization_config": section | {"dynamic": rules}}), tmp_path / "out")


def test_mlx_with_settings_of_layers(run, tmp_path):
    base = BASES["qwen3"]
    section = {"group_size": 32, "bits": 4, "mode": "affine"}
    section |= {module: {"group_size": 32, "bits": 8} for module in base.modules() if "v_proj" in module}
    section |= {module: {"group_size": 32, "bits": 4, "mode": "mxfp4"} for module in base.modules() if "up_proj" in module}
    section |= {module: False for module in base.modules() if "down_proj" in module}
    layouts = {"q_proj": "mlx4", "k_proj": "mlx4", "o_proj": "mlx4", "gate_proj": "mlx4", "v_proj": "mlx8", "up_proj": "mlx-mxfp4"}
    decodes(run, mixed(tmp_path / "m", "qwen3", layouts, {"quantization": section, "quantization_config": section}), tmp_path / "out")


@pytest.mark.parametrize("beside", [True, False])
def test_modelopt_of_mixed_precision(run, tmp_path, beside):
    layouts = {"self_attn": "modelopt-fp8", "mlp": "modelopt-nvfp4"}
    algorithms = {"modelopt-fp8": {"quant_algo": "FP8"}, "modelopt-nvfp4": {"quant_algo": "NVFP4", "group_size": 16}}
    modules = BASES["llama"].modules()
    layers = {module: algorithms[layouts["self_attn" if "self_attn" in module else "mlp"]] for module in modules}
    found = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "quantized_layers": layers}
    keys = {} if beside else {"quantization_config": {"quant_method": "modelopt"} | found}
    files = {"hf_quant_config.json": {"producer": {"name": "modelopt"}, "quantization": found}} if beside else {}
    decodes(run, mixed(tmp_path / "m", "llama", layouts, keys, files), tmp_path / "out")


def test_modelopt_awq_whose_column_scales_are_in_the_norms(run, tmp_path):
    """Linear layers after a norm have no scales of columns of their own."""
    made = QUANTIZED_KINDS["modelopt-awq"].make(tmp_path / "m")
    for weight in [weight for weight in made.quantized if "down_proj" not in weight and "o_proj" not in weight]:
        module = weight.removesuffix(".weight")
        made.stored[module + ".pre_quant_scale"][...] = 1
        plain = {part: made.stored[module + part] for part in (".weight", ".weight_scale", ".pre_quant_scale")}
        made.dense[weight] = LAYOUTS["modelopt-awq"].decode(plain)
        del made.stored[module + ".pre_quant_scale"]
    write(made.path / "model.safetensors", made.stored)
    decodes(run, made, tmp_path / "out")


@pytest.mark.parametrize("name", ["ct-pack4-group", "gptq4", "awq4", "bnb-nf4", "fp8-tensor", "modelopt-fp8"])
def test_layers_left_unquantized(run, tmp_path, name):
    """Which layers are quantized follows from the tensors, even if the config names too few that are not."""
    keys = LAYOUTS[name].config(BASES["llama"].modules()).keys
    decodes(run, mixed(tmp_path / "m", "llama", {"mlp": name}, keys), tmp_path / "out")


def test_scales_of_caches_are_left_out_with_the_codes(run, tmp_path):
    made = QUANTIZED_KINDS["ct-fp8-channel"].make(tmp_path / "m")
    stored = made.stored | {f"model.layers.0.self_attn.{name}": np.array([0.02], np.float32) for name in ("k_scale", "v_scale")}
    write(made.path / "model.safetensors", stored)
    decodes(run, replace(made, stored=stored), tmp_path / "out")
    done(run("convert", made.path, tmp_path / "copy"))
    assert read_all(tmp_path / "copy").keys() == stored.keys()


def test_torchao_is_listed_and_not_decoded(run, tmp_path):
    said = {"_type": "Int4TilePackedTo4dTensor", "_data": {"block_size": [1, 32], "shape": [64, 64]}}
    module = "model.layers.0.mlp.up_proj"
    tensors = {f"{module}._weight_qdata": np.zeros((64, 32), np.int8), f"{module}._weight_scale": np.ones((64, 2), np.float32)}
    metadata = {"tensor_names": json.dumps([f"{module}.weight"]), f"{module}.weight": json.dumps(said)}
    (tmp_path / "m").mkdir()
    write(tmp_path / "m" / "model.safetensors", tensors, metadata)
    section = {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}
    (tmp_path / "m" / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": section}))
    assert json.loads(done(run("inspect", tmp_path / "m", "--json")).stdout)["tensor_count"] == 2
    for command in ("dequantize", "quantize"):
        assert "torchao" in one_error_line(run(command, tmp_path / "m", tmp_path / "out"), 3)


def test_every_kind_can_be_moved(run, tmp_path):
    """Nothing depends on the name of the directory."""
    made = QUANTIZED_KINDS["comfy-nvfp4-metadata"].make(tmp_path / "m")
    shutil.move(tmp_path / "m", tmp_path / "other name")
    decodes(run, replace(made, path=tmp_path / "other name"), tmp_path / "out")
