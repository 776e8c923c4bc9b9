"""Small diffusers pipelines: the folders and files of real ones, with few and small tensors."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

FOLDERS = {
    "scheduler": ("diffusers", "PNDMScheduler", {"scheduler_config.json": '{"beta_start": 0.00085}'}),
    "tokenizer": ("transformers", "CLIPTokenizer", {"vocab.json": '{"a": 0}', "merges.txt": "a b\n"}),
    "tokenizer_2": ("transformers", "T5TokenizerFast", {"tokenizer.json": "{}", "spiece.model": "x"}),
    "feature_extractor": ("transformers", "CLIPImageProcessor", {"preprocessor_config.json": '{"size": 224}'}),
}
MODELS = {
    "unet": ("diffusers", "UNet2DConditionModel"),
    "transformer": ("diffusers", "FluxTransformer2DModel"),
    "vae": ("diffusers", "AutoencoderKL"),
    "text_encoder": ("transformers", "CLIPTextModel"),
    "text_encoder_2": ("transformers", "CLIPTextModelWithProjection"),
    "safety_checker": ("stable_diffusion", "StableDiffusionSafetyChecker"),
}


def tensors(seed, dtype=np.float32, layers=2):
    """Matrices, a convolution and vectors under names of a UNet."""
    random = np.random.default_rng(seed)
    made = {"conv_in.weight": random.standard_normal((8, 4, 3, 3)), "conv_in.bias": random.standard_normal(8)}
    for layer in range(layers):
        name = f"mid_block.attentions.{layer}.to_q"
        made[f"{name}.weight"] = random.standard_normal((32, 64))
        made[f"{name}.bias"] = random.standard_normal(32)
    return {name: values.astype(dtype) for name, values in made.items()}


def stem_of(component):
    library, _ = MODELS[component]
    return "diffusion_pytorch_model" if library == "diffusers" else "model"


def write_shards(folder, stem, weights, *, variant="", legacy=False, index=True):
    """Two shards and an index, named as by diffusers, or as by its older versions."""
    names = sorted(weights)
    halves = [names[: len(names) // 2], names[len(names) // 2 :]]
    dot = f".{variant}" if variant else ""
    shard_of = {}
    for i, half in enumerate(halves, 1):
        file = f"{stem}-0000{i}-of-00002{dot}.safetensors" if legacy else f"{stem}{dot}-0000{i}-of-00002.safetensors"
        save_file({name: weights[name] for name in half}, folder / file, {"format": "pt"})
        shard_of |= dict.fromkeys(half, file)
    if index:
        total = sum(values.nbytes for values in weights.values())
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": shard_of})
        (folder / f"{stem}.safetensors.index{dot}.json").write_text(text)


def add_model(root, component, seed, *, variants=("",), sharded=False, dtype=np.float32):
    folder = root / component
    folder.mkdir(parents=True, exist_ok=True)
    _, kind = MODELS[component]
    (folder / "config.json").write_text(json.dumps({"_class_name": kind, "torch_dtype": "float32"}))
    for variant in variants:
        weights = tensors(seed, np.float16 if variant else dtype)
        if sharded:
            write_shards(folder, stem_of(component), weights, variant=variant)
        else:
            dot = f".{variant}" if variant else ""
            save_file(weights, folder / f"{stem_of(component)}{dot}.safetensors", {"format": "pt"})


def add_folders(root, names):
    for name in names:
        folder = root / name
        folder.mkdir(parents=True)
        for file, text in FOLDERS[name][2].items():
            (folder / file).write_text(text)


def write_index(root, models, folders, **more):
    entries = {name: list(MODELS[name]) for name in models}
    entries |= {name: list(FOLDERS[name][:2]) for name in folders}
    (root / "model_index.json").write_text(json.dumps({"_class_name": "Pipeline", "_diffusers_version": "0.31.0", **entries, **more}))


def stable_diffusion(root: Path):
    """As Stable Diffusion 1.5: four models, one of them null in the index."""
    models = ["vae", "text_encoder", "unet", "safety_checker"]
    folders = ["tokenizer", "scheduler", "feature_extractor"]
    for seed, name in enumerate(models):
        add_model(root, name, seed)
    add_folders(root, folders)
    write_index(root, models, folders, image_encoder=[None, None], requires_safety_checker=True)
    (root / "README.md").write_text("a card")
    return root


def stable_diffusion_xl(root: Path, variants=("", "fp16")):
    """As Stable Diffusion XL: two text encoders, plain weights and fp16."""
    models = ["vae", "text_encoder", "text_encoder_2", "unet"]
    folders = ["tokenizer", "scheduler"]
    for seed, name in enumerate(models):
        add_model(root, name, seed, variants=variants)
    add_folders(root, folders)
    write_index(root, models, folders, force_zeros_for_empty_prompt=True)
    return root


def flux(root: Path):
    """As FLUX.1: a sharded transformer, a sharded T5 and a VAE."""
    add_model(root, "transformer", 0, sharded=True)
    add_model(root, "text_encoder", 1)
    add_model(root, "text_encoder_2", 2, sharded=True)
    add_model(root, "vae", 3)
    folders = ["tokenizer", "tokenizer_2", "scheduler"]
    add_folders(root, folders)
    write_index(root, ["transformer", "text_encoder", "text_encoder_2", "vae"], folders)
    return root
