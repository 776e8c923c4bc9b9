"""Conversions compared with NumPy and ml_dtypes, for all values of up to 16 bits and edge cases of the others."""

import ml_dtypes
import numpy as np
import pytest

INTEGERS = {"U8": "u1", "I8": "i1", "I16": "i2", "U16": "u2", "I32": "i4", "U32": "u4", "I64": "i8", "U64": "u8"}
FLOATS = {
    "F4": ml_dtypes.float4_e2m1fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F16": "f2",
    "BF16": ml_dtypes.bfloat16,
    "F32": "f4",
    "F64": "f8",
}
DTYPES = {name: np.dtype(dtype) for name, dtype in {"BOOL": "u1", **INTEGERS, **FLOATS}.items()}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, about NaN and overflow


def bits(array):
    return array.view(f"u{array.itemsize}")


def edge_floats(dtype, mantissa_bits):
    """Both signs, every exponent, and mantissas around each power of two; then any bits."""
    code = np.dtype(f"u{np.dtype(dtype).itemsize}").type
    powers = [code(1 << bit) for bit in range(mantissa_bits)]
    mantissas = {int(power) + step for power in powers for step in (-1, 0, 1)} | {int(3 * power) for power in powers[:-1]}
    mantissas |= {(1 << mantissa_bits) - 1}
    tops = np.arange(1 << (8 * code().itemsize - mantissa_bits), dtype=code) << code(mantissa_bits)
    edges = (tops[:, None] | np.array(sorted(mantissas), code)[None, :]).ravel()
    anything = np.random.default_rng(1).integers(0, 2**64, 50_000, np.uint64).astype(code)
    return np.concatenate([edges[:: max(1, len(edges) // 100_000)], anything]).view(dtype)


def edge_integers(dtype):
    limits = np.iinfo(dtype)
    powers = [1 << bit for bit in range(64)] + [(1 << high) + (1 << low) for high in range(64) for low in range(high)]
    values = {sign * (power + step) for power in powers for step in (-1, 0, 1) for sign in (-1, 1)}
    return np.array(sorted(value for value in values if limits.min <= value <= limits.max), dtype)


def samples(name):
    dtype = DTYPES[name]
    if name == "F4":
        return np.arange(16, dtype="u1").view(dtype)
    if dtype.itemsize <= 2:
        return np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    if name in FLOATS:
        return edge_floats(dtype, 23 if name == "F32" else 52)
    values = edge_integers(dtype)
    return values[: len(values) // 2 * 2]


def pack(name, array):
    codes = bits(array)
    return codes[0::2] | codes[1::2] << 4 if name == "F4" else codes


def unpack(name, data):
    codes = np.frombuffer(data, f"u{DTYPES[name].itemsize}")
    if name == "F4":
        codes = np.stack([codes & 15, codes >> 4], axis=1).ravel()
    return codes.view(DTYPES[name])


def convert(probe, source, target, values):
    answer = probe(f"convert {source} {target} {pack(source, values).tobytes().hex()}")
    assert answer["ok"], answer
    return unpack(target, bytes.fromhex(answer["bytes"])), (answer["lost"], answer["first"])


def losses(lost):
    lost = np.asarray(lost, bool)
    return int(lost.sum()), int(lost.argmax()) if lost.any() else 0


def to_odd_f32(values):
    """Round F64 to odd F32, so that a second rounding gives the same as a single one."""
    nearest = values.astype("f4")
    back = nearest.astype("f8")
    step = np.where(np.abs(back) < np.abs(values), 1, -1)
    even_and_inexact = (back != values) & ~np.isnan(values) & (bits(nearest) & 1 == 0)
    return (bits(nearest) + np.where(even_and_inexact, step, 0).astype("u4")).view("f4")


def odd_doubles(values):
    """Convert integers to F64. The low bits of those that may not fit become one sticky bit."""

    def jam(value):
        return value if abs(value) < 2**53 or value % 2048 == 0 else np.sign(value) * ((abs(value) >> 11 | 1) << 11)

    return np.array([float(jam(value)) for value in values.tolist()], "f8")


def round_once(values, target):
    """Convert floats of at most 32 bits exactly, and F64 with a single rounding."""
    if values.dtype != np.float64:
        values = values.astype("f4")
        result = values.astype(DTYPES[target])
    elif target in ("F16", "F32"):
        result = values.astype(DTYPES[target])
    else:
        values = to_odd_f32(values)
        result = values.astype(DTYPES[target])
    if target == "F8_E8M0":  # ml_dtypes rounds everything between 2^-127 and 2^-126 up, where F32 is subnormal
        result = bits(result).copy()
        result[(values > 2.0**-127) & (values < 1.5 * 2.0**-127)] = 0
        result = result.view(DTYPES[target])
    return result


FLOAT_PAIRS = [(source, target) for source in FLOATS for target in FLOATS if source != target]


@pytest.mark.parametrize("source,target", FLOAT_PAIRS)
def test_float_to_float(probe, source, target):
    values = samples(source)
    result, lost = convert(probe, source, target, values)
    np.testing.assert_array_equal(bits(result), bits(round_once(values, target)))
    assert lost == (0, 0)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_float_to_integer(probe, source, target):
    values = samples(source)
    limits = np.iinfo(DTYPES[target])
    wide = values.astype("f4").astype("f8") if source != "F64" else values
    finite = np.clip(np.nan_to_num(wide, nan=0.0), -(2.0**65), 2.0**65)
    expected = [min(max(int(value), limits.min), limits.max) for value in finite]
    result, lost = convert(probe, source, target, values)
    assert result.tolist() == expected
    assert lost == losses([value != number for value, number in zip(wide.tolist(), expected)])


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", FLOATS)
def test_integer_to_float(probe, source, target):
    values = samples(source)
    result, lost = convert(probe, source, target, values)
    expected = values.astype("f8") if target == "F64" else round_once(odd_doubles(values), target)
    np.testing.assert_array_equal(bits(result), bits(expected))
    back = expected.astype("f8")
    assert lost == losses([not np.isfinite(b) or int(b) != int(v) for b, v in zip(back.tolist(), values.tolist())])


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_integer_to_integer(probe, source, target):
    values = samples(source).tolist()
    limits = np.iinfo(DTYPES[target])
    expected = [min(max(value, limits.min), limits.max) for value in values]
    result, lost = convert(probe, source, target, samples(source))
    assert result.tolist() == expected
    assert lost == losses([value != number for value, number in zip(values, expected)])


@pytest.mark.parametrize("other", [*INTEGERS, *FLOATS])
def test_bool(probe, other):
    values = samples(other)
    result, lost = convert(probe, other, "BOOL", values)
    wide = values.astype("f4") if other in FLOATS and other != "F64" else values
    assert result.tolist() == (wide != 0).tolist()
    assert lost == losses((wide != 0) & (wide != 1))
    one, lost = convert(probe, "BOOL", other, samples("BOOL"))
    expected = np.array([0] + [1] * 255, "f4").astype(DTYPES[other])
    np.testing.assert_array_equal(bits(one), bits(expected))
    assert lost == ((1, 0) if other == "F8_E8M0" else (0, 0))  # F8_E8M0 has no zero


# Known differences of ml_dtypes. Remove those that no longer occur.


@pytest.mark.parametrize("target", [name for name in FLOATS if name not in ("F64", "F32", "F16")])
def test_ml_dtypes_rounds_f64_twice(target):
    values = samples("F64")
    once, twice = bits(round_once(values, target)), bits(values.astype(DTYPES[target]))
    differ = (once != twice) & (values != values.astype("f4"))
    assert differ.any()


def test_ml_dtypes_rounds_small_f32_up_to_e8m0():
    values = np.array([2.0**-127 + 2.0**-149], "f4")
    assert bits(values.astype(DTYPES["F8_E8M0"])) == 1
    assert bits(round_once(values, "F8_E8M0")) == 0


def test_ml_dtypes_drops_nan_payloads_of_bf16():
    values = np.array([0x7F81], "u2").view(DTYPES["BF16"])
    assert bits(values.astype("f2")) == 0x7E00
    assert bits(round_once(values, "F16")) == 0x7C08


def test_numpy_keeps_f16_nan_signalling_in_f64():
    values = np.array([0x7C01], "u2").view("f2")
    assert bits(values.astype("f8")) == 0x7FF0040000000000
    assert bits(round_once(values, "F64")) == 0x7FF8040000000000
