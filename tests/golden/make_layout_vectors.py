#!/usr/bin/env python3
"""Makes tests/golden/layouts/*.safetensors: small weights that the packages themselves quantized and dequantized.

Usage: make_layout_vectors.py [NAME ...], in an environment that has the packages; see README.md beside the files.

A file holds `<case>/<suffix>` as a checkpoint stores it and `<case>/dense` in F32, of some only the first rows. Its metadata names
the layout of each case and the versions of the packages. What a package would compute in BF16 or F16 it computes in F32: scales are
widened first.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from layout_cases import Cases, compressed_tensors, compressed_tensors_old, weight
from safetensors.torch import save_file

FOLDER = Path(__file__).parent / "layouts"


def bitsandbytes() -> Cases:
    from bitsandbytes import functional

    found: Cases = {}
    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            dense = weight(11, 72)
            packed, state = functional.quantize_4bit(dense, blocksize=64, quant_type=kind, compress_statistics=nested)
            restored = functional.dequantize_4bit(packed, state)
            more = {f"weight.{name}": t.contiguous() for name, t in state.as_dict(packed=True).items()}
            name = f"bnb-{kind}" + ("-nested" if nested else "")
            found[name] = ({"layout": name}, {"weight": packed} | more, restored.float())
    dense = weight(11, 72)
    codes, largest, _ = functional.int8_vectorwise_quant(dense.half())
    restored = functional.int8_vectorwise_dequant(codes, largest)
    found["bnb-int8"] = (
        {"layout": "bnb-int8"},
        {"weight": codes, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)},
        restored,
    )
    return found


def transformers() -> Cases:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    found: Cases = {}
    decode = Fp8Dequantize(None)
    for name, shape, scales, block in (
        ("fp8-block", (16, 64), torch.float32, (8, 32)),
        ("fp8-block-bf16", (16, 64), torch.bfloat16, (8, 32)),
        ("fp8-block-e8m0", (16, 64), torch.float8_e8m0fnu, (8, 32)),
        ("fp8-mxfp8", (16, 64), torch.uint8, (1, 32)),
        ("fp8-tensor-inv", (16, 64), torch.float32, (16, 64)),
    ):
        dense = weight(*shape)
        blocks = dense.reshape(shape[0] // block[0], block[0], shape[1] // block[1], block[1])
        scale = (blocks.abs().amax((1, 3)) / 448).clamp(min=1e-6)
        if scales in (torch.uint8, torch.float8_e8m0fnu):
            power = torch.ceil(torch.log2(scale))
            stored, scale = (power + 127).to(torch.uint8), torch.exp2(power)
            stored = stored.view(scales)
        else:
            stored = scale.to(scales)
            scale = stored.float()
        codes = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn).reshape(shape)
        restored = decode._dequantize_one(codes, stored, output_dtype=torch.float32)
        stored = stored.reshape(()) if name == "fp8-tensor-inv" else stored
        change = {} if name == "fp8-tensor-inv" else {"block": list(block)}
        found[name] = ({"layout": name, "change": change}, {"weight": codes, "weight_scale_inv": stored}, restored)
    generator = torch.Generator().manual_seed(4)
    codes = torch.randint(0, 256, (2, 8, 2, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(115, 124, (2, 8, 2), generator=generator, dtype=torch.uint8)
    restored = convert_moe_packed_tensors(codes, scales, dtype=torch.float32)
    found["mxfp4-experts"] = ({"layout": "mxfp4-experts"}, {"_blocks": codes, "_scales": scales}, restored)
    return found


def modelopt() -> Cases:
    from modelopt.torch.export.quant_utils import to_quantized_weight
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    from modelopt.torch.quantization.qtensor.mxfp8_tensor import MXFP8QTensor

    found: Cases = {}
    dense = weight(16, 64)
    second = NVFP4QTensor.get_weights_scaling_factor_2(dense)
    scale, _ = NVFP4QTensor.get_weights_scaling_factor(dense, 16, second)
    made = NVFP4QTensor.quantize(dense, 16, scale, second)[0]
    restored = made.dequantize(torch.float32, scale=scale, double_scale=second, block_sizes={-1: 16})
    stored = {"weight": made._quantized_data, "weight_scale": scale, "weight_scale_2": second.reshape(())}
    found["modelopt-nvfp4"] = ({"layout": "modelopt-nvfp4"}, stored, restored[:6])

    scale = MXFP8QTensor.get_weights_scaling_factor(dense)
    made = MXFP8QTensor.quantize(dense, scale)[0]
    restored = made.dequantize(torch.float32, scale=scale)
    found["modelopt-mxfp8"] = ({"layout": "modelopt-mxfp8"}, {"weight": made._quantized_data, "weight_scale": scale}, restored[:6])

    scale = (dense.abs().amax(1) / 448).clamp(min=1e-6)
    codes = to_quantized_weight(dense, scale, "fp8_pc_pt")
    found["modelopt-fp8-channel"] = (
        {"layout": "modelopt-fp8-channel"},
        {"weight": codes, "weight_scale": scale},
        codes.float() * scale[:, None],
    )
    whole = dense.abs().max() / 448
    codes = to_quantized_weight(dense, whole, "fp8")
    found["modelopt-fp8"] = ({"layout": "modelopt-fp8"}, {"weight": codes, "weight_scale": whole}, codes.float() * whole)

    scale = (dense.reshape(16, 2, 32).abs().amax(-1) / 7).clamp(min=1e-6).bfloat16()
    codes = to_quantized_weight(dense, scale.float(), "int4_awq", block_size=32)
    exact = (dense.reshape(16, 2, 32) / scale.float()[..., None]).round().clamp(-8, 7).to(torch.int8) * scale.float()[..., None]
    before = torch.linspace(0.5, 2, 64).bfloat16()
    stored = {"weight": codes, "weight_scale": scale, "pre_quant_scale": before}
    found["modelopt-awq"] = ({"layout": "modelopt-awq"}, stored, exact.reshape(16, 64) * before.float())
    return found


def comfy_kitchen() -> Cases:
    from comfy_kitchen.backends.eager import quantization

    found: Cases = {}
    for name, shape in (("comfy-nvfp4", (144, 16)), ("comfy-nvfp4-wide", (16, 80))):
        dense = weight(*shape)
        second = dense.abs().max() / 2688
        codes, scales = quantization.quantize_nvfp4(dense, second)
        restored = quantization.dequantize_nvfp4(codes, second, scales, torch.float32)
        stored = {"weight": codes, "weight_scale": scales, "weight_scale_2": second}
        found[name] = ({"layout": "comfy-nvfp4-metadata"}, stored, restored)
    dense = weight(32, 160)
    codes, scales = quantization.quantize_mxfp8(dense)
    restored = quantization.dequantize_mxfp8(codes, scales, torch.float32)
    found["comfy-mxfp8"] = ({"layout": "comfy-mxfp8-metadata"}, {"weight": codes, "weight_scale": scales.view(torch.uint8)}, restored[:16])
    for dtype, name in ((torch.float8_e4m3fn, "e4m3fn"), (torch.float8_e5m2, "e5m2")):
        dense = weight(16, 32)
        scale = dense.abs().max() / torch.finfo(dtype).max
        codes = quantization.quantize_per_tensor_fp8(dense, scale, dtype)
        restored = quantization.dequantize_per_tensor_fp8(codes, scale, torch.float32)
        found[f"comfy-{name}"] = ({"layout": f"comfy-{name}-metadata"}, {"weight": codes, "weight_scale": scale}, restored)
    return found


def mlx() -> Cases:
    import mlx.core as mx
    import numpy as np

    found: Cases = {}
    dense = mx.array(weight(8, 64).numpy())
    modes = [(f"mlx{bits}", {"bits": bits, "group_size": 32}) for bits in (2, 3, 4, 5, 6, 8)]
    modes += [(f"mlx-{mode}", {"mode": mode}) for mode in ("mxfp4", "mxfp8", "nvfp4")]
    for name, options in modes:
        made = mx.quantize(dense, **options)
        restored = mx.dequantize(*made, **options, **({"dtype": mx.float32} if "mode" in options else {}))
        stored = {key: torch.from_numpy(np.array(part).copy()) for key, part in zip(("weight", "scales", "biases"), made, strict=False)}
        found[name] = ({"layout": name}, stored, torch.from_numpy(np.array(restored.astype(mx.float32)).copy()))
    return found


def awq() -> Cases:
    """AutoAWQ's packing and dequantize_gemm; awq/utils/packing_utils.py is imported alone, because the package needs a GPU."""
    from packing_utils import AWQ_ORDER, dequantize_gemm

    generator = torch.Generator().manual_seed(6)
    codes, zeros = (torch.randint(0, 16, (rows, 16), generator=generator) for rows in (64, 2))
    scales = (torch.rand(2, 16, generator=generator) * 0.02 + 0.001).half()

    def pack(values: torch.Tensor) -> torch.Tensor:
        words = torch.zeros(len(values), 2, dtype=torch.int64)
        for column in range(2):
            for lane in range(8):
                words[:, column] |= values[:, 8 * column + AWQ_ORDER[lane]] << 4 * lane
        return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)

    stored = {"qweight": pack(codes), "qzeros": pack(zeros), "scales": scales}
    restored = dequantize_gemm(stored["qweight"], stored["qzeros"], scales.float(), 4, 32).T.contiguous()
    return {"awq4": ({"layout": "awq4"}, stored, restored)}


