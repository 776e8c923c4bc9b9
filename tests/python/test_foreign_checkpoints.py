"""Checkpoints that no scheme decodes: what would misread them refuses them, what copies bytes or lists names does not."""

import json
from dataclasses import dataclass, field
from math import prod

import pytest
from conftest import one_error_line
from quantized_files import contents, done, listing
from safetensors_bytes import data_start, prefix
from safetensors_drafts import BITS

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
CODES = {f"{A}.codes": ("I16", [4, 4, 1]), f"{A}.codebooks": ("F16", [1, 256, 1, 8]), f"{A}.scales": ("F16", [4, 1, 1, 1])}
EXL3 = {f"{A}.trellis": ("I16", [2, 4, 32]), f"{A}.suh": ("F16", [32]), f"{A}.svh": ("F16", [4])}

LAYOUTS = {
    "aqlm": Layout(CODES, **by_method("aqlm", nbits_per_codebook=8)),
    "exl3": Layout(EXL3, **by_method("exl3")),
    "quark of a text_config": Layout(
        {f"{A}.weight": ("F8_E4M3", [4, 32]), f"{A}.weight_scale": ("F32", [])},
        "as quark (config.json: text_config: quant_method 'quark')",
        config={"text_config": {"quantization_config": {"quant_method": "quark"}}},
    ),
    "torchao": Layout(
        {f"{A}._weight_qdata": ("I8", [4, 32]), f"{A}._weight_scale": ("F32", [4, 1])},
        f"as torchao (tensor '{A}._weight_qdata')",
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
