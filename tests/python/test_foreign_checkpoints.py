"""Checkpoints that other programs quantized: what would misread them refuses them, what copies bytes or lists names does not."""

import json
from dataclasses import dataclass, field
from math import prod

import pytest
from conftest import one_error_line
from quantized_files import contents, done, listing
from safetensors_bytes import data_start, prefix
from safetensors_drafts import BITS

UNKNOWN = "in an unknown way"
REFUSING = {"quantize": [], "dequantize": [], "convert": ["--dtype", "bf16"]}


def write_safetensors(path, tensors, metadata=None):
    """Any dtype, with bytes that are no NaN in any of them."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape) in tensors.items():
        raw = bytes(i % 64 for i in range(prod(shape) * BITS[dtype] // 8))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    path.write_bytes(prefix(header) + data)


def read_safetensors(path):
    """(metadata, {name: (dtype, shape, bytes)}), whatever the order in the file."""
    raw = path.read_bytes()
    start = data_start(raw)
    header = json.loads(raw[8:start])
    metadata = header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], raw[start + begin : start + end])
    return metadata, tensors


@dataclass
class Layout:
    """Tensors as (dtype, shape) by name, and what the refusal says."""

    tensors: dict
    how: str
    config: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    metadata: dict | None = None

    def write(self, folder):
        folder.mkdir()
        plain = {"model.norm.weight": ("BF16", [32]), "lm_head.weight": ("BF16", [4, 32])}
        write_safetensors(folder / "model.safetensors", plain | self.tensors, self.metadata)
        for name, content in ({"config.json": {"model_type": "llama"} | self.config} | self.files).items():
            (folder / name).write_text(json.dumps(content))
        return folder


def by_method(method, **more):
    """A config's section, and how it is reported."""
    how = f"as {method} (config.json: quant_method '{method}')"
    return {"how": how, "config": {"quantization_config": {"quant_method": method, **more}}}


A = "model.layers.0.mlp.down_proj"
EXPERTS = "model.layers.0.mlp.experts"
PACKED = {
    f"{A}.weight_packed": ("I32", [4, 4]),
    f"{A}.weight_scale": ("BF16", [4, 1]),
    f"{A}.weight_shape": ("I64", [2]),
}
NVFP4_PACKED = {
    f"{A}.weight_packed": ("U8", [4, 16]),
    f"{A}.weight_scale": ("F8_E4M3", [4, 2]),
    f"{A}.weight_global_scale": ("F32", [1]),
}
FP8 = {f"{A}.weight": ("F8_E4M3", [4, 32]), f"{A}.weight_scale": ("F32", []), f"{A}.input_scale": ("F32", [])}
FP8_BLOCKS = {f"{A}.weight": ("F8_E4M3", [4, 32]), f"{A}.weight_scale_inv": ("F32", [1, 1])}
INT8 = {f"{A}.weight": ("I8", [4, 32]), f"{A}.weight_scale": ("BF16", [4, 1])}
NVFP4 = {
    f"{A}.weight": ("U8", [4, 16]),
    f"{A}.weight_scale": ("F8_E4M3", [4, 2]),
    f"{A}.weight_scale_2": ("F32", []),
    f"{A}.input_scale": ("F32", []),
}
MXFP4 = {
    f"{EXPERTS}.down_proj_blocks": ("U8", [2, 4, 1, 16]),
    f"{EXPERTS}.down_proj_scales": ("U8", [2, 4, 1]),
    f"{EXPERTS}.down_proj_bias": ("BF16", [2, 4]),
}
COMFY_OLD = {f"{A}.weight": ("F8_E4M3", [4, 32]), f"{A}.scale_weight": ("F32", []), "scaled_fp8": ("F8_E4M3", [2])}
COMFY_NVFP4 = {
    f"{A}.weight": ("U8", [16, 16]),
    f"{A}.weight_scale": ("F8_E4M3", [128, 4]),
    f"{A}.weight_scale_2": ("F32", []),
    f"{A}.comfy_quant": ("U8", [19]),
}


