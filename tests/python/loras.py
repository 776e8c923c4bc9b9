"""LoRA adapters, written as PEFT, Kohya and diffusers write them, and merged in numpy as docs/cookbook.md describes it."""

import json

import ml_dtypes
import numpy as np
from safetensors import deserialize
from safetensors.numpy import save_file

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": BF16, "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn)}

RANK = 4
Q_PROJ, UP_PROJ, UP_PROJ_1 = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"
MODULES = {Q_PROJ: (24, 64), UP_PROJ: (40, 64), UP_PROJ_1: (40, 64)}


def load(path):
    """The tensors of a file; safetensors.numpy has no F8."""
    return {name: np.frombuffer(each["data"], DTYPES[each["dtype"]]).reshape(each["shape"])
            for name, each in deserialize(path.read_bytes())}  # fmt: skip


def matrices(rng, rank, out, columns, dtype=np.float32):
    """A random pair: down [rank, …] and up [out, rank]."""
    columns = columns if isinstance(columns, tuple) else (columns,)
    down = rng.standard_normal((rank, *columns), np.float32).astype(dtype)
    up = (rng.standard_normal((out, rank), np.float32) * np.float32(0.1)).astype(dtype)
    return down, up


def merged(weight, *changes, dtype=None, transposed=False):
    """Add scale · up · down for each (down, up, scale): in float32, products rounded and added in order of the rank."""
    values = weight.astype(np.float32)
    for down, up, scale in changes:
        left = up.reshape(up.shape[0], -1).astype(np.float32)
        right = down.reshape(down.shape[0], -1).astype(np.float32)
        product = np.zeros((left.shape[0], right.shape[1]), np.float32)
        for rank in range(right.shape[0]):
            product += left[:, rank, None] * right[rank]
        product = product.T if transposed else product
        values = values + (np.float32(scale) * product).reshape(weight.shape)
    return values.astype(weight.dtype if dtype is None else dtype)


def peft(folder, pairs, *, wholes=None, **config):
    """adapter_model.safetensors and adapter_config.json for {module: (down, up)}."""
    folder.mkdir()
    rank = next(iter(pairs.values()))[0].shape[0] if pairs else 8
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": ["x"], "fan_in_fan_out": False, **config}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {f"base_model.model.{name}": values for name, values in (wholes or {}).items()}
    for module, (down, up) in pairs.items():
        tensors[f"base_model.model.{module}.lora_A.weight"] = down
        tensors[f"base_model.model.{module}.lora_B.weight"] = up
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    return folder


def kohya(path, pairs, *, prefix="lora_unet", alpha=None):
    """Names with underscores for {module: (down, up)}, and an alpha for each module."""
    tensors = {}
    for module, (down, up) in pairs.items():
        name = f"{prefix}_{module.replace('.', '_')}"
        tensors |= {f"{name}.lora_down.weight": down, f"{name}.lora_up.weight": up}
        if alpha is not None:
            tensors[f"{name}.alpha"] = np.array(alpha, down.dtype)
    save_file(tensors, path, {"ss_network_module": "networks.lora"})
    return path


def diffusers(path, pairs, *, prefix="unet", alpha=None, down=".lora.down.weight", up=".lora.up.weight"):
    """Names with dots for {module: (down, up)}; an alpha is in the metadata, as a config of PEFT."""
    tensors = {}
    for module, (first, second) in pairs.items():
        tensors |= {f"{prefix}.{module}{down}": first, f"{prefix}.{module}{up}": second}
    metadata = {"format": "pt"}
    if alpha is not None:
        metadata["lora_adapter_metadata"] = json.dumps({f"{prefix}.r": first.shape[0], f"{prefix}.lora_alpha": alpha})
    save_file(tensors, path, metadata)
    return path


def base(folder, dtype=BF16, **more):
    """A model directory with MODULES and what belongs to a model."""
    rng = np.random.default_rng(1)
    folder.mkdir()
    tensors = {f"{module}.weight": rng.standard_normal(shape).astype(dtype) for module, shape in MODULES.items()}
    tensors["model.embed_tokens.weight"] = rng.standard_normal((50, 64)).astype(dtype)
    tensors["model.norm.weight"] = np.ones(64, dtype)
    tensors |= more
    save_file(tensors, folder / "model.safetensors", {"format": "pt", "license": "mit"})
    config = {"model_type": "llama", "tie_word_embeddings": True, "torch_dtype": str(np.dtype(dtype))}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def some_pairs(dtype=np.float32, modules=MODULES, rank=RANK):
    rng = np.random.default_rng(2)
    return {module: matrices(rng, rank, *shape, dtype) for module, shape in modules.items()}
