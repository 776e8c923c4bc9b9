"""Tiny models of the architectures of mlx-lm, as Hugging Face names and shapes their tensors."""

import importlib
import json
import re
from pathlib import Path
from typing import Callable, Iterable, NamedTuple

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import MODEL_REMAPPING

Named = tuple[str, mx.array]

COMMON = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "layer_norm_eps": 1e-5,
    "norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    "partial_rotary_factor": 0.5, "rope_scaling": None, "num_experts_per_tok": 2, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "moe_intermediate_size": 64, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1,
    "topk_group": 1, "routed_scaling_factor": 1.0, "norm_topk_prob": True, "state_size": 16, "conv_kernel": 4,
    "use_bias": False, "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "sliding_window": 32,
    "conv_L_cache": 3, "conv_bias": False, "layer_types": ["conv", "full_attention"],
}  # fmt: skip


class Case(NamedTuple):
    model_type: str
    config: dict = {}
    original: Callable[[str, mx.array], Iterable[Named]] = lambda name, value: [(name, value)]
    extra: tuple[Named, ...] = ()  # tensors that mlx-lm does not load
    without: tuple[str, ...] = ()  # tensors that only the class of mlx-lm has
    copied: str = ""  # what the original does not have, because it is the embedding


def unstacked(pattern: str, to: str):
    """Names of single experts, with {e} for the number and groups of the pattern."""

    def original(name, value):
        if not (found := re.fullmatch(pattern, name)):
            return [(name, value)]
        return [(found.expand(to).replace("{e}", str(e)), value[e]) for e in range(value.shape[0])]

    return original


def chain(*steps):
    def original(name, value):
        tensors = [(name, value)]
        for step in steps:
            tensors = [made for tensor in tensors for made in step(*tensor)]
        return tensors

    return original


def renamed(pattern: str, to: str):
    return lambda name, value: [(re.sub(pattern, to, name), value)]


def convolutions(name, value):
    """[channels, 1, kernel] instead of [channels, kernel, 1]."""
    return [(name, value.swapaxes(1, 2) if re.search(r"conv(1d)?\.weight$", name) and value.ndim == 3 else value)]


def gpt2(name, value):
    transposed = re.search(r"(c_attn|c_proj|c_fc)\.weight$", name)
    return [(name.removeprefix("model."), value.T if transposed else value)]


MOE = unstacked(r"(.*\.mlp)\.switch_mlp\.(.*)", r"\1.experts.{e}.\2")
IN_PLACE = unstacked(r"(.*\.mlp\.experts)\.(\w+_proj\.weight)", r"\1.{e}.\2")
LETTERS = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def mixtral(name, value):
    name = re.sub("switch_mlp.(gate|up|down)_proj", lambda found: f"switch_mlp.{LETTERS[found[0][11:]]}", name)
    return unstacked(r"(.*)\.switch_mlp\.(.*)", r"\1.experts.{e}.\2")(name, value)


def lfm2_moe(name, value):
    name = re.sub(r"(feed_forward\.(?:switch_mlp\.)?)(\w+_proj)", lambda found: found[1] + LETTERS[found[2]], name)
    return unstacked(r"(.*)\.switch_mlp\.(.*)", r"\1.experts.{e}.\2")(name, value)


class Fused:
    """Gate and up projections of one layer, as one tensor."""

    def __init__(self, pattern: str, to: str, join: Callable[[mx.array, mx.array], mx.array]):
        self.pattern, self.to, self.join, self.waiting = pattern, to, join, {}

    def __call__(self, name, value):
        if not (found := re.fullmatch(self.pattern, name)):
            return [(name, value)]
        base, kind = found.groups()
        other = self.waiting.setdefault(base, {})
        other[kind] = value
        return [(base + self.to, self.join(other["gate"], other["up"]))] if len(other) == 2 else []


def alternate(gate, up):
    return mx.stack([gate, up], axis=-1).reshape(*gate.shape[:-1], -1)


