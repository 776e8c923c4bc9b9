"""Settings of quantize: where they come from, which one wins, which layers they are about; and what cannot be done, each in one line
with the right exit code and nothing left behind."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from quantized_files import BF16, contents, done, gauss, listing, quantize, read_parquet, read_safetensors, refused
from safetensors.numpy import save_file

NOBODY = 65534
FORMATS = ("parquet", "mlx")


@pytest.fixture
def model(tmp_path):
    """A layer that is easy to quantize, one that is hard, and one that is kept."""
    rng = np.random.default_rng(1)
    tensors = {
        "easy.weight": gauss(rng, 200, 256),
        "hard.weight": (rng.standard_t(4, (200, 256)) * 0.02).astype(BF16),
        "norm.weight": gauss(rng, 256),
    }
    save_file(tensors, tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors"


def bits_of(report):
    return {layer["name"]: layer["bits"] for layer in report["layers"]}


class TestSources:
    @pytest.mark.parametrize("profile, bits, group, accuracy", [("edge", 2, 256, 0.65), ("local", 4, 128, 0.85), ("cloud", 8, 64, 0.95)])
    def test_profiles(self, run, model, tmp_path, profile, bits, group, accuracy):
        report = quantize(run, model, tmp_path / "out", "--profile", profile)
        assert (report["bit_width"], report["group_size"], report["min_accuracy"]) == (bits, group, accuracy)
        assert all((layer["bits"], layer["group_size"]) == (bits, group) for layer in report["layers"])
        if profile == "local":
            assert quantize(run, model, tmp_path / "out")["layers"] == report["layers"]

    def test_command_line_over_environment_over_file_over_profile(self, run, model, tmp_path):
        settings = tmp_path / "q.yaml"
        settings.write_text("deployment_profile: cloud\nbit_width: 3\ngroup_size: 32\nmin_accuracy: 0\n")
        environment = os.environ | {"BALLAST_BIT_WIDTH": "5", "BALLAST_METHOD": "rtn", "BALLAST_MODALITY": ""}

        def settings_of(*options, **more):
            report = quantize(run, model, tmp_path / "out", *options, **more)
            return report["bit_width"], report["group_size"], report["method"], report["min_accuracy"]

        assert settings_of("--config", settings) == (3, 32, "auto", 0)
        assert settings_of("--config", settings, env=environment) == (5, 32, "rtn", 0)
        assert settings_of("--config", settings, "--bits", 6, "--method", "hqq", env=environment) == (6, 32, "hqq", 0)
        assert settings_of(env=environment) == (5, 128, "rtn", 0.85)
        # The profile that wins gives what nobody else does, wherever it stands.
        settings.write_text("deployment_profile: cloud\nbit_width: 3\n")
        assert settings_of("--config", settings) == (3, 64, "auto", 0.95)
        assert settings_of("--config", settings, "--profile", "edge") == (3, 256, "auto", 0.65)

    def test_the_words_of_the_first_design(self, run, model, tmp_path):
        arguments = ["--input", model, "--output", tmp_path / "out", "--bit-width", 8, "--profile", "local", "--modality", "text"]
        report = json.loads(done(run("quantize", *arguments, "--validate", "--json")).stdout)
        assert bits_of(report) == {"easy.weight": 8, "hard.weight": 8} and report["modality"] == "text"
        assert json.loads(done(run("validate", model, tmp_path / "out", "--json")).stdout)["modality"] == "text"

    def test_messages_name_what_the_user_wrote(self, run, model, tmp_path):
        """The option, the variable or the key of the file, whichever set it."""
        mlx = ("--format", "mlx")
        save_file({"a.weight": np.ones((4, 96), np.float32)}, tmp_path / "odd.safetensors")
        settings = tmp_path / "q.yaml"
        settings.write_text("group_size: 64\nsensitive_layer_names: [nobody]\n")
        advice = "'a.weight' has 96 columns, not a multiple of {0} 64; use {0} 32, or leave it unquantized with {1}"
        odd = ("quantize", tmp_path / "odd.safetensors", tmp_path / "out", *mlx)
        refused(run(*odd, "--group-size", 64), 3, advice.format("--group-size", "--keep"))
        variable = os.environ | {"BALLAST_GROUP_SIZE": "64"}
        refused(run(*odd, env=variable), 3, advice.format("BALLAST_GROUP_SIZE", "--keep"))
        refused(run(*odd, "--config", settings), 2, "sensitive_layer_names 'nobody' matches no tensor")
        refused(run(*odd, "--config", settings, "--keep", "b*"), 2, "sensitive_layer_names or --keep 'b*' matches no tensor")
        settings.write_text("group_size: 64\n")
        refused(run(*odd, "--config", settings), 3, advice.format("group_size", "--keep"))
        refused(run(*odd, "--config", settings, "--group-size", 64), 3, advice.format("--group-size", "--keep"))
        refused(run("quantize", model, tmp_path / "out", "--target-size-mb", 0.01, *mlx), 2, "in.safetensors: --target-size-mb is 0.01, the")
        refused(run("quantize", model, tmp_path / "out", "--recipe", "mixed_2_6"), 3, "in.safetensors: --recipe mixed_2_6 needs", "use --bits")

    def test_names_in_messages_stay_as_they_are(self, run, tmp_path):
        save_file({"group_size": np.ones((4, 96), np.float32)}, tmp_path / "bit_width.safetensors")
        result = run("quantize", "bit_width.safetensors", "out", "--format", "mlx", cwd=tmp_path)
        refused(result, 3, "bit_width.safetensors: tensor 'group_size' has 96 columns, not a multiple of --group-size 128")

    def test_the_default_format_prints_a_note(self, run, model, tmp_path):
        expected = (
            "note: the output is Parquet V2, which Ballast and data tools (DuckDB, pandas) read; use --format mlx for MLX and mlx-lm\n"
        )
        for options in ((), ("--json",), ("--dry-run",), ("--resume",), ("--resume",)):
            assert done(run("quantize", model, tmp_path / "out", *options)).stderr == expected
        (tmp_path / "q.yaml").write_text("format: parquet\n")
        variable = os.environ | {"BALLAST_FORMAT": "parquet"}
        for options, environment in ((("--format", "parquet"), None), (("--config", tmp_path / "q.yaml"), None), ((), variable)):
            assert done(run("quantize", model, tmp_path / "out", *options, env=environment)).stderr == ""

    def test_settings_that_need_statistics_are_accepted_and_said_to_have_no_effect(self, run, model, tmp_path):
        settings = tmp_path / "q.yaml"
        settings.write_text("enable_time_aware: true\nnum_time_groups: 7\nenable_spatial: true\ncalibration_samples: 64\n")
        result = done(run("quantize", model, tmp_path / "out", "--config", settings))
        assert "1 time group instead of 7" in result.stderr and "enable_spatial has no effect" in result.stderr
        report = quantize(run, model, tmp_path / "out", "--config", settings, "--validate")
        assert len(report["warnings"]) == 2

    @pytest.mark.parametrize("text, expected", [
        ("bit_with: 4", "q.yaml: line 1: unknown setting 'bit_with'; did you mean bit_width?"),
        ("nonsense: 4", "unknown setting 'nonsense'"),
        ("bit_width: 4\nbit_width: 4", "line 2"),
        ("bit_width: 7", "bit_width is 7, it must be 2, 3, 4, 5, 6 or 8"),
        ("bit_width: four", "bit_width is 'four'"),
        ("group_size: 100", "group_size is 100, it must be 32, 64, 128 or 256"),
        ("min_accuracy: 1.01", "min_accuracy is 1.01, it must be from 0 to 1"),
        ("sensitive_layer_patterns: ['(a']", "sensitive_layer_patterns"),
        ("layer_bit_widths: {easy: 7}", "layer_bit_widths: 'easy' is 7, it must be 2, 3, 4, 5, 6, 8 or 16"),
        ("layer_bit_widths: {nobody: 4}", "layer_bit_widths 'nobody' matches no tensor"),
        ("layer_bit_widths: {norm.weight: 4}", "'norm.weight' is BF16 [256], which format parquet does not quantize; leave it out or set it to 16"),
        ("sensitive_layer_patterns: ['^nobody$']", "sensitive_layer_patterns '^nobody$' matches no tensor"),
        ("format: gguf", "format is 'gguf', it must be parquet, mlx, compressed-tensors or hf-fp8"),
        ("method: [rtn]", "method is a list"),
        ("[1, 2", "q.yaml"),
    ])  # fmt: skip
    def test_settings_that_cannot_be(self, run, model, tmp_path, text, expected):
        settings = tmp_path / "q.yaml"
        settings.write_text(text)
        refused(run("quantize", model, tmp_path / "out", "--config", settings), 2, expected)
        assert listing(tmp_path) == ["in.safetensors", "q.yaml"]

    def test_variables_and_options_that_cannot_be(self, run, model, tmp_path):
        environment = os.environ | {"BALLAST_GROUP_SIZE": "65"}
        refused(run("quantize", model, tmp_path / "out", env=environment), 2, "BALLAST_GROUP_SIZE is 65, it must be 32, 64, 128 or 256")
        environment = os.environ | {"BALLAST_SENSITIVE_LAYER_PATTERNS": "(a"}
        refused(run("quantize", model, tmp_path / "out", env=environment), 2, "BALLAST_SENSITIVE_LAYER_PATTERNS")
        for options, expected in (
            (["--bits", 1], "--bits is 1, it must be 2, 3, 4, 5, 6 or 8"),
            (["--group-size", 256, "--format", "mlx"], "--group-size is 256, with format mlx it must be 32, 64 or 128"),
            (["--profile", "edge", "--format", "mlx"], "--group-size is 256 in the profile edge, with format mlx it must be 32, 64 or 128"),
            (["--min-accuracy", "nan"], "--min-accuracy is nan"),
            (["--modality", "smell"], "--modality is 'smell'"),
            (["--config", tmp_path / "none.yaml"], "none.yaml"),
            (["--keep", "nobody*"], "--keep 'nobody*' matches no tensor"),
        ):
            refused(run("quantize", model, tmp_path / "out", *options), 2, expected)
        assert run("quantize", model).returncode == 2
        refused(run("dequantize", model, tmp_path / "out", "--dtype", "u8"), 2, "--dtype is U8, it must be F64, F32, F16 or BF16")
        assert run("validate", model, tmp_path / "out", "--min-accuracy", 2).returncode == 2
        assert listing(tmp_path) == ["in.safetensors"]


class TestLayers:
    def test_layers_get_more_bits_until_they_are_good_enough(self, run, model, tmp_path):
        options = ["--bits", 2, "--group-size", 64]
        for accuracy, expected in ((0, (2, 2)), (0.93, (2, 4)), (0.995, (4, 8)), (0.9999, (8, 8))):
            report = quantize(run, model, tmp_path / "out", *options, "--min-accuracy", accuracy, "--validate")
            assert bits_of(report) == dict(zip(("easy.weight", "hard.weight"), expected)), accuracy
            assert all(layer["planned_bits"] == 2 and layer["cosine_similarity"] >= accuracy for layer in report["layers"])
            assert report["passed"] is True
            assert json.loads(run("validate", model, tmp_path / "out", "--json").stdout)["layers"][1]["bits"] == expected[1]
        text = done(run("quantize", model, tmp_path / "out", *options, "--min-accuracy", 0.93)).stdout
        assert "2→4" in text

    def test_what_is_not_good_enough_with_all_bits_is_told(self, run, model, tmp_path):
        report = quantize(run, model, tmp_path / "out", "--min-accuracy", 1)
        assert set(bits_of(report).values()) == {8} and report["passed"] is False
        result = run("quantize", model, tmp_path / "out", "--min-accuracy", 1, "--validate")
        assert result.returncode == 1 and "below --min-accuracy 1 even with 8 bits" in result.stderr

    @pytest.mark.parametrize("format", FORMATS)
    def test_fail_fast_writes_nothing(self, run, model, tmp_path, format):
        options = ["--bits", 2, "--group-size", 64, "--format", format, "--fail-fast"]
        result = run("quantize", model, tmp_path / "out", *options, "--min-accuracy", 0.93)
        refused(result, 1, "'hard.weight': cosine 0.9", "at 2 bits is below --min-accuracy 0.93")
        assert listing(tmp_path) == ["in.safetensors"]
        assert set(bits_of(quantize(run, model, tmp_path / "out", *options, "--min-accuracy", 0.8)).values()) == {2}
        before = contents(tmp_path / "out")
        refused(run("quantize", model, tmp_path / "out", *options, "--min-accuracy", 0.93), 1)
        assert contents(tmp_path / "out") == before

    def test_fail_fast_leaves_nothing_to_resume(self, run, model, tmp_path):
        for format in FORMATS:
            options = ["--bits", 2, "--group-size", 64, "--format", format, "--fail-fast", "--min-accuracy", 0.93, "--resume"]
            for _ in range(2):
                refused(run("quantize", model, tmp_path / "out", *options), 1, "'hard.weight'")
            assert listing(tmp_path) == ["in.safetensors"]

    def test_layers_that_are_kept(self, run, tiny, tmp_path):
        settings = tmp_path / "q.yaml"
        settings.write_text("sensitive_layer_names: ['*.q_proj']\nsensitive_layer_patterns: ['layers\\.[12]\\.mlp']\n")
        report = quantize(run, tiny, tmp_path / "out", "--config", settings, "--keep", "model.layers.3.*", "--keep", "*embed*")
        names = {layer["name"] for layer in report["layers"]}
        kinds = ("mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "self_attn.k_proj", "self_attn.o_proj", "self_attn.v_proj")
        expected = {f"model.layers.{i}.{kind}.weight" for i in range(3) for kind in kinds}
        assert names == {name for name in expected if "mlp" not in name or "layers.0" in name}
        assert report["kept_tensors"] == 46 - len(names)
        report = json.loads(done(run("validate", tiny, tmp_path / "out", "--json")).stdout)
        assert {layer["name"] for layer in report["layers"]} == names

    def test_sensitive_layers_are_skipped_on_request(self, run, tmp_path):
        names = ["embed.weight", "x.ln_1.weight", "lm_head.weight", "a.head.weight", "pooler.weight", "Norm.weight", "mlp.weight"]  # fmt: skip
        rng = np.random.default_rng(2)
        save_file({name: gauss(rng, 32, 64) for name in names}, tmp_path / "in.safetensors")
        settings = tmp_path / "q.yaml"
        settings.write_text("skip_sensitive_layers: true\nlayer_bit_widths: {lm_head: 8}\n")
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", "--config", settings)
        assert bits_of(report) == {"lm_head.weight": 8, "mlp.weight": 4}
        assert len(bits_of(quantize(run, tmp_path / "in.safetensors", tmp_path / "out"))) == len(names)


class TestErrors:
    @pytest.fixture(params=FORMATS)
    def quantized(self, request, run, model, tmp_path):
        """The model, quantized twice, the second time with other values of the same shapes."""
        rng = np.random.default_rng(3)
        other = {"easy.weight": gauss(rng, 200, 256), "hard.weight": gauss(rng, 200, 256), "norm.weight": gauss(rng, 256)}
        save_file(other, tmp_path / "other.safetensors")
        for name, source in (("out", model), ("other", tmp_path / "other.safetensors")):
            quantize(run, source, tmp_path / name, "--format", request.param, "--group-size", 64)
        return tmp_path / "out"

    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
    @pytest.mark.parametrize("value", [np.nan, -np.inf])
    def test_weights_that_are_no_numbers(self, run, tmp_path, format, dtype, value):
        rng = np.random.default_rng(4)
        tensors = {"a.weight": gauss(rng, 64, 128, dtype=dtype), "b.weight": gauss(rng, 64, 128, dtype=dtype)}
        tensors["b.weight"][17, 33] = value
        save_file(tensors, tmp_path / "in.safetensors")
        for method in ("rtn", "search", "hqq"):
            for more in ((), ("--min-accuracy", 0), ("--fail-fast",), ("--resume",)):
                options = ["--format", format, "--method", method, *more]
                result = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *options)
                refused(result, 3, "tensor 'b.weight': 1 of ", "NaN or infinite")
            if method != "rtn":
                break
        assert listing(tmp_path) == ["in.safetensors"]
        # What is not quantized may be anything.
        done(run("quantize", tmp_path / "in.safetensors", tmp_path / "out", "--format", format, "--keep", "b.*"))

    def test_columns_that_groups_of_mlx_do_not_divide(self, run, tmp_path):
        rng = np.random.default_rng(5)
        save_file({"a.weight": gauss(rng, 8, 96), "b.weight": gauss(rng, 8, 100)}, tmp_path / "in.safetensors")
        options = ["--format", "mlx", "--group-size"]
        result = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *options, 64)
        refused(result, 3, "'a.weight' has 96 columns, not a multiple of --group-size 64; use --group-size 32")
        result = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *options, 32)
        refused(result, 3, "'b.weight' has 100 columns, not a multiple of --group-size 32")
        assert listing(tmp_path) == ["in.safetensors"]
        assert bits_of(quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options, 32, "--keep", "b")) == {"a.weight": 4}
        assert len(bits_of(quantize(run, tmp_path / "in.safetensors", tmp_path / "p"))) == 2

    def test_a_config_that_contradicts_the_weights(self, run, model, tmp_path):
        quantize(run, model, tmp_path / "out", "--format", "mlx", "--group-size", 64)
        for section, expected in (
            ({"group_size": 64, "bits": 8}, ("easy.scales", "[200, 4], expected [200, 2]")),
            ({"group_size": 32, "bits": 4}, ("easy.scales", "[200, 4], expected [200, 8]")),
            ({"group_size": 64, "bits": 7}, ("bits is 7",)),
            ({"group_size": 64, "bits": 4, "hard": {"bits": 3}}, ("hard.",)),
            ({"group_size": 64, "bits": 4, "easy": False}, ("'easy.weight' is unquantized",)),
        ):
            (tmp_path / "out/config.json").write_text(json.dumps({"quantization": section}))
            refused(run("validate", model, tmp_path / "out"), 3, *expected)
            refused(run("dequantize", tmp_path / "out", tmp_path / "restored"), 3, *expected)
        (tmp_path / "out/config.json").write_text("{}")
        refused(run("validate", model, tmp_path / "out"), 3, "not a quantized model: no quantization config found")
        (tmp_path / "out/config.json").write_text("{")
        refused(run("dequantize", tmp_path / "out", tmp_path / "restored"), 3, "config.json")
        assert listing(tmp_path) == ["in.safetensors", "out"]

    def test_scales_without_a_weight(self, run, model, tmp_path):
        parts = mx.quantize(mx.zeros((4, 64)), 64, 4)
        for missing, expected in (("weight", "tensor 'a.scales': 'a.weight' or 'a' is missing"), ("scales", "'a.biases': 'a.scales' is missing")):
            folder = tmp_path / missing
            folder.mkdir()
            tensors = {f"a.{name}": part for name, part in zip(("weight", "scales", "biases"), parts) if name != missing}
            mx.save_safetensors(str(folder / "model.safetensors"), tensors)
            (folder / "config.json").write_text('{"quantization": {"group_size": 64, "bits": 4}}')
            for command in (["validate", model, folder], ["dequantize", folder, tmp_path / "restored"]):
                refused(run(*command), 3, expected)
        assert not (tmp_path / "restored").exists()

    def test_validate_of_another_model(self, run, model, quantized, tmp_path, tiny):
        refused(run("validate", tiny, quantized), 3, "missing; ")
        rng = np.random.default_rng(6)
        tensors = {"easy.weight": gauss(rng, 200, 256), "hard.weight": gauss(rng, 100, 512), "norm.weight": gauss(rng, 256)}
        save_file(tensors, tmp_path / "shape.safetensors")
        refused(run("validate", tmp_path / "shape.safetensors", quantized), 3, "'hard.weight': shape is [200, 256]", "[100, 512]")
        tensors |= {"hard.weight": gauss(rng, 200, 256), "norm.weight": gauss(rng, 256, dtype=np.float16)}
        save_file(tensors, tmp_path / "dtype.safetensors")
        refused(run("validate", tmp_path / "dtype.safetensors", quantized), 3, "'norm.weight': dtype is BF16", "it is F16")
        tensors |= {"norm.weight": gauss(rng, 256)}
        del tensors["easy.weight"]
        save_file(tensors, tmp_path / "fewer.safetensors")
        refused(run("validate", tmp_path / "fewer.safetensors", quantized), 3, "'easy.weight': not in")
        # The same shapes: nothing is alike, and what was kept is not the same.
        result = run("validate", tmp_path / "other.safetensors", quantized, "--json")
        report = json.loads(result.stdout)
        assert result.returncode == 1 and report["passed"] is False
        assert abs(report["cosine_similarity"]) < 0.1
        assert report["warnings"] == ["tensor 'norm.weight' is unquantized, but differs from the original"]

    def test_a_directory_that_is_not_quantized(self, run, model, tiny, tmp_path):
        (tmp_path / "empty").mkdir()
        for folder in (tiny, tmp_path / "empty", tmp_path / "none", model):
            refused(run("dequantize", folder, tmp_path / "restored"), 3, folder)
            refused(run("validate", tiny, folder), 3, folder)
        refused(run("quantize", tmp_path / "none", tmp_path / "restored"), 3, tmp_path / "none")
        assert listing(tmp_path) == ["empty", "in.safetensors"]

    def test_metadata_of_parquet_that_is_missing_or_wrong(self, run, model, tmp_path):
        quantize(run, model, tmp_path / "out")
        path = tmp_path / "out/metadata.json"
        good = json.loads(path.read_text())
        (part,) = good["parts"]
        for text, expected in (
            (None, tmp_path / "out"),
            ("", tmp_path / "out"),
            ('{"format": "parquet_v2_extended"', "metadata.json"),
            (json.dumps(good | {"format": "x"}), tmp_path / "out"),
            (json.dumps(good | {"version": 3}), "the version is not 2"),
            (json.dumps(good | {"parts": 1}), "no list 'parts'"),
            (json.dumps(good | {"parts": []}), "tensor_count is 3, the parts have 0"),
            (json.dumps(good | {"parts": [part, part]}), "'easy.weight'"),
            (json.dumps(good | {"parts": [part | {"file": "../x.parquet"}]}), "'../x.parquet'"),
            (json.dumps(good | {"parts": [part | {"file": "x.parquet"}]}), "x.parquet"),
            (json.dumps(good | {"parts": [part | {"bytes": 1}]}), "says 1"),
        ):
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text)
            refused(run("validate", model, tmp_path / "out"), 3, expected)
        assert listing(tmp_path) == ["in.safetensors", "out"]

    def test_files_of_weights_that_are_cut_or_missing(self, run, model, quantized, tmp_path):
        (weights,) = [file for file in quantized.iterdir() if file.name.startswith("model") and "index" not in file.name]
        whole = weights.read_bytes()
        for size in (0, 3, 1000, len(whole) // 2, len(whole) - 1):
            weights.write_bytes(whole[:size])
            refused(run("validate", model, quantized), 3, weights.name)
            refused(run("dequantize", quantized, tmp_path / "restored"), 3, weights.name)
        weights.unlink()
        refused(run("dequantize", quantized, tmp_path / "restored"), 3, weights.name)
        assert not (tmp_path / "restored").exists()

    def test_a_part_of_another_model(self, run, model, tmp_path):
        """Of the same size, so that only what is in it can tell."""
        rng = np.random.default_rng(7)
        for name, layer in (("a", "one.weight"), ("b", "two.weight")):
            save_file({layer: gauss(rng, 64, 256)}, tmp_path / f"{name}.safetensors")
            quantize(run, tmp_path / f"{name}.safetensors", tmp_path / name)
        part = "model-00001-of-00001.parquet"
        swapped = (tmp_path / "b" / part).read_bytes()
        (tmp_path / "a" / part).write_bytes(swapped)
        metadata = json.loads((tmp_path / "a/metadata.json").read_text())
        metadata["parts"][0]["bytes"] = len(swapped)
        (tmp_path / "a/metadata.json").write_text(json.dumps(metadata))
        refused(run("validate", tmp_path / "a.safetensors", tmp_path / "a"), 3, "'one.weight': missing")

    def test_a_damaged_page(self, run, model, tmp_path):
        quantize(run, model, tmp_path / "out")
        part = tmp_path / "out/model-00001-of-00001.parquet"
        data = bytearray(part.read_bytes())
        data[len(data) // 3] ^= 1
        part.write_bytes(data)
        refused(run("validate", model, tmp_path / "out"), 3, part)
        refused(run("dequantize", tmp_path / "out", tmp_path / "restored"), 3, part)
        assert not (tmp_path / "restored").exists()

    @pytest.mark.parametrize("format", FORMATS)
    def test_targets_that_cannot_be(self, run, model, tmp_path, format):
        (tmp_path / "file").write_text("x")
        options = ["--format", format]
        refused(run("quantize", model, tmp_path / "file", *options), 4, tmp_path / "file", "is not a directory")
        refused(run("quantize", model, tmp_path / "no/such", *options), 4, "No such file")
        refused(run("quantize", model, tmp_path / "file/out", *options), 4, tmp_path / "file")
        assert (tmp_path / "file").read_text() == "x"
        for more in ([], ["--resume"]):
            refused(run("quantize", model, "/proc/out", *options, *more), 4, "/proc/out")
        assert listing(tmp_path) == ["file", "in.safetensors"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone who may not write")
    @pytest.mark.parametrize("format", FORMATS)
    def test_permissions(self, run, model, public_path, format):
        model = Path(shutil.copy(model, public_path))
        model.chmod(0o644)
        quantize(run, model, public_path / "out", "--format", format)
        before = contents(public_path / "out")
        for out in ("out", "new"):
            for more in ([], ["--resume"]):
                options = ["--format", format, "--bits", 8, *more]
                refused(run("quantize", model, public_path / out, *options, user=NOBODY), 4, public_path / out)
        refused(run("dequantize", public_path / "out", public_path / "new", user=NOBODY), 4, "Permission denied")
        assert contents(public_path / "out") == before and listing(public_path) == ["in.safetensors", "out"]

    @pytest.mark.parametrize("format", FORMATS)
    def test_disk_full(self, run, build_dir, tmp_path, format):
        disk = tmp_path / "disk"
        disk.mkdir()
        rng = np.random.default_rng(8)
        save_file({f"{i}.weight": gauss(rng, 512, 1024) for i in range(6)}, tmp_path / "in.safetensors")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode == 0:
            try:
                for more in ([], ["--resume"]):
                    result = run("quantize", tmp_path / "in.safetensors", disk / "out", "--format", format, *more)
                    refused(result, 4, "No space left on device", disk / "out")
                assert set(listing(disk)) <= {"out.incomplete"}
                (disk / "out.incomplete/journal").unlink(missing_ok=True)
                for file in (disk / "out.incomplete").iterdir():
                    file.unlink()
                (disk / "out.incomplete").rmdir()
                refused(run("quantize", tmp_path / "in.safetensors", disk / "out", "--format", format), 4, "No space left")
                assert listing(disk) == []
            finally:
                subprocess.run(["umount", disk], check=True)
        # A limit on the size of files fails in the same places, and needs no privilege.
        limited = f"ulimit -f 500; exec {build_dir}/ballast quantize {tmp_path}/in.safetensors {disk}/out --format {format}"
        refused(subprocess.run(["bash", "-c", limited], capture_output=True, text=True), 4, "File too large")
        quantize(run, tmp_path / "in.safetensors", tmp_path / "out", "--format", format)
        limited = f"ulimit -f 500; exec {build_dir}/ballast dequantize {tmp_path}/out {disk}/out"
        refused(subprocess.run(["bash", "-c", limited], capture_output=True, text=True), 4, "File too large")
        assert listing(disk) == []

    def test_values_too_far_apart(self, run, tmp_path):
        weight = np.zeros((2, 128), np.float32)
        weight[0, :2] = 3e38, -3e38
        save_file({"a.weight": weight}, tmp_path / "in.safetensors")
        for format in FORMATS:
            result = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", "--format", format, "--method", "rtn")
            refused(result, 3, "tensor 'a.weight'", "too large for the scale of a group")
        assert listing(tmp_path) == ["in.safetensors"]

    def test_a_model_that_is_quantized_already(self, run, model, quantized, tmp_path):
        for format in FORMATS:
            result = done(run("quantize", quantized, tmp_path / format, "--format", format, "--group-size", 64))
            assert " weights were dequantized first\n" in result.stderr
            done(run("validate", quantized, tmp_path / format))

    @pytest.mark.parametrize("format", FORMATS)
    def test_models_with_nothing_to_quantize(self, run, tmp_path, format):
        for name, tensors in (("none", {}), ("empty", {"a": np.zeros((0, 4), np.float32)}), ("ids", {"a": np.arange(6).reshape(2, 3)})):
            source, out = tmp_path / f"{name}.safetensors", tmp_path / name
            save_file(tensors, source)
            assert quantize(run, source, out, "--format", format, "--validate")["layers"] == []
            done(run("dequantize", out, tmp_path / "restored.safetensors"))
            assert read_safetensors(tmp_path / "restored.safetensors").keys() == tensors.keys()

    @pytest.mark.parametrize("other", ["a.scales", "a.biases", "x.biases"])
    def test_names_that_mlx_would_take_for_parts(self, run, tmp_path, other):
        rng = np.random.default_rng(9)
        save_file({"a.weight": gauss(rng, 8, 128), other: gauss(rng, 128)}, tmp_path / "in.safetensors")
        refused(run("quantize", tmp_path / "in.safetensors", tmp_path / "out", "--format", "mlx"), 3, other)
        assert listing(tmp_path) == ["in.safetensors"]
        quantize(run, tmp_path / "in.safetensors", tmp_path / "out")
        assert read_parquet(tmp_path / "out").keys() == {"a.weight", other}

    def test_the_source_is_not_overwritten(self, run, tmp_path):
        save_file({"a.weight": gauss(np.random.default_rng(6), 8, 128)}, tmp_path / "model.safetensors")
        refused(run("quantize", tmp_path, tmp_path), 2, "the model is read from here")
        assert listing(tmp_path) == ["model.safetensors"]

    @pytest.mark.parametrize("format", FORMATS)
    def test_values_whose_squares_no_float_holds(self, run, tmp_path, format):
        weight = (np.random.default_rng(7).standard_normal((64, 128)) * 1e-25).astype(np.float32)
        save_file({"w.weight": weight}, tmp_path / "in.safetensors")
        refused(run("quantize", tmp_path / "in.safetensors", tmp_path / "out", "--format", format, "--fail-fast"), 1, "cosine 0.00000")

    def test_doubles_that_no_float_holds(self, run, tmp_path):
        save_file({"w.weight": np.full((8, 128), 1e300)}, tmp_path / "in.safetensors")
        refused(run("quantize", tmp_path / "in.safetensors", tmp_path / "out", "--format", "mlx"), 3, "values of F64 in rows 0 to 7 are too large for F32")

    def test_a_config_that_is_no_file(self, run, model, tmp_path):
        for path in ("/", "/dev/zero"):
            refused(run("quantize", model, tmp_path / "out", "--config", path), 2, f"--config {path}: not a regular file")
        refused(run("quantize", model, tmp_path / "out", "--config", tmp_path / "none"), 2, "none: cannot open: No such file")

    def test_another_source_of_the_same_shape_and_age_is_quantized_again(self, run, tmp_path):
        rng = np.random.default_rng(8)
        source = tmp_path / "in.safetensors"
        for _ in range(2):
            save_file({"a.weight": gauss(rng, 64, 128)}, source)
            os.utime(source, (1.5e9, 1.5e9))
            done(run("quantize", source, tmp_path / "out", "--resume"))
            done(run("validate", source, tmp_path / "out", "--min-accuracy", 0.9))
