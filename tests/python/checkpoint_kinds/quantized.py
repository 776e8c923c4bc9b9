"""Small models of which the linear layers are stored in each of the layouts."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from layouts import LAYOUTS, Config, Layout, Tensors, write
from layouts.comfyui import PlainFp8
from layouts.compressed_tensors import section

from .base import BF16, F32, Kind, Made, Shapes, fill, in_f32, write_json
from .language import LLAMA, MISTRAL_PARAMS, gated, linear, llama_config, llama_shapes, mistral_shapes
from .mixtures import GPT_OSS, deepseek_config, deepseek_shapes, gpt_oss_shapes


@dataclass(frozen=True)
class Base:
    """A model to quantize: which tensors, which of its matrices stay as they are, and its config."""

    shapes: Callable[[], Shapes]
    config: dict | None
    unquantized: tuple[str, ...]
    file: str = "model.safetensors"
    prefix: str = ""

    def modules(self) -> list[str]:
        found = [name.removesuffix(".weight") for name, shape in self.shapes().items() if name.endswith(".weight") and len(shape) == 2]
        return [name for name in found if not name.endswith(self.unquantized)]


def comfy_shapes(prefix: str) -> Shapes:
    """FLUX under the names of its authors."""
    shapes = linear("img_in", 64, 32, bias=True) | linear("double_blocks.0.img_attn.qkv", 192, 64, bias=True)
    shapes |= linear("double_blocks.0.img_attn.proj", 64, 64, bias=True) | linear("double_blocks.0.img_mlp.0", 256, 64, bias=True)
    shapes |= linear("single_blocks.0.linear1", 448, 64, bias=True) | linear("final_layer.linear", 32, 64, bias=True)
    shapes |= {"double_blocks.0.img_attn.norm.query_norm.scale": (16,)}
    return {prefix + name: shape for name, shape in shapes.items()}


def v4_shapes() -> Shapes:
    shapes = {"embed.weight": (96, 192), "norm.weight": (192,), "head.weight": (96, 192)} | linear("layers.0.attn.wq_a", 96, 192)
    return shapes | linear("layers.0.attn.wkv", 80, 192) | gated("layers.0.ffn.experts.0", 192, 64, ("w1", "w3", "w2"))


HEADS = ("embed_tokens", "lm_head")
BASES = {
    "llama": Base(llama_shapes, LLAMA, HEADS),
    "qwen2": Base(lambda: llama_shapes(bias=True), llama_config("qwen2", "Qwen2ForCausalLM"), HEADS),
    "qwen3": Base(lambda: llama_shapes(qk_norm=True), llama_config("qwen3", "Qwen3ForCausalLM"), HEADS),
    "deepseek-v3": Base(deepseek_shapes, deepseek_config("deepseek_v3", "DeepseekV3ForCausalLM"), (*HEADS, "mlp.gate")),
    "deepseek-v4": Base(v4_shapes, LLAMA | {"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"]}, ("embed", "head")),
    "mistral": Base(mistral_shapes, None, ("tok_embeddings", "output"), "consolidated.safetensors"),
    "comfyui": Base(lambda: comfy_shapes(""), None, ("img_in", "final_layer.linear"), "flux1-dev.safetensors"),
    "comfyui-prefix": Base(
        lambda: comfy_shapes("model.diffusion_model."),
        None,
        ("img_in", "final_layer.linear"),
        "flux1-dev.safetensors",
        "model.diffusion_model.",
    ),
}


def base_of(layout: Layout) -> Base:
    if layout.name.startswith("deepseek-v4"):
        return BASES["deepseek-v4"]
    if layout.name == "comfy-old-e5m2":
        return BASES["comfyui-prefix"]
    if layout.scheme == "comfyui":
        return BASES["comfyui"]
    if layout.name == "mistral-fp8":
        return BASES["mistral"]
    if "block" in layout.name:
        return BASES["deepseek-v3"]
    return BASES[{"gptq": "qwen2", "awq": "qwen2", "compressed-tensors": "qwen3", "mlx": "qwen3"}.get(layout.scheme, "llama")]


def store(layouts: dict[str, Layout], plain: Tensors) -> Made:
    """Return the tensors of a model, each module in its layout, and the dense weights. The path is empty."""
    stored, dense, parts, quantized = {}, {}, {}, set()
    for name, tensor in plain.items():
        layout = layouts.get(module := name.removesuffix(".weight"))
        if layout is None:
            stored[name] = tensor
            dense |= in_f32({name: tensor})
            continue
        made = layout.make(np.random.default_rng(zlib.crc32(name.encode())), *tensor.shape)
        stored |= made.named(module)
        logical = module + made.weight
        dense[logical], parts[logical] = made.dense, sorted(made.named(module))
        quantized.add(logical)
    return Made(Path(), stored, dense, frozenset(quantized), parts)


def save(folder: Path, base: Base, config: Config, made: Made) -> Made:
    folder.mkdir(parents=True)
    stored = made.stored | {base.prefix + name: tensor for name, tensor in config.tensors.items()}
    write(folder / base.file, stored, config.metadata)
    write_json(folder, config.files)
    if base.config is not None:
        write_json(folder, {"config.json": base.config | config.keys})
    if "params.json" in config.files:
        write_json(folder, {"params.json": MISTRAL_PARAMS | config.files["params.json"]})
    return Made(folder, stored, made.dense, made.quantized, made.parts)


@functools.cache
def modules_of(name: str) -> tuple[str, ...]:
    return tuple(base_of(LAYOUTS[name]).modules())


def make(layout: Layout, folder: Path) -> Made:
    base, modules = base_of(layout), modules_of(layout.name)
    plain = fill(base.shapes(), BF16, e_score_correction_bias=F32)
    ignored = [name.removesuffix(".weight") for name, shape in base.shapes().items() if len(shape) == 2 and name.endswith("lm_head.weight")]
    config = layout.config([module.removeprefix(base.prefix) for module in modules], ignored)
    if layout.name == "deepseek-v4-fp4":
        fp8 = LAYOUTS["deepseek-v4-fp8"]
        return save(folder, base, config, store({m: layout if "experts" in m else fp8 for m in modules}, plain))
    return save(folder, base, config, store(dict.fromkeys(modules, layout), plain))


def make_experts(layout: Layout, folder: Path) -> Made:
    """gpt-oss: two weights of experts per layer, whose layout names them itself."""
    plain = fill(gpt_oss_shapes(dense=False))
    stored, dense, parts = dict(plain), in_f32(plain), {}
    for i in range(2):
        for name, shape in (("gate_up_proj", (192, 64)), ("down_proj", (64, 96))):
            module = f"model.layers.{i}.mlp.experts.{name}"
            made = layout.make(np.random.default_rng(i), *shape)
            wide = {suffix: np.concatenate([tensor] * 2) for suffix, tensor in made.tensors.items()}  # four experts
            stored |= {module + suffix: tensor for suffix, tensor in wide.items()}
            dense[module], parts[module] = np.concatenate([made.dense] * 2), sorted(module + suffix for suffix in wide)
    made = Made(Path(), stored, dense, frozenset(parts), parts)
    return save(folder, Base(gpt_oss_shapes, GPT_OSS, ()), layout.config([]), made)


def make_openai(layout: Layout, folder: Path) -> Made:
    """gpt-oss as its authors name it."""
    plain = fill(
        {"embedding.weight": (96, 64), "unembedding.weight": (96, 64), "block.0.mlp.mlp1_bias": (2, 192), "block.0.mlp.norm.scale": (64,)}
    )
    stored, dense, parts = dict(plain), in_f32(plain), {}
    for name, shape in (("mlp1_weight", (192, 64)), ("mlp2_weight", (64, 96))):
        module = f"block.0.mlp.{name}"
        made = layout.make(np.random.default_rng(5), *shape)
        stored |= made.named(module)
        dense[module], parts[module] = made.dense, sorted(made.named(module))
    config = {"num_hidden_layers": 1, "num_experts": 2, "hidden_size": 64, "intermediate_size": 96}
    return save(folder, Base(gpt_oss_shapes, config, ()), layout.config([]), Made(Path(), stored, dense, frozenset(parts), parts))


def make_mixed(folder: Path) -> Made:
    """compressed-tensors with a format for each group of modules."""
    base, attention, rest = BASES["qwen3"], LAYOUTS["ct-fp8-channel"], LAYOUTS["ct-pack4-group"]
    layouts = {module: attention if "self_attn" in module else rest for module in base.modules()}
    groups = [attention.config_group(["re:.*self_attn.*"]), rest.config_group(["re:.*mlp.*"])]
    return save(folder, base, section("mixed-precision", groups, ["lm_head"]), store(layouts, fill(base.shapes())))


def _kind(layout: Layout) -> Kind:
    maker = {"mxfp4-experts": make_experts, "mxfp4-openai": make_openai}.get(layout.name, make)
    return Kind(layout.name, functools.partial(maker, layout), refused={}, layout=layout.name)


CAST = [Kind(name, functools.partial(make, layout)) for name, layout in LAYOUTS.items() if isinstance(layout, PlainFp8)]
QUANTIZED = [_kind(layout) for layout in LAYOUTS.values() if not isinstance(layout, PlainFp8)]
QUANTIZED += [Kind("ct-mixed", make_mixed, refused={}, layout="ct-mixed")]