def beside(scheme, name, sibling):
    return f"{scheme} (tensor '{name}' beside '{sibling}')"


LAYOUTS = {
    "pack-quantized": Layout(PACKED, **by_method("compressed-tensors", format="pack-quantized")),
    "pack-quantized by name": Layout(PACKED, f"as compressed-tensors (tensor '{A}.weight_packed')"),
    "int-quantized": Layout(INT8, **by_method("compressed-tensors", format="int-quantized")),
    "int-quantized by name": Layout(INT8, beside(UNKNOWN, f"{A}.weight_scale", f"{A}.weight")),
    "nvfp4-pack-quantized": Layout(NVFP4_PACKED, f"as compressed-tensors (tensor '{A}.weight_packed')"),
    "compression_config": Layout(
        INT8,
        "as compressed-tensors (config.json: compression_config)",
        config={"compression_config": {"format": "int-quantized"}},
    ),
    "fp8 in blocks": Layout(FP8_BLOCKS, **by_method("fp8", weight_block_size=[128, 128])),
    "fp8 in blocks by name": Layout(FP8_BLOCKS, beside("as fp8", f"{A}.weight_scale_inv", f"{A}.weight")),
    "fp8 per tensor": Layout(FP8, **by_method("fp8", activation_scheme="static")),
    "fp8 of a text_config": Layout(
        FP8,
        "as fp8 (config.json: text_config: quant_method 'fp8')",
        config={"text_config": {"quantization_config": {"quant_method": "fp8"}}},
    ),
    "fbgemm_fp8": Layout(FP8, **by_method("fbgemm_fp8")),
    "modelopt FP8": Layout(
        FP8,
        "as modelopt (hf_quant_config.json: quant_algo 'FP8')",
        files={"hf_quant_config.json": {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}},
    ),
    "modelopt NVFP4": Layout(NVFP4, **by_method("modelopt", quant_algo="NVFP4")),
    "modelopt NVFP4 by name": Layout(NVFP4, beside("as modelopt", f"{A}.weight_scale_2", f"{A}.weight")),
    "modelopt W4A16_AWQ": Layout(
        {
            f"{A}.weight": ("U8", [2, 32]),
            f"{A}.weight_scale": ("BF16", [4, 1]),
            f"{A}.pre_quant_scale": ("BF16", [32]),
        },
        beside("as modelopt", f"{A}.pre_quant_scale", f"{A}.weight"),
    ),
    "mxfp4": Layout(MXFP4, **by_method("mxfp4")),
    "mxfp4 by name": Layout(MXFP4, beside("as mxfp4", f"{EXPERTS}.down_proj_blocks", f"{EXPERTS}.down_proj_scales")),
    "ComfyUI float8": Layout(
        FP8,
        "as comfyui (model.safetensors: metadata '_quantization_metadata')",
        metadata={"_quantization_metadata": json.dumps({"layers": {A: {"format": "float8_e4m3fn"}}})},
    ),
    "ComfyUI float8, old": Layout(COMFY_OLD, "as comfyui (tensor 'scaled_fp8')"),
    "ComfyUI nvfp4": Layout(COMFY_NVFP4, f"as comfyui (tensor '{A}.comfy_quant')"),
    "torchao": Layout(
        {f"{A}._weight_qdata": ("I8", [4, 32]), f"{A}._weight_scale": ("F32", [4, 1])},
        f"as torchao (tensor '{A}._weight_qdata')",
    ),
    "Mistral fp8": Layout(
        {f"{A}.weight": ("F8_E4M3", [4, 32]), f"{A}.qscale_weight": ("F32", []), f"{A}.qscale_act": ("F32", [])},
        beside("as fp8", f"{A}.qscale_weight", f"{A}.weight"),
    ),
}


@pytest.fixture(params=LAYOUTS.values(), ids=[name.replace(" ", "-") for name in LAYOUTS])
def layout(request):
    return request.param


