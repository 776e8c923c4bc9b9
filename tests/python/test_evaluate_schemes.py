"""ballast evaluate on models whose linear layers are stored in the ways of other programs: as the same values in F32."""

import json

import numpy as np
import pytest
from layouts import LAYOUTS, write

VOCAB, HIDDEN, INNER = 64, 256, 512
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN,
    "intermediate_size": INNER, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (HIDDEN, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}  # fmt: skip


def make(layout, folder):
    """The model as stored, and its original."""
    rng = np.random.default_rng(5)
    common = {"model.embed_tokens.weight": rng.standard_normal((VOCAB, HIDDEN)), "lm_head.weight": rng.standard_normal((VOCAB, HIDDEN)) * 0.1}
    common |= {"model.norm.weight": np.ones(HIDDEN)}
    for i in range(2):
        common |= {f"model.layers.{i}.{name}_layernorm.weight": np.ones(HIDDEN) for name in ("input", "post_attention")}
    common = {name: values.astype(np.float32) for name, values in common.items()}
    stored, plain, modules = {}, {}, []
    for i in range(2):
        for name, shape in SHAPES.items():
            module = f"model.layers.{i}.{name}"
            made = layout.make(rng, *shape)
            # Smaller queries and keys would need other scales, so the norm before them is small instead.
            size = np.sqrt(np.square(made.dense).mean() * shape[1])
            common[f"model.layers.{i}.{'input' if 'attn' in name else 'post_attention'}_layernorm.weight"] = np.full(HIDDEN, 1 / size, np.float32)
            stored |= made.named(module)
            plain[f"{module}.weight"] = made.dense
            modules.append(module)
    config = layout.config(modules)
    for name, tensors in (("stored", stored | config.tensors), ("original", plain)):
        (folder / name).mkdir()
        write(folder / name / "model.safetensors", common | tensors, config.metadata if name == "stored" else {"format": "pt"})
        (folder / name / "config.json").write_text(json.dumps(CONFIG | (config.keys if name == "stored" else {})))
    for name, content in config.files.items():
        (folder / "stored" / name).write_text(json.dumps(content))
    return folder / "stored", folder / "original"


# One of each scheme with each number of bits. Two are of stacked experts only.
ONE_OF_EACH = {(layout.scheme, layout.bits): name for name, layout in LAYOUTS.items() if name not in ("mxfp4-experts", "mxfp4-openai")}


@pytest.mark.parametrize("name", ONE_OF_EACH.values())
def test_predictions_are_those_of_the_decoded_weights(run, tmp_path, name):
    stored, original = make(LAYOUTS[name], tmp_path)
    np.save(tmp_path / "ids.npy", np.random.default_rng(6).integers(0, VOCAB, (2, 24)))
    done = run("evaluate", stored, "--tokens", tmp_path / "ids.npy", "--against", original, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kl_mean"] < 1e-6 and found["top1_agreement"] == 1, found
    assert 1 < found["perplexity"] < 10 * VOCAB
