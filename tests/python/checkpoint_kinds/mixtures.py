"""Mixtures of experts, multi-head latent attention, and models with state instead of attention."""

from __future__ import annotations

import numpy as np

from .base import F32, Kind, Shapes, fill, plain
from .language import VOCAB, attention, gated, linear, llama_config, llama_shapes, norm

EXPERTS = 4


Names = tuple[str, str, str]
LLAMA_NAMES = ("gate_proj", "up_proj", "down_proj")


def routed(name: str, router: str, experts: str, size: int, inner: int, names: Names = LLAMA_NAMES) -> Shapes:
    """Return the router and the experts of one layer, each expert in its own tensors."""
    shapes = linear(f"{name}.{router}", EXPERTS, size)
    for i in range(EXPERTS):
        shapes |= gated(f"{name}.{experts}.{i}", size, inner, names)
    return shapes


def moe_shapes(block: str, names: Names = LLAMA_NAMES, *, qk_norm: bool = False) -> Shapes:
    shapes = {"model.embed_tokens.weight": (VOCAB, 64), "model.norm.weight": (64,), "lm_head.weight": (VOCAB, 64)}
    for i in range(2):
        layer = f"model.layers.{i}"
        shapes |= attention(f"{layer}.self_attn", 64, 4, 2, qk_norm=qk_norm) | routed(f"{layer}.{block}", "gate", "experts", 64, 96, names)
        shapes |= norm(f"{layer}.input_layernorm", 64) | norm(f"{layer}.post_attention_layernorm", 64)
    return shapes


def latent_attention(name: str, size: int, *, q_rank: int | None) -> Shapes:
    """Return DeepSeek's attention: 4 heads of 32 + 16 and values of 32, rank 64 for keys and values."""
    shapes = linear(f"{name}.kv_a_proj_with_mqa", 64 + 16, size) | norm(f"{name}.kv_a_layernorm", 64)
    shapes |= linear(f"{name}.kv_b_proj", 4 * (32 + 32), 64) | linear(f"{name}.o_proj", size, 4 * 32)
    if q_rank:
        shapes |= linear(f"{name}.q_a_proj", q_rank, size) | norm(f"{name}.q_a_layernorm", q_rank)
        return shapes | linear(f"{name}.q_b_proj", 4 * 48, q_rank)
    return shapes | linear(f"{name}.q_proj", 4 * 48, size)


def deepseek_shapes(*, size: int = 192, q_rank: int | None = 96, bias: bool = True) -> Shapes:
    """Return one dense layer and one of experts."""
    shapes = {"model.embed_tokens.weight": (VOCAB, size), "model.norm.weight": (size,), "lm_head.weight": (VOCAB, size)}
    for i in range(2):
        layer = f"model.layers.{i}"
        shapes |= latent_attention(f"{layer}.self_attn", size, q_rank=q_rank)
        shapes |= norm(f"{layer}.input_layernorm", size) | norm(f"{layer}.post_attention_layernorm", size)
        if i == 0:
            shapes |= gated(f"{layer}.mlp", size, 288)
            continue
        shapes |= routed(f"{layer}.mlp", "gate", "experts", size, 64) | gated(f"{layer}.mlp.shared_experts", size, 64)
        shapes |= {f"{layer}.mlp.gate.e_score_correction_bias": (EXPERTS,)} if bias else {}
    return shapes


def deepseek_config(model_type: str, architecture: str, *, q_rank: int | None = 96) -> dict:
    return llama_config(model_type, architecture, size=192, inner=288, groups=4) | {
        "moe_intermediate_size": 64, "n_routed_experts": EXPERTS, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
        "kv_lora_rank": 64, "q_lora_rank": q_rank, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "moe_layer_freq": 1,
        "head_dim": 16, "n_group": 1, "topk_group": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "routed_scaling_factor": 2.5,
    }  # fmt: skip


def llama4_shapes() -> Shapes:
    root = "language_model.model"
    shapes = {f"{root}.embed_tokens.weight": (VOCAB, 64), f"{root}.norm.weight": (64,), "language_model.lm_head.weight": (VOCAB, 64)}
    for i in range(2):
        layer = f"{root}.layers.{i}"
        shapes |= attention(f"{layer}.self_attn", 64, 4, 2) | linear(f"{layer}.feed_forward.router", EXPERTS, 64)
        shapes |= {
            f"{layer}.feed_forward.experts.gate_up_proj": (EXPERTS, 64, 192),
            f"{layer}.feed_forward.experts.down_proj": (EXPERTS, 96, 64),
        }
        shapes |= gated(f"{layer}.feed_forward.shared_expert", 64, 96)
        shapes |= norm(f"{layer}.input_layernorm", 64) | norm(f"{layer}.post_attention_layernorm", 64)
    return shapes | linear("multi_modal_projector.linear_1", 64, 48)


