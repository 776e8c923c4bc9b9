"""Valid and slightly invalid SafeTensors files, to compare readers. mutant(seed, index) is deterministic."""

import random
from dataclasses import dataclass
from itertools import cycle
from math import prod

from safetensors_bytes import data_start, length_bytes, prefix
from safetensors_drafts import BITS, NAMES, Draft, Obj, Raw, random_draft, tensor, write

ODD_NUMBERS = [
    "-0", "0.0", "-0.0", "0e0", "1e308", "1e309", "-1e400", "0e400", "1e-400", "00", "-", "+1", ".5", "1.", "0x10", "1e",
    "NaN", "Infinity", "18446744073709551615", "18446744073709551616", "17976931348623157e292", "17976931348623159e292",
    "１",
]  # fmt: skip

ODD_VALUES = [
    "null", "true", "false", '""', "[]", "{}", "0", '"F32"', "[0]", '[["U8",[],[0,1]]]', '{"a":1,"a":1}',
    '"\\ud83d\\ude00"', '"\\ud83d"', "", "nul", "True", "undefined", "nullnull", "'x'", "[1,]", "[,]", "[1 2]", "{1:2}",
    '{"a"}', "// x\n1",
]  # fmt: skip


def random_number(rng: random.Random) -> str:
    """Text that is, or nearly is, a JSON number; many are close to the range of a double."""
    digits = str(rng.getrandbits(rng.choice([1, 4, 31, 63, 64, 65, 130, 1020, 1023, 1024, 1025])))
    number = rng.choice(["", "", "-"]) + digits
    if rng.random() < 0.4:
        number += "." + "0" * rng.choice([0, 0, 1, 20, 330]) + str(rng.getrandbits(rng.choice([1, 8, 64, 200])))
    if rng.random() < 0.4:
        exponent = rng.choice([0, 2, 287, 288, 289, 290, 307, 308, 309, 310, 400, 2**31 - 1, 2**31, 2**64])
        number += rng.choice("eE") + rng.choice(["", "+", "-"]) + str(max(0, exponent - rng.choice([0, len(digits)])))
    if rng.random() < 0.1:
        number = rng.choice(["0", "+", "-", "."]) + number
    if rng.random() < 0.1:
        number += rng.choice([".", "e", "E+", "L", "_0"])
    return number


def nested(rng: random.Random, depth: int, core: str) -> str:
    kinds = rng.choices([("[", "]"), ('{"k":', "}")], k=depth)
    return "".join(opening for opening, _ in kinds) + core + "".join(closing for _, closing in reversed(kinds))


def odd_value(rng: random.Random) -> Raw:
    kind = rng.randrange(8)
    if kind < 2:
        return Raw(random_number(rng))
    if kind == 2:
        return Raw(rng.choice(ODD_NUMBERS))
    if kind == 3:
        return Raw(nested(rng, rng.randint(119, 131), rng.choice(["0", '"s"', "null", "[]", "{}"])))
    return Raw(rng.choice(ODD_VALUES))


# Changes to the tensors of the header. A draft gets at most one.


def extra_field(rng, draft):
    entry = draft.any_tensor(rng)[1]
    for _ in range(rng.choice([1, 1, 2])):
        entry.insert(rng.randint(0, len(entry)), [rng.choice(["note", "Dtype", "", "shape ", "x"]), odd_value(rng)])


def repeated_tensor(rng, draft):
    name, entry = draft.any_tensor(rng)
    copy = Obj(list(pair) for pair in entry)
    if rng.random() < 0.3:
        copy.set("data_offsets", [rng.randint(0, 4), rng.randint(0, 99)])
    if rng.random() < 0.2:
        copy.set("shape", Raw("[1.5]"))
    draft.insert(rng, name, copy)


def repeated_field(rng, draft):
    entry = draft.any_tensor(rng)[1]
    entry.insert(rng.randint(0, len(entry)), list(rng.choice(entry)))


def tensor_as_array(rng, draft):
    pair = draft.any_tensor(rng)
    dtype, shape, offsets = fields = [pair[1].get(key) for key in ("dtype", "shape", "data_offsets")]
    pair[1] = rng.choice([
        fields, fields, fields, [Obj([[dtype, None]]), shape, offsets], [dtype, shape], [*fields, odd_value(rng)],
        [shape, dtype, offsets],
    ])  # fmt: skip


