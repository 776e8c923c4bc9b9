"""Layouts of ComfyUI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .base import Config, Layout, Stored, Tensors
from .elements import E2M1, F8_E4M3, F8_E5M2, e8m0, each, nibbles, pack_nibbles, random_e4m3

FORMATS = {F8_E4M3: "float8_e4m3fn", F8_E5M2: "float8_e5m2"}


def tile(rows: int, columns: int) -> tuple[int, int]:
    """Return the shape of swizzled scales."""
    return -(-rows // 128) * 128, -(-columns // 4) * 4


def swizzle(scales: np.ndarray) -> np.ndarray:
    """Return [rows, columns] padded with zeros to tiles of 128 x 4, each tile as 32 x 4 x 4."""
    height, width = tile(*scales.shape)
    padded = np.zeros((height, width), scales.dtype)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    tiles = padded.reshape(height // 128, 4, 32, width // 4, 4)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(height, width)


def unswizzle(stored: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the scale of each (row, block) by the position that it has in the bytes."""
    r, c = np.arange(rows)[:, None], np.arange(columns)[None, :]
    number = r // 128 * (stored.shape[1] // 4) + c // 4
    return stored.reshape(-1)[512 * number + r % 32 * 16 + r // 32 % 4 * 4 + c % 4]


@dataclass(frozen=True)
class ComfyUi(Layout):
    """`said` is where the format is: "metadata" or "tensor" (a `comfy_quant` of each layer)."""

    scheme: str = "comfyui"
    said: str = "metadata"
    format: str = ""

    def marked(self, tensors: Tensors) -> Tensors:
        text = np.frombuffer(json.dumps({"format": self.format}).encode(), np.uint8)
        return tensors | ({".comfy_quant": text} if self.said == "tensor" else {})

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ()) -> Config:
        if self.said == "tensor":
            return Config()
        layers = {module: {"format": self.format} for module in modules}
        return Config(metadata={"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})})


@dataclass(frozen=True)
class Fp8(ComfyUi):
    bits: int = 8
    dtype: np.dtype = F8_E4M3
    scale: str = ".weight_scale"

    def codes(self, rng, rows: int, columns: int) -> np.ndarray:
        if self.dtype == F8_E4M3:
            return random_e4m3(rng, rows, columns)
        codes = rng.integers(0, 256, (rows, columns), np.uint8)
        return np.where(codes & 0x7C == 0x7C, codes & 0xBF, codes).astype(np.uint8).view(F8_E5M2)

    def make(self, rng, rows, columns):
        codes, scale = self.codes(rng, rows, columns), np.array(rng.uniform(1e-4, 1e-2), np.float32)
        tensors = {".weight": codes, self.scale: scale}
        return Stored(self.marked(tensors), codes.astype(np.float32) * scale)

    def decode(self, tensors: Tensors) -> np.ndarray:
        return tensors[".weight"].astype(np.float32) * tensors[self.scale].reshape(1, 1)


@dataclass(frozen=True)
class OldFp8(Fp8):
    """`marker` is the size of the tensor `scaled_fp8`, whose dtype is that of the weights, or F32 for E4M3."""

    scale: str = ".scale_weight"
    marker: int = 0
    marker_dtype: np.dtype = F8_E4M3

    def make(self, rng, rows, columns):
        stored = super().make(rng, rows, columns)
        return replace(stored, tensors=stored.tensors | {".scale_input": np.array(0.25, np.float32)})

    def marked(self, tensors: Tensors) -> Tensors:
        return tensors

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ()) -> Config:
        return Config(tensors={"scaled_fp8": np.zeros(self.marker, self.marker_dtype)})


@dataclass(frozen=True)
class PlainFp8(Fp8):
    """Weights that were cast: a scale of 1."""

    def make(self, rng, rows, columns):
        codes = self.codes(rng, rows, columns)
        return Stored({".weight": codes}, codes.astype(np.float32))

    def decode(self, tensors: Tensors) -> np.ndarray:
        return tensors[".weight"].astype(np.float32)

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ()) -> Config:
        return Config()


@dataclass(frozen=True)
class Nvfp4(ComfyUi):
    """Rows and columns are multiples of 16. The product of the scales is rounded first."""

    format: str = "nvfp4"

    def make(self, rng, rows, columns):
        codes, scales = rng.integers(0, 16, (rows, columns), np.uint8), np.abs(random_e4m3(rng, rows, columns // 16).astype(np.float32))
        second = np.array(rng.uniform(1e-4, 2e-3), np.float32)
        tensors = {".weight": pack_nibbles(codes, high_first=True), ".weight_scale": swizzle(scales).astype(F8_E4M3)}
        return Stored(self.marked(tensors | {".weight_scale_2": second}), E2M1[codes] * np.repeat(scales * second, 16, axis=1))

    def decode(self, tensors: Tensors) -> np.ndarray:
        values = E2M1[nibbles(tensors[".weight"], high_first=True)]
        scales = unswizzle(tensors[".weight_scale"], len(values), values.shape[1] // 16).astype(np.float32) * tensors[".weight_scale_2"]
        return values * each(scales, *values.shape, (1, 16))

    def group(self, rows, columns):
        return 16


@dataclass(frozen=True)
class Mxfp8(ComfyUi):
    """Rows and columns are multiples of 32."""

    format: str = "mxfp8"
    bits: int = 8

    def make(self, rng, rows, columns):
        codes, scales = random_e4m3(rng, rows, columns), rng.integers(115, 124, (rows, columns // 32), np.uint8)
        tensors = {".weight": codes, ".weight_scale": swizzle(scales)}
        return Stored(self.marked(tensors), codes.astype(np.float32) * np.repeat(e8m0(scales), 32, axis=1))

    def decode(self, tensors: Tensors) -> np.ndarray:
        values = tensors[".weight"].astype(np.float32)
        scales = unswizzle(tensors[".weight_scale"], len(values), values.shape[1] // 32)
        return values * each(e8m0(scales), *values.shape, (1, 32))

    def group(self, rows, columns):
        return 32


def _comfyui() -> list[Layout]:
    found: list[Layout] = []
    for said in ("metadata", "tensor"):
        for dtype, kind in FORMATS.items():
            found.append(Fp8(f"comfy-{kind[7:]}-{said}", dtype=dtype, format=kind, said=said))
        found += [Nvfp4(f"comfy-nvfp4-{said}", said=said), Mxfp8(f"comfy-mxfp8-{said}", said=said)]
    found += [OldFp8("comfy-old-e4m3"), OldFp8("comfy-old-e4m3-f32", marker=2, marker_dtype=np.dtype(np.float32))]
    found += [OldFp8("comfy-old-e5m2", dtype=F8_E5M2, marker_dtype=F8_E5M2)]
    return [*found, PlainFp8("comfy-plain-e4m3"), PlainFp8("comfy-plain-e5m2", dtype=F8_E5M2)]


COMFYUI_LAYOUTS = _comfyui()
