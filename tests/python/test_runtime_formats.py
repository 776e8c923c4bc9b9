"""quantize --format compressed-tensors and hf-fp8: bytes, config and metrics, with numpy as the judge."""

import json
import shutil

import numpy as np
import pytest
from calibrated_models import correlated, record
from layouts import read, read_all, write
from quantized_files import BF16, contents, done, figures, quantize, refused
from runtime_formats import BLOCK, FP8, INT, LINEAR, VARIANTS, decoded, group_of, model, section, weights

import ballast

ALL = ("--min-accuracy", 0)
ROWS = ("--method", "rtn")


@pytest.mark.parametrize("dtype", [np.float32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_numpy_reads_what_dequantize_gives(run, tmp_path, variant, dtype):
    """Every method; the metrics are those of the files, and validate finds the same."""
    original = model(tmp_path / "in", dtype)
    for method in ("rtn", "search", "auto"):
        out = tmp_path / method
        report = quantize(run, tmp_path / "in", out, *VARIANTS[variant], "--method", method, *ALL)
        values = decoded(out)
        assert set(values) == {f"{BLOCK}{name}.weight" for name in LINEAR} == {layer["name"] for layer in report["layers"]}
        done(run("dequantize", out, tmp_path / f"{method}.safetensors", "--dtype", "f32"))
        restored, _ = read(tmp_path / f"{method}.safetensors")
        for layer in report["layers"]:
            np.testing.assert_array_equal(restored[layer["name"]], values[layer["name"]])
            cosine, rmse = figures(original[layer["name"]].astype(np.float32), values[layer["name"]])
            assert layer["cosine_similarity"] == pytest.approx(cosine, abs=1e-6)
            assert layer["relative_rmse"] == pytest.approx(rmse, rel=1e-4)
        validated = json.loads(done(run("validate", tmp_path / "in", out, "--json")).stdout)
        assert [(a["relative_rmse"], a["bytes"]) for a in validated["layers"]] == [(a["relative_rmse"], a["bytes"]) for a in report["layers"]]
        assert run("verify", out, "--values").returncode == 0
        for name in set(original) - set(values):
            np.testing.assert_array_equal(read_all(out)[name], original[name])


@pytest.mark.parametrize("variant", VARIANTS)
def test_search_never_loses_to_rounding(run, tmp_path, variant):
    model(tmp_path / "in", BF16)
    found = {}
    for method in ("rtn", "search"):
        report = quantize(run, tmp_path / "in", tmp_path / method, *VARIANTS[variant], "--method", method, *ALL)
        found[method] = {layer["name"]: layer["relative_rmse"] for layer in report["layers"]}
    assert all(found["search"][name] <= found["rtn"][name] * (1 + 1e-6) for name in found["rtn"])


@pytest.mark.parametrize(
    ("variant", "share"),
    [("int2", 0.75), ("int3", 0.9), ("int4-g128", 0.9), ("int4-asymmetric", 0.95), ("nvfp4", 0.8), ("mxfp4", 0.999)],
)
def test_search_lowers_the_squared_error(run, tmp_path, variant, share):
    rng = np.random.default_rng(5)
    name = f"{BLOCK}mlp.up_proj.weight"
    write(tmp_path / "in.safetensors", {name: (rng.standard_normal((512, 1024)) * 0.02).astype(np.float32).astype(BF16)})
    squares = []
    for method in ("rtn", "search"):
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / method, *VARIANTS[variant], "--method", method, *ALL)
        squares.append(report["layers"][0]["relative_rmse"] ** 2)
    assert squares[1] <= share * squares[0]


@pytest.mark.parametrize("kind", ["normal", "student"])
def test_search_of_mxfp4_is_within_a_percent_of_the_best_exponents(run, tmp_path, kind):
    rng = np.random.default_rng(6)
    name = f"{BLOCK}mlp.up_proj.weight"
    values = rng.standard_normal((256, 512)) if kind == "normal" else rng.standard_t(5, (256, 512))
    dense = (values * 0.02).astype(np.float32)
    write(tmp_path / "in.safetensors", {name: dense})
    elements = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    blocks = np.abs(dense).reshape(-1, 32)
    best = np.full(len(blocks), np.inf)
    for exponent in range(-16, 0):
        scaled = blocks / np.float32(2.0**exponent)
        nearest = elements[np.abs(scaled[..., None] - elements).argmin(axis=-1)]
        best = np.minimum(best, (((scaled - nearest) * 2.0**exponent) ** 2).sum(axis=1))
    squares = {}
    for method in ("rtn", "search"):
        quantize(run, tmp_path / "in.safetensors", tmp_path / method, *VARIANTS["mxfp4"], "--method", method, *ALL)
        squares[method] = ((decoded(tmp_path / method)[name] - dense).astype(np.float64) ** 2).sum()
    quantize(run, tmp_path / "in.safetensors", tmp_path / "mlx", "--format", "mlx", "--type", "mxfp4", *ROWS, *ALL)
    done(run("dequantize", tmp_path / "mlx", tmp_path / "mlx.safetensors", "--dtype", "f32"))
    mlx = ((read(tmp_path / "mlx.safetensors")[0][name] - dense).astype(np.float64) ** 2).sum()
    assert squares["search"] <= 1.001 * best.sum() and squares["search"] <= squares["rtn"]
    assert squares["search"] <= 0.92 * mlx


@pytest.mark.parametrize("variant", ["int4-g128", "int3-asymmetric", "int4-channel", "fp8", "mxfp4", "nvfp4"])
def test_statistics_lower_the_error_of_the_outputs(run, tmp_path, variant):
    rng = np.random.default_rng(7)
    name = f"{BLOCK}mlp.down_proj.weight"
    dense = weights(rng, 192, 384, BF16)
    write(tmp_path / "in.safetensors", {name: dense})
    draw = correlated(rng, 384)
    plain = record(tmp_path / "plain.safetensors", {(name, None): draw(3072)})
    hessian = record(tmp_path / "hessian.safetensors", {(name, None): draw(3072)}, hessian=True)
    inputs, errors = draw(512), {}
    for kind, options in {"rtn": ROWS, "plain": ("--calibration", plain), "hessian": ("--calibration", hessian)}.items():
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / kind, *VARIANTS[variant], *ALL, *options)
        errors[kind] = np.linalg.norm(inputs @ (decoded(tmp_path / kind)[name] - dense.astype(np.float32)).T)
    is_integer = variant.startswith("int")
    assert report["layers"][0]["method"] == ("gptq" if is_integer else "weighted search")
    assert errors["plain"] <= errors["rtn"] * {"fp8": 1, "mxfp4": 0.99}.get(variant, 0.95)
    if is_integer:
        assert errors["hessian"] < 0.9 * errors["plain"]