def dtype_as_object(rng, draft):
    entry = draft.any_tensor(rng)[1]
    dtype = entry.get("dtype")
    value = rng.choice([Obj(), [], 0, "", Obj([["k", None]]), odd_value(rng)])
    forms = [[], [[dtype, value]], [[dtype, None], [dtype, None]], [[dtype.lower(), None]]]
    entry.set("dtype", Obj(rng.choice([[[dtype, None]], rng.choice(forms)])))


def odd_dtype(rng, draft):
    dtypes = ["f32", "F33", "F8_E4M3FN", "", "U8 ", "F4 ", "u8", "I4", "BOOL\0", odd_value(rng), *BITS]
    draft.any_tensor(rng)[1].set("dtype", rng.choice(dtypes))


def odd_field(rng, draft):
    draft.any_tensor(rng)[1].set(rng.choice(["dtype", "shape", "data_offsets"]), odd_value(rng))


def missing_field(rng, draft):
    entry = draft.any_tensor(rng)[1]
    del entry[rng.randrange(len(entry))]


def renamed_field(rng, draft):
    pair = rng.choice(draft.any_tensor(rng)[1])
    pair[0] = rng.choice([pair[0].upper(), pair[0] + " ", pair[0][:-1], "dtype", Raw("dtype"), Raw("null"), Raw("1")])


def odd_entry(rng, draft):
    name = rng.choice([*NAMES, "__metadata__", Raw("__metadata__"), Raw("1"), Raw("null"), Raw("'a'")])
    draft.insert(rng, name, rng.choice([odd_value(rng), tensor("U8", [0], 0, 0), Obj()]))


def odd_number(rng, draft):
    """Write one number of a shape or of offsets in an unusual way."""
    numbers = draft.any_tensor(rng)[1].get(rng.choice(["shape", "data_offsets"]))
    if not numbers:
        return
    at = rng.randrange(len(numbers))
    n = numbers[at]
    forms = [
        f"{n}.0", f"{n}e0", f"{n}E+0", f"0{n}", f"+{n}", f"-{n}", f'"{n}"', f"{n + 2**64}", f"\n{n}\t", hex(n),
        rng.choice(ODD_NUMBERS), random_number(rng),
    ]  # fmt: skip
    numbers[at] = Raw(rng.choice(forms))


def odd_length(rng, draft):
    numbers = draft.any_tensor(rng)[1].get(rng.choice(["shape", "data_offsets"]))
    if numbers and rng.random() < 0.5:
        del numbers[rng.randrange(len(numbers))]
    else:
        numbers.insert(rng.randint(0, len(numbers)), rng.choice([0, 1, 1, 2**63, 2**64 - 1]))


def moved_offsets(rng, draft):
    offsets = draft.any_tensor(rng)[1].get("data_offsets")
    change, at = rng.randrange(5), rng.randrange(2)
    if change == 0:
        offsets.reverse()
    elif change == 1:
        delta = rng.choice([1, 8, 2**32, 2**63])
        offsets[:] = [(offset + delta) % 2**64 for offset in offsets]
    elif change == 2:
        offsets[at] = rng.choice([0, 2**63 - 1, 2**63, 2**64 - 1, 2**64])
    else:
        offsets[at] = max(0, offsets[at] + rng.choice([-1, 1, -8, 8]))


def swapped_offsets(rng, draft):
    first, second = draft.any_tensor(rng)[1], draft.any_tensor(rng)[1]
    a, b = first.get("data_offsets"), second.get("data_offsets")
    first.set("data_offsets", b)
    second.set("data_offsets", a)


def empty_tensor(rng, draft):
    at = rng.choice([rng.randint(0, len(draft.data)), *draft.any_tensor(rng)[1].get("data_offsets")])
    shape = rng.choice([[0], [3, 0], [0, 2**63, 4], [2**63, 4, 0], [2**64 - 1, 0], [0, 2**64]])
    draft.insert(rng, "empty", tensor(rng.choice(list(BITS)), shape, at, at))


def other_shape(rng, draft):
    entry = draft.any_tensor(rng)[1]
    shape = entry.get("shape")
    forms = [
        shape[::-1], [*shape, 1], [1] * 40 + shape, [prod(shape)], [*shape, 0], [dim + 1 for dim in shape],
        [2**63, 2], [2**32, 2**32], [2**64 - 1], [2**61], [2, 2**63 - 1], [2**62, 4, 0],
    ]  # fmt: skip
    entry.set("shape", rng.choice(forms))


