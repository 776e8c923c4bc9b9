"""Short floats, and integer codes packed into words and bytes, each packed and unpacked by a method of its own."""

from __future__ import annotations

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
F8_E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
F8_E5M2 = np.dtype(ml_dtypes.float8_e5m2)
F8_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def e8m0(codes: np.ndarray) -> np.ndarray:
    """Return 2^(code − 127), NaN for 0xFF."""
    codes = np.asarray(codes).view(np.uint8)
    values = np.ldexp(1.0, codes.astype(np.int32) - 127)
    return np.where(codes == 0xFF, np.nan, values).astype(np.float32)


def e2m1_codes(values: np.ndarray) -> np.ndarray:
    """Return the nearest codes; the even one of two that are equally near."""
    magnitude = np.abs(np.asarray(values, np.float32))
    distance = np.abs(magnitude[..., None] - E2M1[:8])
    ties = np.arange(8) % 2 * np.float32(1e-6)
    return (np.argmin(distance + ties, axis=-1) | np.signbit(values) * 8).astype(np.uint8)


def e8m0_floor(largest: np.ndarray, exponent: int, up_from: float = 2.0) -> np.ndarray:
    """Return floor(log2 largest) − exponent as codes, one more if the mantissa is at least `up_from`."""
    mantissa, power = np.frexp(np.asarray(largest, np.float32))
    return (power - 1 - exponent + 127 + (mantissa * 2 >= up_from)).astype(np.uint8)


def pack_nibbles(codes: np.ndarray, *, high_first: bool = False) -> np.ndarray:
    """Return bytes of two codes along the last axis."""
    first, second = codes[..., 0::2].astype(np.uint8), codes[..., 1::2].astype(np.uint8)
    return first << 4 | second if high_first else second << 4 | first


def nibbles(packed: np.ndarray, *, high_first: bool = False) -> np.ndarray:
    """Return the codes of bytes along the last axis."""
    packed = np.ascontiguousarray(packed).view(np.uint8)
    pair = [packed >> 4, packed & 15] if high_first else [packed & 15, packed >> 4]
    return np.stack(pair, axis=-1).reshape(*packed.shape[:-1], -1)


def pack_words(codes: np.ndarray, bits: int, *, axis: int = -1, per_word: int | None = None) -> np.ndarray:
    """Return 32-bit words of codes along an axis, lowest bits first: a dense stream, or `per_word` codes in each word."""
    codes = np.moveaxis(np.asarray(codes, np.uint32), axis, -1)
    assert codes.max(initial=0) < 1 << bits
    if per_word:
        padded = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % per_word)])
        lanes = padded.reshape(*codes.shape[:-1], -1, per_word) << (np.arange(per_word) * bits).astype(np.uint32)
        words = np.bitwise_or.reduce(lanes, axis=-1)
    else:
        stream = (codes[..., None] >> np.arange(bits, dtype=np.uint32) & 1).astype(np.uint8).reshape(*codes.shape[:-1], -1)
        padded = np.pad(stream, [(0, 0)] * (codes.ndim - 1) + [(0, -stream.shape[-1] % 32)])
        words = np.packbits(padded, axis=-1, bitorder="little").view("<u4")
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


def words_to_codes(words: np.ndarray, bits: int, count: int, *, axis: int = -1, per_word: int | None = None) -> np.ndarray:
    """Return `count` codes along an axis."""
    words = np.moveaxis(np.ascontiguousarray(words).view(np.uint32), axis, -1).astype(np.uint64)
    code = np.arange(count)
    word, shift = (code // per_word, code % per_word * bits) if per_word else np.divmod(code * bits, 32)
    after = np.minimum(word + 1, words.shape[-1] - 1)
    both = words[..., word] | words[..., after] << np.uint64(32)
    codes = both >> shift.astype(np.uint64) & np.uint64((1 << bits) - 1)
    return np.moveaxis(codes, -1, axis).astype(np.int32)


def planes(bits: int) -> list[tuple[int, int]]:
    """Return (lowest bit, width) of the planes that hold 3, 5, 6 or 7 bits in `gptq_p`."""
    found, lowest = [], 0
    for width in (4, 2, 1):
        if bits - lowest >= width and (width < 4 or bits > 3):
            found.append((lowest, width))
            lowest += width
    return found


def pack_planes(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return words along the first axis: of each 32 codes, one plane after the other."""
    blocks = codes.reshape(-1, 32, codes.shape[1])
    parts = [pack_words(blocks >> low & (1 << width) - 1, width, axis=1) for low, width in planes(bits)]
    return np.concatenate(parts, axis=1).reshape(-1, codes.shape[1])


def planes_to_codes(words: np.ndarray, bits: int) -> np.ndarray:
    words = words.reshape(-1, bits, words.shape[1])
    codes, start = 0, 0
    for low, width in planes(bits):
        codes = codes | words_to_codes(words[:, start : start + width], width, 32, axis=1) << low
        start += width
    return codes.reshape(-1, words.shape[2])


def random_e4m3(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return any E4M3 codes but NaN; the first are the largest, the smallest and a negative zero."""
    codes = rng.integers(0, 256, shape, np.uint8)
    codes = np.where(codes & 0x7F == 0x7F, codes - 1, codes).astype(np.uint8)
    codes.flat[:4] = [0x7E, 0xFE, 0x01, 0x80][: codes.size]
    return codes.view(F8_E4M3)


def random_scales(rng: np.random.Generator, dtype: np.dtype, *shape: int) -> np.ndarray:
    """Return positive scales between 2^-9 and 2^-4 of any mantissa."""
    return np.exp2(rng.uniform(-9, -4, shape)).astype(np.float32).astype(dtype)


def each(scales: np.ndarray, rows: int, columns: int, block: tuple[int, int]) -> np.ndarray:
    """Return, in F32, the scale of every element of [rows, columns] in blocks, of which the last may be ragged."""
    row, column = np.arange(rows) // block[0], np.arange(columns) // block[1]
    return np.asarray(scales).astype(np.float32)[row[:, None], column[None, :]]