def gptqmodel() -> Cases:
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization.config import QuantizeConfig
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module, convert_gptq_v2_to_v1_format_module

    found: Cases = {}
    cases = [(f"gptq{bits}-v2-asym", bits, False, "gptq_v2") for bits in (2, 3, 4, 8)]
    cases += [(f"gptq{bits}", bits, True, "gptq") for bits in (2, 3, 4, 8)]
    cases += [(f"gptq{bits}-carry", bits, False, "gptq") for bits in (2, 3, 4, 8)] + [("gptq4-actorder", 4, True, "gptq")]
    cases += [(f"gptq{bits}-planes", bits, False, "gptq_p") for bits in (3, 5, 6, 7)]
    for name, bits, symmetric, version in cases:
        generator = torch.Generator().manual_seed(bits)
        dense, top = weight(32, 64), (1 << bits) - 1
        scales = (torch.rand(32, 2, generator=generator) * 0.02 + 0.001).half()
        zeros = torch.full((32, 2), 1 << bits - 1) if symmetric else torch.randint(0, top + 1, (32, 2), generator=generator)
        index = torch.arange(64) // 32
        if "actorder" in name:
            index = index[torch.randperm(64, generator=generator)]
        linear = torch.nn.Linear(64, 32, bias=False)
        codes = torch.clamp(torch.round(dense / scales.float()[:, index]) + zeros[:, index], 0, top)
        linear.weight.data = (codes - zeros[:, index]) * scales.float()[:, index]
        options = {"bits": bits, "group_size": 32, "sym": symmetric, "desc_act": "actorder" in name, "bias": False}
        options |= {"format": version} if version == "gptq_p" else {}
        module = TorchLinear(in_features=64, out_features=32, pack_dtype=torch.int32, **options)
        module.pack_original(linear, scales.clone(), zeros.float(), index.to(torch.int32))
        if version == "gptq":
            convert_gptq_v2_to_v1_format_module(module, QuantizeConfig(bits=bits))
        stored = {key: getattr(module, key).clone() for key in ("qweight", "qzeros", "scales", "g_idx")}
        if version == "gptq":
            convert_gptq_v1_to_v2_format_module(module, bits, torch.int32)
        module.scales = module.scales.float()
        module.dequant_dtype = torch.int32
        module.post_init() if hasattr(module, "post_init") else None
        found[name] = ({"layout": name}, stored, module.dequantize_weight().float().T[:4])
    return found


