"""Every kind of quantized checkpoint: what it decodes to, what is said of it, and what the commands make of it."""

import io
import json
import subprocess

import numpy as np
import pytest
from checkpoint_kinds import QUANTIZED_KINDS
from layouts import LAYOUTS, read, read_all
from layouts.elements import BF16
from quantized_files import done

# Keys and files that claim a quantization.
CLAIMS = {"quantization_config", "compression_config", "quantization"}
# Tensors of a layer that do not take part in its weight; a scheme may list them with it or not.
BESIDE = (
    "input_scale",
    "activation_scale",
    "qscale_act",
    "scale_input",
    "input_scale_ub",
    "input_global_scale",
    "comfy_quant",
    "weight_format",
)
SIDE_FILES = {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}
# One layout of each family for the commands that do not depend on the rest.
FEW = [
    "ct-pack4-group-asym", "ct-pack4-actorder", "ct-int8-channel", "ct-fp8-block", "ct-nvfp4", "ct-mxfp4", "ct-mixed", "fp8-tensor", "fp8-block",
    "modelopt-fp8", "modelopt-nvfp4", "modelopt-awq", "gptq4", "gptq3-v2-actorder-asym", "awq4", "bnb-int8", "bnb-nf4-nested", "mxfp4-experts",
    "comfy-e4m3fn-metadata", "comfy-nvfp4-tensor", "comfy-old-e5m2", "mlx4", "mlx-nvfp4", "mistral-fp8",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(name) -> the checkpoint of that kind, written once."""
    folder, found = tmp_path_factory.mktemp("kinds"), {}

    def made(name):
        if name not in found:
            found[name] = QUANTIZED_KINDS[name].make(folder / name)
        return found[name]

    return made


@pytest.fixture(scope="module")
def restored(made, tmp_path_factory, build_dir):
    """restored(name) -> the result of `dequantize --dtype f32`, and the directory that it wrote."""
    folder, found = tmp_path_factory.mktemp("restored"), {}

    def restored(name):
        if name not in found:
            command = [build_dir / "ballast", "dequantize", made(name).path, folder / name, "--dtype", "f32"]
            found[name] = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        return done(found[name]), folder / name

    return restored


def same(found, expected, exact=True):
    """Require the same bits, except the sign of zero; formulas that round in an order of their own may differ in the last bit."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if exact:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=2**-22, atol=0)


def exact(name):
    return name not in LAYOUTS or LAYOUTS[name].exact


def inspected(run, path):
    return json.loads(done(run("inspect", path, "--json")).stdout)


@pytest.mark.parametrize("name", QUANTIZED_KINDS)
class TestEveryLayout:
    def test_dequantize_gives_the_values(self, made, restored, name):
        _, folder = restored(name)
        checkpoint, found = made(name), read_all(folder)
        assert found.keys() == checkpoint.dense.keys()
        for weight, values in checkpoint.dense.items():
            if weight in checkpoint.quantized:
                same(found[weight], values, exact(name))
            else:
                same(found[weight], checkpoint.stored[weight])

    def test_dequantized_claims_nothing(self, made, restored, name):
        _, folder = restored(name)
        names = {path.name for path in folder.iterdir()}
        assert not names & SIDE_FILES
        for each in names & {"config.json", "params.json"}:
            assert not json.loads((folder / each).read_text()).keys() & CLAIMS
        for path in folder.glob("*.safetensors"):
            assert "_quantization_metadata" not in read(path)[1]
        kept = {path.name for path in made(name).path.iterdir() if path.suffix == ".json"} - SIDE_FILES
        assert kept <= names

    def test_inspect_lists_weights(self, made, run, name):
        checkpoint, found = made(name), inspected(run, made(name).path)
        weights = {weight["name"]: weight for weight in found["weights"]}
        assert weights.keys() == checkpoint.dense.keys()
        assert found["parameter_count"] == sum(values.size for values in checkpoint.dense.values())
        assert found["tensor_count"] == len(checkpoint.stored)
        layout = LAYOUTS.get(name)
        for weight, values in checkpoint.dense.items():
            said = weights[weight]
            assert said["shape"] == list(values.shape), weight
            if weight not in checkpoint.quantized:
                assert (said["scheme"], said["bits"]) == ("plain", 0), weight
                continue
            needed = {part for part in checkpoint.parts[weight] if not part.endswith(BESIDE)}
            assert said["scheme"] != "plain" and needed <= set(said["tensors"]) <= set(checkpoint.parts[weight]), weight
            assert said["bytes"] == sum(checkpoint.stored[part].nbytes for part in said["tensors"])
            assert said["dtype"] in ("BF16", "F16", "F32")
            if layout and name != "deepseek-v4-fp4":
                rows, columns = values.shape[-2:]
                assert said["bits"] == layout.bits
                assert not layout.group(rows, columns) or said["group_size"] == layout.group(rows, columns), weight

    def test_verify_finds_no_defect(self, made, run, name):
        found = json.loads(done(run("verify", made(name).path, "--json")).stdout)
        assert found["ok"] and found["defects"] == []
        assert {"name": "quantization", "ok": True} in found["checks"]


@pytest.mark.parametrize("name", FEW)
class TestCommands:
    def test_convert_rounds_the_values(self, made, run, tmp_path, name):
        done(run("convert", made(name).path, tmp_path / "out", "--dtype", "bf16"))
        found = read_all(tmp_path / "out")
        assert found.keys() == made(name).dense.keys()
        for weight in made(name).quantized:
            assert found[weight].dtype == BF16
            values = made(name).dense[weight]
            same(found[weight].astype(np.float32), values.astype(BF16).astype(np.float32), exact(name))

    def test_quantize_takes_the_values(self, made, run, tmp_path, name):
        done(run("quantize", made(name).path, tmp_path / "coded", "--group-size", "32", "--bits", "8", "--no-sync"))
        done(run("validate", made(name).path, tmp_path / "coded", "--min-accuracy", "0.999"))
        done(run("dequantize", tmp_path / "coded", tmp_path / "a", "--dtype", "f32"))
        for weight, values in read_all(tmp_path / "a").items():
            if weight in made(name).quantized:
                reference = made(name).dense[weight]
                assert np.linalg.norm(values - reference) <= 0.03 * np.linalg.norm(reference), weight

    def test_quantize_for_mlx(self, made, run, tmp_path, name):
        result = run("quantize", made(name).path, tmp_path / "out", "--format", "mlx", "--group-size", "32", "--no-sync")
        if result.returncode:
            assert result.returncode in (2, 3) and result.stderr.startswith("ballast: ") and result.stderr.count("\n") == 1, result.stderr
            return
        config = json.loads((tmp_path / "out" / "config.json").read_text()) if (tmp_path / "out" / "config.json").exists() else {}
        assert "quant_method" not in config.get("quantization_config", {})
        done(run("verify", tmp_path / "out"))

    def test_diff_finds_it_equal_to_its_values(self, made, restored, run, name):
        _, plain = restored(name)
        found = json.loads(run("diff", made(name).path, plain, "--json").stdout)
        differing = {each["name"]: each for each in found["changed"] if each["name"] in made(name).quantized}
        for each in differing.values():  # decoded to the original dtype, which is shorter than F32
            assert each["max_difference"] <= 2**-8 * np.abs(made(name).dense[each["name"]]).max()
        assert not found.get("only_in_a") and not found.get("only_in_b")

    def test_extract_decodes(self, build_dir, made, run, name):
        weight = sorted(made(name).quantized)[0]
        dtype = {each["name"]: each["dtype"] for each in inspected(run, made(name).path)["weights"]}[weight]
        command = [build_dir / "ballast", "extract", made(name).path, weight]
        found = np.load(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)).astype(np.float32)
        short = {"BF16": BF16, "F16": np.dtype(np.float16), "F32": np.dtype(np.float32)}[dtype]
        expected = made(name).dense[weight].astype(short).astype(np.float32)
        np.testing.assert_allclose(found, expected, rtol=0 if exact(name) else 2**-7)

    def test_validate_finds_the_values_equal(self, made, restored, run, name):
        _, plain = restored(name)
        found = json.loads(done(run("validate", plain, made(name).path, "--json", "--min-accuracy", "0.9999")).stdout)
        assert found