def other_dtype(rng, draft):
    entry = draft.any_tensor(rng)[1]
    bits = BITS[entry.get("dtype")]
    entry.set("dtype", rng.choice([dtype for dtype in BITS if BITS[dtype] == bits or rng.random() < 0.2]))


def partial_bytes(rng, draft):
    dtype, count, begin = rng.choice(["F4", "F6_E2M3", "F6_E3M2"]), rng.randint(1, 9), len(draft.data)
    draft.data += bytes(count * BITS[dtype] // 8)
    draft.insert(rng, "packed", tensor(dtype, [count], begin, len(draft.data)))


def hole(rng, draft):
    begin = len(draft.data) + rng.choice([1, 8])
    draft.data += bytes(begin - len(draft.data) + 4)
    draft.insert(rng, "beyond", tensor("U8", [4], begin, begin + 4))


def huge_tensors(rng, draft):
    """Sizes that fit into 64 bits, but whose product may not."""
    end, size = len(draft.data), 2**61 - 1
    for i in range(rng.choice([1, 7, 8, 9])):
        draft.header.append([f"huge{i}", tensor("U8", [size], end, min(end + size, 2**64 - 1))])
        end += size


TENSORS = [
    extra_field, extra_field, extra_field, extra_field, repeated_tensor, repeated_field, tensor_as_array,
    dtype_as_object, odd_dtype, odd_field, missing_field, renamed_field, odd_entry, odd_number, odd_length,
    moved_offsets, swapped_offsets, empty_tensor, other_shape, other_dtype, partial_bytes, hole, huge_tensors,
]  # fmt: skip


# Changes to the metadata.


def add_metadata(rng: random.Random, draft: Draft, *pairs: tuple):
    metadata = draft.header.get("__metadata__")
    if metadata is None:
        draft.header[:] = [pair for pair in draft.header if pair[0] != "__metadata__"]
        metadata = Obj([["format", "pt"]])
        draft.insert(rng, "__metadata__", metadata)
    for pair in pairs:
        metadata.insert(rng.randint(0, len(metadata)), list(pair))


def repeated_metadata_key(rng, draft):
    key = rng.choice(NAMES)
    add_metadata(rng, draft, (key, "one"), (key, rng.choice(["one", "two"])))


def odd_metadata_value(rng, draft):
    add_metadata(rng, draft, (rng.choice(["format", "k"]), odd_value(rng)))


def odd_metadata(rng, draft):
    if rng.random() < 0.5:
        draft.header[:] = [pair for pair in draft.header if pair[0] != "__metadata__"]
    draft.insert(rng, "__metadata__", odd_value(rng))


METADATA = [repeated_metadata_key, odd_metadata_value, odd_metadata]


# Changes to the bytes of the header.


def splice(text: bytes, at: int, new: bytes, removed: int = 0) -> bytes:
    return text[:at] + new + text[at + removed :]


def flipped_bits(rng, text):
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(text))
        text = splice(text, at, bytes([text[at] ^ 1 << rng.randrange(8)]), 1)
    return text


def other_character(rng, text):
    new = rng.choice([b"", *(bytes([c]) for c in b'{}[]:,"\\/ \t\n\r0-.e1anu\0\x0b\x7f')])
    return splice(text, rng.randrange(len(text)), new, rng.randrange(2))


ESCAPES = rb'\/ \b \f \n \r \t \\ \" \x41 \a \0 \U0041 \u12 \u00g0 \u+123 \u-123'.split()
UNITS = rb"""
    \u0000 \u00e9 \uFFFF \uD83D\uDE00 \ud83d\ude00 \ud83d \ude00 \ud83d\ud83d \ud83d\u0041 \ud83d\ue000 \ud83dx \ud83d\n
""".split()
UTF8 = [char.encode() for char in "\0\x1f\n\x7f\x80\u2028\ufeff\uffff\U0010ffff"]
NOT_UTF8 = [
    b"\x80", b"\xc3", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xff",
]  # fmt: skip


def odd_string(rng, text):
    """Insert something near the start of a string."""
    quotes = [i for i, byte in enumerate(text) if byte == ord('"')] or [0]
    at = rng.choice(quotes) + rng.choice([1, 1, 1, 2, 8, 9])
    return splice(text, at, rng.choice(rng.choice([ESCAPES, UNITS, UTF8, NOT_UTF8])))