LLAMA4 = {
    "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "text_config": llama_config("llama4_text", "Llama4ForCausalLM", inner=96) | {"num_local_experts": EXPERTS, "num_experts_per_tok": 1},
}  # fmt: skip


def gpt_oss_shapes(*, dense: bool = True) -> Shapes:
    shapes = {"model.embed_tokens.weight": (VOCAB, 64), "model.norm.weight": (64,), "lm_head.weight": (VOCAB, 64)}
    for i in range(2):
        layer = f"model.layers.{i}"
        shapes |= attention(f"{layer}.self_attn", 64, 4, 2, bias=True) | {
            f"{layer}.self_attn.o_proj.bias": (64,),
            f"{layer}.self_attn.sinks": (4,),
        }
        shapes |= linear(f"{layer}.mlp.router", EXPERTS, 64, bias=True)
        shapes |= {f"{layer}.mlp.experts.gate_up_proj_bias": (EXPERTS, 192), f"{layer}.mlp.experts.down_proj_bias": (EXPERTS, 64)}
        if dense:
            shapes |= {f"{layer}.mlp.experts.gate_up_proj": (EXPERTS, 64, 192), f"{layer}.mlp.experts.down_proj": (EXPERTS, 96, 64)}
        shapes |= norm(f"{layer}.input_layernorm", 64) | norm(f"{layer}.post_attention_layernorm", 64)
    return shapes


GPT_OSS = llama_config("gpt_oss", "GptOssForCausalLM", inner=96) | {
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
}


def gemma3_shapes() -> Shapes:
    """A text and a vision tower under prefixes."""
    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    shapes = llama_shapes(prefix="language_model.model.", head=None, qk_norm=True, norms=norms)
    tower = "vision_tower.vision_model"
    shapes |= {f"{tower}.embeddings.patch_embedding.weight": (48, 3, 14, 14), f"{tower}.embeddings.patch_embedding.bias": (48,)}
    shapes |= {f"{tower}.embeddings.position_embedding.weight": (16, 48), "multi_modal_projector.mm_input_projection_weight": (48, 64)}
    return shapes | norm(f"{tower}.post_layernorm", 48, bias=True) | norm("multi_modal_projector.mm_soft_emb_norm", 48)


GEMMA3 = {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16",
    "text_config": llama_config("gemma3_text", "Gemma3ForCausalLM", tie_word_embeddings=True),
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 48},
}  # fmt: skip


def qwen2_vl_shapes() -> Shapes:
    shapes = llama_shapes(bias=True) | {"visual.patch_embed.proj.weight": (48, 3, 2, 14, 14)}
    block = "visual.blocks.0"
    shapes |= (
        norm(f"{block}.norm1", 48, bias=True)
        | linear(f"{block}.attn.qkv", 144, 48, bias=True)
        | linear(f"{block}.attn.proj", 48, 48, bias=True)
    )
    return shapes | norm("visual.merger.ln_q", 48, bias=True) | linear("visual.merger.mlp.0", 192, 192, bias=True)


def mamba_mixer(name: str, *, dense: int, second: bool) -> Shapes:
    shapes = {f"{name}.conv1d.weight": (dense, 1, 4), f"{name}.conv1d.bias": (dense,)}
    if second:
        shapes |= {f"{name}.A_log": (8,), f"{name}.D": (8,), f"{name}.dt_bias": (8,)} | norm(f"{name}.norm", 128)
        return shapes | linear(f"{name}.in_proj", 128 + dense + 8, 64) | linear(f"{name}.out_proj", 64, 128)
    shapes |= {f"{name}.A_log": (128, 16), f"{name}.D": (128,)} | linear(f"{name}.in_proj", 256, 64) | linear(f"{name}.out_proj", 64, 128)
    return shapes | linear(f"{name}.x_proj", 36, 128) | linear(f"{name}.dt_proj", 128, 4, bias=True)