def test_threads_memory_and_interruptions_do_not_change_the_bytes(run, tmp_path):
    rng = np.random.default_rng(8)
    tensors = {f"model.layers.{i}.mlp.down_proj.weight": weights(rng, 1100, 4128, BF16) for i in range(2)}
    write(tmp_path / "in.safetensors", tensors)
    for variant in ("int3-asymmetric", "fp8-block", "fp8-tensor", "nvfp4", "hf-fp8"):
        outputs = []
        for options in (["--threads", 1], ["--threads", 4, "--memory-limit", 128], ["--threads", 2, "--resume"]):
            quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *VARIANTS[variant], *ROWS, "--force", *ALL, *options)
            outputs.append(contents(tmp_path / "out"))
        assert outputs[0] == outputs[1] == outputs[2]
        again = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *VARIANTS[variant], *ROWS, "--resume", *ALL)
        assert "already up to date" in done(again).stdout
        for name, dense in tensors.items():
            assert figures(dense.astype(np.float32), decoded(tmp_path / "out")[name])[0] > 0.97
        shutil.rmtree(tmp_path / "out")


def test_config_of_the_defaults(run, tmp_path):
    model(tmp_path / "in", BF16)
    quantize(run, tmp_path / "in", tmp_path / "out", *INT, *ALL)
    config = section(tmp_path / "out")
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128, "dynamic": False}
    assert config["config_groups"] == {
        "group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    }
    assert (config["quant_method"], config["format"]) == ("compressed-tensors", "pack-quantized")
    assert config["quantization_status"] == "compressed" and config["ignore"] == ["lm_head"]
    tensors = read_all(tmp_path / "out")
    assert tensors[f"{BLOCK}mlp.up_proj.weight_shape"].tolist() == [256, 128]
    assert tensors[f"{BLOCK}mlp.up_proj.weight_scale"].dtype == BF16


def test_activations_of_fp8_are_dynamic(run, tmp_path):
    model(tmp_path / "in", BF16)
    token = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}
    for strategy, activations in {"channel": token, "tensor": token, "block": token | {"strategy": "group", "group_size": 128}}.items():
        quantize(run, tmp_path / "in", tmp_path / strategy, *FP8, "--strategy", strategy, *ALL)
        group = section(tmp_path / strategy)["config_groups"]["group_0"]
        assert group["input_activations"] == activations and group["weights"]["strategy"] == strategy
    assert read_all(tmp_path / "tensor")[f"{BLOCK}mlp.up_proj.weight_scale"].shape == (1,)


