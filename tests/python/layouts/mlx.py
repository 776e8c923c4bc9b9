"""Layouts of MLX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Config, Layout, Stored, Tensors
from .elements import BF16, E2M1, F8_E4M3, e8m0, each, pack_words, random_e4m3, random_scales, words_to_codes

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


@dataclass(frozen=True)
class Mlx(Layout):
    """`scale_group` is the columns per scale."""

    scheme: str = "mlx"
    mode: str = "affine"
    scale_group: int = 64

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ()) -> Config:
        settings = {"group_size": self.scale_group, "bits": self.bits, "mode": self.mode}
        return Config({"quantization": settings, "quantization_config": settings}, metadata={"format": "mlx"})

    def group(self, rows, columns):
        return self.scale_group


@dataclass(frozen=True)
class Affine(Mlx):
    """The product is rounded to the dtype of the scales before the bias is added, and so is the sum. Scales are of either sign."""

    dtype: np.dtype = BF16

    def make(self, rng, rows, columns):
        codes, shape = rng.integers(0, 1 << self.bits, (rows, columns)), (rows, columns // self.scale_group)
        scales = (random_scales(rng, F32, *shape) * rng.choice([-1, 1], shape)).astype(self.dtype)
        biases = rng.uniform(-0.1, 0.1, shape).astype(self.dtype)
        product = codes.reshape(rows, -1, self.scale_group).astype(np.float32) * scales.astype(np.float32)[..., None]
        dense = product.astype(self.dtype).astype(np.float32) + biases.astype(np.float32)[..., None]
        dense = dense.astype(self.dtype).astype(np.float32)
        words = pack_words(codes, self.bits).view(np.uint32)
        return Stored({".weight": words, ".scales": scales, ".biases": biases}, dense.reshape(rows, columns))

    def decode(self, tensors: Tensors) -> np.ndarray:
        words = tensors[".weight"]
        codes = words_to_codes(words, self.bits, words.shape[1] * 32 // self.bits)
        scales, biases = (each(tensors[name], *codes.shape, (1, self.scale_group)) for name in (".scales", ".biases"))
        short = tensors[".scales"].dtype
        return ((codes.astype(np.float32) * scales).astype(short).astype(np.float32) + biases).astype(short).astype(np.float32)


@dataclass(frozen=True)
class Microscaled(Mlx):
    """E2M1 or E4M3 with a scale in one byte: E8M0, or E4M3 in nvfp4."""

    def make(self, rng, rows, columns):
        shape = rows, columns // self.scale_group
        if self.mode == "nvfp4":
            factor = np.abs(random_e4m3(rng, *shape).astype(np.float32))
            scales = factor.astype(F8_E4M3).view(np.uint8)
        else:
            scales = rng.integers(115, 124, shape, np.uint8)
            factor = e8m0(scales)
        codes = random_e4m3(rng, rows, columns).view(np.uint8) if self.bits == 8 else rng.integers(0, 16, (rows, columns), np.uint8)
        values = codes.view(F8_E4M3).astype(np.float32) if self.bits == 8 else E2M1[codes]
        words = pack_words(codes, self.bits).view(np.uint32)
        return Stored({".weight": words, ".scales": scales}, values * np.repeat(factor, self.scale_group, axis=1))

    def decode(self, tensors: Tensors) -> np.ndarray:
        words, scales = tensors[".weight"], tensors[".scales"]
        codes = words_to_codes(words, self.bits, words.shape[1] * 32 // self.bits).astype(np.uint8)
        values = E2M1[codes] if self.bits == 4 else codes.view(F8_E4M3).astype(np.float32)
        factor = scales.view(F8_E4M3).astype(np.float32) if self.mode == "nvfp4" else e8m0(scales)
        return values * each(factor, *values.shape, (1, self.scale_group))


MLX_LAYOUTS = [
    *(Affine(f"mlx{bits}", bits=bits, scale_group=32) for bits in (2, 3, 4, 5, 6, 8)),
    Affine("mlx4-f16", dtype=F16, scale_group=32),
    Affine("mlx4-f32", dtype=F32, scale_group=32),
    Microscaled("mlx-mxfp4", mode="mxfp4", scale_group=32),
    Microscaled("mlx-mxfp8", mode="mxfp8", scale_group=32, bits=8),
    Microscaled("mlx-nvfp4", mode="nvfp4", scale_group=16),
]
