"""Layouts of ModelOpt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Config, Layout, Stored, Tensors
from .elements import BF16, E2M1, F8_E4M3, e8m0, each, nibbles, pack_nibbles, random_e4m3, random_scales

F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class ModelOpt(Layout):
    """`algorithm` is `quant_algo`; `beside` writes hf_quant_config.json as ModelOpt 0.29 did, else config.json has it."""

    scheme: str = "modelopt"
    algorithm: str = "FP8"
    beside: bool = False

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        size = self.group(0, 0)
        if self.beside:
            found = {"quant_algo": self.algorithm, "kv_cache_quant_algo": None, "exclude_modules": list(ignored)}
            found |= {"group_size": size} if size else {}
            producer = {"name": "modelopt", "version": "0.29.0"}
            return Config(files={"hf_quant_config.json": {"producer": producer, "quantization": found}})
        found = {"quant_method": "modelopt", "quant_algo": self.algorithm, "ignore": list(ignored), "kv_cache_scheme": None}
        found |= {"producer": {"name": "modelopt", "version": "0.39.0"}}
        return Config({"quantization_config": found | ({"group_size": size} if size else {})})


@dataclass(frozen=True)
class Fp8(ModelOpt):
    """E4M3 with scales of `area` rows and columns; 0 is all of them."""

    bits: int = 8
    area: tuple[int, int] = (0, 0)

    def scales(self, rng, rows: int, columns: int) -> np.ndarray:
        if self.algorithm == "MXFP8":
            return rng.integers(115, 124, (rows, columns // 32), np.uint8)
        if self.algorithm == "FP8_PB_WO":
            return random_scales(rng, F32, -(-rows // 128), 1, -(-columns // 128), 1)
        return np.asarray(random_scales(rng, F32, *((rows,) if self.area[0] == 1 else ())), F32)

    def make(self, rng, rows, columns):
        codes, scales = random_e4m3(rng, rows, columns), self.scales(rng, rows, columns)
        height, width = self.area[0] or rows, self.area[1] or columns
        factor = e8m0(scales) if scales.dtype == np.uint8 else scales
        factor = factor.reshape(-(-rows // height), -(-columns // width))
        whole = np.repeat(np.repeat(factor, height, axis=0), width, axis=1)[:rows, :columns]
        tensors = {".weight": codes, ".weight_scale": scales}
        if self.algorithm == "FP8":
            tensors[".input_scale"] = np.array(0.0123, np.float32)
        return Stored(tensors, codes.astype(np.float32) * whole)

    def decode(self, tensors: Tensors) -> np.ndarray:
        values, scales = tensors[".weight"].astype(np.float32), tensors[".weight_scale"]
        if scales.ndim == 4:
            return values * each(scales[:, 0, :, 0], *values.shape, (128, 128))
        if scales.dtype == np.uint8:
            return values * each(e8m0(scales), *values.shape, (1, 32))
        return values * scales.reshape(-1, 1)

    def group(self, rows, columns):
        return self.area[1] if self.area[0] == 1 and self.area[1] else None


@dataclass(frozen=True)
class Nvfp4(ModelOpt):
    """E2M1 in blocks of 16; the product of the two scales is rounded first. `smoothed` has scales of columns."""

    algorithm: str = "NVFP4"
    smoothed: bool = False

    def make(self, rng, rows, columns):
        codes, scales = rng.integers(0, 16, (rows, columns), np.uint8), np.abs(random_e4m3(rng, rows, columns // 16).astype(np.float32))
        second = np.array(rng.uniform(1e-4, 2e-3), np.float32)
        dense = E2M1[codes] * np.repeat(scales * second, 16, axis=1)
        tensors = {".weight": pack_nibbles(codes), ".weight_scale": scales.astype(F8_E4M3), ".weight_scale_2": second}
        if self.algorithm != "W4A16_NVFP4":
            tensors[".input_scale"] = np.array(0.00123, np.float32)
        if self.smoothed:
            tensors[".pre_quant_scale"] = rng.uniform(0.5, 2, columns).astype(BF16)
            dense = dense * tensors[".pre_quant_scale"].astype(np.float32)
        return Stored(tensors, dense)

    def decode(self, tensors: Tensors) -> np.ndarray:
        values = E2M1[nibbles(tensors[".weight"])]
        scales = tensors[".weight_scale"].astype(np.float32) * tensors[".weight_scale_2"]
        values = values * each(scales, *values.shape, (1, 16))
        return values * tensors[".pre_quant_scale"].astype(np.float32)[None, :] if self.smoothed else values

    def group(self, rows, columns):
        return 16


@dataclass(frozen=True)
class AwqInt4(ModelOpt):
    """Two's complement, two rows to a byte, and scales of columns, by which the rounded product is multiplied."""

    algorithm: str = "W4A16_AWQ"
    dtype: np.dtype = BF16

    def make(self, rng, rows, columns):
        codes, scales = rng.integers(-8, 8, (rows, columns)), random_scales(rng, self.dtype, rows, columns // 32)
        before = rng.uniform(0.5, 2, columns).astype(self.dtype)
        packed = pack_nibbles((codes & 15).T).T.copy()
        dense = codes.astype(np.float32) * np.repeat(scales.astype(np.float32), 32, axis=1) * before.astype(np.float32)
        return Stored({".weight": packed, ".weight_scale": scales, ".pre_quant_scale": before}, dense)

    def decode(self, tensors: Tensors) -> np.ndarray:
        packed = tensors[".weight"]
        codes = np.empty((2 * len(packed), packed.shape[1]), np.int8)
        codes[0::2], codes[1::2] = packed << 4, packed & 0xF0
        values = (codes >> 4).astype(np.float32) * each(tensors[".weight_scale"], *codes.shape, (1, 32))
        return values * tensors[".pre_quant_scale"].astype(np.float32)[None, :]

    def group(self, rows, columns):
        return 32


MODELOPT_LAYOUTS = [
    Fp8("modelopt-fp8"),
    Fp8("modelopt-fp8-beside", beside=True),
    Fp8("modelopt-fp8-channel", algorithm="FP8_PER_CHANNEL_PER_TOKEN", area=(1, 0)),
    Fp8("modelopt-fp8-block", algorithm="FP8_PB_WO", area=(128, 128)),
    Fp8("modelopt-mxfp8", algorithm="MXFP8", area=(1, 32)),
    Nvfp4("modelopt-nvfp4"),
    Nvfp4("modelopt-nvfp4-beside", beside=True),
    Nvfp4("modelopt-nvfp4-w4a16", algorithm="W4A16_NVFP4"),
    Nvfp4("modelopt-nvfp4-awq", algorithm="NVFP4_AWQ", smoothed=True),
    AwqInt4("modelopt-awq"),
    AwqInt4("modelopt-awq-beside", beside=True, dtype=F32),
]
