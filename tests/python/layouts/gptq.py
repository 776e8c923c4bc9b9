"""Layouts of GPTQ (AutoGPTQ, GPTQModel) and of AWQ's `gemm`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .base import Config, Layout, Stored, Tensors
from .elements import pack_planes, pack_words, planes_to_codes, random_scales, words_to_codes

F16 = np.dtype(np.float16)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
ONES = {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}


@dataclass(frozen=True)
class Gptq(Layout):
    """`version` is `checkpoint_format`; `order` shuffles g_idx; `carry` stores the zeros of v1 as GPTQModel 0.9 does, so that 0 is possible."""

    scheme: str = "gptq"
    scale_group: int = 32
    symmetric: bool = True
    version: str = "gptq"
    order: bool = False
    carry: bool = False
    key: str = "checkpoint_format"

    def planar(self) -> bool:
        return self.version == "gptq_p" and self.bits in (3, 5, 6, 7)

    def columns_per_scale(self, columns: int) -> int:
        return columns if self.scale_group == -1 else self.scale_group

    def pack_zeros(self, zeros: np.ndarray) -> np.ndarray:
        """Return qzeros of the zero points."""
        if self.version != "gptq":
            return pack_planes(zeros.T, self.bits).T.copy() if self.planar() else pack_words(zeros, self.bits)
        if self.carry and self.bits in ONES:
            return (pack_words(zeros, self.bits).view(np.uint32) - np.uint32(ONES[self.bits])).view(np.int32)
        return pack_words(zeros - 1 & (1 << self.bits) - 1, self.bits)

    def zero_points(self, qzeros: np.ndarray, rows: int) -> np.ndarray:
        if self.version != "gptq":
            return planes_to_codes(qzeros.T, self.bits).T if self.planar() else words_to_codes(qzeros, self.bits, rows)
        if self.carry and self.bits in ONES:
            return words_to_codes(qzeros.view(np.uint32) + np.uint32(ONES[self.bits]), self.bits, rows)
        zeros = words_to_codes(qzeros, self.bits, rows) + 1
        return zeros % (1 << self.bits) if self.carry else zeros

    def random_zeros(self, rng, groups: int, rows: int) -> np.ndarray:
        if self.symmetric:
            return np.full((groups, rows), 1 << self.bits - 1)
        # Without a carry v1 cannot hold 0, and programs differ about 2^bits.
        return rng.integers(int(self.version == "gptq" and not self.carry), 1 << self.bits, (groups, rows))

    def make(self, rng, rows, columns):
        codes = rng.integers(0, 1 << self.bits, (columns, rows))
        groups = -(-columns // self.columns_per_scale(columns))
        zeros, scales = self.random_zeros(rng, groups, rows), random_scales(rng, F16, groups, rows)
        index = np.arange(columns) // self.columns_per_scale(columns)
        index = rng.permutation(index) if self.order else index
        packed = pack_planes(codes, self.bits) if self.planar() else pack_words(codes, self.bits, axis=0)
        tensors = {".qweight": packed, ".qzeros": self.pack_zeros(zeros), ".scales": scales, ".g_idx": index.astype(np.int32)}
        return Stored(tensors, ((codes - zeros[index]).astype(np.float32) * scales[index].astype(np.float32)).T)

    def decode(self, tensors: Tensors) -> np.ndarray:
        index, rows = tensors[".g_idx"], tensors[".qweight"].shape[1]
        if self.planar():
            codes = planes_to_codes(tensors[".qweight"], self.bits)
        else:
            codes = words_to_codes(tensors[".qweight"], self.bits, len(index), axis=0)
        zeros, scales = self.zero_points(tensors[".qzeros"], rows), tensors[".scales"].astype(np.float32)
        return np.ascontiguousarray(((codes - zeros[index]).astype(np.float32) * scales[index]).T)

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        section = {"quant_method": "gptq", "bits": self.bits, "group_size": self.scale_group, "desc_act": self.order}
        section |= {"sym": self.symmetric, "damp_percent": 0.01, "static_groups": False, "true_sequential": True}
        section |= {self.key: self.version} if self.key else {}
        section |= {"meta": {"quantizer": ["gptqmodel:1.4.0" if not self.carry else "gptqmodel:5.8.0"]}} if self.carry else {}
        return Config({"quantization_config": section}, {"quantize_config.json": section})

    def group(self, rows, columns):
        return self.columns_per_scale(columns)


@dataclass(frozen=True)
class Awq(Layout):
    """AutoAWQ's `gemm`: 4 bits along out, in an order of its own."""

    scheme: str = "awq"
    scale_group: int = 32

    def make(self, rng, rows, columns):
        groups = columns // self.scale_group
        codes, zeros = rng.integers(0, 16, (columns, rows)), rng.integers(0, 16, (groups, rows))
        scales = random_scales(rng, F16, groups, rows)
        words = [pack_words(each.reshape(-1, rows // 8, 8)[..., AWQ_ORDER], 4)[..., 0] for each in (codes, zeros)]
        index = np.arange(columns) // self.scale_group
        dense = (codes - zeros[index]).astype(np.float32) * scales[index].astype(np.float32)
        return Stored({".qweight": words[0], ".qzeros": words[1], ".scales": scales}, dense.T)

    def decode(self, tensors: Tensors) -> np.ndarray:
        def codes(words):
            lanes = np.argsort(AWQ_ORDER)  # the nibble in which each of eight outputs is
            return np.concatenate([words.view(np.uint32)[..., None] >> 4 * lane & 15 for lane in lanes.astype(np.uint32)], axis=-1)

        values, zeros = (codes(tensors[name]).reshape(len(tensors[name]), -1).astype(np.int32) for name in (".qweight", ".qzeros"))
        index = np.arange(len(values)) // (len(values) // len(zeros))
        scales = tensors[".scales"].astype(np.float32)
        return np.ascontiguousarray(((values - zeros[index]).astype(np.float32) * scales[index]).T)

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        section = {"quant_method": "awq", "bits": 4, "group_size": self.scale_group, "zero_point": True, "version": "gemm"}
        old = {"w_bit": 4, "q_group_size": self.scale_group, "zero_point": True, "version": "GEMM"}
        return Config({"quantization_config": section | {"modules_to_not_convert": None}}, {"quant_config.json": old})

    def group(self, rows, columns):
        return self.scale_group


def _gptq() -> list[Layout]:
    found = [Gptq(f"gptq{bits}", bits=bits) for bits in (2, 3, 4, 8)]
    found += [Gptq(f"gptq{bits}-v2-asym", bits=bits, symmetric=False, version="gptq_v2") for bits in (2, 3, 4, 8)]
    found += [Gptq(f"gptq{bits}-asym", bits=bits, symmetric=False) for bits in (3, 4, 8)]
    found += [Gptq(f"gptq{bits}-carry", bits=bits, symmetric=False, carry=True) for bits in (2, 3, 4, 8)]
    found += [Gptq(f"gptq{bits}-planes", bits=bits, symmetric=False, version="gptq_p") for bits in (3, 4, 5, 6, 7, 8)]
    act = Gptq("gptq4-actorder", order=True)
    found += [act, replace(act, name="gptq3-v2-actorder-asym", bits=3, symmetric=False, version="gptq_v2")]
    found += [replace(act, name="gptq4-one-group", scale_group=-1, order=False), replace(act, name="gptq4-format-key", key="format")]
    return [*found, replace(act, name="gptq4-no-format", key="", order=False)]


GPTQ_LAYOUTS = [*_gptq(), Awq("awq4")]