@pytest.fixture
def model(layout, tmp_path):
    return layout.write(tmp_path / "model")


@pytest.mark.parametrize("command", REFUSING)
def test_what_would_misread_the_weights_refuses_them(run, layout, model, tmp_path, command):
    before = contents(model)
    result = run(command, model, tmp_path / "out", *REFUSING[command])
    assert one_error_line(result, 3) == (
        f"{model}: weights are quantized {layout.how}, which Ballast cannot decode yet; "
        "dequantize them with the tool that made them first"
    )
    assert listing(tmp_path) == ["model"]
    assert contents(model) == before


def test_convert_without_dtype_copies(run, model, tmp_path):
    out = tmp_path / "out"
    result = done(run("convert", model, out))
    assert result.stderr == ""
    assert read_safetensors(out / "model.safetensors") == read_safetensors(model / "model.safetensors")
    beside_weights = {name: raw for name, raw in contents(model).items() if name != "model.safetensors"}
    assert {name: raw for name, raw in contents(out).items() if name != "model.safetensors"} == beside_weights


def test_inspect_lists_the_tensors(run, layout, model):
    assert "down_proj" in done(run("inspect", model)).stdout
    found = json.loads(done(run("inspect", model, "--tensors", "--json")).stdout)
    listed = {tensor["name"]: (tensor["dtype"], tensor["shape"]) for tensor in found["tensors"]}
    assert layout.tensors.items() <= listed.items()


@pytest.mark.parametrize("command", ["quantize", "convert"])
def test_a_file_alone_is_refused_by_its_names(run, tmp_path, command):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {f"{A}._weight_qdata": ("I8", [4, 32])})
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "not read for a lone file"}}))
    result = run(command, path, tmp_path / "out", *REFUSING[command])
    assert one_error_line(result, 3) == (
        f"{path}: weights are quantized as torchao (tensor '{A}._weight_qdata'), which Ballast cannot decode yet; "
        "dequantize them with the tool that made them first"
    )
    assert listing(tmp_path) == ["config.json", "model.safetensors"]


PLAIN = {
    "bf16": {f"{A}.weight": ("BF16", [4, 32])},
    "cast to F8": {f"{A}.weight": ("F8_E4M3", [4, 32]), "norm.scale": ("F8_E4M3", [4])},
    "scales of other things": {
        f"{A}.weight": ("F32", [4, 32]),
        f"{A}.scale": ("F32", [4]),
        "logit_scale": ("F32", []),
        "layers.0.layer_scale": ("F32", [4]),
        "attn.k_scale": ("F32", []),
        "relative_attention_bias.weight": ("F32", [4, 4]),
    },
}


@pytest.mark.parametrize("tensors", PLAIN.values(), ids=[name.replace(" ", "-") for name in PLAIN])
@pytest.mark.parametrize("command", ["quantize", "convert"])
def test_plain_models_are_not_refused(run, tmp_path, tensors, command):
    model = Layout(tensors, "").write(tmp_path / "model")
    done(run(command, model, tmp_path / "out", *REFUSING[command]))


@pytest.mark.parametrize("mode", ["affine", "mxfp4"])
def test_models_of_mlx_are_not_refused(run, tmp_path, mode):
    scales = {"affine": "BF16", "mxfp4": "U8"}[mode]
    tensors = {f"{A}.weight": ("U32", [4, 4]), f"{A}.scales": (scales, [4, 1])}
    if mode == "affine":
        tensors[f"{A}.biases"] = ("BF16", [4, 1])
    section = {"bits": 4, "group_size": 32, "mode": mode}
    left_over = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = Layout(tensors, "", {"quantization": section, "quantization_config": left_over}).write(tmp_path / "model")
    done(run("dequantize", model, tmp_path / "out"))
    _, made = read_safetensors(tmp_path / "out" / "model.safetensors")
    assert made[f"{A}.weight"][:2] == ("BF16", [4, 32])