def test_config_of_hf_fp8(run, tmp_path):
    model(tmp_path / "in", BF16)
    quantize(run, tmp_path / "in", tmp_path / "out", "--format", "hf-fp8", *ALL)
    assert section(tmp_path / "out") == {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head"],
    }


def test_joined_layers_share_the_numbers_of_tensors(run, tmp_path):
    model(tmp_path / "in", BF16)
    for variant, suffix in {"nvfp4": "weight_global_scale", "fp8-tensor": "weight_scale"}.items():
        quantize(run, tmp_path / "in", tmp_path / variant, *VARIANTS[variant], *ROWS, *ALL)
        tensors = read_all(tmp_path / variant)
        number = lambda name: float(tensors[f"{BLOCK}{name}.{suffix}"].astype(np.float32)[0])
        assert number("self_attn.q_proj") == number("self_attn.k_proj") == number("self_attn.v_proj") != number("self_attn.o_proj")
        assert number("mlp.gate_proj") == number("mlp.up_proj") != number("mlp.down_proj")
    original = read_all(tmp_path / "in")
    largest = max(np.abs(original[f"{BLOCK}self_attn.{name}_proj.weight"].astype(np.float32)).max() for name in "qkv")
    divisor = read_all(tmp_path / "nvfp4")[f"{BLOCK}self_attn.q_proj.weight_global_scale"]
    assert divisor.dtype == np.float32 and divisor[0] == np.float32(2688) / largest


def experts(folder, kind, dtype=BF16):
    """A block of Qwen3-MoE or Mixtral, as they are published."""
    rng = np.random.default_rng(9)
    names = {"qwen3_moe": ("mlp.gate", "mlp.experts.{}.", ("gate_proj", "up_proj", "down_proj")),
             "mixtral": ("block_sparse_moe.gate", "block_sparse_moe.experts.{}.", ("w1", "w3", "w2"))}[kind]  # fmt: skip
    router, expert, (gate, up, down) = names
    tensors = {f"{BLOCK}self_attn.{name}_proj.weight": weights(rng, 128, 128, dtype) for name in "qkvo"}
    tensors[f"{BLOCK}{router}.weight"] = weights(rng, 4, 128, dtype)
    for number in range(4):
        prefix = BLOCK + expert.format(number)
        tensors |= {f"{prefix}{gate}.weight": weights(rng, 256, 128, dtype), f"{prefix}{up}.weight": weights(rng, 256, 128, dtype)}
        tensors[f"{prefix}{down}.weight"] = weights(rng, 128, 256, dtype)
    folder.mkdir()
    write(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "num_experts": 4, "num_local_experts": 4}))
    return tensors, f"{BLOCK}{router}"


@pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral"])
def test_experts_keep_the_names_that_vllm_maps(run, tmp_path, kind):
    """vLLM makes the name of a parameter of all experts from `experts.{e}.{projection}.`, and what follows stays."""
    tensors, router = experts(tmp_path / "in", kind)
    suffixes = {"int4-g128": ("weight_packed", "weight_scale", "weight_shape"), "fp8": ("weight", "weight_scale"),
                "nvfp4": ("weight_packed", "weight_scale", "weight_global_scale"), "hf-fp8": ("weight", "weight_scale_inv")}  # fmt: skip
    for variant, parts in suffixes.items():
        quantize(run, tmp_path / "in", tmp_path / variant, *VARIANTS[variant], *ROWS, *ALL)
        quantized = {name.removesuffix(".weight") for name in tensors} - {router}
        assert set(read_all(tmp_path / variant)) == {f"{name}.{part}" for name in quantized for part in parts} | {f"{router}.weight"}
        config = section(tmp_path / variant)
        assert config.get("ignore", config.get("modules_to_not_convert")) == [router, "lm_head"]


def test_gate_and_up_of_one_expert_share_a_divisor(run, tmp_path):
    experts(tmp_path / "in", "mixtral")
    quantize(run, tmp_path / "in", tmp_path / "out", *VARIANTS["nvfp4"], *ROWS, *ALL)
    tensors = read_all(tmp_path / "out")
    number = lambda expert, name: float(tensors[f"{BLOCK}block_sparse_moe.experts.{expert}.{name}.weight_global_scale"][0])
    assert number(0, "w1") == number(0, "w3") and len({number(e, "w1") for e in range(4)}) > 1


def test_experts_that_differ_from_other_layers_are_named_by_an_expression(run, tmp_path):
    tensors, _ = experts(tmp_path / "in", "qwen3_moe")
    both = tensors | {name.replace("layers.0.", "layers.1."): tensor for name, tensor in tensors.items()}
    write(tmp_path / "in/model.safetensors", both)
    (tmp_path / "settings.yaml").write_text('layer_bit_widths: {"*.1.mlp.experts.*": 3, "*.0.*.o_proj": 8}\n')
    options = ("--group-size", 32, "--config", tmp_path / "settings.yaml")
    quantize(run, tmp_path / "in", tmp_path / "out", *INT, *options, *ROWS, *ALL)
    config = section(tmp_path / "out")
    bits = lambda module: group_of(config, f"model.layers.{module}")["weights"]["num_bits"]
    assert (bits("1.mlp.experts.3.down_proj"), bits("0.self_attn.o_proj"), bits("1.self_attn.o_proj"), bits("0.mlp.experts.0.up_proj")) == (3, 8, 4, 4)
    targets = [group["targets"] for group in config["config_groups"].values()]
    assert targets == [["re:model\\.layers\\.1\\.mlp\\.experts\\..*"], ["Linear"], [f"{BLOCK}self_attn.o_proj"]]
    assert run("verify", tmp_path / "out", "--values").returncode == 0
    done(run("dequantize", tmp_path / "out", tmp_path / "back.safetensors", "--dtype", "f32"))
    restored, name = read(tmp_path / "back.safetensors")[0], "model.layers.1.mlp.experts.2.up_proj.weight"
    np.testing.assert_array_equal(restored[name], decoded(tmp_path / "out")[name])


def test_joined_layers_get_the_same_bits(run, tmp_path):
    model(tmp_path / "in", BF16)
    (tmp_path / "settings.yaml").write_text('layer_bit_widths: {"*.v_proj": 8}\n')
    plan = json.loads(done(run("quantize", tmp_path / "in", tmp_path / "out", *INT, "--config", tmp_path / "settings.yaml", "--dry-run", "--json")).stdout)
    bits = {layer["name"].split(".")[-2]: layer["bits"] for layer in plan["layers"]}
    assert bits["q_proj"] == bits["k_proj"] == bits["v_proj"] == 8 and bits["o_proj"] == 4


def test_ragged_blocks(run, tmp_path):
    rng = np.random.default_rng(10)
    name = f"{BLOCK}mlp.down_proj.weight"
    write(tmp_path / "in.safetensors", {name: weights(rng, 200, 330, BF16)})
    for variant in ("fp8-block", "hf-fp8"):
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / variant, *VARIANTS[variant], *ALL)
        dense = read(tmp_path / "in.safetensors")[0][name].astype(np.float32)
        assert figures(dense, decoded(tmp_path / variant)[name])[0] > 0.999
        assert report["layers"][0]["bytes"] == 200 * 330 + 2 * 3 * (4 if variant == "hf-fp8" else 2)


