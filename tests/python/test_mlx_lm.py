"""What `quantize --format mlx` writes, loaded by mlx-lm with all its checks."""

import json
import os
from pathlib import Path

import mlx.core as mx
import mlx_lm.models
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import MODEL_REMAPPING, load_model

import ballast
from mlx_lm_models import CASES, COMMON, make

GATE = ("llama", "llama-tied", "qwen3", "mixtral", "gpt2", "qwen3_moe")
MODELS = list(CASES) if os.environ.get("BALLAST_FULL") else GATE
# Files that define an architecture, not parts that several share.
TYPES = {path.stem for path in Path(mlx_lm.models.__path__[0]).glob("*.py") if "\nclass Model(" in path.read_text()}


def quantize(run, source, out, *options):
    done = run("quantize", source, out, "--format", "mlx", "--group-size", "32", "--min-accuracy", "0", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def module_of(model, path):
    for step in path.split("."):
        model = model[int(step)] if isinstance(model, list) else getattr(model, step)
    return model


def relative_error(found, expected):
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    return (mx.linalg.norm(found - expected) / mx.linalg.norm(expected)).item()


def logits(folder):
    model, _ = load_model(folder, strict=True)
    return model(mx.array([[1, 5, 9, 2, 40, 77]])).astype(mx.float32)


@pytest.mark.parametrize("name", MODELS)
def test_mlx_lm_loads_every_tensor(name, run, tmp_path):
    made = make(name, tmp_path / "in")
    done = quantize(run, made.folder, tmp_path / "out", "--bits", "4", "--method", "rtn")
    model, _ = load_model(tmp_path / "out", strict=True)
    found = dict(tree_flatten(model.parameters()))
    parts = (".scales", ".biases")
    assert {path for path in found if not path.endswith(parts)} == set(made.expected)
    quantized = 0
    for path, expected in made.expected.items():
        base = path.removesuffix(".weight")
        if base + ".scales" not in found:
            assert mx.array_equal(found[path], expected), path
            continue
        module = module_of(model, base)
        values = mx.dequantize(found[path], found[base + ".scales"], found[base + ".biases"], module.group_size, module.bits)
        assert relative_error(values, expected) < (0.015 if module.bits == 8 else 0.12), path  # 4 bits in groups of 32: about .08
        quantized += 1
    assert quantized == done["quantized_tensors"] > 0

    validated = run("validate", made.folder, tmp_path / "out", "--json")
    assert validated.returncode == 0, validated.stderr
    assert json.loads(validated.stdout)["relative_rmse"] == done["relative_rmse"]


@pytest.mark.parametrize("model_type", sorted(TYPES | set(MODEL_REMAPPING)))
def test_every_architecture_of_mlx_lm_is_arranged_or_refused(model_type, run, tmp_path):
    mx.save_safetensors(str(tmp_path / "model.safetensors"), {"model.embed_tokens.weight": mx.ones((4, 32))})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    done = run("quantize", tmp_path, tmp_path / "out", "--format", "mlx", "--group-size", "32", "--dry-run")
    if model_type in {case.model_type for case in CASES.values()}:
        assert done.returncode == 0 and "mlx-lm has no architecture" not in done.stderr
    else:
        assert done.returncode == 3
        assert f"cannot quantize model_type '{model_type}' for mlx-lm: mlx-lm " in done.stderr
        assert done.stderr.endswith("; use the parquet format\n")


@pytest.mark.parametrize("name", ["llama-tied", "qwen3"])
def test_logits_equal_those_of_the_dequantized_model(name, run, tmp_path):
    made = make(name, tmp_path / "in", mx.float32)
    quantize(run, made.folder, tmp_path / "out", "--bits", "4")
    assert run("dequantize", tmp_path / "out", tmp_path / "back").returncode == 0
    found, expected = logits(tmp_path / "out"), logits(tmp_path / "back")
    assert relative_error(found, expected) < 1e-5  # F32 products, summed in another order
    assert relative_error(found, logits(made.folder)) > 1e-3  # what quantization changes


def test_bits_of_single_layers_are_in_the_config(run, tmp_path):
    made = make("qwen3_moe", tmp_path / "in")
    settings = tmp_path / "settings.yaml"
    settings.write_text('layer_bit_widths:\n  "*switch_mlp.down_proj": 6\n  lm_head: 16\n')
    quantize(run, made.folder, tmp_path / "out", "--bits", "3", "--config", settings)
    config = json.loads((tmp_path / "out/config.json").read_text())
    layer = "model.layers.0.mlp"
    assert config["quantization"][f"{layer}.switch_mlp.down_proj"] == {"group_size": 32, "bits": 6, "mode": "affine"}
    assert config["quantization"][f"{layer}.gate"] == {"group_size": 32, "bits": 8, "mode": "affine"}
    assert config["quantization"] == config["quantization_config"]
    model, _ = load_model(tmp_path / "out", strict=True)
    assert module_of(model, f"{layer}.switch_mlp.down_proj").bits == 6
    assert module_of(model, f"{layer}.switch_mlp.up_proj").bits == 3
    assert model(mx.array([[1, 2]])).shape == (1, 2, 96) and not hasattr(model.lm_head, "bits")


def test_what_is_left_out_and_set_is_said(run, tmp_path):
    made = make("llama-tied-by-values", tmp_path / "in")
    done = run("quantize", made.folder, tmp_path / "out", "--format", "mlx", "--group-size", "32")
    assert done.returncode == 0
    assert "note: left out 'lm_head.weight': mlx-lm uses the embedding as the output layer\n" in done.stderr
    assert "note: set tie_word_embeddings to true in config.json, for mlx-lm\n" in done.stderr
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] is True
    report = ballast.quantize(made.folder, tmp_path / "python", format="mlx", group_size=32)
    assert report.left_out == ["lm_head.weight"] and report.notes[0] in done.stderr
    plan = run("quantize", made.folder, tmp_path / "plan", "--format", "mlx", "--group-size", "32", "--dry-run", "--json")
    assert json.loads(plan.stdout)["left_out"] == ["lm_head.weight"]