GPT_OSS = chain(
    Fused(
        r"(.*\.experts)\.(gate|up)_proj\.weight",
        ".gate_up_proj",
        lambda gate, up: alternate(gate.swapaxes(1, 2), up.swapaxes(1, 2)),
    ),
    Fused(r"(.*\.experts)\.(gate|up)_proj\.bias", ".gate_up_proj_bias", alternate),
    lambda name, value: [(name[:-7], value.swapaxes(1, 2)) if name.endswith("experts.down_proj.weight") else (name, value)],
    renamed(r"experts\.down_proj\.bias", "experts.down_proj_bias"),
)
LLAMA4 = chain(
    Fused(
        r"(.*\.experts)\.(gate|up)_proj\.weight",
        ".gate_up_proj",
        lambda gate, up: mx.concatenate([gate.swapaxes(1, 2), up.swapaxes(1, 2)], axis=-1),
    ),
    lambda name, value: [(name[:-7], value.swapaxes(1, 2)) if name.endswith("experts.down_proj.weight") else (name, value)],
)
GRANITE_MOE = chain(
    Fused(
        r"(.*\.block_sparse_moe)\.switch_mlp\.(gate|up)_proj\.weight",
        ".input_linear.weight",
        lambda gate, up: mx.concatenate([gate, up], axis=1),
    ),
    renamed("switch_mlp.down_proj", "output_linear"),
)
NEOX = chain(renamed(r"^model\.embed_out", "embed_out"), renamed(r"^model\.h\.", "gpt_neox.layers."), renamed(r"^model\.", "gpt_neox."))

