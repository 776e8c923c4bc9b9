"""Quantized models where any other model is taken: their values are decoded when they are read."""

import io
import json
import shutil
import subprocess

import numpy as np
import pytest
from quantized_files import contents, done, listing, quantize, read_safetensors, refused
from safetensors import safe_open
from safetensors.numpy import save_file

WEIGHT = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module", params=["parquet", "mlx"])
def quantized(request, tiny, tmp_path_factory, build_dir):
    """A directory in each format, and what `dequantize` makes of it."""
    folder = tmp_path_factory.mktemp(request.param)

    def ballast(*arguments):
        subprocess.run([build_dir / "ballast", *map(str, arguments)], check=True, capture_output=True)

    ballast("quantize", tiny, folder / "q", "--no-sync", "--format", request.param, "--group-size", 64)
    ballast("dequantize", folder / "q", folder / "plain")
    return folder / "q", folder / "plain"


class TestDecoded:
    def test_diff_compares_values(self, run, quantized, tiny):
        coded, plain = quantized
        assert json.loads(done(run("diff", coded, plain, "--json")).stdout)["equal"]
        found = run("diff", coded, tiny, "--json")
        assert found.returncode == 1
        changed = {each["name"]: each for each in json.loads(found.stdout)["changed"]}
        assert changed[WEIGHT]["dtype"] == ["BF16", "BF16"] and changed[WEIGHT]["max_difference"] < 0.05

    def test_extract_decodes(self, build_dir, run, quantized):
        coded, plain = quantized
        expected = read_safetensors(plain / "model.safetensors")[WEIGHT].astype(np.float32)
        for text, part in (("", expected), ("3:7,5:20", expected[3:7, 5:20]), ("::-50", expected[::-50])):
            command = [build_dir / "ballast", "extract", coded, WEIGHT, *(["--slice", text] if text else [])]
            made = subprocess.run(command, check=True, capture_output=True).stdout
            np.testing.assert_array_equal(np.load(io.BytesIO(made)), part)

    def test_convert_to_a_dtype_is_dequantize(self, run, quantized, tmp_path):
        coded, _ = quantized
        result = done(run("convert", coded, tmp_path / "a", "--dtype", "f32"))
        assert "dequantized to F32" in result.stderr
        done(run("dequantize", coded, tmp_path / "b", "--dtype", "f32"))
        ours, theirs = (read_safetensors(tmp_path / name / "model.safetensors") for name in "ab")
        for name, values in theirs.items():
            np.testing.assert_array_equal(ours[name], values.astype(np.float32))
        config = json.loads((tmp_path / "a" / "config.json").read_text())
        assert "quantization" not in config and config["torch_dtype"] == "float32"
        assert listing(tmp_path / "a") == listing(tmp_path / "b")


