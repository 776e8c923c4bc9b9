"""Ways to damage quantized checkpoints: what is structure, what is values, and what is only unsupported."""

import json
from dataclasses import dataclass, field

import numpy as np
from layouts import Tensors
from layouts.elements import BF16

SECTION = "quantization_config"


@dataclass
class Checkpoint:
    """What a defect changes: the tensors of one module by suffix, all tensors, and config.json."""

    module: str
    tensors: Tensors
    config: dict = field(default_factory=dict)

    def __getitem__(self, suffix):
        return self.tensors[self.module + suffix]

    def __setitem__(self, suffix, tensor):
        self.tensors[self.module + suffix] = tensor

    @property
    def section(self):
        return self.config[SECTION]

    def weights(self):
        """The `weights` of the first config group of compressed-tensors."""
        return self.section["config_groups"]["group_0"]["weights"]


def drop(suffix):
    return lambda c: c.tensors.pop(c.module + suffix)


def shorten(suffix, axis=0):
    def change(c):
        c[suffix] = np.ascontiguousarray(np.delete(c[suffix], -1, axis))

    return change


def put(suffix, value, index=1):
    """Set one element, or with `index` None all of them."""

    def change(c):
        values = c[suffix].copy()
        values.reshape(-1)[slice(None) if index is None else index] = value
        c[suffix] = values

    return change


def put_byte(suffix, value, index=0):
    def change(c):
        raw = c[suffix].copy()
        raw.reshape(-1).view(np.uint8)[index] = value
        c[suffix] = raw

    return change


def retype(suffix, dtype):
    def change(c):
        c[suffix] = c[suffix].astype(np.float32).astype(dtype)

    return change


def setting(key, value):
    return lambda c: c.section.__setitem__(key, value)


def weights(key, value):
    return lambda c: c.weights().__setitem__(key, value)


def state(key, value):
    """Change the quantization state of bitsandbytes."""

    def change(c):
        suffix = ".weight.quant_state.bitsandbytes__nf4"
        c[suffix] = np.frombuffer(json.dumps(json.loads(c[suffix].tobytes()) | {key: value}).encode(), np.uint8)

    return change


