"""The layouts of quantized weights that other tests use: published bytes, and a decoder that agrees with the encoder."""

import ml_dtypes
import numpy as np
import pytest
from layouts import DTYPES, LAYOUTS, read, write
from layouts.bitsandbytes import FP4, NF4, nested_map
from layouts.comfyui import swizzle, unswizzle
from layouts.elements import (
    E2M1,
    F8_E4M3,
    e2m1_codes,
    e8m0,
    e8m0_floor,
    nibbles,
    pack_nibbles,
    pack_planes,
    pack_words,
    planes_to_codes,
    words_to_codes,
)  # fmt: skip
from layouts.gptq import AWQ_ORDER

EIGHT = np.arange(8)


def words(packed):
    return [f"{word:08X}" for word in np.ravel(packed).view(np.uint32)]


def with_tensors(name, **tensors):
    """Values of a layout's tensors, given by suffix without the dot."""
    return LAYOUTS[name].decode({"." + suffix.replace("__", "."): value for suffix, value in tensors.items()})


def eq(found, expected):
    np.testing.assert_array_equal(found, np.asarray(expected, np.float32), strict=True)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("shape", [(64, 96), (288, 160)])
def test_decoders_agree_with_encoders(name, shape, tmp_path):
    layout = LAYOUTS[name]
    stored = layout.make(np.random.default_rng(7), *shape)
    write(tmp_path / "w.safetensors", stored.named("m"))
    tensors, _ = read(tmp_path / "w.safetensors")
    found = layout.decode({name.removeprefix("m"): tensor for name, tensor in tensors.items()})
    assert found.dtype == stored.dense.dtype == np.float32
    assert found.shape == stored.dense.shape and np.isfinite(found).all()
    np.testing.assert_array_equal(found.view(np.uint32), np.ascontiguousarray(stored.dense).view(np.uint32))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_config_names_the_scheme(name):
    config = LAYOUTS[name].config(["model.layers.0.mlp.up_proj"], ["lm_head"])
    section = config.keys.get("quantization_config", {})
    assert section.get("quant_method", "") in ("", LAYOUTS[name].scheme, "mxfp8")


