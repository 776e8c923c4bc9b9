"""Diffusion models and adapters."""

from __future__ import annotations

import numpy as np

from .base import BF16, F16, F32, QUANTIZE, Kind, Shapes, fill, plain
from .language import linear, norm
from .others import conv


def unet_shapes() -> Shapes:
    shapes = conv("conv_in", 64, 4, 3, 3) | conv("conv_out", 4, 64, 3, 3) | norm("conv_norm_out", 64, bias=True)
    shapes |= linear("time_embedding.linear_1", 256, 64, bias=True) | linear("time_embedding.linear_2", 256, 256, bias=True)
    block = "down_blocks.0.attentions.0"
    shapes |= norm(f"{block}.norm", 64, bias=True) | conv(f"{block}.proj_in", 64, 64, 1, 1) | conv(f"{block}.proj_out", 64, 64, 1, 1)
    for part, wide in (("attn1", 64), ("attn2", 96)):
        inner = f"{block}.transformer_blocks.0.{part}"
        shapes |= (
            linear(f"{inner}.to_q", 64, 64)
            | linear(f"{inner}.to_k", 64, wide)
            | linear(f"{inner}.to_v", 64, wide)
            | linear(f"{inner}.to_out.0", 64, 64, bias=True)
        )
    resnet = "down_blocks.0.resnets.0"
    shapes |= conv(f"{resnet}.conv1", 64, 64, 3, 3) | linear(f"{resnet}.time_emb_proj", 64, 256, bias=True)
    return shapes | norm(f"{resnet}.norm1", 64, bias=True)


UNET = {
    "_class_name": "UNet2DConditionModel",
    "_diffusers_version": "0.35.0",
    "in_channels": 4,
    "out_channels": 4,
    "block_out_channels": [64],
    "cross_attention_dim": 96,
}


def flux_shapes() -> Shapes:
    """The transformer of FLUX under the names of diffusers."""
    shapes = linear("x_embedder", 64, 32, bias=True) | linear("context_embedder", 64, 96, bias=True) | linear("proj_out", 32, 64, bias=True)
    shapes |= linear("time_text_embed.timestep_embedder.linear_1", 64, 256, bias=True)
    block = "transformer_blocks.0"
    for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out.0", "to_add_out"):
        shapes |= linear(f"{block}.attn.{name}", 64, 64, bias=True)
    shapes |= linear(f"{block}.norm1.linear", 384, 64, bias=True) | norm(f"{block}.attn.norm_q", 16) | norm(f"{block}.attn.norm_k", 16)
    shapes |= linear(f"{block}.ff.net.0.proj", 256, 64, bias=True) | linear(f"{block}.ff.net.2", 64, 256, bias=True)
    single = "single_transformer_blocks.0"
    return shapes | linear(f"{single}.proj_mlp", 256, 64, bias=True) | linear(f"{single}.proj_out", 64, 320, bias=True)


FLUX = {
    "_class_name": "FluxTransformer2DModel",
    "_diffusers_version": "0.35.0",
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
}


def peft_shapes() -> Shapes:
    shapes: Shapes = {}
    for i in range(2):
        for name, rows in (("q_proj", 64), ("v_proj", 32)):
            layer = f"base_model.model.model.layers.{i}.self_attn.{name}"
            shapes |= {f"{layer}.lora_A.weight": (8, 64), f"{layer}.lora_B.weight": (rows, 8)}
    return shapes


def kohya_shapes() -> Shapes:
    layer = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
    return {f"{layer}.lora_down.weight": (8, 64), f"{layer}.lora_up.weight": (64, 8), f"{layer}.alpha": ()}


PEFT = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "org/base",
    "task_type": "CAUSAL_LM",
}
ADAPTER = {"dequantize": "", QUANTIZE: "adapter"}


def _kind(name: str, shapes: Shapes, config: dict | None, dtype: np.dtype = F32, **more) -> Kind:
    return plain(name, lambda: fill(shapes, dtype), config, **more)


DIFFUSION = [
    _kind("unet", unet_shapes(), UNET, F16, file="diffusion_pytorch_model.safetensors"),
    _kind("flux", flux_shapes(), FLUX, BF16, file="diffusion_pytorch_model.safetensors"),
    _kind("lora-peft", peft_shapes(), None, file="adapter_model.safetensors", files={"adapter_config.json": PEFT}, refused=ADAPTER),
    _kind("lora-kohya", kohya_shapes(), None, F16, file="style.safetensors", refused=ADAPTER),
]
VARIANT = _kind("unet-variant", unet_shapes(), UNET, F16, file="diffusion_pytorch_model.fp16.safetensors")
