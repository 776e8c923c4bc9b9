"""What the packages that make layout vectors have in common, and the cases of compressed-tensors."""

from __future__ import annotations

import torch

Tensors = dict[str, torch.Tensor]
Cases = dict[str, tuple[dict, Tensors, torch.Tensor]]


def weight(rows: int, columns: int, seed: int = 1) -> torch.Tensor:
    """Return a weight with a few large columns and one row of zeros."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator) * 0.02
    values[:, 3] *= 12
    values[1] = 0
    return values


def compressed_case(form: str, shape=(16, 64), dtype=torch.bfloat16, **args) -> tuple[Tensors, torch.Tensor]:
    """Return the tensors of a weight that compressed-tensors compresses, and what it restores, of which the first rows."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    args = QuantizationArgs(**args)
    dense, block, strategy = weight(*shape), args.block_structure, getattr(args.strategy, "value", args.strategy)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=form)
    if block:
        height, width = -(-shape[0] // block[0]) * block[0], -(-shape[1] // block[1]) * block[1]
        padded = torch.nn.functional.pad(dense, (0, width - shape[1], 0, height - shape[0]))
        groups = padded.reshape(height // block[0], block[0], width // block[1], block[1]).transpose(1, 2).flatten(2)
    else:
        groups = dense.reshape(shape[0], -1, args.group_size) if "group" in strategy else dense.reshape(shape[0], 1, -1)
        groups = dense.reshape(1, 1, -1) if strategy == "tensor" else groups
    low, high = groups.amin(-1), groups.amax(-1)
    whole = generate_gparam(dense.min(), dense.max()) if strategy == "tensor_group" else None
    scale, zero = calculate_qparams(low, high, args, global_scale=whole)
    scale = scale.flatten() if strategy == "tensor" else scale
    scale = scale if getattr(args.type, "value", args.type) == "float" and args.num_bits == 4 else scale.to(dtype)
    state = {"weight": dense, "weight_scale": scale.float() if scale.dtype in (torch.bfloat16, torch.float16) else scale}
    if not args.symmetric:
        state["weight_zero_point"] = zero
    if whole is not None:
        state["weight_global_scale"] = whole
    compressor = BaseCompressor.get_value_from_registry(form)
    stored = compressor.compress(state, scheme)
    if whole is None:
        restored = compressor.decompress(dict(stored), scheme)["weight"].float()
    else:
        values = unpack_fp4_from_uint8(stored["weight_packed"], *shape, dtype=torch.float32)
        restored = dequantize(values, stored["weight_scale"].float(), args=args, global_scale=whole, dtype=torch.float32)
    if stored["weight_scale"].dtype == torch.float32:
        stored["weight_scale"] = stored["weight_scale"].to(dtype)
    return stored, restored if block else restored[:4]


def compressed_tensors() -> Cases:
    def group(bits: int, symmetric: bool, **more):
        return {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": 32} | more

    found: Cases = {}

    def add(name: str, layout: str, form: str, change: dict | None = None, **args) -> None:
        found[name] = ({"layout": layout, "change": change or {}}, *compressed_case(form, **args))

    for bits in range(2, 9):
        for symmetric in (True, False):
            name = f"ct-pack{bits}-group" + ("" if symmetric else "-asym")
            add(name, name, "pack-quantized", **group(bits, symmetric))
    add("ct-pack4-channel", "ct-pack4-channel", "pack-quantized", num_bits=4, strategy="channel")
    add("ct-pack4-channel-f32", "ct-pack4-channel-f32", "pack-quantized", dtype=torch.float32, num_bits=4, strategy="channel")
    add("ct-int8-channel", "ct-int8-channel", "int-quantized", num_bits=8, strategy="channel")
    add("ct-int8-channel-asym", "ct-int8-channel-asym", "int-quantized", num_bits=8, strategy="channel", symmetric=False)
    add("ct-int8-group", "ct-int8-group", "int-quantized", **group(8, True))
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True}
    add("ct-fp8-channel", "ct-fp8-channel", "float-quantized", strategy="channel", **fp8)
    add("ct-fp8-group", "ct-fp8-group", "float-quantized", strategy="group", group_size=32, **fp8)
    add("ct-fp8-tensor", "ct-fp8-tensor", "float-quantized", strategy="tensor", **fp8)
    add("ct-fp8-naive", "ct-fp8-naive", "naive-quantized", strategy="channel", **fp8)
    add(
        "ct-fp8-block",
        "ct-fp8-block",
        "float-quantized",
        {"block": [8, 32]},
        shape=(20, 80),
        strategy="block",
        block_structure=[8, 32],
        **fp8,
    )
    nvfp4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
    add("ct-nvfp4", "ct-nvfp4", "nvfp4-pack-quantized", scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn, **nvfp4)
    micro = {"type": "float", "symmetric": True, "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8, "zp_dtype": torch.uint8}
    add("ct-mxfp4", "ct-mxfp4", "mxfp4-pack-quantized", num_bits=4, **micro)
    add("ct-mxfp8", "ct-mxfp8", "mxfp8-quantized", num_bits=8, **micro)
    return found


def compressed_tensors_old() -> Cases:
    """Version 0.12: padded words, and columns in any order. Run with that version first on PYTHONPATH."""
    from compressed_tensors.compressors.quantized_compressors.pack_quantized import pack_to_int32, unpack_from_int32
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
    from compressed_tensors.quantization.utils import calculate_qparams

    found: Cases = {}
    cases = {f"ct-pack{bits}-old": (bits, bits % 2 == 0, "") for bits in (3, 5, 6, 7)}
    cases |= {
        "ct-pack4-actorder": (4, True, "group"),
        "ct-pack4-g-idx-none": (4, True, "none"),
        "ct-pack8-actorder-asym": (8, False, "group"),
    }
    for name, (bits, symmetric, order) in cases.items():
        dense = weight(16, 64)
        args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy="group", group_size=32)
        groups = dense.reshape(16, 2, 32)
        scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
        scale = scale.to(torch.bfloat16)
        index = torch.arange(64) // 32
        if order == "group":
            index = index[torch.randperm(64, generator=torch.Generator().manual_seed(3))]
        elif order == "none":
            index = torch.full((64,), -1)
        codes = quantize(dense, scale.float(), zero, args, dtype=torch.int8, g_idx=index if order else None)
        restored = dequantize(codes, scale.float(), zero, args, g_idx=index if order else None)
        packed = pack_to_int32(codes, bits)
        assert torch.equal(unpack_from_int32(packed, bits, dense.shape), codes)
        stored = {"weight_packed": packed, "weight_scale": scale, "weight_shape": torch.tensor(dense.shape)}
        if not symmetric:
            stored["weight_zero_point"] = pack_to_int32(zero, bits, packed_dim=0).contiguous()
        if order:
            stored["weight_g_idx"] = index.to(torch.int32)
        found[name] = ({"layout": name}, stored, restored.float()[:6])
    return found
