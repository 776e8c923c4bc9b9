"""Layouts of compressed-tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .base import Config, Layout, Stored, Tensors
from .elements import (
    BF16,
    E2M1,
    F8_E4M3,
    e8m0,
    each,
    nibbles,
    pack_nibbles,
    pack_words,
    random_e4m3,
    random_scales,
    words_to_codes,
)  # fmt: skip

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


@dataclass(frozen=True)
class CompressedTensors(Layout):
    """`scale_group` is the columns of a scale, 0 for whole rows, −1 for the tensor; `block` is for scales of several rows."""

    scheme: str = "compressed-tensors"
    format: str = "pack-quantized"
    scale_group: int = 32
    block: tuple[int, int] | None = None
    symmetric: bool = True
    dtype: np.dtype = BF16
    input_scale: bool = False

    def area(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the rows and columns of one scale."""
        if self.block:
            return self.block
        return {0: (1, columns), -1: (rows, columns)}.get(self.scale_group, (1, self.scale_group))

    def scale_shape(self, rows: int, columns: int) -> tuple[int, ...]:
        if self.scale_group == -1 and not self.block:
            return (1,)
        height, width = self.area(rows, columns)
        return -(-rows // height), -(-columns // width)

    def per_element(self, scales: np.ndarray, rows: int, columns: int) -> np.ndarray:
        return each(scales.reshape(1, 1) if scales.ndim < 2 else scales, rows, columns, self.area(rows, columns))

    def group(self, rows, columns):
        return self.scale_group if self.scale_group > 0 and not self.block else None

    def weights(self) -> dict:
        """Return the `weights` of this layout's config group."""
        strategy = "block" if self.block else {0: "channel", -1: "tensor"}.get(self.scale_group, "group")
        kind = "float" if self.format not in ("pack-quantized", "int-quantized") and not self.integer() else "int"
        weights = {"num_bits": self.bits, "type": kind, "symmetric": self.symmetric, "strategy": strategy, "dynamic": False}
        if strategy == "group":
            weights["group_size"] = self.scale_group
        if strategy == "block":
            weights["block_structure"] = list(self.block)
        return weights

    def integer(self) -> bool:
        return False

    def activations(self) -> dict | None:
        return None

    def config_group(self, targets: Sequence[str] = ("Linear",)) -> dict:
        group = {"targets": list(targets), "weights": self.weights(), "format": self.format}
        return group | {"input_activations": self.activations(), "output_activations": None}

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        return section(self.format, [self.config_group()], ignored)


def section(format_name: str, groups: Sequence[dict], ignored: Sequence[str]) -> Config:
    """Return the config of one or more groups of modules."""
    found = {"quant_method": "compressed-tensors", "format": format_name, "quantization_status": "compressed"}
    found |= {"ignore": list(ignored), "kv_cache_scheme": None, "global_compression_ratio": None}
    return Config({"quantization_config": found | {"config_groups": {f"group_{i}": each for i, each in enumerate(groups)}}})


@dataclass(frozen=True)
class Packed(CompressedTensors):
    """Codes + 2^(bits − 1) in words. `order` is "", "group" (a shuffled g_idx) or "none" (a g_idx of −1)."""

    order: str = ""
    padded: bool = False

    def per_word(self) -> int | None:
        return 32 // self.bits if self.padded else None

    def make(self, rng, rows, columns):
        half = 1 << self.bits - 1
        codes = rng.integers(-half, half, (rows, columns), np.int32)
        codes.flat[:2] = [-half, half - 1]
        scales = random_scales(rng, self.dtype, *self.scale_shape(rows, columns))
        zeros = np.zeros(scales.shape, np.int32) if self.symmetric else rng.integers(-half, half, scales.shape, np.int32)
        index = np.arange(columns) // (self.scale_group or columns)
        tensors = {".weight_packed": pack_words(codes + half, self.bits, per_word=self.per_word()), ".weight_scale": scales}
        if not self.symmetric:
            tensors[".weight_zero_point"] = pack_words(zeros + half, self.bits, axis=0, per_word=self.per_word())
        if self.order:
            index = rng.permutation(index) if self.order == "group" else index
            tensors[".weight_g_idx"] = (index if self.order == "group" else np.full(columns, -1)).astype(np.int32)
        tensors[".weight_shape"] = np.array([rows, columns], np.int64)
        dense = (codes - zeros[:, index]).astype(np.float32) * scales.astype(np.float32)[:, index]
        return Stored(tensors, dense)

    def decode(self, tensors: Tensors) -> np.ndarray:
        rows, columns = (int(n) for n in tensors[".weight_shape"])
        codes = words_to_codes(tensors[".weight_packed"], self.bits, columns, per_word=self.per_word())
        scales = tensors[".weight_scale"].astype(np.float32)
        zeros = np.full(scales.shape, 1 << self.bits - 1)
        if ".weight_zero_point" in tensors:
            zeros = words_to_codes(tensors[".weight_zero_point"], self.bits, rows, axis=0, per_word=self.per_word())
        index = tensors.get(".weight_g_idx")
        if index is None or -1 in index:
            index = np.arange(columns) // (columns // scales.shape[1])
        return (codes - zeros[:, index]).astype(np.float32) * scales[:, index]

    def weights(self) -> dict:
        return super().weights() | ({"actorder": "group"} if self.order == "group" else {})


@dataclass(frozen=True)
class Quantized(CompressedTensors):
    """One byte per element: I8 for `int-quantized`, E4M3 for `float-quantized`, either for `naive-quantized`."""

    format: str = "int-quantized"
    bits: int = 8
    scale_group: int = 0
    floats: bool = False

    def integer(self) -> bool:
        return not self.floats

    def make(self, rng, rows, columns):
        codes = random_e4m3(rng, rows, columns) if self.floats else rng.integers(-128, 128, (rows, columns), np.int8)
        scales = random_scales(rng, self.dtype, *self.scale_shape(rows, columns))
        tensors = {".weight": codes, ".weight_scale": scales}
        values = codes.astype(np.float32)
        if not self.symmetric:
            zeros = rng.integers(-100, 100, scales.shape, np.int8)
            tensors[".weight_zero_point"] = zeros
            values -= self.per_element(zeros, rows, columns)
        if self.input_scale:
            tensors[".input_scale"] = np.array([0.031], self.dtype)
        height, width = self.area(rows, columns)
        factor = scales.astype(np.float32).reshape(-1, scales.shape[-1])
        whole = np.repeat(np.repeat(factor, height, axis=0), width, axis=1)[:rows, :columns]
        return Stored(tensors, values * whole)

    def decode(self, tensors: Tensors) -> np.ndarray:
        shape = tensors[".weight"].shape
        zeros = tensors.get(".weight_zero_point", np.zeros((1,), np.int8))
        zeros = self.per_element(zeros, *shape) if ".weight_zero_point" in tensors else np.float32(0)
        return (tensors[".weight"].astype(np.float32) - zeros) * self.per_element(tensors[".weight_scale"], *shape)

    def activations(self) -> dict:
        kind = "float" if self.floats else "int"
        found = {"num_bits": 8, "type": kind, "symmetric": True, "dynamic": not self.input_scale}
        if self.block:
            return found | {"strategy": "group", "group_size": self.block[1]}
        return found | {"strategy": "tensor" if self.input_scale else "token"}


@dataclass(frozen=True)
class Nvfp4(CompressedTensors):
    """E2M1 in blocks of 16 with E4M3 scales and a divisor of the tensor. The quotient of the scales is rounded first."""

    format: str = "nvfp4-pack-quantized"
    scale_group: int = 16

    def make(self, rng, rows, columns):
        codes, scales = rng.integers(0, 16, (rows, columns), np.uint8), np.abs(random_e4m3(rng, rows, columns // 16).astype(np.float32))
        divisor = np.array([rng.uniform(500, 9000)], np.float32)
        factor = np.repeat(scales / divisor[0], 16, axis=1)
        tensors = {".weight_packed": pack_nibbles(codes), ".weight_scale": scales.astype(F8_E4M3), ".weight_global_scale": divisor}
        if self.input_scale:
            tensors[".input_global_scale"] = np.array([87.5], np.float32)
        return Stored(tensors, E2M1[codes] * factor)

    def decode(self, tensors: Tensors) -> np.ndarray:
        values = E2M1[nibbles(tensors[".weight_packed"])]
        scales = tensors[".weight_scale"].astype(np.float32) / tensors[".weight_global_scale"].ravel()[0]
        return values * each(scales, *values.shape, (1, 16))

    def weights(self) -> dict:
        return super().weights() | {"strategy": "tensor_group", "group_size": 16, "scale_dtype": "torch.float8_e4m3fn"}

    def activations(self) -> dict | None:
        return self.weights() | {"dynamic": "local"} if self.input_scale else None


@dataclass(frozen=True)
class Microscaled(CompressedTensors):
    """E2M1 or E4M3 in blocks of 32 with E8M0 scales stored as U8."""

    format: str = "mxfp4-pack-quantized"

    def make(self, rng, rows, columns):
        scales = rng.integers(115, 124, (rows, columns // 32), np.uint8)
        factor = np.repeat(e8m0(scales), 32, axis=1)
        if self.bits == 8:
            codes = random_e4m3(rng, rows, columns)
            return Stored({".weight": codes, ".weight_scale": scales}, codes.astype(np.float32) * factor)
        codes = rng.integers(0, 16, (rows, columns), np.uint8)
        return Stored({".weight_packed": pack_nibbles(codes), ".weight_scale": scales}, E2M1[codes] * factor)

    def decode(self, tensors: Tensors) -> np.ndarray:
        values = tensors[".weight"].astype(np.float32) if self.bits == 8 else E2M1[nibbles(tensors[".weight_packed"])]
        return values * each(e8m0(tensors[".weight_scale"]), *values.shape, (1, 32))

    def weights(self) -> dict:
        return super().weights() | {"scale_dtype": "torch.uint8"}


def _packed() -> list[Layout]:
    found = [Packed(f"ct-pack{bits}-group", bits=bits) for bits in range(1, 9)]
    found += [Packed(f"ct-pack{bits}-group-asym", bits=bits, symmetric=False) for bits in range(2, 9)]
    found += [Packed(f"ct-pack{bits}-old", bits=bits, padded=True, symmetric=bits % 2 == 0) for bits in (3, 5, 6, 7)]
    base = Packed("ct-pack4-channel", scale_group=0)
    found += [base, replace(base, name="ct-pack4-channel-asym", symmetric=False), replace(base, name="ct-pack8-channel", bits=8)]
    found += [replace(base, name="ct-pack4-channel-f16", dtype=F16), replace(base, name="ct-pack4-channel-f32", dtype=F32)]
    act = Packed("ct-pack4-actorder", order="group")
    return [
        *found,
        act,
        replace(act, name="ct-pack8-actorder-asym", bits=8, symmetric=False),
        replace(act, name="ct-pack4-g-idx-none", order="none"),
    ]


def _bytes() -> list[Layout]:
    int8, fp8 = Quantized("ct-int8-channel"), Quantized("ct-fp8-channel", format="float-quantized", floats=True)
    found: list[Layout] = []
    for base, kind in ((int8, "int8"), (fp8, "fp8")):
        found += [base, replace(base, name=f"ct-{kind}-group", scale_group=32), replace(base, name=f"ct-{kind}-channel-f32", dtype=F32)]
        found += [replace(base, name=f"ct-{kind}-tensor", scale_group=-1, input_scale=True)]
        found += [
            replace(base, name=f"ct-{kind}-block", block=(128, 128)),
            replace(base, name=f"ct-{kind}-naive", format="naive-quantized"),
        ]
    return [
        *found,
        replace(int8, name="ct-int8-channel-asym", symmetric=False),
        replace(int8, name="ct-int8-group-asym", symmetric=False, scale_group=32),
    ]


CT_LAYOUTS = [
    *_packed(),
    *_bytes(),
    Nvfp4("ct-nvfp4"),
    Nvfp4("ct-nvfp4-w4a4", input_scale=True),
    Microscaled("ct-mxfp4"),
    Microscaled("ct-mxfp8", format="mxfp8-quantized", bits=8),
]
