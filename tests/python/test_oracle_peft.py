"""Adapters that PEFT writes: Ballast's merge against PEFT's own merge_and_unload, on small models of transformers."""

import subprocess

import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

SIZES = {"vocab_size": 96, "max_position_embeddings": 64}
LLAMA = transformers.LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **SIZES
)
GPT2 = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=64, vocab_size=96)
CASES = {
    "linear": (LLAMA, {"target_modules": ["q_proj", "v_proj", "down_proj"], "lora_alpha": 16}),
    "rslora": (LLAMA, {"target_modules": "all-linear", "use_rslora": True, "lora_alpha": 3}),
    "patterns": (
        LLAMA,
        {"target_modules": ["q_proj", "k_proj", "up_proj"], "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"up_proj": 20}},
    ),
    "embedding": (LLAMA, {"target_modules": ["embed_tokens", "o_proj"]}),
    "saved": (LLAMA, {"target_modules": ["gate_proj"], "modules_to_save": ["lm_head"]}),
    "transposed": (GPT2, {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}),
}


def randomized(model, seed):
    """Weights and adapters are not zero, as after training."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora" in name or "modules_to_save" in name:
                parameter.normal_(0, 0.05)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", CASES)
def test_the_merge_is_that_of_peft(build_dir, tmp_path, kind, dtype):
    config, settings = CASES[kind]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
    model.save_pretrained(tmp_path / "base")
    adapted = randomized(get_peft_model(model, LoraConfig(r=8, task_type="CAUSAL_LM", **settings)), 2)
    adapted.save_pretrained(tmp_path / "adapter")

    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", torch_dtype=torch.float32)
    # In F32, PEFT rounds nothing on the way, so that what remains are the orders of its sums and one rounding.
    expected = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload().state_dict()

    command = [build_dir / "ballast", "convert", tmp_path / "base", tmp_path / "out", "--lora", tmp_path / "adapter"]
    subprocess.run(command, check=True, capture_output=True)
    found = load_file(tmp_path / "out" / "model.safetensors")
    stored = load_file(tmp_path / "base" / "model.safetensors")
    assert found.keys() == stored.keys()
    changed = 0
    for name, values in found.items():
        assert values.dtype == stored[name].dtype
        reference = expected[name].float()
        half_step = torch.finfo(dtype).eps / 2 * reference.abs() + 1e-6
        assert ((values.float() - reference).abs() <= half_step).all(), name
        changed += not torch.equal(values, stored[name])
    assert changed >= 2

    # What transformers loads from the output computes what PEFT's model computes.
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", torch_dtype=torch.float32)
    tokens = torch.arange(16)[None]
    with torch.no_grad():
        difference = (loaded(tokens).logits - base(tokens).logits).abs().max()
    assert difference < (1e-4 if dtype == torch.float32 else 0.05)