def odd_syntax(rng, text):
    mark = rng.choice(b'{}[],:"')
    places = [i for i, byte in enumerate(text) if byte == mark] or [0]
    new = [b",", b",,", b"/* x */", b"// x\n", b"'", b" ", b"\t\r\n", b"\x0c", b"\xc2\xa0", b"#", b"null", b"1"]
    return splice(text, rng.choice(places) + rng.randrange(2), rng.choice(new), rng.choice([0, 0, 1]))


FRAMES = [
    (b"", b" "), (b"", b"\n\t\r "), (b" ", b""), (b"\r\n\t ", b""), (b"\xef\xbb\xbf", b""), (b"", b"\0"), (b"\0", b""),
    (b"", b"{}"), (b"[", b"]"), (b'{"a":', b"}"), (b"", b","), (b"", b"x"), (b"", b"}"), (b"{", b"}"), (b'"', b'"'),
    (b"", b"\x0c"), (b"// x\n", b""), (b"", b"\xff"),
]  # fmt: skip


def framed(rng, text):
    front, back = rng.choice(FRAMES)
    return front + text + back


def cut_header(rng, text):
    return text[: rng.randrange(len(text))]


def repeated_run(rng, text):
    at = rng.randrange(len(text))
    return splice(text, at, text[at : at + rng.choice([1, 2, 8, 40])])


def other_header(rng, text):
    whole = [
        b"", b" ", b"{", b"}", b"{}", b" {} ", b"[]", b"null", b"0", b'""', b"{}\r \t\n", b"{ }", b"{{}}", b"{}{}",
        b"\xff", b'{"":null}', b'{"__metadata__":null}', b'{"__metadata__":{}}', b'{"__metadata__":[]}',
    ]  # fmt: skip
    return rng.choice(whole)


TEXT = [
    flipped_bits, flipped_bits, other_character, odd_string, odd_string, odd_syntax, framed, cut_header, repeated_run,
    other_header,
]  # fmt: skip


# Changes to the bytes of the file.


def other_length(rng, file):
    n = data_start(file) - 8
    near = max(0, n + rng.choice([-8, -2, -1, 1, 2, 8, len(file)]))
    far = [0, 1, 10**8, 10**8 + 1, 2**63, 2**64 - 1, 2**64 - 8, n | 0xFF << 56, n ^ 1 << rng.randrange(64)]
    return length_bytes(rng.choice([near, rng.choice(far)])) + file[8:]


def truncated(rng, file):
    return file[: rng.choice([0, 7, 8, 9, len(file) - 1, len(file) - 2, rng.randrange(len(file))])]


def trailing_bytes(rng, file):
    return file + rng.randbytes(rng.choice([1, 2, 8, 34]))


def other_data(rng, file):
    start = data_start(file)
    return file[:start] + rng.randbytes(len(file) - start)


FILE = [other_length, other_length, truncated, trailing_bytes, other_data]


# What to change, and how often.
PLANS = [
    ([], 25), ([TENSORS], 38), ([METADATA], 6), ([TEXT], 16), ([FILE], 6),
    ([METADATA, TENSORS], 3), ([TENSORS, TEXT], 2), ([TENSORS, FILE], 2), ([TEXT, FILE], 2),
]  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    label: str  # the changes made to a valid file
    content: bytes


def mutant(seed: int, index: int) -> Mutant:
    rng = random.Random(f"{seed}/{index}")
    plans, weights = zip(*PLANS)
    changes = [rng.choice(kind) for kind in rng.choices(plans, weights)[0]]
    draft = random_draft(rng)
    for change in changes:
        if change in TENSORS or change in METADATA:
            change(rng, draft)
    spaces = rng.choices(["", " ", "\n", "\t", "\r\n  "], [10, 3, 1, 1, 1], k=40)
    text = write(rng, draft.header, rng.choice([str, str, str, cycle(spaces).__next__])).encode()
    text += b" " * rng.choice([0, -len(text) % 8])
    for change in changes:
        if change in TEXT:
            text = change(rng, text)
    file = prefix(text) + draft.data
    for change in changes:
        if change in FILE:
            file = change(rng, file)
    return Mutant("+".join(change.__name__ for change in changes) or "valid", file)