def test_python_opens_parquet(run, tiny, tmp_path):
    import ballast

    quantize(run, tiny, tmp_path / "q")
    done(run("dequantize", tmp_path / "q", tmp_path / "plain"))
    expected = read_safetensors(tmp_path / "plain" / "model.safetensors")
    with ballast.open(tmp_path / "q") as model:
        assert set(model) == set(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(np.asarray(model[name], np.float32), values.astype(np.float32))


def test_python_decodes_mlx_where_asked_to(run, tiny, tmp_path):
    import ballast

    quantize(run, tiny, tmp_path / "q", "--format", "mlx", "--group-size", "64")
    done(run("dequantize", tmp_path / "q", tmp_path / "plain"))
    expected = read_safetensors(tmp_path / "plain" / "model.safetensors")
    assert ballast.open(tmp_path / "q")[WEIGHT].dtype == "U32"
    with ballast.open(tmp_path / "q", decode=True) as model:
        assert set(model) == set(expected) and model[WEIGHT].dtype == "BF16"
        for name, values in expected.items():
            np.testing.assert_array_equal(np.asarray(model[name], np.float32), values.astype(np.float32))
        np.testing.assert_array_equal(np.asarray(model[WEIGHT][3:5], np.float32), expected[WEIGHT][3:5].astype(np.float32))


def test_mlx_stays_mlx_without_a_dtype(run, tiny, tmp_path):
    quantize(run, tiny, tmp_path / "q", "--format", "mlx", "--group-size", "64")
    assert done(run("convert", tmp_path / "q", tmp_path / "out")).stderr == ""
    assert read_safetensors(tmp_path / "out" / "model.safetensors")[WEIGHT].dtype == np.uint32
    assert json.loads((tmp_path / "out" / "config.json").read_text())["quantization"]["bits"] == 4


def test_verify_takes_settings_from_quantization_config(run, tiny, tmp_path):
    quantize(run, tiny, tmp_path / "q", "--format", "mlx", "--group-size", "64")
    config = json.loads((tmp_path / "q" / "config.json").read_text())
    section = config.pop("quantization")
    config.pop("quantization_config", None)
    (tmp_path / "q" / "config.json").write_text(json.dumps(config))
    (tmp_path / "q" / "quantization_config.json").write_text(json.dumps(section))
    found = json.loads(done(run("verify", tmp_path / "q", "--json")).stdout)
    assert {"name": "quantization", "ok": True} in found["checks"] and found["defects"] == []


class TestStoredCodes:
    """Codes are copied only with what gives them their meaning."""

    @pytest.fixture
    def mlx(self, run, tiny, tmp_path):
        quantize(run, tiny, tmp_path / "q", "--format", "mlx", "--group-size", "64")
        return tmp_path / "q"

    def test_a_single_file_gets_values(self, run, mlx, tmp_path):
        result = done(run("convert", mlx, tmp_path / "out.safetensors"))
        assert "mlx weights were dequantized to their original dtypes" in result.stderr
        done(run("dequantize", mlx, tmp_path / "plain.safetensors"))
        assert json.loads(done(run("diff", tmp_path / "out.safetensors", tmp_path / "plain.safetensors", "--json")).stdout)["equal"]
        with safe_open(tmp_path / "out.safetensors", "np") as file:
            assert file.metadata() == {"format": "pt"}

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--include", "*up_proj.weight"], "would lose its weights, scales or biases"),
            (["--exclude", "*.scales"], "would lose its weights, scales or biases"),
            (["--rename", "model.*=decoder.*"], "cannot be renamed"),
        ],
    )
    def test_layers_stay_whole(self, run, mlx, tmp_path, options, message):
        refused(run("convert", mlx, tmp_path / "out", *options), 3, message, "dequantize the model first")
        assert not (tmp_path / "out").exists()

    def test_whole_layers_may_be_left_out(self, run, mlx, tmp_path):
        done(run("convert", mlx, tmp_path / "out", "--exclude", "*up_proj*"))
        assert not any("up_proj" in name for name in read_safetensors(tmp_path / "out" / "model.safetensors"))

    def test_scales_of_a_lone_file_are_not_cast(self, run, mlx, tmp_path):
        refused(run("convert", mlx / "model.safetensors", tmp_path / "out.safetensors", "--dtype", "f32"), 3, "is already quantized")

    def test_the_quantized_model_is_not_replaced(self, run, mlx):
        before = contents(mlx)
        refused(run("convert", mlx, mlx, "--dtype", "bf16"), 2, "give another output")
        assert contents(mlx) == before

    def test_codes_without_scales_are_corrupt(self, run, mlx, tmp_path):
        (mlx / "model.safetensors.index.json").unlink()
        layer = WEIGHT.removesuffix(".weight")
        lost = {layer + ".scales", layer + ".biases"}
        tensors = read_safetensors(mlx / "model.safetensors")
        save_file({name: value for name, value in tensors.items() if name not in lost}, mlx / "model.safetensors")
        missing = f"tensor '{WEIGHT}': '{layer}.scales' is missing"
        found = run("verify", mlx)
        assert found.returncode == 1 and missing in found.stdout
        refused(run("dequantize", mlx, tmp_path / "out"), 3, missing)

    def test_python_converts_as_the_program_does(self, run, mlx, tmp_path):
        import ballast

        report = ballast.convert(mlx, tmp_path / "ours", dtype="f32")
        assert report.warnings == ["mlx weights were dequantized to F32"]
        done(run("convert", mlx, tmp_path / "theirs", "--dtype", "f32"))
        assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")
        with pytest.raises(ballast.UnsupportedError, match="is already quantized"):
            ballast.convert(ballast.open(mlx), tmp_path / "no", dtype="f32")


