"""The forward pass against mlx-lm with the same weights."""

import json

import mlx.core as mx
import numpy
import pytest
from mlx_lm.utils import load_model
from numpy.testing import assert_allclose

import mlx_lm_models

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
UNSET = {"partial_rotary_factor": None, "layer_types": None}  # of the common config
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}
MODELS = {
    "llama": {},
    "llama-tied": {},
    "llama with long contexts": {"rope_scaling": LLAMA3},
    "llama with linear positions": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama with biases": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"sliding_window": None},
    "mistral with a window": SLIDING,
    "mistral with more values in a head": {"sliding_window": None, "head_dim": 32},
    "qwen2": {},
    "qwen2 with a head of its own": {"tie_word_embeddings": False},
    "qwen3": {},
    "gemma3_text with all defaults": {"sliding_window": 5, "num_hidden_layers": 6, "rope_theta": None},
    "gemma3_text": {"sliding_window": 5, "sliding_window_pattern": 2, "query_pre_attn_scalar": 24, "rope_theta": 1e6,
                    "rope_scaling": {"type": "linear", "factor": 8.0}, "hidden_size": 72},
    "mixtral": {"sliding_window": None},
    "qwen3_moe": {},
    "qwen3_moe with dense layers": {"mlp_only_layers": [0], "norm_topk_prob": False},
}  # fmt: skip


def make(name, folder):
    """A tiny model with weights in F32, large enough that attention is not uniform."""
    base = name.split(" ")[0]
    case = mlx_lm_models.CASES[base]
    mlx_lm_models.CASES["this"] = case._replace(config=UNSET | case.config | MODELS[name], extra=())
    try:
        made = mlx_lm_models.make("this", folder, mx.float32)
    finally:
        del mlx_lm_models.CASES["this"]
    weights = mx.load(str(folder / "model.safetensors"))
    scaled = {key: value * (4 if value.ndim > 1 else 1) + (value.ndim == 1 and "bias" not in key) for key, value in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), scaled)
    return made.folder


def expected_logits(folder, tokens):
    model, _ = load_model(folder, strict=True)
    with mx.stream(mx.cpu):
        return numpy.array(model(mx.array(tokens)[None])[0])


def found_logits(probe, folder, tokens, tmp_path):
    numpy.save(tmp_path / "tokens.npy", numpy.array([tokens], numpy.int32))
    reply = probe(f"logits {folder} {tmp_path / 'tokens.npy'}")
    assert reply["ok"], reply
    return numpy.frombuffer(bytes.fromhex(reply["bytes"]), "<f4").reshape(len(tokens), -1)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_mlx_lm(name, probe, tmp_path):
    folder = make(name, tmp_path / "model")
    tokens = numpy.random.default_rng(3).integers(0, 96, 40).tolist()
    expected = expected_logits(folder, tokens)
    found = found_logits(probe, folder, tokens, tmp_path)
    assert numpy.abs(expected).max() > 1
    assert_allclose(found, expected, rtol=0, atol=1e-4 * max(1, numpy.abs(expected).max()))


def test_experts_that_are_stacked_or_not_give_the_same_logits(run, probe, tmp_path):
    folder = make("qwen3_moe", tmp_path / "model")
    tokens = list(range(30))
    done = run("quantize", folder, tmp_path / "mlx", "--format", "mlx", "--bits", "8", "--group-size", "32")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "mlx" / "config.json").read_text())
    assert config["model_type"] == "qwen3_moe"
    expected = expected_logits(tmp_path / "mlx", tokens)
    found = found_logits(probe, tmp_path / "mlx", tokens, tmp_path)
    assert_allclose(found, expected, rtol=0, atol=1e-4 * numpy.abs(expected).max())
