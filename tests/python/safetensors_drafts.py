"""Valid SafeTensors files as mutable trees, and ways to write them as JSON."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

NAMES = [
    "", "a", "weight", "model.layers.0.self_attn.q_proj.weight", "seven77", "eight888", "nine99999", "dtype",
    "__meta__", "__metadata__ ", 'quote"', "back\\slash", "sla/sh", "line\nbreak", "nul\0", "\x1f\x7f\x80", "é", "重み",
    "😀", "\u2028\u202e", "\ufeff", "\uffff\U0010ffff", "x" * 300, "e\u0301",
]  # fmt: skip


class Raw(str):
    """JSON text to write verbatim."""


class Obj(list):
    """A JSON object as [key, value] lists, so that keys can be duplicated."""

    def get(self, key):
        return next((value for found, value in self if found == key), None)

    def set(self, key, value):
        for pair in self:
            if pair[0] == key:
                pair[1] = value


def tensor(dtype, shape, begin, end) -> Obj:
    return Obj([["dtype", dtype], ["shape", shape], ["data_offsets", [begin, end]]])


@dataclass
class Draft:
    header: Obj
    data: bytes

    def any_tensor(self, rng: random.Random) -> list:
        """A [name, entry] pair; if there is none, one that is not part of the draft."""
        pairs = [pair for pair in self.header if pair[0] != "__metadata__" and isinstance(pair[1], Obj)]
        return rng.choice(pairs or [["", tensor("U8", [0], 0, 0)]])

    def insert(self, rng: random.Random, key, value):
        self.header.insert(rng.randint(0, len(self.header)), [key, value])


def random_shape(rng: random.Random) -> list[int]:
    return rng.choices([0, 1, 2, 3, 4, 8], [1, 2, 1, 1, 1, 1], k=rng.choice([0, 1, 1, 2, 2, 3, 4]))


def random_draft(rng: random.Random) -> Draft:
    header, end = Obj(), 0
    for name in rng.sample(NAMES, rng.choice([0, 1, 2, 2, 3, 3, 4, 6])):
        dtype, shape = rng.choice(list(BITS)), random_shape(rng)
        if prod(shape) * BITS[dtype] % 8 != 0:
            shape.append(4)
        begin, end = end, end + prod(shape) * BITS[dtype] // 8
        header.append([name, tensor(dtype, shape, begin, end)])
    if rng.random() < 0.4:
        metadata = Obj([name, rng.choice(NAMES)] for name in rng.sample(NAMES, rng.randint(0, 4)))
        header.insert(0, ["__metadata__", metadata if rng.random() < 0.9 else None])
    if rng.random() < 0.5:
        rng.shuffle(header)
    for _, entry in header:
        if entry and rng.random() < 0.3:
            rng.shuffle(entry)
    return Draft(header, rng.randbytes(end))


def write_string(rng: random.Random, text: str) -> str:
    spelling = rng.random()
    if spelling < 0.9:
        return json.dumps(text, ensure_ascii=spelling < 0.45)
    if spelling < 0.95:
        return json.dumps(text).replace("/", "\\/")
    units = text.encode("utf-16-be")
    return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'


def write(rng: random.Random, node, space: Callable[[], str]) -> str:
    """Write a tree as JSON, with space() around every token."""
    if isinstance(node, Raw):
        return node
    if isinstance(node, str):
        return write_string(rng, node)
    if isinstance(node, Obj):
        pairs = (f"{padded(rng, key, space)}:{padded(rng, value, space)}" for key, value in node)
        return "{" + (",".join(pairs) or space()) + "}"
    if isinstance(node, list):
        return "[" + (",".join(padded(rng, value, space) for value in node) or space()) + "]"
    return str(node) if type(node) is int else json.dumps(node)


def padded(rng: random.Random, node, space: Callable[[], str]) -> str:
    return f"{space()}{write(rng, node, space)}{space()}"