def test_blocks_that_cross_joined_layers_are_reported(run, tmp_path):
    model(tmp_path / "in", BF16, kv=64)
    report = quantize(run, tmp_path / "in", tmp_path / "out", "--format", "hf-fp8", *ALL)
    warning = "tensor 'model.layers.0.self_attn.k_proj.weight' has 64 rows; vLLM joins it with the next and needs a multiple of 128"
    assert warning in report["warnings"]


def test_rows_of_odd_lengths_have_one_scale(run, tmp_path):
    rng = np.random.default_rng(11)
    name = f"{BLOCK}mlp.down_proj.weight"
    for columns in (37, 100, 2049, 5000):
        dense = weights(rng, 33, columns, np.float32)
        write(tmp_path / "in.safetensors", {name: dense})
        for variant in ("int4-channel", "int8-channel-asymmetric", "fp8"):
            for method in ("rtn", "search"):
                out = tmp_path / f"{variant}-{method}-{columns}"
                quantize(run, tmp_path / "in.safetensors", out, *VARIANTS[variant], "--method", method, *ALL)
                assert figures(dense, decoded(out)[name])[0] > 0.9
                done(run("dequantize", out, tmp_path / "back.safetensors", "--dtype", "f32", "--force"))
                np.testing.assert_array_equal(read(tmp_path / "back.safetensors")[0][name], decoded(out)[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*INT, "--strategy", "block"], "--strategy is block, with type int it must be group or channel, as pack-quantized requires"),
        ([*INT, "--strategy", "row"], "--strategy is 'row', it must be tensor, channel, group or block"),
        ([*INT, "--strategy", "channel", "--group-size", 64], "--group-size is 64, but strategy channel has no groups; leave out --group-size"),
        ([*INT, "--method", "hqq"], "--method is hqq, whose zero points format compressed-tensors does not have"),
        ([*INT, "--group-size", 256], "--group-size is 256, with format compressed-tensors it must be 32, 64 or 128"),
        ([*INT, "--profile", "edge"], "group-size is 256 in the profile edge, with format compressed-tensors it must be 32, 64 or 128"),
        ([*FP8, "--bits", 4], "--bits is 4, but type fp8 fixes it to 8; leave out --bits"),
        ([*FP8, "--group-size", 64], "--group-size is 64, but type fp8 fixes it to 128; leave out --group-size"),
        ([*FP8, "--strategy", "group"], "--strategy is group, with type fp8 it must be tensor, channel or block"),
        ([*FP8, "--asymmetric"], "--asymmetric is true, which needs format compressed-tensors and type int; leave it out"),
        ([*INT, "--type", "nvfp4", "--bits", 8], "--bits is 8, but type nvfp4 fixes it to 4; leave out --bits"),
        ([*INT, "--type", "mxfp8", "--group-size", 64], "--group-size is 64, but type mxfp8 fixes it to 32"),
        ([*INT, "--type", "mxfp4", "--strategy", "channel"], "--strategy is channel, but type mxfp4 fixes the groups; leave out --strategy"),
        (["--format", "hf-fp8", "--type", "int"], "--type is int, which format hf-fp8 does not have; leave out --type"),
        (["--format", "hf-fp8", "--type", "mxfp4"], "--type is mxfp4, which format hf-fp8 does not have; give --format mlx or compressed-tensors"),
        (["--format", "hf-fp8", "--strategy", "channel"], "--strategy is channel, which needs format compressed-tensors, not hf-fp8"),
        (["--format", "hf-fp8", "--bits", 4], "--bits is 4, but type fp8 fixes it to 8; leave out --bits"),
        (["--format", "mlx", "--type", "fp8"], "--type is fp8, which format mlx does not have; give --format compressed-tensors or hf-fp8"),
        (["--format", "mlx", "--bits", 7], "--bits is 7, it must be 2, 3, 4, 5, 6 or 8"),
        (["--format", "mlx", "--asymmetric"], "--asymmetric is true, which needs format compressed-tensors and type int"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(run, tmp_path, options, message):
    model(tmp_path / "in", BF16)
    refused(run("quantize", tmp_path / "in", tmp_path / "out", *options), 2, message)
    assert not (tmp_path / "out").exists()


def test_shapes_that_loaders_refuse_are_refused(run, tmp_path):
    rng = np.random.default_rng(12)
    name = f"{BLOCK}mlp.down_proj.weight"
    write(tmp_path / "in.safetensors", {name: weights(rng, 64, 96, BF16)})
    result = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *INT)
    message = "has 96 columns, not a multiple of --group-size 128, as compressed-tensors requires; use --group-size 32, or leave it unquantized"
    refused(result, 3, message)
    write(tmp_path / "in.safetensors", {name: weights(rng, 64, 72, BF16)})
    refused(run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *INT, "--type", "nvfp4"), 3, "72 columns, not a multiple of --group-size 16")