def test_parquet_becomes_mlx_json(run, tiny, tmp_path):
    quantize(run, tiny, tmp_path / "q")
    result = done(run("convert", tmp_path / "q", tmp_path / "out.mlx"))
    assert "dequantized to their original dtypes" in result.stderr
    done(run("dequantize", tmp_path / "q", tmp_path / "plain.safetensors"))
    assert json.loads(done(run("diff", tmp_path / "out.mlx", tmp_path / "plain.safetensors", "--json")).stdout)["equal"]


class TestDryRun:
    def test_writes_nothing_and_agrees_with_the_run(self, run, tiny, tmp_path):
        options = ["--format", "mlx", "--group-size", "64", "--keep", "*embed*"]
        plan = json.loads(done(run("quantize", tiny, tmp_path / "out", "--dry-run", "--json", *options)).stdout)
        assert plan["dry_run"] and listing(tmp_path) == []
        made = quantize(run, tiny, tmp_path / "out", *options)
        planned = [each for each in plan["layers"] if each["bits"]]
        assert [(each["name"], each["bits"], each["bytes"]) for each in planned] == [
            (each["name"], each["bits"], each["bytes"]) for each in made["layers"]
        ]
        assert all(each["method"] is None for each in plan["layers"] if "embed" in each["name"])

    def test_has_the_bits_that_a_size_leaves(self, run, tiny, tmp_path):
        options = ["--format", "mlx", "--group-size", "64", "--target-size-mb", "0.12"]
        plan = json.loads(done(run("quantize", tiny, tmp_path / "out", "--dry-run", "--json", *options)).stdout)
        made = quantize(run, tiny, tmp_path / "out", *options)
        assert {each["name"]: each["bits"] for each in plan["layers"] if each["bits"]} == {
            each["name"]: each["bits"] for each in made["layers"]
        }

    def test_fits_80_columns(self, run, tiny, tmp_path):
        lines = done(run("quantize", tiny, "out", "--dry-run", cwd=tmp_path)).stdout.splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[-1].endswith("nothing was written")

    def test_refuses_what_the_run_would(self, run, tiny, tmp_path):
        refused(run("quantize", tiny, tiny, "--dry-run"), 2, "the model is read from here")
        refused(run("quantize", tiny, tmp_path / "out.safetensors", "--dry-run"), 2, "give a name without .safetensors")
        refused(run("quantize", tiny, tmp_path / "out", "--dry-run", "--keep", "nothing*"), 2, "nothing*")


def test_validate_takes_a_copy_of_the_output(run, tiny, tmp_path):
    quantize(run, tiny, tmp_path / "q")
    shutil.copytree(tmp_path / "q", tmp_path / "copy")
    assert contents(tmp_path / "q") == contents(tmp_path / "copy")
    assert json.loads(done(run("validate", tiny, tmp_path / "copy", "--json")).stdout)["cosine_similarity"] > 0.99


def test_verify_finds_a_missing_part(run, tiny, tmp_path):
    quantize(run, tiny, tmp_path / "q")
    next((tmp_path / "q").glob("*.parquet")).unlink()
    found = run("verify", tmp_path / "q")
    assert found.returncode == 1 and "No such file or directory" in found.stdout