PACKAGES: dict[str, tuple[str, Callable[[], Cases]]] = {
    "compressed_tensors": ("compressed-tensors", compressed_tensors),
    "compressed_tensors_old": ("compressed-tensors", compressed_tensors_old),
    "bitsandbytes": ("bitsandbytes", bitsandbytes),
    "transformers": ("transformers", transformers),
    "modelopt": ("nvidia-modelopt", modelopt),
    "comfy_kitchen": ("comfy-kitchen", comfy_kitchen),
    "mlx": ("mlx", mlx),
    "awq": ("autoawq", awq),
    "gptqmodel": ("gptqmodel", gptqmodel),
}


def version(package: str) -> str:
    module = sys.modules.get(package.replace("-", "_").replace("autoawq", "packing_utils"))
    try:
        return getattr(module, "__version__", None) or importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "0.2.7.post3" if package == "autoawq" else "7.7.0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(PACKAGES), metavar="NAME", help=", ".join(PACKAGES))
    for name in parser.parse_args().names:
        package, make = PACKAGES[name]
        tensors, layouts = {}, {}
        with torch.no_grad():
            cases = make()
        for case, (layout, stored, dense) in cases.items():
            layouts[case] = layout
            tensors |= {f"{case}/{suffix}": t.detach().contiguous().clone() for suffix, t in stored.items() if t is not None}
            tensors[f"{case}/dense"] = dense.detach().float().contiguous().clone()
        said = {"layouts": json.dumps(layouts), "package": package, "version": version(package), "torch": torch.__version__}
        save_file(tensors, FOLDER / f"{name}.safetensors", said)
        print(f"{name}: {len(cases)} cases, {(FOLDER / f'{name}.safetensors').stat().st_size} bytes, {package} {said['version']}")


if __name__ == "__main__":
    main()
