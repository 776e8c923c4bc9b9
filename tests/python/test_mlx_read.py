"""Directories that MLX itself quantized and saved, against what it makes of them."""

import json

import mlx.core as mx
import numpy as np
import pytest

DTYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}

mx.set_default_device(mx.cpu)


def raw(array):
    return bytes(memoryview(array.view(mx.uint8)))


def values(answer, dtype):
    """As F32, with the bits of all but NaN, of which any will do."""
    assert answer["ok"], answer
    codes = np.frombuffer(bytes.fromhex(answer["bytes"]), "u4" if dtype == "F32" else "u2").reshape(answer["shape"])
    return mx.array(codes).view(DTYPES[dtype])


def assert_same(found, expected):
    assert found.shape == expected.shape and found.dtype == expected.dtype
    codes = mx.uint32 if found.dtype == mx.float32 else mx.uint16
    same = (found.view(codes) == expected.view(codes)) | (mx.isnan(found) & mx.isnan(expected))
    assert mx.all(same), f"{int(mx.sum(~same))} of {same.size} values differ"


def save(folder, layers, section, others=None, shards=1):
    """Layers by name, as lists of weight, scales and biases."""
    tensors = dict(others or {})
    for name, parts in layers.items():
        tensors |= {f"{name}.{part}": array for part, array in zip(("weight", "scales", "biases"), parts)}
    names = sorted(tensors)
    for shard in range(shards):
        name = "model.safetensors" if shards == 1 else f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        mx.save_safetensors(str(folder / name), {n: tensors[n] for n in names[shard::shards]}, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps({"model_type": "x", "quantization": section, "quantization_config": section}))


@pytest.fixture
def random():
    return np.random.default_rng(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_affine(probe, tmp_path, random, dtype, group_size):
    section, layers = {"bits": 4, "group_size": group_size, "mode": "affine"}, {}
    for bits in (2, 3, 4, 5, 6, 8):
        weight = random.standard_normal((5, 7, 1152)) * np.exp(random.standard_normal((5, 7, 1)) * 8)
        layers[f"layers.{bits}"] = mx.quantize(mx.array(weight.astype("f4")).astype(DTYPES[dtype]), group_size, bits)
        section[f"layers.{bits}"] = {"bits": bits, "group_size": group_size}
    save(tmp_path, layers, section)

    found = probe(f"quantized {tmp_path}")
    assert found["ok"], found
    for name, (weight, scales, biases) in layers.items():
        bits = section[name]["bits"]
        assert found["weights"][name] == {
            "shape": [5, 7, 1152], "dtype": dtype, "bits": bits, "group_size": group_size, "mode": "affine",
            "packed": raw(weight).hex(), "scales": raw(scales).hex(), "biases": raw(biases).hex(),
        }  # fmt: skip
        expected = mx.dequantize(weight, scales, biases, group_size, bits)
        assert expected.dtype == DTYPES[dtype]
        assert mx.any(expected != 0)
        for target in DTYPES:
            answer = probe(f"dequantize {tmp_path} {name} {target}")
            assert_same(values(answer, target), expected.astype(DTYPES[target]))
            assert_same(values(answer, target), mx.dequantize(weight, scales, biases, group_size, bits, dtype=DTYPES[target]))


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_affine_with_any_parameters(probe, tmp_path, random, dtype):
    """Scales and biases of any bits: subnormal, huge, infinite, NaN."""
    codes = mx.array(random.integers(0, 2**32, (4096, 8), "u4"))
    scales, biases = (mx.array(random.integers(0, 2**16, (4096, 1), "u2")).view(DTYPES[dtype]) for _ in range(2))
    save(tmp_path, {"a": (codes, scales, biases)}, {"bits": 4, "group_size": 64})
    answer = probe(f"dequantize {tmp_path} a {dtype}")
    assert_same(values(answer, dtype), mx.dequantize(codes, scales, biases, 64, 4))


@pytest.mark.parametrize("mode", MODES)
def test_modes(probe, tmp_path, random, mode):
    bits, group_size = MODES[mode]
    weight = mx.array((random.standard_normal((9, 1152)) * 3).astype("f4")).astype(mx.bfloat16)
    packed, scales = mx.quantize(weight, mode=mode)
    # Then every scale there is, with codes of every kind.
    every = mx.array(np.tile(np.arange(256, dtype="u1").view("u4"), (256, 1)))
    every_scale = mx.array(np.repeat(np.arange(256, dtype="u1")[:, None], 256 * 8 // bits // group_size, 1))
    save(tmp_path, {"a": (packed, scales), "b": (every, every_scale)}, {"bits": bits, "group_size": group_size, "mode": mode})

    found = probe(f"quantized {tmp_path}")
    assert found["ok"], found
    assert found["weights"]["a"] == {
        "shape": [9, 1152], "dtype": "BF16", "bits": bits, "group_size": group_size, "mode": mode,
        "packed": raw(packed).hex(), "scales": raw(scales).hex(),
    }  # fmt: skip
    for name, (codes, factors) in {"a": (packed, scales), "b": (every, every_scale)}.items():
        for dtype, target in DTYPES.items():
            expected = mx.dequantize(codes, factors, mode=mode, dtype=target)
            assert_same(values(probe(f"dequantize {tmp_path} {name} {dtype}"), dtype), expected)


def test_layers_of_several_kinds_in_shards(probe, tmp_path, random):
    weight = mx.array(random.standard_normal((32, 256)).astype("f4")).astype(mx.bfloat16)
    layers = {
        "language_model.model.layers.0.mlp.down_proj": mx.quantize(weight, 64, 6),
        "language_model.model.layers.0.mlp.gate": mx.quantize(weight, 64, 8),
        "language_model.model.layers.0.mlp.up_proj": mx.quantize(weight, mode="mxfp4"),
    }
    section = {"bits": 4, "group_size": 32, "mode": "mxfp4", "model.layers.0.mlp.gate": {"bits": 8, "group_size": 64}}
    section |= {"language_model.model.layers.0.mlp.down_proj": {"bits": 6}, "language_model.lm_head": False}
    others = {"language_model.model.norm.weight": weight[0], "language_model.lm_head.weight": weight}
    save(tmp_path, layers, section, others, shards=3)

    found = probe(f"quantized {tmp_path}")
    assert found["ok"], found
    assert found["others"] == ["language_model.lm_head.weight", "language_model.model.norm.weight"]
    for (name, parts), kind in zip(sorted(layers.items()), [(64, 6, "affine"), (64, 8, "affine"), (32, 4, "mxfp4")]):
        expected = mx.dequantize(*parts, group_size=kind[0], bits=kind[1], mode=kind[2])
        assert_same(values(probe(f"dequantize {tmp_path} {name}.weight BF16"), "BF16"), expected)


def test_wrong_width_in_the_config(probe, tmp_path, random):
    weight = mx.array(random.standard_normal((4, 128)).astype("f4"))
    save(tmp_path, {"a": mx.quantize(weight, 64, 4)}, {"bits": 8, "group_size": 64})
    answer = probe(f"quantized {tmp_path}")
    assert (answer["ok"], answer["code"]) == (False, "corrupt")
    assert answer["message"] == (
        f"{tmp_path}/model.safetensors: tensor 'a.scales': the scales are [4, 2], expected [4, 1]: "
        "U32 [4, 16] is 64 columns of 8 bits, in groups of 64"
    )
