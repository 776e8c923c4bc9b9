"""Models, quantized models and statistics of which every byte follows from integers and their hashes, so that they are the same
whatever the versions of the libraries and of Python: only exact arithmetic and single IEEE roundings are used."""

import functools
import hashlib
import itertools
import json
from math import prod

import numpy as np
from safetensors_bytes import prefix

TIMESTEPS = [0, 981.5, 40, 120, 700, 250.25, 333, 500, 620, 810, 900, 180]  # in no order
SIZES = {"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64, "C64": 64}
# MLX JSON as no program writes it.
NUMBERS = """{"weights" : {"b": {"data": [1, -0.0, "NaN", "-Infinity", 1e-7, 3.4028235e38], "dtype": 0, "shape": [2, 3]},
 "a": {"shape": [2], "dtype": "bfloat16", "data": ["nan:ffc1", 0.1]}, "c": {"dtype": "bool", "shape": [2], "data":[true, 0]},
"d": {"dtype": "int64", "shape": [], "data": [-9223372036854775808]}}, "metadata": {"k": "v"}, "more": [{}]}"""


def noise(name, *shape):
    """Hashes of 64 bits: splitmix64, which starts where the name says."""
    seed = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<u8")
    z = np.arange(1, prod(shape) + 1, dtype="<u8") * np.uint64(0x9E3779B97F4A7C15) + seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).reshape(shape)


def bell(name, *shape):
    """Whole numbers that are about normal, with a deviation of 37,837, and at most 131,070."""
    halves = noise(name, prod(shape)).view("<u2").reshape(-1, 4)
    return (halves.astype(np.int32).sum(axis=1, dtype=np.int32) - 131_070).reshape(shape)


def weights(name, *shape, kind="normal"):
    """Whole numbers to be divided by 2²¹."""
    values = bell(name, *shape)
    columns = np.arange(shape[-1])
    if kind == "outliers":  # single ones
        values = np.where(noise(name + " outliers", *shape) % np.uint64(61) == 0, values * 6, values)
    elif kind == "uneven":  # columns
        values = values << (noise(name + " columns", shape[-1]) % np.uint64(5)).astype(np.int32)
    elif kind == "smooth":  # neighbours are alike
        values = values // 32 + (columns * 700 - 90_000) * (1 + np.arange(prod(shape[:-1])).reshape(*shape[:-1], 1) % 3)
    elif kind == "positive":
        values = np.abs(values) + 1
    return values


def encode(dtype, values):
    """Bytes of weights as floats of the dtype."""
    floats = values.astype("<f4") * np.float32(2**-21)
    if dtype == "F32":
        return floats.tobytes()
    if dtype == "F64":  # with bits that F32 does not have
        return (floats.astype("<f8") + (values & 0xFFF) * 2.0**-50).tobytes()
    if dtype == "F16":
        return floats.astype("<f2").tobytes()
    assert dtype == "BF16"
    return (floats.view("<u4") >> 16).astype("<u2").tobytes()


