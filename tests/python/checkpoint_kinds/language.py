"""Language models that decode text."""

from __future__ import annotations

from .base import F16, F32, Kind, Shapes, fill, plain

VOCAB = 96


def norm(name: str, size: int, *, bias: bool = False) -> Shapes:
    return {f"{name}.weight": (size,)} | ({f"{name}.bias": (size,)} if bias else {})


def linear(name: str, rows: int, columns: int, *, bias: bool = False) -> Shapes:
    return {f"{name}.weight": (rows, columns)} | ({f"{name}.bias": (rows,)} if bias else {})


def attention(name: str, size: int, heads: int, groups: int, *, bias: bool = False, qk_norm: bool = False) -> Shapes:
    """Return q, k, v and o; `groups` is the number of key and value heads."""
    narrow = size // heads * groups
    shapes = linear(f"{name}.q_proj", size, size, bias=bias) | linear(f"{name}.k_proj", narrow, size, bias=bias)
    shapes |= linear(f"{name}.v_proj", narrow, size, bias=bias) | linear(f"{name}.o_proj", size, size)
    if qk_norm:
        shapes |= norm(f"{name}.q_norm", size // heads) | norm(f"{name}.k_norm", size // heads)
    return shapes


def gated(name: str, size: int, inner: int, names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> Shapes:
    gate, up, down = (f"{name}.{each}" for each in names)
    return linear(gate, inner, size) | linear(up, inner, size) | linear(down, size, inner)


LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")


def llama_shapes(
    *, layers: int = 2, size: int = 64, inner: int = 160, heads: int = 4, groups: int = 2, prefix: str = "model.",
    head: str | None = "lm_head", bias: bool = False, qk_norm: bool = False, norms: tuple[str, ...] = LLAMA_NORMS,
) -> Shapes:  # fmt: skip
    shapes = {f"{prefix}embed_tokens.weight": (VOCAB, size)}
    for i in range(layers):
        layer = f"{prefix}layers.{i}"
        shapes |= attention(f"{layer}.self_attn", size, heads, groups, bias=bias, qk_norm=qk_norm) | gated(f"{layer}.mlp", size, inner)
        for each in norms:
            shapes |= norm(f"{layer}.{each}", size)
    shapes |= norm(f"{prefix}norm", size)
    return shapes | (linear(head, VOCAB, size) if head else {})


def llama_config(
    model_type: str, architecture: str, *, layers: int = 2, size: int = 64, inner: int = 160, heads: int = 4, groups: int = 2, **more
):
    return {
        "architectures": [architecture], "model_type": model_type, "hidden_size": size, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "max_position_embeddings": 128, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu", "head_dim": size // heads,
    } | more  # fmt: skip


LLAMA = llama_config("llama", "LlamaForCausalLM")
GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def mistral_shapes() -> Shapes:
    shapes = {"tok_embeddings.weight": (VOCAB, 64), "norm.weight": (64,), "output.weight": (VOCAB, 64)}
    for i in range(2):
        for name, rows in (("wq", 64), ("wk", 32), ("wv", 32), ("wo", 64)):
            shapes |= linear(f"layers.{i}.attention.{name}", rows, 64)
        shapes |= gated(f"layers.{i}.feed_forward", 64, 160, ("w1", "w3", "w2"))
        shapes |= norm(f"layers.{i}.attention_norm", 64) | norm(f"layers.{i}.ffn_norm", 64)
    return shapes


MISTRAL_PARAMS = {
    "dim": 64, "n_layers": 2, "head_dim": 16, "hidden_dim": 160, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-5, "vocab_size": VOCAB,
    "rope_theta": 10000.0,
}  # fmt: skip


def phi3_shapes() -> Shapes:
    shapes = {"model.embed_tokens.weight": (VOCAB, 64), "model.norm.weight": (64,), "lm_head.weight": (VOCAB, 64)}
    for i in range(2):
        layer = f"model.layers.{i}"
        shapes |= linear(f"{layer}.self_attn.qkv_proj", 128, 64) | linear(f"{layer}.self_attn.o_proj", 64, 64)
        shapes |= linear(f"{layer}.mlp.gate_up_proj", 320, 64) | linear(f"{layer}.mlp.down_proj", 64, 160)
        shapes |= norm(f"{layer}.input_layernorm", 64) | norm(f"{layer}.post_attention_layernorm", 64)
    return shapes


def gpt2_shapes() -> Shapes:
    shapes = {"wte.weight": (VOCAB, 64), "wpe.weight": (128, 64)} | norm("ln_f", 64, bias=True)
    for i in range(2):
        layer = f"h.{i}"
        for name, rows, columns in (("attn.c_attn", 64, 192), ("attn.c_proj", 64, 64), ("mlp.c_fc", 64, 256), ("mlp.c_proj", 256, 64)):
            shapes |= {f"{layer}.{name}.weight": (rows, columns), f"{layer}.{name}.bias": (columns,)}
        shapes |= norm(f"{layer}.ln_1", 64, bias=True) | norm(f"{layer}.ln_2", 64, bias=True) | {f"{layer}.attn.bias": (1, 1, 128, 128)}
    return shapes


def neox_shapes() -> Shapes:
    shapes = {"gpt_neox.embed_in.weight": (VOCAB, 64), "embed_out.weight": (VOCAB, 64)} | norm("gpt_neox.final_layer_norm", 64, bias=True)
    for i in range(2):
        layer = f"gpt_neox.layers.{i}"
        shapes |= linear(f"{layer}.attention.query_key_value", 192, 64, bias=True) | linear(f"{layer}.attention.dense", 64, 64, bias=True)
        shapes |= linear(f"{layer}.mlp.dense_h_to_4h", 256, 64, bias=True) | linear(f"{layer}.mlp.dense_4h_to_h", 64, 256, bias=True)
        shapes |= norm(f"{layer}.input_layernorm", 64, bias=True) | norm(f"{layer}.post_attention_layernorm", 64, bias=True)
    return shapes


def fused_blocks(root: str, attn: str, mlp: str, norms: tuple[str, ...], *, qkv: int = 192, bias: bool = True) -> Shapes:
    """Return the layers of BLOOM and Falcon."""
    shapes: Shapes = {}
    for i in range(2):
        layer = f"{root}.{i}"
        shapes |= linear(f"{layer}.{attn}.query_key_value", qkv, 64, bias=bias) | linear(f"{layer}.{attn}.dense", 64, 64, bias=bias)
        shapes |= linear(f"{layer}.{mlp}.dense_h_to_4h", 256, 64, bias=bias) | linear(f"{layer}.{mlp}.dense_4h_to_h", 64, 256, bias=bias)
        for each in norms:
            shapes |= norm(f"{layer}.{each}", 64, bias=True)
    return shapes


def falcon_shapes() -> Shapes:
    shapes = {"transformer.word_embeddings.weight": (VOCAB, 64), "lm_head.weight": (VOCAB, 64)} | norm("transformer.ln_f", 64, bias=True)
    return shapes | fused_blocks("transformer.h", "self_attention", "mlp", ("input_layernorm",), qkv=96, bias=False)


def bloom_shapes() -> Shapes:
    shapes = {"word_embeddings.weight": (VOCAB, 64)} | norm("word_embeddings_layernorm", 64, bias=True) | norm("ln_f", 64, bias=True)
    return shapes | fused_blocks("h", "self_attention", "mlp", ("input_layernorm", "post_attention_layernorm"))


def opt_shapes() -> Shapes:
    root = "model.decoder"
    shapes = {f"{root}.embed_tokens.weight": (VOCAB, 64), f"{root}.embed_positions.weight": (130, 64)} | norm(
        f"{root}.final_layer_norm", 64, bias=True
    )
    for i in range(2):
        layer = f"{root}.layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= linear(f"{layer}.self_attn.{name}", 64, 64, bias=True)
        shapes |= linear(f"{layer}.fc1", 256, 64, bias=True) | linear(f"{layer}.fc2", 64, 256, bias=True)
        shapes |= norm(f"{layer}.self_attn_layer_norm", 64, bias=True) | norm(f"{layer}.final_layer_norm", 64, bias=True)
    return shapes


def duplicated():
    """A tied model that was saved with both names."""
    tensors = fill(llama_shapes())
    return tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]}