class TestElements:
    def test_e2m1(self):
        codes = e2m1_codes(np.array([0.5, -1, 6, -6, 1.5, -0.0, 3, -4]))
        assert pack_nibbles(codes).tobytes().hex().upper() == "A1F783E5"
        assert pack_nibbles(codes).view(np.uint32)[0] == 0xE583F7A1
        assert pack_nibbles(codes, high_first=True).tobytes().hex().upper() == "1A7F385E"
        assert e2m1_codes(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7])).tolist() == [0, 2, 2, 4, 4, 6, 6, 7]
        eq(E2M1, np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32))
        np.testing.assert_array_equal(np.signbit(E2M1), np.arange(16) >= 8)

    def test_e4m3(self):
        eq(np.array([0x01, 0x38, 0x74, 0x7E], np.uint8).view(F8_E4M3).astype(np.float32), [2**-9, 1, 192, 448])
        assert np.isnan(np.array([0x7F, 0xFF], np.uint8).view(F8_E4M3).astype(np.float32)).all()

    def test_e8m0(self):
        eq(e8m0(np.array([0, 127, 130, 254], np.uint8)), [2.0**-127, 1, 8, 2.0**127])
        assert np.isnan(e8m0(np.array([0xFF], np.uint8))[0])
        every = np.arange(256, dtype=np.uint8)
        eq(e8m0(every), every.view(ml_dtypes.float8_e8m0fnu).astype(np.float32))

    def test_e8m0_of_seven(self):
        assert e8m0_floor(np.array([7.0]), 2, up_from=1.75)[0] == 128
        assert e8m0_floor(np.array([6.9]), 2, up_from=1.75)[0] == 127

    @pytest.mark.parametrize("bits", range(1, 9))
    @pytest.mark.parametrize("dense", [True, False])
    def test_words(self, bits, dense):
        codes = np.random.default_rng(bits).integers(0, 1 << bits, (3, 77))
        per_word = None if dense else 32 // bits
        packed = pack_words(codes, bits, per_word=per_word)
        assert packed.shape == (3, -(-77 * bits // 32) if dense else -(-77 // (32 // bits)))
        np.testing.assert_array_equal(words_to_codes(packed, bits, 77, per_word=per_word), codes)
        np.testing.assert_array_equal(pack_words(codes.T, bits, axis=0, per_word=per_word).T, packed)

    def test_odd_nibbles(self):
        assert nibbles(np.array([0x21, 0x43], np.uint8)).tolist() == [1, 2, 3, 4]
        assert nibbles(np.array([0x21, 0x43], np.uint8), high_first=True).tolist() == [2, 1, 4, 3]


class TestCompressedTensors:
    def test_four_bits(self):
        assert words(pack_words(np.array([-8, -1, 0, 1, 2, 3, 7, -3]) + 8, 4)) == ["5FBA9870"]

    def test_three_bits(self):
        codes = np.array([-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, 3]) + 4
        assert words(pack_words(codes, 3)) == ["C8FAC688", "00000001"]
        assert words(pack_words(codes, 3, per_word=10)) == ["08FAC688", "00000007"]

    def test_nvfp4(self):
        """The largest value of the tensor is 2.688 and that of the block is 1.152."""
        packed, scale = np.full((1, 8), 0x77, np.uint8), np.array([[0x74]], np.uint8).view(F8_E4M3)
        divisor = np.array([1000], np.float32)
        found = with_tensors("ct-nvfp4", weight_packed=packed, weight_scale=scale, weight_global_scale=divisor)
        np.testing.assert_allclose(found, np.full((1, 16), 1.152), rtol=1e-7)
        other = with_tensors("modelopt-nvfp4", weight=packed, weight_scale=scale, weight_scale_2=np.array(0.001, np.float32))
        np.testing.assert_allclose(other, found, rtol=2e-7)


class TestGptq:
    def test_words(self):
        assert words(pack_words(EIGHT, 4)) == ["76543210"]
        assert words(pack_words(EIGHT[list(AWQ_ORDER)], 4)) == ["75316420"]
        assert words(pack_words(np.tile(EIGHT, 4), 3)) == ["88FAC688", "C688FAC6", "FAC688FA"]
        assert words(pack_planes(np.tile(EIGHT, 4)[:, None], 3)) == ["E4E4E4E4", "E4E4E4E4", "F0F0F0F0"]

    @pytest.mark.parametrize("bits", [3, 5, 6, 7])
    def test_planes(self, bits):
        codes = np.random.default_rng(bits).integers(0, 1 << bits, (96, 5))
        packed = pack_planes(codes, bits)
        assert packed.shape == (3 * bits, 5)
        np.testing.assert_array_equal(planes_to_codes(packed, bits), codes)

    def test_symmetric_zeros(self):
        rng = np.random.default_rng(1)
        assert set(words(LAYOUTS["gptq4"].make(rng, 8, 32).tensors[".qzeros"])) == {"77777777"}
        assert set(words(LAYOUTS["gptq4-planes"].pack_zeros(np.full((1, 8), 8)))) == {"88888888"}

    def test_zeros_with_a_carry(self):
        zeros = np.array([[0, 8, 8, 8, 8, 8, 8, 8]])
        layout = LAYOUTS["gptq4-carry"]
        assert words(layout.pack_zeros(zeros)) == ["7777776F"]
        np.testing.assert_array_equal(layout.zero_points(layout.pack_zeros(zeros), 8), zeros)
        misread = LAYOUTS["gptq4"].zero_points(layout.pack_zeros(zeros), 8)
        assert misread.tolist() == [[16, 7, 8, 8, 8, 8, 8, 8]]


class TestBitsandbytes:
    def test_nf4(self):
        codes = [int(np.argmin(np.abs(NF4 * np.float32(2) - np.float32(value)))) for value in (2, -2, 0, 1.4459136)]
        assert pack_nibbles(np.array(codes), high_first=True).tobytes().hex().upper() == "F07E"

    def test_eight_bits(self):
        found = with_tensors("bnb-int8", weight=np.array([[-64]], np.int8), SCB=np.array([2.54], np.float32))
        np.testing.assert_allclose(found, [[-1.28]], rtol=1e-7)

    def test_maps(self):
        np.testing.assert_allclose(FP4[:8] * 12, [0, 0.0625, 8, 12, 4, 6, 2, 3], rtol=1e-6)
        nested = nested_map()
        assert len(nested) == 256 and (np.diff(nested) > 0).all() and nested[-1] == 1 and 0 in nested

    def test_blocks_cross_rows(self):
        stored = LAYOUTS["bnb-nf4"].make(np.random.default_rng(3), 5, 27)
        assert stored.tensors[".weight"].shape == (68, 1) and stored.tensors[".weight.absmax"].shape == (3,)
        eq(LAYOUTS["bnb-nf4"].decode(stored.tensors), stored.dense)


class TestSwizzle:
    def test_place_of_a_scale(self):
        scales = np.zeros((40, 4), np.uint8)
        scales[33, 2] = 9
        assert swizzle(scales).reshape(-1).tolist().index(9) == 22

    def test_round_trip(self):
        scales = np.random.default_rng(5).integers(0, 256, (300, 11), np.uint8)
        assert swizzle(scales).shape == (384, 12)
        np.testing.assert_array_equal(unswizzle(swizzle(scales), 300, 11), scales)


def test_ragged_blocks():
    stored = LAYOUTS["fp8-block"].make(np.random.default_rng(2), 576, 320)
    assert stored.tensors[".weight_scale_inv"].shape == (5, 3)
    eq(LAYOUTS["fp8-block"].decode(stored.tensors), stored.dense)


def test_files_hold_any_dtype(tmp_path):
    tensors = {name: np.zeros((2, 3), dtype) for name, dtype in DTYPES.items()} | {"scalar": np.array(1.5, np.float32)}
    write(tmp_path / "a.safetensors", tensors, {"format": "pt"})
    found, metadata = read(tmp_path / "a.safetensors")
    assert metadata == {"format": "pt"} and found["scalar"].shape == ()
    assert {name: tensor.dtype for name, tensor in found.items()} == {name: tensor.dtype for name, tensor in tensors.items()}