def tensor(name, dtype, *shape, kind="normal"):
    """As dtype, shape and bytes."""
    if dtype in ("F64", "F32", "F16", "BF16"):
        data = encode(dtype, weights(name, *shape, kind=kind))
    elif dtype in ("F8_E4M3", "F8_E5M2"):  # neither NaN nor infinite
        codes = noise(name, *shape)
        sign = (codes >> np.uint64(32)) & np.uint64(0x80)
        data = (codes % np.uint64(0x60 if dtype == "F8_E4M3" else 0x50) | sign).astype("u1").tobytes()
    elif dtype == "BOOL":
        data = (noise(name, *shape) & np.uint64(1)).astype("u1").tobytes()
    else:
        bits = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E8M0": 8}.get(dtype) or SIZES[dtype]
        data = noise(name, prod(shape) * bits // 64 + 1).tobytes()[: prod(shape) * bits // 8]
    return dtype, shape, data


def write_safetensors(path, tensors, metadata=None):
    header = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    with open(path, "wb") as file:
        file.write(prefix(json.dumps(header, separators=(",", ":")), align=True))
        for _, _, data in tensors.values():
            file.write(data)


def write_shards(folder, tensors, count, metadata=None):
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    for i, name in enumerate(names):
        write_safetensors(folder / name, dict(itertools.islice(tensors.items(), i, None, count)), metadata)
    index = {
        "metadata": {"total_size": sum(len(data) for _, _, data in tensors.values())},
        "weight_map": {name: names[i % count] for i, name in enumerate(tensors)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def every_dtype():
    """All codes of the short dtypes, and of the long ones specials and any bits."""
    codes = np.arange(65536, dtype="<u2")
    specials = [0, 1 << 31, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000, 0x477FE000, 0x47800000, 0x43E00000]
    singles = np.concatenate([np.array(specials, "<u4"), noise("f32", 2043).view("<u4")])
    doubles = noise("f64", 4096)
    doubles[2048:] = (doubles[2048:] & np.uint64(0x83FF_FFFF_FFFF_FFFF)) + np.uint64(0x3E00_0000_0000_0000)  # of usual size
    tensors = {
        "f64": ("F64", (64, 64), doubles.tobytes()),
        "f32": ("F32", (32, 64, 2), singles.tobytes()),
        "f16": ("F16", (256, 256), codes.tobytes()),
        "bf16": ("BF16", (65536,), codes.tobytes()),
        "f4": ("F4", (32, 16), bytes(range(256))),
        "bool": tensor("bool", "BOOL", 4, 5),
        "c64": tensor("c64", "C64", 3, 2),
        "f6a": tensor("f6a", "F6_E2M3", 8, 16),
        "f6b": tensor("f6b", "F6_E3M2", 8, 16),
        "none_f16": ("F16", (0, 3), b""),
        "none_i8": ("I8", (4, 0), b""),
        "scalar": ("F32", (), np.float32(2.5).tobytes()),
        "large": tensor("large", "F32", 1100, 1250),  # of more than one block
        'ключ "\\\n': tensor("key", "I16", 6),
    }
    for name in ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"):
        tensors[name.lower()] = (name, (16, 16), bytes(range(256)))
    for name in ("U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64"):
        numbers = noise(name, 512)
        ends = np.array([0, 1 << 63, (1 << 63) - 1, (1 << 64) - 1], "<u8")
        values = np.concatenate([numbers, numbers >> np.uint64(40), ends])
        tensors[name.lower()] = (name, (values.size,), values.astype(f"<{name[0].lower()}{SIZES[name] // 8}").tobytes())
    return tensors


def language_model(layers=8):
    tensors = {"model.embed_tokens.weight": tensor("embed", "BF16", 320, 256, kind="outliers")}
    for i in range(layers):
        shapes = {
            "self_attn.q_proj": (128, 256), "self_attn.k_proj": (64, 256), "self_attn.v_proj": (64, 256),
            "self_attn.o_proj": (256, 128), "mlp.gate_proj": (384, 256), "mlp.up_proj": (384, 256), "mlp.down_proj": (256, 384),
        }  # fmt: skip
        kinds = itertools.cycle(["normal", "outliers", "smooth"])
        for (name, shape), kind in zip(shapes.items(), kinds):
            name = f"model.layers.{i}.{name}.weight"
            tensors[name] = tensor(name, "BF16", *shape, kind=kind)
        tensors[f"model.layers.{i}.input_layernorm.weight"] = tensor(f"norm {i}", "BF16", 256, kind="positive")
    tensors["model.norm.weight"] = tensor("norm", "F32", 256, kind="positive")
    tensors["lm_head.weight"] = tensor("head", "F16", 320, 256)
    return tensors


def mixed_model():
    """Whatever can be quantized, in both formats, and what is kept."""
    tensors = {
        "large.weight": tensor("large", "BF16", 5000, 1024, kind="outliers"),
        "model.embed_tokens.weight": tensor("embed", "F32", 300, 256, kind="uneven"),
        "half.weight": tensor("half", "F16", 96, 384),
        "double.weight": tensor("double", "F64", 64, 256),
        "e4m3.weight": tensor("e4m3", "F8_E4M3", 48, 128),
        "e5m2.weight": tensor("e5m2", "F8_E5M2", 48, 128),
        "experts.up_proj.weight": tensor("up", "BF16", 4, 24, 128),
        "mlp.gate.weight": tensor("gate", "BF16", 4, 128),
        "smooth": tensor("smooth", "F32", 33, 256, kind="smooth"),
        "positive.weight": tensor("positive", "F16", 16, 128, kind="positive"),
        "single.weight": tensor("single", "BF16", 1, 128),
        "zero.weight": ("F32", (8, 128), bytes(8 * 128 * 4)),
        "constant.weight": ("F32", (8, 128), np.full(8 * 128, 0.375, "<f4").tobytes()),
        "conv.weight": tensor("conv", "F32", 8, 4, 4, 8),
        "conv1d.weight": tensor("conv1d", "BF16", 16, 8, 3),
        "norm.weight": tensor("norm", "F32", 1024, kind="positive"),
        "half.bias": tensor("bias", "F16", 5),
        "step": ("F32", (), np.float32(1000).tobytes()),
        "none.weight": ("F32", (0, 64), b""),
        "f4": tensor("f4", "F4", 6, 32),
        "f6": tensor("f6", "F6_E3M2", 4, 32),
        "exponents": tensor("exponents", "F8_E8M0", 3, 5),
    }
    return tensors | {name.lower(): tensor(name, name, 3, 7) for name in SIZES}


def ragged_model():
    """Rows that no group divides, for Parquet."""
    shapes = {
        "long": (70_000, 65), "one_column": (7, 1), "conv": (5, 3, 3, 3), "short": (3, 100), "wide": (33, 300),
        "three": (2, 130, 3), "four": (4, 3, 5, 7), "one_row": (1, 1000),
    }  # fmt: skip
    dtypes = itertools.cycle(["BF16", "F32", "F16"])
    return {f"{name}.weight": tensor(name, dtype, *shape) for (name, shape), dtype in zip(shapes.items(), dtypes)}


def diffusion_model():
    tensors = {
        "conv_in.weight": tensor("conv_in", "F16", 32, 4, 3, 3),
        "time_embed.0.weight": tensor("time", "F16", 64, 64),
        "conv_out.weight": tensor("conv_out", "F16", 4, 32, 3, 3),
        "proj_out.weight": tensor("proj_out", "F16", 16, 64),
    }
    for i in range(2):
        at = f"down_blocks.{i}"
        tensors |= {
            f"{at}.resnet.conv1.weight": tensor(f"conv1 {i}", "F16", 32, 16, 3, 3, kind="uneven"),
            f"{at}.norm1.linear.weight": tensor(f"linear {i}", "F16", 96, 64),
            f"{at}.attn.to_q.weight": tensor(f"to_q {i}", "F16", 64, 128, kind="uneven"),
            f"{at}.attn.to_out.weight": tensor(f"to_out {i}", "F32", 128, 64, kind="uneven"),
            f"{at}.attn.to_out.bias": tensor(f"bias {i}", "F16", 128),
        }
    return tensors


def calibrated_model():
    """Layers that statistics() is about, one of them of two blocks, and some that it is not about."""
    tensors = {}
    for i in range(3):
        tensors[f"blocks.{i}.attn.weight"] = tensor(f"attn {i}", "BF16", 96, 256, kind="outliers")
        tensors[f"blocks.{i}.mlp.weight"] = tensor(f"mlp {i}", "F32", 128, 256, kind="uneven")
    return tensors | {
        "conv.weight": tensor("conv", "F16", 24, 8, 3, 3, kind="uneven"),
        "large.weight": tensor("large", "BF16", 4200, 1024, kind="uneven"),
        "embed.weight": tensor("embed", "BF16", 64, 256),
        "norm.weight": tensor("norm", "BF16", 256, kind="positive"),
    }


@functools.cache
def inputs(name, columns, count):
    """What a layer is given at each timestep: whole numbers, that go together and have means that move."""
    drawn = []
    sources = columns // 8 or 1
    mix = (noise(f"{name} mix", sources, columns) % np.uint64(5)).astype(np.float64) - 2
    size = np.where(noise(f"{name} size", columns) % np.uint64(50) == 0, 8, 1 + np.arange(columns) % 2)
    shift = (noise(f"{name} shift", 2, columns) % np.uint64(65)).astype(np.int64) - 32
    for timestep in TIMESTEPS:
        when = int(timestep) // 16
        mean = (shift[0] * (64 - when) + shift[1] * when) // 32
        x = bell(f"{name} {timestep}", count, sources) // 16384 @ mix + bell(f"{name} own {timestep}", count, columns) // 8192
        drawn.append((x + mean) * size)
    return drawn


def statistics(columns, timed=False, details=(), hessians=()):
    """Tensors of timecalib.v1. `columns` tells how many each weight has, `details` what is there beside the means, and
    `hessians` which weights have one."""
    tensors = {}
    for weight, width in columns.items():
        count = 64 if width > 512 else 256
        x = inputs(weight, width, count)
        groups = x if timed else [np.concatenate(x)]
        found = {
            "x_mean": [group.sum(axis=0) / len(group) / 64 for group in groups],
            "x_sqmean": [(group * group).sum(axis=0) / len(group) / 4096 for group in groups],
        }
        if "range" in details:
            found |= {"x_min": [group.min() / 64 for group in groups], "x_max": [group.max() / 64 for group in groups]}
        if "count" in details:  # nothing was recorded at one timestep, and more at others than x has
            found["count"] = [len(group) * 16 * (i != 3) for i, group in enumerate(groups)]
        if "outputs" in details:
            found["y_sqmean"] = [1 + i % 4 for i in range(len(groups))]
        if not timed:
            found = {kind: values[0] if kind.endswith("mean") else values for kind, values in found.items()}
        if weight in hessians:
            whole = np.concatenate(x)
            found["hessian"] = whole.T @ whole / len(whole) / 4096
        for kind, values in found.items():
            values = np.asarray(values).astype("<f4")
            tensors[f"{weight}.{kind}"] = ("F32", values.shape, values.tobytes())
    return tensors


def write_statistics(path, columns, timed=False, **more):
    metadata = {"format": "timecalib.v1"} | ({"timesteps": json.dumps(TIMESTEPS)} if timed else {})
    write_safetensors(path, statistics(columns, timed, **more), metadata)


def affine_model():
    """As MLX stores it, with all bits, groups and dtypes of scales; and what MLX has not: no biases, a shorter last group."""
    section, tensors = {"bits": 4, "group_size": 64, "mode": "affine"}, {}

    def add(layer, bits, group, dtype, shape, has_biases=True):
        *rows, columns = shape
        groups = -(-columns // group)
        tensors[f"{layer}.weight"] = tensor(layer, "U32", *rows, columns * bits // 32)
        tensors[f"{layer}.scales"] = tensor(f"{layer} scales", dtype, *rows, groups)
        if has_biases:
            tensors[f"{layer}.biases"] = tensor(f"{layer} biases", dtype, *rows, groups, kind="outliers")
        section[layer] = {"bits": bits, "group_size": group}

    for bits, group, dtype in itertools.product((2, 3, 4, 5, 6, 8), (32, 64, 128, 256), ("F32", "F16", "BF16")):
        add(f"layers.{bits}.{group}.{dtype.lower()}", bits, group, dtype, (3, 1280))
    add("experts", 4, 64, "BF16", (2, 3, 128))
    add("unbiased", 4, 64, "F16", (4, 128), has_biases=False)
    add("shorter", 3, 64, "BF16", (4, 96))
    tensors["norm.weight"] = tensor("norm", "BF16", 64)
    return tensors, section


def float_model(mode):
    """All scales with all codes of mxfp4, mxfp8 or nvfp4 of which the product is a number, whatever it is rounded to."""
    bits, group = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}[mode]
    is_e4m3 = mode == "mxfp8"
    codes = [code for code in range(2**bits) if not (is_e4m3 and code & 0x7F == 0x7F)]
    not_zero = [code for code in codes if code & (0x7F if is_e4m3 else 7)]
    scales = [code for code in range(255) if not (mode == "nvfp4" and code & 0x7F == 0x7F)]
    usual = scales if mode == "nvfp4" else range(115, 140)
    tensors = {}
    for layer, all_codes, all_scales in (("every", not_zero, scales), ("usual", codes, usual)):
        columns, rows = 512, len(all_scales)
        picks = noise(f"{mode} {layer}", rows, columns) % np.uint64(len(all_codes))
        chosen = np.array(all_codes, "u1")[picks.astype(np.int64)]
        packed = chosen if bits == 8 else chosen[:, ::2] | chosen[:, 1::2] << 4
        factors = np.repeat(np.array(all_scales, "u1"), columns // group)
        tensors[f"{layer}.weight"] = ("U32", (rows, columns * bits // 32), packed.tobytes())
        tensors[f"{layer}.scales"] = ("U8", (rows, columns // group), factors.tobytes())
    tensors["norm.weight"] = tensor("norm", "F32", 64)
    return tensors, {"bits": bits, "group_size": group, "mode": mode}


def write_quantized(folder, tensors, section):
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors, {"format": "mlx"})
    config = {"model_type": "x", "quantization": section, "quantization_config": section}
    (folder / "config.json").write_text(json.dumps(config))


def write_long_model(path):
    """More than a file of Parquet takes, most of it zeros that take no space on the disk."""
    layers = {name: tensor(name, "BF16", 64, 2048) for name in ("a.weight", "z.weight")}
    header, end = {}, 0
    for name in ("a.weight", "0.bias", "1.bias", "2.bias", "3.bias", "z.weight"):
        dtype, shape, size = ("BF16", [64, 2048], 2**18) if name in layers else ("U8", [2**26], 2**26)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    with open(path, "wb") as file:
        start = file.write(prefix(header))
        for name, (_, _, data) in layers.items():
            file.seek(start + header[name]["data_offsets"][0])
            file.write(data)


def write_companions(folder):
    """Files beside the weights: some go along, some change, some stay."""
    files = {
        "config.json": '{\n  "model_type": "x",\n  "torch_dtype": "bfloat16",\n  "text_config": {"dtype": "bfloat16"},\n'
        '  "quantization_config": {"bits": 8}, "rope_theta": 1e6\n}\n',
        "tokenizer.json": '{"version": "1.0", "model": {"vocab": {"ä": 0, "字": 1}}}',
        "merges.txt": "a b\nab c\n",
        "metadata.json": '{"of": "the source"}',
        "quantization_config.json": '{"bits": 8, "group_size": 32}',
        "pytorch_model.bin": "other weights",
        ".hidden": "x",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def write_models(root):
    """All of them, under the names that the cases use."""
    for name in ("language", "mixed", "diffusion"):
        (root / name).mkdir()
    write_safetensors(root / "dtypes.safetensors", every_dtype(), {"format": "pt", "note": 'a "quoted"\nlong text'})
    write_shards(root / "language", language_model(), 3, {"format": "pt"})
    write_companions(root / "language")
    write_safetensors(root / "mixed/model.safetensors", mixed_model())
    (root / "mixed/tokenizer.json").write_text("{}")
    write_safetensors(root / "ragged.safetensors", ragged_model(), {"modality": "audio"})
    write_safetensors(root / "diffusion/weights.safetensors", diffusion_model(), {"architecture": "DiT"})
    (root / "diffusion/config.json").write_text('{"_class_name": "x", "torch_dtype": "float16"}')
    small = {f"{i}.bias": tensor(str(i), "U8", 900_000) for i in range(20)}  # more than a row group takes
    write_safetensors(root / "many.safetensors", small | {f"{i}.weight": tensor(str(i), "BF16", 9, 64) for i in range(40)})
    (root / "numbers.mlx").write_text(NUMBERS)

    write_safetensors(root / "calibrated.safetensors", calibrated_model())
    blocks = [f"blocks.{i}.{kind}.weight" for i in range(3) for kind in ("attn", "mlp")]
    columns = {name: 256 for name in blocks} | {"conv.weight": 72, "large.weight": 1024}
    everything = ("range", "count", "outputs")
    write_statistics(root / "squares.safetensors", columns)
    write_statistics(root / "counted.safetensors", columns, details=everything)
    write_statistics(root / "timed.safetensors", columns, timed=True, details=everything)
    write_statistics(root / "hessians.safetensors", columns, details=("count",), hessians=blocks[:5])
    write_statistics(root / "all.safetensors", columns, timed=True, details=everything, hessians=[*blocks[2:], "conv.weight"])

    # Experts in one tensor, and a layer of several blocks with a Hessian.
    for name, columns, layer in (
        ("experts", 128, tensor("experts", "BF16", 3, 40, 128, kind="uneven")),
        ("wide", 512, tensor("wide", "BF16", 8400, 512)),
    ):
        write_safetensors(root / f"{name}.safetensors", {f"{name}.weight": layer})
        columns = {f"{name}.weight": columns}
        write_statistics(root / f"{name}_all.safetensors", columns, timed=True, details=everything, hessians=columns)

    columns = {name: prod(shape[1:]) for name, (_, shape, _) in diffusion_model().items() if len(shape) > 1}
    write_statistics(root / "diffusion_timed.safetensors", columns, timed=True, details=everything)

    write_quantized(root / "affine", *affine_model())
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        write_quantized(root / mode, *float_model(mode))
    write_long_model(root / "long.safetensors")
    write_statistics(root / "long_timed.safetensors", {"a.weight": 2048, "z.weight": 2048}, timed=True, details=("range",))