ROTARY = ("model.layers.0.self_attn.rotary_emb.inv_freq", mx.zeros(8))
GPT2 = {"n_ctx": 64, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64}
MAMBA = {"time_step_rank": 32, "intermediate_size": 128}
MLA = {"kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 16, "v_head_dim": 16, "qk_nope_head_dim": 16, "moe_layer_freq": 1, "topk_method": "greedy"}
YARN = {"type": "yarn", "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64}
LONG_ROPE = {
    "type": "longrope", "short_mscale": 1.0, "long_mscale": 1.0, "short_factor": [1.0] * 8, "long_factor": [1.0] * 8,
    "original_max_position_embeddings": 64,
}  # fmt: skip
LLAMA4_TEXT = {
    "attention_chunk_size": 32, "interleave_moe_layer_step": 1, "intermediate_size_mlp": 128, "use_qk_norm": True,
    "num_experts_per_tok": 1,
}  # fmt: skip
EMBEDDING = object()  # the values of the embedding


def tied(**config):
    return {"tie_word_embeddings": True} | config


CASES = {
    "llama": Case("llama", extra=(ROTARY,)),
    "llama-tied": Case("llama", tied(), extra=(("lm_head.weight", EMBEDDING), ROTARY)),
    "llama-tied-by-values": Case("llama", {"tie_word_embeddings": None}, extra=(("lm_head.weight", EMBEDDING),), without=("lm_head.weight",)),
    "llama-without-setting": Case("llama", {"tie_word_embeddings": None}),
    "mistral": Case("mistral"),
    "xverse": Case("xverse"),
    "iquestcoder": Case("iquestcoder"),
    "mixtral": Case("mixtral", original=mixtral),
    "minimax": Case("minimax", {"rotary_dim": 8, "shared_intermediate_size": 0}, original=mixtral),
    "minimax_m2": Case("minimax_m2", {"rotary_dim": 8, "shared_intermediate_size": 0}, original=mixtral),
    "phimoe": Case("phimoe", {"rope_scaling": LONG_ROPE}, original=mixtral),
    "qwen2": Case("qwen2", tied(), extra=(("lm_head.weight", EMBEDDING),)),
    "qwen2_moe": Case("qwen2_moe", {"shared_expert_intermediate_size": 64}, original=MOE),
    "qwen3": Case("qwen3", tied()),
    "qwen3_moe": Case("qwen3_moe", {"decoder_sparse_step": 1, "mlp_only_layers": []}, original=MOE),
    "olmoe": Case("olmoe", original=MOE),
    "gemma": Case("gemma", tied(), extra=(("lm_head.weight", EMBEDDING),)),
    "gemma2": Case("gemma2", tied()),
    "gemma3_text": Case("gemma3_text", tied(), extra=(("lm_head.weight", EMBEDDING),), without=("lm_head.weight",)),
    "phi": Case("phi"),
    "phi3": Case("phi3"),
    "gpt2": Case("gpt2", GPT2, gpt2, (("h.0.attn.bias", mx.zeros((1, 1, 64, 64))),)),
    "gpt2-lm": Case("gpt2", GPT2, chain(gpt2, lambda name, value: [("transformer." + name, value)]), (("lm_head.weight", EMBEDDING),)),
    "gpt_bigcode": Case("gpt_bigcode", {"n_embd": 64, "n_layer": 2, "n_inner": 128, "n_head": 4, "n_positions": 64}),
    "gpt_neox": Case("gpt_neox", {"rotary_emb_base": 10000, "rotary_pct": 0.5}, NEOX, (("gpt_neox.layers.0.attention.bias", mx.zeros((1, 1, 64, 64))),)),
    "starcoder2": Case("starcoder2", {"norm_epsilon": 1e-5}),
    "stablelm": Case("stablelm", {"use_qkv_bias": True, "qk_layernorm": True}),
    "cohere": Case("cohere", tied(use_qk_norm=True, num_key_value_heads=4)),
    "cohere2": Case("cohere2", tied()),
    "olmo2": Case("olmo2"),
    "olmo3": Case("olmo3", {"layer_types": ["sliding_attention", "full_attention"]}),
    "deepseek": Case("deepseek", original=MOE, extra=(ROTARY,)),
    "deepseek_v2": Case("deepseek_v2", MLA | {"rope_scaling": YARN}, MOE),
    "dots1": Case("dots1", original=IN_PLACE),
    "glm4_moe": Case("glm4_moe", {"use_qk_norm": True}, MOE, (("model.layers.2.eh_proj.weight", mx.ones((64, 128))),)),
    "ernie4_5": Case("ernie4_5"),
    "ernie4_5_moe": Case("ernie4_5_moe", {"moe_num_experts": 4, "moe_k": 2}, MOE, (("model.mtp_block.0.norm.weight", mx.ones(64)),)),
    "exaone": Case("exaone", {"num_layers": 2}),
    "exaone4": Case("exaone4", {"sliding_window_pattern": "LG"}),
    "exaone_moe": Case("exaone_moe", {"num_shared_experts": 1, "layer_types": ["sliding_attention", "full_attention"], "is_moe_layer": [False, True]}, MOE),
    "granite": Case("granite", {"logits_scaling": 1.0, "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "residual_multiplier": 1.0}),
    "granitemoe": Case("granitemoe", {"logits_scaling": 1.0, "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "residual_multiplier": 1.0}, GRANITE_MOE),
    "mamba": Case("mamba", tied(**MAMBA), convolutions),
    "falcon_mamba": Case("falcon_mamba", tied(**MAMBA), convolutions),
    "mamba2": Case("mamba2", tied(num_heads=8, n_groups=1, time_step_limit=[0.0, 1.0], time_step_rank=4), convolutions),
    "jamba": Case("jamba", {"attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_expand": 2, "mamba_dt_rank": 32}, chain(unstacked(r"(.*\.feed_forward)\.switch_mlp\.(.*)", r"\1.experts.{e}.\2"), convolutions)),
    "nemotron_h": Case("nemotron_h", {"mamba_num_heads": 8, "mamba_head_dim": 16, "mamba_proj_bias": False, "ssm_state_size": 16, "n_groups": 1, "hybrid_override_pattern": ["M", "*", "-", "E"], "moe_shared_expert_intermediate_size": 64}, chain(convolutions, renamed("switch_mlp.fc1", "switch_mlp.up_proj"), renamed("switch_mlp.fc2", "switch_mlp.down_proj"), unstacked(r"(.*\.mixer)\.switch_mlp\.(.*)", r"\1.experts.{e}.\2"))),
    "lfm2": Case("lfm2", {"block_dim": 64, "block_ff_dim": 128, "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False}, convolutions),
    "lfm2_moe": Case("lfm2_moe", {"use_expert_bias": True, "num_dense_layers": 1}, chain(convolutions, lfm2_moe)),
    "gpt_oss": Case("gpt_oss", {"layer_types": ["sliding_attention", "full_attention"]}, GPT_OSS),
    "llama4": Case("llama4", {"text_config": COMMON | LLAMA4_TEXT | {"model_type": "llama4_text"}}, LLAMA4, (("vision_model.class_embedding", mx.zeros(64)),)),
    "glm": Case("glm"),
    "glm4": Case("glm4"),
    "minicpm": Case("minicpm", {"dim_model_base": 32, "scale_depth": 1.0, "scale_emb": 1.0}),
    "minicpm-tied": Case("minicpm", tied(dim_model_base=32, scale_depth=1.0, scale_emb=1.0), copied="lm_head.weight"),
    "minicpm3": Case("minicpm3", MLA | {"rope_scaling": LONG_ROPE, "dim_model_base": 32, "scale_depth": 1.0, "scale_emb": 1.0}),
    "internlm2": Case("internlm2", {"bias": False}),
    "internlm3": Case("internlm3", {"bias": False, "qkv_bias": False}),
    "helium": Case("helium"),
    "hunyuan_v1_dense": Case("hunyuan_v1_dense", {"rope_scaling": {"alpha": 1.0, "factor": 1.0, "type": "dynamic"}, "use_qk_norm": True}),
    "nemotron": Case("nemotron", {"norm_eps": 1e-5, "hidden_act": "relu2"}),
    "smollm3": Case("smollm3", {"no_rope_layer_interval": 2}),
    "seed_oss": Case("seed_oss"),
    "mimo": Case("mimo", {"num_nextn_predict_layers": 1}, extra=(("model.mtp_layers.0.norm.weight", mx.ones(64)),)),
    "telechat3": Case("telechat3"),
    "mellum": Case("mellum", {"layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {kind: {"rope_theta": 10000.0, "rope_type": "default"} for kind in ("sliding_attention", "full_attention")}}, MOE),
    "openelm": Case("openelm", {"num_transformer_layers": 2, "model_dim": 64, "ffn_dim_divisor": 32, "num_query_heads": [4, 4], "num_kv_heads": [2, 2], "ffn_multipliers": [1.0, 2.0]}),
    "apertus": Case("apertus", {"qk_norm": True, "post_norm": False}),
    "Klear": Case("Klear", {"num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": []}, IN_PLACE),
    "ministral3": Case("ministral3", {"rope_parameters": {"rope_theta": 10000.0, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 64}}),
    "nemotron-nas": Case("nemotron-nas", {"block_configs": [{"attention": {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False, "sparsify": None, "unshifted_sink": False, "use_prefill_window_in_sink_attention": False, "window_length": None, "num_sink_tokens": None}, "ffn": {"ffn_mult": 1.0, "no_op": False, "replace_with_linear": False, "sparsify": None}}] * 2}),
    "gemma3": Case("gemma3", {"text_config": COMMON | {"model_type": "gemma3_text"}}, extra=(("vision_tower.embeddings.weight", mx.ones((64, 64))),), without=("language_model.lm_head.weight",)),
    "mistral3": Case("mistral3", {"text_config": COMMON | {"model_type": "mistral"}}, extra=(("multi_modal_projector.norm.weight", mx.ones(64)),)),
    "qwen2_vl": Case("qwen2_vl", {}, renamed(r"^language_model\.", ""), (("visual.merger.ln_q.weight", mx.ones(64)),)),
    "qwen2_5_vl": Case("qwen2_5_vl", {}, renamed(r"^language_model\.", ""), (("visual.merger.ln_q.weight", mx.ones(64)),)),
    "llava": Case("llava", {"text_config": COMMON | {"model_type": "mistral"}}, extra=(("vision_tower.norm.weight", mx.ones(64)),)),
    "qwen3_vl": Case("qwen3_vl", {"text_config": COMMON | {"model_type": "qwen3_vl_text"}}, chain(renamed(r"^language_model\.model\.", "model.language_model."), renamed(r"^language_model\.lm_head", "lm_head")), (("model.visual.pos_embed.weight", mx.ones((64, 64))),)),
}  # fmt: skip


class Made(NamedTuple):
    folder: Path
    expected: dict[str, mx.array]  # by the names of mlx-lm


def make(name: str, folder: Path, dtype=mx.bfloat16) -> Made:
    """Writes the model of a case, with seeded values."""
    case = CASES[name]
    config = COMMON | {"model_type": case.model_type} | case.config
    config = {key: value for key, value in config.items() if key not in case.config or value is not None}
    if case.config.get("tie_word_embeddings", False) is None:
        config.pop("tie_word_embeddings", None)
    arch = importlib.import_module(f"mlx_lm.models.{MODEL_REMAPPING.get(case.model_type, case.model_type)}")
    complete = {"tie_word_embeddings": False} | config | ({"tie_word_embeddings": False} if case.copied else {})
    model = arch.Model(arch.ModelArgs.from_dict(json.loads(json.dumps(complete))))
    key = mx.random.key(7)
    expected, originals = {}, {}
    for path, value in tree_flatten(model.parameters()):
        key, this = mx.random.split(key)
        expected[path] = (mx.random.normal(value.shape, key=this) * 0.05).astype(dtype)
        if path not in (*case.without, case.copied):
            originals |= dict(case.original(path, expected[path]))
    embedding = next((value for path, value in expected.items() if re.search(r"(embed_tokens|wte|embeddings|embed_in|word_embeddings)\.weight$", path)), None)
    for path, value in case.extra:
        originals[path] = embedding if value is EMBEDDING else value
    for path in case.without:
        del expected[path]
    if case.copied:
        expected[case.copied] = embedding
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), {path: mx.contiguous(value) for path, value in originals.items()})
    (folder / "config.json").write_text(json.dumps(config))
    return Made(folder, expected)
