"""Layouts of bitsandbytes: 8 bits per row, and 4 bits in blocks of 64 of the flattened weight."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Config, Layout, Stored, Tensors
from .elements import BF16, nibbles, pack_nibbles

NF4 = np.array(
    [-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
     0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1], np.float32)  # fmt: skip
_FP4 = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3], np.float32) / np.float32(12)
FP4 = np.concatenate([_FP4, 0 - _FP4])  # without a negative zero
MAPS = {"nf4": NF4, "fp4": FP4}
SKIPPED = {"llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False, "llm_int8_threshold": 6.0}


def nested_map() -> np.ndarray:
    """Return the 256 sorted values of an 8-bit absmax."""
    found = [0.0, 1.0]
    for k in range(7):
        edges = np.linspace(0.1, 1, 2**k + 1, dtype=np.float32)
        middles = (edges[:-1] + edges[1:]) / np.float32(2) * np.float32(10.0 ** (k - 6))
        found += [*middles, *-middles]
    return np.sort(np.array(found, np.float32))


@dataclass(frozen=True)
class Int8(Layout):
    """The product with SCB is rounded, then multiplied by 1/127."""

    scheme: str = "bitsandbytes"
    bits: int = 8
    exact: bool = False

    def make(self, rng, rows, columns):
        codes, scales = rng.integers(-127, 128, (rows, columns), np.int8), rng.uniform(0.05, 3, rows).astype(np.float32)
        dense = codes.astype(np.float32) * scales[:, None] * np.float32(1 / 127)
        return Stored({".weight": codes, ".SCB": scales, ".weight_format": np.array(0, np.uint8)}, dense)

    def decode(self, tensors: Tensors) -> np.ndarray:
        rows = [
            row.astype(np.float32) * scale * np.float32(1 / 127) for row, scale in zip(tensors[".weight"], tensors[".SCB"], strict=True)
        ]
        return np.stack(rows)

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        section = {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False, "llm_int8_skip_modules": list(ignored)}
        return Config({"quantization_config": section | SKIPPED})


@dataclass(frozen=True)
class FourBit(Layout):
    """`storage` is the dtype that the bytes of the codes are stored as."""

    scheme: str = "bitsandbytes"
    kind: str = "nf4"
    nested: bool = False
    storage: np.dtype = np.dtype(np.uint8)
    blocksize: int = 64

    def absmax(self, rng, count: int) -> tuple[Tensors, np.ndarray, dict]:
        """Return the tensors of the largest values of the blocks, those values, and what the quantization state says of them."""
        if not self.nested:
            values = rng.uniform(0.01, 0.2, count).astype(np.float32)
            return {".weight.absmax": values}, values, {}
        codes, offset = rng.integers(0, 256, count, np.uint8), np.float32(0.0735)
        outer = rng.uniform(0.01, 0.07, -(-count // 256)).astype(np.float32)
        values = nested_map()[codes] * np.repeat(outer, 256)[:count] + offset
        tensors = {".weight.absmax": codes, ".weight.nested_absmax": outer, ".weight.nested_quant_map": nested_map()}
        return tensors, values, {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": float(offset)}

    def make(self, rng, rows, columns):
        count = rows * columns
        codes = rng.integers(0, 16, count, np.uint8)
        more, largest, said = self.absmax(rng, -(-count // self.blocksize))
        packed = pack_nibbles(np.pad(codes, (0, count % 2)), high_first=True).view(self.storage).reshape(-1, 1)
        state = {"quant_type": self.kind, "blocksize": self.blocksize, "dtype": "bfloat16", "shape": [rows, columns]} | said
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        tensors = {".weight": packed, ".weight.quant_map": MAPS[self.kind], f".weight.quant_state.bitsandbytes__{self.kind}": text}
        dense = MAPS[self.kind][codes] * np.repeat(largest, self.blocksize)[:count]
        return Stored(tensors | more, dense.reshape(rows, columns))

    def decode(self, tensors: Tensors) -> np.ndarray:
        state = json.loads(tensors[f".weight.quant_state.bitsandbytes__{self.kind}"].tobytes())
        count = int(np.prod(state["shape"]))
        codes = nibbles(tensors[".weight"].reshape(-1), high_first=True)[:count]
        largest = tensors[".weight.absmax"]
        if ".weight.nested_absmax" in tensors:
            outer = tensors[".weight.nested_absmax"][np.arange(len(largest)) // state["nested_blocksize"]]
            largest = tensors[".weight.nested_quant_map"][largest] * outer + np.float32(state["nested_offset"])
        values = tensors[".weight.quant_map"][codes] * largest[np.arange(count) // state["blocksize"]]
        return values.reshape(state["shape"])

    def config(self, modules: Sequence[str], ignored: Sequence[str] = ("lm_head",)) -> Config:
        section = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": self.kind}
        section |= {"bnb_4bit_use_double_quant": self.nested, "bnb_4bit_compute_dtype": "bfloat16"}
        section |= {"bnb_4bit_quant_storage": "uint8" if self.storage.itemsize == 1 else "bfloat16"}
        return Config({"quantization_config": section | SKIPPED | {"llm_int8_skip_modules": list(ignored)}})

    def group(self, rows, columns):
        return self.blocksize


BITSANDBYTES_LAYOUTS = [
    Int8("bnb-int8"),
    FourBit("bnb-nf4"),
    FourBit("bnb-fp4", kind="fp4"),
    FourBit("bnb-nf4-nested", nested=True),
    FourBit("bnb-fp4-nested", kind="fp4", nested=True),
    FourBit("bnb-nf4-as-bf16", storage=BF16),
    FourBit("bnb-nf4-as-f16", storage=np.dtype(np.float16), nested=True),
    FourBit("bnb-nf4-as-f32", storage=np.dtype(np.float32)),
    FourBit("bnb-nf4-128", blocksize=128),
]
