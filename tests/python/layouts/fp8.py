"""Layouts of `fp8` and `fbgemm_fp8` (transformers, vLLM, DeepSeek), MXFP8 of `fp8`, and the FP8 of Mistral's own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Config, Layout, Stored, Tensors
from .elements import BF16, E2M1, F8_E8M0, e8m0, each, nibbles, pack_nibbles, random_e4m3, random_scales

F32 = np.dtype(np.float32)


def blocks(rows: int, columns: int, block: tuple[int, int]) -> tuple[int, int]:
    return -(-rows // block[0]), -(-columns // block[1])


def random_e8m0(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(115, 124, shape, np.uint8)


def in_f32(scales: np.ndarray, exponents: bool) -> np.ndarray:
    return e8m0(scales) if exponents else np.asarray(scales).astype(np.float32)


@dataclass(frozen=True)
class Fp8Tensor(Layout):
    """One scale per tensor. `scale` and `activation` are the names of the scales of the weight and of its input."""

    scheme: str = "fp8"
    bits: int = 8
    scale: str = ".weight_scale"
    activation: str | None = ".input_scale"
    shape: tuple[int, ...] = ()
    method: str = "fp8"

    def make(self, rng, rows, columns):
        codes, scale = random_e4m3(rng, rows, columns), random_scales(rng, F32, *self.shape)
        scale = np.asarray(scale, F32)
        tensors = {".weight": codes, self.scale: scale}
        if self.activation:
            tensors[self.activation] = np.full(self.shape, 0.0123, np.float32)
        return Stored(tensors, codes.astype(np.float32) * scale.ravel()[0])

    def decode(self, tensors: Tensors) -> np.ndarray:
        return tensors[".weight"].astype(np.float32) * tensors[self.scale].reshape(1, 1)

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        scheme = "static" if self.activation else "dynamic"
        section = {"quant_method": self.method, "activation_scheme": scheme, "weight_block_size": None}
        return Config({"quantization_config": section | {"modules_to_not_convert": list(ignored)}})


@dataclass(frozen=True)
class FbgemmFp8(Layout):
    """One scale per row."""

    scheme: str = "fbgemm_fp8"
    bits: int = 8

    def make(self, rng, rows, columns):
        codes, scale = random_e4m3(rng, rows, columns), random_scales(rng, F32, rows, 1)
        upper = np.array([1200.0], np.float32)
        return Stored({".weight": codes, ".weight_scale": scale, ".input_scale_ub": upper}, codes.astype(np.float32) * scale)

    def decode(self, tensors: Tensors) -> np.ndarray:
        return tensors[".weight"].astype(np.float32) * each(tensors[".weight_scale"], *tensors[".weight"].shape, (1, 1 << 30))

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        section = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": list(ignored)}
        return Config({"quantization_config": section})


@dataclass(frozen=True)
class Fp8Block(Layout):
    """One scale per block of rows and columns, ragged at the edges."""

    scheme: str = "fp8"
    bits: int = 8
    block: tuple[int, int] = (128, 128)
    dtype: np.dtype = F32
    scale: str = ".weight_scale_inv"
    method: str = "fp8"

    def scales(self, rng, rows: int, columns: int) -> np.ndarray:
        shape = blocks(rows, columns, self.block)
        return random_e8m0(rng, *shape).view(self.dtype) if self.dtype.itemsize == 1 else random_scales(rng, self.dtype, *shape)

    def make(self, rng, rows, columns):
        codes, scales = random_e4m3(rng, rows, columns), self.scales(rng, rows, columns)
        factor = in_f32(scales, self.dtype.itemsize == 1)
        whole = np.repeat(np.repeat(factor, self.block[0], axis=0), self.block[1], axis=1)[:rows, :columns]
        return Stored({".weight": codes, self.scale: scales}, codes.astype(np.float32) * whole)

    def decode(self, tensors: Tensors) -> np.ndarray:
        weight, scales = tensors[".weight"], tensors[self.scale]
        assert scales.shape == blocks(*weight.shape, self.block)
        return weight.astype(np.float32) * each(in_f32(scales, self.dtype.itemsize == 1), *weight.shape, self.block)

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        section = {"quant_method": self.method, "modules_to_not_convert": list(ignored)}
        if self.method == "fp8":
            section |= {"activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": list(self.block)}
            section |= {"scale_fmt": "ue8m0"} if self.dtype.itemsize == 1 else {}
        return Config({"quantization_config": section})

    def group(self, rows, columns):
        return self.block[1] if self.block[0] == 1 else None


@dataclass(frozen=True)
class DeepSeekFp4(Layout):
    """Experts of DeepSeek-V4: pairs of E2M1 as I8, E8M0 scales of 32 columns named `.scale`."""

    scheme: str = "fp8"
    bits: int = 4

    def make(self, rng, rows, columns):
        codes, scales = rng.integers(0, 16, (rows, columns), np.uint8), random_e8m0(rng, rows, columns // 32)
        dense = (E2M1[codes].reshape(rows, -1, 32) * e8m0(scales)[..., None]).reshape(rows, columns)
        return Stored({".weight": pack_nibbles(codes).view(np.int8), ".scale": scales.view(F8_E8M0)}, dense)

    def decode(self, tensors: Tensors) -> np.ndarray:
        values = E2M1[nibbles(tensors[".weight"])]
        return values * each(e8m0(tensors[".scale"]), *values.shape, (1, 32))

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        section = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "scale_fmt": "ue8m0"}
        return Config({"quantization_config": section | {"weight_block_size": [128, 128]}, "expert_dtype": "fp4"})

    def group(self, rows, columns):
        return 32


@dataclass(frozen=True)
class MistralFp8(Fp8Tensor):
    """`consolidated.safetensors` with `params.json`."""

    scale: str = ".qscale_weight"
    activation: str | None = ".qscale_act"

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("output",)) -> Config:
        return Config(files={"params.json": {"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}})


FP8_LAYOUTS = [
    Fp8Tensor("fp8-tensor"),
    Fp8Tensor("fp8-tensor-1", shape=(1,)),
    Fp8Tensor("fp8-tensor-dynamic", activation=None),
    Fp8Tensor("fp8-tensor-inv", scale=".weight_scale_inv", activation=".activation_scale"),
    Fp8Tensor("fp8-tensor-inv-1", scale=".weight_scale_inv", activation=".activation_scale", shape=(1,)),
    FbgemmFp8("fbgemm-fp8"),
    Fp8Block("fp8-block"),
    Fp8Block("fp8-block-bf16", dtype=BF16),
    Fp8Block("fp8-block-e8m0", dtype=F8_E8M0),
    Fp8Block("fp8-block-64x32", block=(64, 32)),
    Fp8Block("fp8-mxfp8", block=(1, 32), dtype=np.dtype(np.uint8), method="mxfp8"),
    Fp8Block("deepseek-v4-fp8", dtype=F8_E8M0, scale=".scale"),
    DeepSeekFp4("deepseek-v4-fp4"),
    MistralFp8("mistral-fp8"),
]
