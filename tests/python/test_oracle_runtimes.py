"""compressed-tensors and transformers load what quantize writes. Runs in .venv-oracle, with scripts/test --full."""

import json

import pytest
import torch
from compressed_oracle import decompressed, section_of
from quantized_files import done, quantize
from runtime_formats import BLOCK, LINEAR, VARIANTS, model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

ALL = ("--min-accuracy", 0)
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "hf-fp8"])
def test_compressed_tensors_decompresses_to_what_dequantize_gives(run, tmp_path, variant, dtype):
    import ml_dtypes
    import numpy as np

    model(tmp_path / "in", np.float32 if dtype == "float32" else np.dtype(ml_dtypes.bfloat16))
    quantize(run, tmp_path / "in", tmp_path / "out", *VARIANTS[variant], *ALL)
    tensors, section = load_file(tmp_path / "out/model.safetensors"), section_of(tmp_path / "out")
    for name in LINEAR:
        module = BLOCK + name
        own = {key.removeprefix(f"{module}."): tensor for key, tensor in tensors.items() if key.startswith(f"{module}.")}
        values = decompressed(own, section, module)
        back = tmp_path / f"{NAMES[values.dtype]}.safetensors"
        if not back.exists():
            done(run("dequantize", tmp_path / "out", back, "--dtype", NAMES[values.dtype]))
        assert torch.equal(values, load_file(back)[f"{module}.weight"]), name


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A llama of two blocks with the weights of a seed."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=96, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, tie_word_embeddings=False,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("llama") / "m"
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def logits(folder):
    """With inputs of layers that are not rounded: only the weights are compared."""
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    for module in loaded.modules():
        module.quantization_enabled = False  # of compressed-tensors, for FP8 inputs
    with torch.no_grad():
        return loaded(torch.tensor([[1, 5, 9, 2, 40, 77]])).logits.float()


# transformers 5.23 does not load packed zero points: it expects them unpacked.
@pytest.mark.parametrize("variant", ["int4-g128", "int8-channel", "fp8", "fp8-block", "mxfp4", "mxfp8", "nvfp4", "hf-fp8"])
def test_transformers_gives_the_logits_of_the_dequantized_model(run, llama, tmp_path, variant):
    quantize(run, llama, tmp_path / "out", *VARIANTS[variant], *ALL)
    done(run("dequantize", tmp_path / "out", tmp_path / "back", "--dtype", "bf16"))
    assert "quantization_config" not in json.loads((tmp_path / "back/config.json").read_text())
    quantized, restored, original = (logits(folder) for folder in (tmp_path / "out", tmp_path / "back", llama))
    gap = torch.linalg.norm(quantized - restored) / torch.linalg.norm(restored)
    lost = torch.linalg.norm(restored - original) / torch.linalg.norm(original)
    assert gap < 0.05 * lost or gap < 2e-3, (gap, lost)
