"""What quantize writes for vLLM, SGLang and transformers: its variants, models to write them of, and decoders in numpy."""

import json
import re
from dataclasses import replace

import numpy as np
from layouts import LAYOUTS, read_all, write

BLOCK = "model.layers.0."
LINEAR = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")

INT = ("--format", "compressed-tensors")
FP8 = (*INT, "--type", "fp8")
# Options by the name of a variant.
VARIANTS = {
    **{f"int{bits}": (*INT, "--bits", bits, "--group-size", 32) for bits in range(2, 9)},
    **{f"int{bits}-asymmetric": (*INT, "--bits", bits, "--group-size", 32, "--asymmetric") for bits in range(2, 9)},
    "int4-g128": INT,
    "int4-channel": (*INT, "--strategy", "channel"),
    "int8-channel": (*INT, "--bits", 8, "--strategy", "channel"),
    "int8-channel-asymmetric": (*INT, "--bits", 8, "--strategy", "channel", "--asymmetric"),
    "fp8": FP8,
    "fp8-tensor": (*FP8, "--strategy", "tensor"),
    "fp8-block": (*FP8, "--strategy", "block"),
    "mxfp4": (*INT, "--type", "mxfp4"),
    "mxfp8": (*INT, "--type", "mxfp8"),
    "nvfp4": (*INT, "--type", "nvfp4"),
    "hf-fp8": ("--format", "hf-fp8"),
}  # fmt: skip


def weights(rng, rows, columns, dtype, kind="normal"):
    values = rng.standard_normal((rows, columns)) if kind == "normal" else rng.standard_t(3, (rows, columns))
    values[:, 3] *= 9
    return (values * 0.02).astype(np.float32).astype(dtype)


def model(folder, dtype=np.float32, hidden=128, inner=256, kv=128, seed=1, config=None):
    """Write one block of a language model with an embedding, and return its tensors."""
    rng = np.random.default_rng(seed)
    shapes = dict(zip(LINEAR, ((hidden, hidden), (kv, hidden), (kv, hidden), (hidden, hidden), (inner, hidden), (inner, hidden), (hidden, inner)), strict=True))
    tensors = {f"{BLOCK}{name}.weight": weights(rng, *shape, dtype, "student" if "mlp" in name else "normal") for name, shape in shapes.items()}
    tensors["model.embed_tokens.weight"] = weights(rng, 64, hidden, dtype)
    tensors["lm_head.weight"] = weights(rng, 64, hidden, dtype)
    for name in (f"{BLOCK}input_layernorm", f"{BLOCK}post_attention_layernorm", "model.norm"):
        tensors[f"{name}.weight"] = np.ones(hidden, dtype)
    folder.mkdir()
    write(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({"model_type": "some", "torch_dtype": "float32"} | (config or {})))
    return tensors


def section(folder):
    return json.loads((folder / "config.json").read_text())["quantization_config"]


def group_of(config, module):
    """The config group of a module: by name, by expression, then by class."""
    groups = config["config_groups"].values()
    for applies in (lambda t: t == module, lambda t: t.startswith("re:") and re.match(t[3:], module), lambda t: t == "Linear"):
        for group in groups:
            if any(applies(target) for target in group["targets"]):
                return group
    return None


def layout_of(config, module):
    """The layout of tests/python/layouts that the config describes."""
    if config["quant_method"] == "fp8":
        return None
    weights = group_of(config, module)["weights"]
    if config["format"] == "pack-quantized":
        base = LAYOUTS["ct-pack4-group"]
        return replace(base, bits=weights["num_bits"], symmetric=weights["symmetric"], scale_group=weights.get("group_size", 0))
    if config["format"] == "float-quantized":
        shape = tuple(weights.get("block_structure", ())) or None
        return replace(LAYOUTS["ct-fp8-channel"], scale_group=-1 if weights["strategy"] == "tensor" else 0, block=shape)
    return LAYOUTS[{"mxfp4-pack-quantized": "ct-mxfp4", "mxfp8-quantized": "ct-mxfp8", "nvfp4-pack-quantized": "ct-nvfp4"}[config["format"]]]


def decoded(folder):
    """The values of all quantized weights, with numpy alone."""
    tensors, config, found = read_all(folder), section(folder), {}
    modules = {re.sub(r"\.weight(_packed|_scale|_scale_inv)?$", "", name) for name in tensors if re.search(r"\.weight_(scale|scale_inv)$", name)}
    for module in modules:
        own = {name.removeprefix(module): tensor for name, tensor in tensors.items() if name.startswith(module + ".weight")}
        if config["quant_method"] == "fp8":
            codes = own[".weight"].astype(np.float32)
            height, width = config["weight_block_size"]
            scales = own[".weight_scale_inv"]
            assert scales.dtype == np.float32 and scales.shape == (-(-codes.shape[0] // height), -(-codes.shape[1] // width))
            whole = np.repeat(np.repeat(scales, height, axis=0), width, axis=1)[: codes.shape[0], : codes.shape[1]]
            found[f"{module}.weight"] = codes * whole
        else:
            found[f"{module}.weight"] = block_or_layout(layout_of(config, module), own)
    return found


def block_or_layout(layout, own):
    if getattr(layout, "block", None):
        codes = own[".weight"].astype(np.float32)
        height, width = layout.block
        scales = own[".weight_scale"].astype(np.float32)
        return codes * np.repeat(np.repeat(scales, height, axis=0), width, axis=1)[: codes.shape[0], : codes.shape[1]]
    return layout.decode(own)