def not_json(c):
    c[".weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(b"{quant_type", np.uint8)


def all_bf16(c):
    """Weights that the config calls FP8."""
    for name, tensor in c.tensors.items():
        if tensor.dtype.name == "float8_e4m3fn":
            c.tensors[name] = tensor.astype(np.float32).astype(BF16)


def without_scales(c):
    for name in [name for name in c.tensors if name.endswith(("weight_scale", "weight_scale_inv"))]:
        del c.tensors[name]


STRUCTURE = {
    "ct-pack4-group": {
        "no scale": drop(".weight_scale"),
        "no codes": drop(".weight_packed"),
        "no shape": drop(".weight_shape"),
        "short scale": shorten(".weight_scale"),
        "narrow codes": shorten(".weight_packed", 1),
        "other bits": weights("num_bits", 8),
        "other group": weights("group_size", 64),
        "other shape": put(".weight_shape", 63, 0),
        "negative shape": put(".weight_shape", -1, 0),
        "huge shape": put(".weight_shape", 2**62, 0),
        "bits of text": weights("num_bits", "four"),
        "asymmetric without zero points": weights("symmetric", False),
    },
    "ct-pack4-group-asym": {"no zero points": drop(".weight_zero_point"), "short zero points": shorten(".weight_zero_point")},
    "ct-pack4-actorder": {
        "short g_idx": shorten(".weight_g_idx"),
        "g_idx too large": put(".weight_g_idx", 99),
        "negative g_idx": put(".weight_g_idx", -7),
    },
    "ct-int8-channel": {"no scale": drop(".weight_scale"), "short scale": shorten(".weight_scale")},
    "ct-fp8-channel": {"no scale": drop(".weight_scale"), "short scale": shorten(".weight_scale"), "bf16 called fp8": all_bf16},
    "ct-fp8-block": {"short scale": shorten(".weight_scale"), "other block": weights("block_structure", [64, 64])},
    "ct-nvfp4": {
        "no global scale": drop(".weight_global_scale"),
        "short scale": shorten(".weight_scale", 1),
        "no codes": drop(".weight_packed"),
    },
    "ct-mxfp4": {"short scale": shorten(".weight_scale"), "no scale": drop(".weight_scale")},
    "fp8-tensor": {"no scale": drop(".weight_scale"), "bf16 called fp8": all_bf16, "no scales": without_scales},
    "fp8-block": {
        "no scale": drop(".weight_scale_inv"),
        "short scale": shorten(".weight_scale_inv"),
        "bf16 called fp8": all_bf16,
        "other block": setting("weight_block_size", [64, 64]),
        "one number as block": setting("weight_block_size", [128]),
        "block of 0": setting("weight_block_size", [0, 128]),
    },
    "fbgemm-fp8": {"no scale": drop(".weight_scale"), "short scale": shorten(".weight_scale")},
    "modelopt-fp8": {"no scale": drop(".weight_scale"), "bf16 called fp8": all_bf16},
    "modelopt-nvfp4": {"no second scale": drop(".weight_scale_2"), "short scale": shorten(".weight_scale")},
    "modelopt-awq": {"short column scales": shorten(".pre_quant_scale"), "short scale": shorten(".weight_scale")},
    "gptq4": {
        "no scales": drop(".scales"),
        "no codes": drop(".qweight"),
        "no zero points": drop(".qzeros"),
        "short codes": shorten(".qweight"),
        "short scales": shorten(".scales"),
        "narrow zero points": shorten(".qzeros", 1),
        "other bits": setting("bits", 8),
        "bits of 0": setting("bits", 0),
        "bits of text": setting("bits", "4 or so"),
        "other group": setting("group_size", 64),
        "g_idx too large": put(".g_idx", 99),
        "negative g_idx": put(".g_idx", -1),
        "short g_idx": shorten(".g_idx"),
    },
    "awq4": {
        "no scales": drop(".scales"),
        "no codes": drop(".qweight"),
        "no zero points": drop(".qzeros"),
        "short codes": shorten(".qweight"),
        "other group": setting("group_size", 64),
    },
    "bnb-int8": {"no scales": drop(".SCB"), "short scales": shorten(".SCB")},
    "bnb-nf4": {
        "no absmax": drop(".weight.absmax"),
        "short absmax": shorten(".weight.absmax"),
        "short codes": shorten(".weight"),
        "no map": drop(".weight.quant_map"),
        "short map": shorten(".weight.quant_map"),
        "no state": drop(".weight.quant_state.bitsandbytes__nf4"),
        "state is not JSON": not_json,
        "other shape": state("shape", [64, 63]),
        "block of 0": state("blocksize", 0),
        "negative shape": state("shape", [-64, 64]),
        "other block": state("blocksize", 128),
    },
    "bnb-nf4-nested": {
        "no nested absmax": drop(".weight.nested_absmax"),
        "short nested map": shorten(".weight.nested_quant_map"),
        "no offset": state("nested_offset", None),
    },
    "mxfp4-experts": {
        "no scales": drop("_scales"),
        "no blocks": drop("_blocks"),
        "short scales": shorten("_scales"),
        "narrow blocks": shorten("_blocks", 3),
    },
    "comfy-nvfp4-tensor": {
        "no second scale": drop(".weight_scale_2"),
        "short scale": shorten(".weight_scale"),
        "no scale": drop(".weight_scale"),
    },
    "comfy-mxfp8-tensor": {"no scale": drop(".weight_scale"), "short scale": shorten(".weight_scale")},
    "mlx4": {
        "no scales": drop(".scales"),
        "no codes": drop(".weight"),
        # No biases, and a last group that is not whole, are allowed.
        "short scales": shorten(".scales"),
        "other bits": lambda c: c.config["quantization"].update(bits=8),
        "other group": lambda c: c.config["quantization"].update(group_size=64),
        "other mode": lambda c: c.config["quantization"].update(mode="mxfp4"),
    },
}

# What other programs write or might write, and Ballast does not decode.
UNSUPPORTED = {
    "ct-pack4-group": {"format": setting("format", "packed-somehow"), "group": weights("group_size", 48)},
    "modelopt-nvfp4": {"low rank": setting("quant_algo", "NVFP4_SVD"), "algorithm": setting("quant_algo", "INT3_NEW")},
    "gptq4": {"version": setting("checkpoint_format", "gptq_v9")},
    "awq4": {"bits": setting("bits", 8), "gemv": setting("version", "gemv"), "gemv_fast": setting("version", "gemv_fast")},
    "bnb-int8": {"order": put(".weight_format", 1, None)},
    "fp8-tensor": {"method": setting("quant_method", "fp8_of_tomorrow")},
}

# Scales that make weights NaN, infinite or zero.
VALUES = {
    "ct-pack4-group": {
        "NaN": put(".weight_scale", np.nan),
        "infinite": put(".weight_scale", np.inf),
        "all zero": put(".weight_scale", 0, None),
    },
    "ct-pack4-channel-f16": {"NaN": put(".weight_scale", np.nan), "infinite": put(".weight_scale", np.inf)},
    "ct-pack4-channel-f32": {"NaN": put(".weight_scale", np.nan), "infinite": put(".weight_scale", np.inf)},
    "ct-fp8-channel": {
        "NaN": put(".weight_scale", np.nan),
        "NaN code": put_byte(".weight", 0x7F),
        "all zero": put(".weight_scale", 0, None),
    },
    "ct-nvfp4": {
        "divisor of 0": put(".weight_global_scale", 0, None),
        "NaN scale": put_byte(".weight_scale", 0x7F),
        "NaN": put(".weight_global_scale", np.nan, None),
    },
    "ct-mxfp4": {"NaN exponent": put(".weight_scale", 0xFF)},
    "fp8-block": {
        "NaN": put(".weight_scale_inv", np.nan, 0),
        "infinite": put(".weight_scale_inv", np.inf, 0),
        "all zero": put(".weight_scale_inv", 0, None),
    },
    "fp8-block-bf16": {"NaN": put(".weight_scale_inv", np.nan, 0)},
    "fp8-block-e8m0": {"NaN exponent": put_byte(".weight_scale_inv", 0xFF)},
    "fp8-tensor": {"NaN": put(".weight_scale", np.nan, None), "NaN code": put_byte(".weight", 0xFF), "zero": put(".weight_scale", 0, None)},
    "modelopt-nvfp4": {"NaN": put(".weight_scale_2", np.nan, None), "zero": put(".weight_scale_2", 0, None)},
    "modelopt-awq": {"NaN column": put(".pre_quant_scale", np.nan), "infinite": put(".pre_quant_scale", np.inf)},
    "gptq4": {"NaN": put(".scales", np.nan), "infinite": put(".scales", np.inf), "all zero": put(".scales", 0, None)},
    "awq4": {"NaN": put(".scales", np.nan), "infinite": put(".scales", np.inf)},
    "bnb-int8": {"NaN": put(".SCB", np.nan), "infinite": put(".SCB", np.inf)},
    "bnb-nf4": {
        "NaN": put(".weight.absmax", np.nan),
        "infinite": put(".weight.absmax", np.inf),
        "NaN map": put(".weight.quant_map", np.nan),
    },
    "bnb-nf4-nested": {"NaN": put(".weight.nested_absmax", np.nan, 0)},
    "mxfp4-experts": {"NaN exponent": put("_scales", 0xFF)},
    "comfy-mxfp8-tensor": {"NaN exponent": put(".weight_scale", 0xFF, 0)},
    "mlx4": {"NaN": put(".scales", np.nan), "infinite": put(".biases", np.inf)},
    "mlx-mxfp4": {"NaN exponent": put(".scales", 0xFF)},
}