def test_layers_that_vllm_joins_are_left_out_together(run, tmp_path):
    model(tmp_path / "in", BF16)
    result = run("quantize", tmp_path / "in", tmp_path / "out", *INT, "--keep", "*.k_proj")
    message = "k_proj.weight' is left unquantized, but 'model.layers.0.self_attn.q_proj.weight' is not, and vLLM joins them into one layer"
    refused(result, 2, message)
    quantize(run, tmp_path / "in", tmp_path / "out", *INT, "--keep", "*.[qkv]_proj", "--keep", "*.down_proj", *ALL)
    names = [f"{BLOCK}self_attn.{name}_proj" for name in "kqv"]
    assert sorted(section(tmp_path / "out")["ignore"]) == sorted(["lm_head", *names, f"{BLOCK}mlp.down_proj"])


def test_zero_points_that_vllm_does_not_load_are_reported(run, tmp_path):
    model(tmp_path / "in", BF16)
    report = quantize(run, tmp_path / "in", tmp_path / "out", *VARIANTS["int3-asymmetric"], *ALL)
    assert any("vLLM loads zero points of 4 and 8 bits only" in warning for warning in report["warnings"])


def test_groups_of_zeros_and_extreme_values(run, tmp_path):
    name = f"{BLOCK}mlp.down_proj.weight"
    for dtype, tiny, huge in ((np.float32, 1e-30, 1e30), (BF16, 1e-30, 1e30), (np.float16, 1e-6, 6e4)):
        dense = np.zeros((128, 256), dtype)
        dense[1, :128], dense[2, 7], dense[3] = tiny, huge, np.linspace(-1, 1, 256)
        write(tmp_path / "in.safetensors", {name: dense})
        for variant, options in VARIANTS.items():
            out = tmp_path / "out"
            result = run("quantize", tmp_path / "in.safetensors", out, *options, "--force", *ALL)
            values = decoded(out)[name]
            assert done(result) and np.isfinite(values).all() and not values[0].any(), (variant, dtype)


def test_python_and_yaml_take_the_formats(run, tmp_path):
    model(tmp_path / "in", BF16)
    report = ballast.quantize(tmp_path / "in", tmp_path / "out", format="compressed-tensors", type="fp8", strategy="block", min_accuracy=0)
    assert {layer.bits for layer in report.layers} == {8}
    for settings in ({"format": "hf-fp8"}, {"format": "compressed-tensors", "asymmetric": True, "bit_width": 7, "strategy": "channel"}):
        config = ballast.QuantizeConfig(**settings)
        assert ballast.QuantizeConfig.from_yaml(config.to_yaml()) == config
    assert ballast.QuantizeConfig(format="hf-fp8").type == "fp8"
    (tmp_path / "settings.yaml").write_text("format: compressed-tensors\nasymmetric: true\nstrategy: channel\n")
    quantize(run, tmp_path / "in", tmp_path / "yaml", "--config", tmp_path / "settings.yaml", *ALL)
    weights = section(tmp_path / "yaml")["config_groups"]["group_0"]["weights"]
    assert (weights["strategy"], weights["symmetric"]) == ("channel", False)