def text(name: str, shapes: Shapes, config: dict, **more) -> Kind:
    return plain(name, lambda: fill(shapes), config, **more)


def small(model_type: str, architecture: str, **more) -> dict:
    return {"architectures": [architecture], "model_type": model_type, "vocab_size": VOCAB, "torch_dtype": "float16"} | more


SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LANGUAGE = [
    text("llama", llama_shapes(), LLAMA),
    text("llama-tied", llama_shapes(head=None), LLAMA | {"tie_word_embeddings": True}),
    plain("llama-tied-duplicate", duplicated, LLAMA | {"tie_word_embeddings": True}),
    plain("llama-f32", lambda: fill(llama_shapes(), F32), LLAMA | {"torch_dtype": "float32"}),
    plain("llama-f16", lambda: fill(llama_shapes(), F16), LLAMA | {"torch_dtype": "float16"}),
    text("llama-sharded", llama_shapes(), LLAMA, shards=3),
    text("mistral", llama_shapes(), llama_config("mistral", "MistralForCausalLM", sliding_window=64)),
    text("mistral-consolidated", mistral_shapes(), None, file="consolidated.safetensors", files={"params.json": MISTRAL_PARAMS}),
    text("qwen2", llama_shapes(bias=True), llama_config("qwen2", "Qwen2ForCausalLM")),
    text("qwen3", llama_shapes(qk_norm=True), llama_config("qwen3", "Qwen3ForCausalLM")),
    text("gemma2", llama_shapes(head=None, norms=GEMMA_NORMS), llama_config("gemma2", "Gemma2ForCausalLM", tie_word_embeddings=True)),
    text("phi3", phi3_shapes(), llama_config("phi3", "Phi3ForCausalLM")),
    text("gpt2", gpt2_shapes(), small("gpt2", "GPT2LMHeadModel", n_embd=64, n_layer=2, n_head=4, n_positions=128)),
    text("gpt-neox", neox_shapes(), small("gpt_neox", "GPTNeoXForCausalLM", intermediate_size=256, **SIZES)),
    text("falcon", falcon_shapes(), small("falcon", "FalconForCausalLM", multi_query=True, parallel_attn=True, **SIZES)),
    text("bloom", bloom_shapes(), small("bloom", "BloomForCausalLM", hidden_size=64, n_layer=2, n_head=4)),
    text("opt", opt_shapes(), small("opt", "OPTForCausalLM", ffn_dim=256, max_position_embeddings=128, **SIZES)),
    text("stablelm", llama_shapes(), llama_config("stablelm", "StableLmForCausalLM")),
    text(
        "cohere", llama_shapes(head=None, norms=("input_layernorm",)), llama_config("cohere", "CohereForCausalLM", tie_word_embeddings=True)
    ),
]
