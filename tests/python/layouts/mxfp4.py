"""Layouts of gpt-oss: experts in MXFP4, as transformers and as OpenAI name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Config, Layout, Stored, Tensors
from .elements import E2M1, e8m0, nibbles, pack_nibbles


@dataclass(frozen=True)
class Experts(Layout):
    """`make` takes the rows and columns of each of two experts. transformers' dense weight is transposed, OpenAI's is not."""

    scheme: str = "mxfp4"
    blocks: str = "_blocks"
    scales: str = "_scales"
    transposed: bool = True
    experts: int = 2

    def make(self, rng, rows, columns):
        codes = rng.integers(0, 16, (self.experts, rows, columns // 32, 32), np.uint8)
        scales = rng.integers(115, 124, codes.shape[:3], np.uint8)
        dense = (E2M1[codes] * e8m0(scales)[..., None]).reshape(self.experts, rows, columns)
        dense = np.ascontiguousarray(dense.swapaxes(1, 2)) if self.transposed else dense
        return Stored({self.blocks: pack_nibbles(codes), self.scales: scales}, dense, weight="")

    def decode(self, tensors: Tensors) -> np.ndarray:
        values = E2M1[nibbles(tensors[self.blocks])]
        values *= np.ldexp(np.float32(1), tensors[self.scales].astype(np.int32) - 127)[..., None]
        values = values.reshape(*values.shape[:2], -1)
        return np.ascontiguousarray(values.transpose(0, 2, 1)) if self.transposed else values

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        ignored = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", *ignored]
        return Config({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ignored}} if self.transposed else {})

    def group(self, rows, columns):
        return 32


MXFP4_LAYOUTS = [Experts("mxfp4-experts"), Experts("mxfp4-openai", blocks=".blocks", scales=".scales", transposed=False)]