def mamba_shapes() -> Shapes:
    shapes = {"backbone.embeddings.weight": (VOCAB, 64), "backbone.norm_f.weight": (64,)}
    for i in range(2):
        shapes |= norm(f"backbone.layers.{i}.norm", 64) | mamba_mixer(f"backbone.layers.{i}.mixer", dense=128, second=False)
    return shapes


def falcon_h1_shapes() -> Shapes:
    shapes = {"model.embed_tokens.weight": (VOCAB, 64), "model.final_layernorm.weight": (64,), "lm_head.weight": (VOCAB, 64)}
    for i in range(2):
        layer = f"model.layers.{i}"
        shapes |= (
            attention(f"{layer}.self_attn", 64, 4, 2)
            | gated(f"{layer}.feed_forward", 64, 160)
            | mamba_mixer(f"{layer}.mamba", dense=160, second=True)
        )
        shapes |= norm(f"{layer}.input_layernorm", 64) | norm(f"{layer}.pre_ff_layernorm", 64)
    return shapes


def rwkv_shapes() -> Shapes:
    shapes = {"rwkv.embeddings.weight": (VOCAB, 64), "head.weight": (VOCAB, 64)} | norm("rwkv.ln_out", 64, bias=True)
    for i in range(2):
        block = f"rwkv.blocks.{i}"
        shapes |= norm(f"{block}.ln1", 64, bias=True) | norm(f"{block}.ln2", 64, bias=True)
        shapes |= {
            f"{block}.attention.time_decay": (64,),
            f"{block}.attention.time_first": (64,),
            f"{block}.attention.time_mix_key": (1, 1, 64),
        }
        for name in ("key", "value", "receptance", "output"):
            shapes |= linear(f"{block}.attention.{name}", 64, 64)
        shapes |= (
            linear(f"{block}.feed_forward.key", 256, 64)
            | linear(f"{block}.feed_forward.value", 64, 256)
            | linear(f"{block}.feed_forward.receptance", 64, 64)
        )
    return shapes


def _kind(name: str, shapes: Shapes, config: dict, **dtypes: np.dtype) -> Kind:
    return plain(name, lambda: fill(shapes, **dtypes), config)


MOE = {"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "norm_topk_prob": True}
STATE = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": VOCAB, "torch_dtype": "bfloat16"}
MIXTURES = [
    _kind(
        "mixtral",
        moe_shapes("block_sparse_moe", ("w1", "w3", "w2")),
        llama_config("mixtral", "MixtralForCausalLM", inner=96) | {"num_local_experts": EXPERTS, "num_experts_per_tok": 2},
    ),
    _kind("qwen3-moe", moe_shapes("mlp", qk_norm=True), llama_config("qwen3_moe", "Qwen3MoeForCausalLM") | MOE),
    _kind("deepseek-v2", deepseek_shapes(q_rank=None, bias=False), deepseek_config("deepseek_v2", "DeepseekV2ForCausalLM", q_rank=None)),
    _kind("deepseek-v3", deepseek_shapes(), deepseek_config("deepseek_v3", "DeepseekV3ForCausalLM"), e_score_correction_bias=F32),
    _kind("kimi-k2", deepseek_shapes(), deepseek_config("kimi_k2", "DeepseekV3ForCausalLM"), e_score_correction_bias=F32),
    _kind(
        "glm4-moe",
        moe_shapes("mlp"),
        llama_config("glm4_moe", "Glm4MoeForCausalLM") | MOE | {"n_routed_experts": EXPERTS, "first_k_dense_replace": 0},
    ),
    _kind("llama4", llama4_shapes(), LLAMA4),
    _kind("gpt-oss", gpt_oss_shapes(), GPT_OSS),
    _kind("gemma3", gemma3_shapes(), GEMMA3),
    _kind(
        "qwen2-vl", qwen2_vl_shapes(), llama_config("qwen2_vl", "Qwen2VLForConditionalGeneration") | {"vision_config": {"embed_dim": 48}}
    ),
    _kind(
        "mamba",
        mamba_shapes(),
        STATE | {"architectures": ["MambaForCausalLM"], "model_type": "mamba", "state_size": 16, "conv_kernel": 4, "expand": 2},
        A_log=F32,
    ),
    _kind("falcon-h1", falcon_h1_shapes(), llama_config("falcon_h1", "FalconH1ForCausalLM", mamba_d_state=16, mamba_d_conv=4)),
    _kind("rwkv", rwkv_shapes(), STATE | {"architectures": ["RwkvForCausalLM"], "model_type": "rwkv", "attention_hidden_size": 64}),
]