def test_bits_per_weight_count_unquantized_tensors_too(run, tmp_path):
    made = make("llama", tmp_path / "in")
    done = quantize(run, made.folder, tmp_path / "out", "--keep", "*embed_tokens*")
    stored = sum(layer["bytes"] for layer in done["layers"])
    others = [value for path, value in made.expected.items() if "norm" in path or "embed" in path]
    parameters = sum(value.size for value in made.expected.values())
    assert done["bits_per_weight"] == 5.0
    assert done["bits_per_weight_total"] == pytest.approx((stored + sum(value.nbytes for value in others)) * 8 / parameters)
    assert ballast.validate(made.folder, tmp_path / "out").bits_per_weight_total == done["bits_per_weight_total"]


def test_dequantize_says_that_names_are_those_of_mlx_lm(run, tmp_path):
    made = make("mixtral", tmp_path / "in")
    quantize(run, made.folder, tmp_path / "out")
    done = run("dequantize", tmp_path / "out", tmp_path / "back")
    assert done.returncode == 0
    assert "warning: tensors have the names and shapes of mlx-lm, such as 'model.layers.0.block_sparse_moe.switch_mlp." in done.stderr
    assert logits(tmp_path / "back").shape == (1, 6, COMMON["vocab_size"])


def test_a_finished_output_is_up_to_date_until_the_model_changes(run, tmp_path):
    made = make("gpt2", tmp_path / "in")
    options = ("quantize", made.folder, tmp_path / "out", "--format", "mlx", "--group-size", "32", "--resume")
    assert run(*options).returncode == 0
    assert "already up to date" in run(*options).stdout
    weights = made.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert "already up to date" not in run(*options).stdout


def test_bits_for_a_tensor_that_mlx_lm_cannot_hold_quantized_are_refused(run, tmp_path):
    made = make("deepseek", tmp_path / "in")
    settings = tmp_path / "settings.yaml"
    settings.write_text("layer_bit_widths: {model.layers.1.mlp.gate: 8}\n")
    done = run("quantize", made.folder, tmp_path / "out", "--format", "mlx", "--group-size", "32", "--config", settings)
    assert done.returncode == 2
    assert "layer_bit_widths: mlx-lm cannot hold tensor 'model.layers.1.mlp.gate.weight' quantized; leave it out or set it to 16" in done.stderr


def test_threads_and_memory_do_not_change_the_bytes(run, tmp_path):
    made = make("gpt_oss", tmp_path / "in")
    outputs = []
    for threads, memory in ((1, 16), (4, 384)):
        out = tmp_path / f"out{threads}"
        quantize(run, made.folder, out, "--threads", str(threads), "--memory-limit", str(memory))
        outputs.append((out / "model.safetensors").read_bytes())
    assert outputs[0] == outputs[1]


def test_statistics_have_the_names_of_the_original(run, tmp_path):
    made = make("gpt2-lm", tmp_path / "in")
    used = {f"transformer.h.0.{layer}.weight": columns for layer, columns in (("attn.c_attn", 64), ("mlp.c_proj", 256))}
    values = {}
    for name, columns in (used | {"lm_head.weight": 64}).items():
        values |= {f"{name}.x_mean": mx.zeros((columns,)), f"{name}.x_sqmean": mx.ones((columns,))}
    statistics = tmp_path / "stats.safetensors"
    mx.save_safetensors(str(statistics), values, {"format": "timecalib.v1"})
    done = quantize(run, made.folder, tmp_path / "out", "--calibration", statistics)
    assert done["calibration"]["covered"] == 2
    weighted = {layer["name"] for layer in done["layers"] if layer["method"] == "weighted search"}
    assert weighted == {"model.h.0.attn.c_attn.weight", "model.h.0.mlp.c_proj.weight"}
    assert "the statistics of 1 of the model's tensors are not used" in done["warnings"][0] and "'lm_head.weight'" in done["warnings"][0]
