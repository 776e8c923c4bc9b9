"""ballast evaluate and calibrate on small language models."""

import json
import subprocess

import numpy
import pytest
from conftest import one_error_line
from processes import count_calls, signal_at
from safetensors.numpy import load_file, save_file


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "ids.npy"
    numpy.save(path, numpy.random.default_rng(1).integers(0, 256, (4, 32), dtype=numpy.int32))
    return path


@pytest.fixture(scope="module")
def language_model(make_model):
    return make_model("--preset", "tiny", "--set", "vocab_size=256", "--values", "outliers", "--dtype", "f32")


@pytest.fixture
def copy(language_model, tmp_path):
    """copy(config or change of the tensors) -> a changed copy of the model."""

    def copy(config=None, change=None):
        out = tmp_path / "copy"
        out.mkdir()
        tensors = {name: value.copy() for name, value in load_file(language_model / "model.safetensors").items()}
        if change:
            change(tensors)
        save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
        known = json.loads((language_model / "config.json").read_text())
        (out / "config.json").write_text(json.dumps(known | (config or {})))
        return out

    return copy


def evaluate(run, *arguments):
    done = run("evaluate", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestEvaluate:
    def test_model_is_equal_to_itself(self, run, language_model, tokens):
        found = evaluate(run, language_model, "--tokens", tokens, "--against", language_model)
        assert found["tokens"] == 4 * 31 and found["windows"] == 4 and found["length"] == 32
        assert found["kl_mean"] == 0 and found["kl_p99"] == 0 and found["top1_agreement"] == 1
        assert found["perplexity_ratio"] == 1 and set(found["layer_errors"]) == {0}
        assert found["perplexity"] > 1 and found["perplexity_stderr"] > 0

    def test_fewer_bits_are_further_from_the_original(self, run, language_model, tokens, tmp_path):
        found = {}
        for bits in (2, 4, 8):
            out = tmp_path / str(bits)
            assert run("quantize", language_model, out, "--format", "mlx", "--bits", bits, "--group-size", 64, "--min-accuracy", 0).returncode == 0
            found[bits] = evaluate(run, out, "--tokens", tokens, "--against", language_model)
        assert found[2]["kl_mean"] > found[4]["kl_mean"] > found[8]["kl_mean"] > 0
        assert found[2]["top1_agreement"] < found[8]["top1_agreement"]
        assert found[2]["original_perplexity"] == found[8]["original_perplexity"]
        assert len(found[2]["layer_errors"]) == 4

    def test_memory_limit_and_threads_change_only_the_last_digits(self, run, language_model, tokens):
        plain = evaluate(run, language_model, "--tokens", tokens)
        small = evaluate(run, language_model, "--tokens", tokens, "--memory-limit", 64, "--threads", 1)
        assert small["perplexity"] == pytest.approx(plain["perplexity"], rel=1e-5)

    def test_tokens_in_one_dimension_are_cut_into_windows(self, run, language_model, tmp_path):
        path = tmp_path / "ids.txt"
        path.write_text(" ".join(map(str, range(100))))
        done = run("evaluate", language_model, "--tokens", path, "--length", 30)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "note: the last 10 tokens fill no window of 30 and are not used\n"
        assert "87 tokens scored in 3 windows of 30" in done.stdout

    def test_text_needs_the_python_package(self, run, language_model, tokens):
        result = run("evaluate", language_model, "--text", tokens)
        one_error_line(result, 2)
        assert "--tokens" in result.stderr and "pip install 'ballast[text]'" in result.stderr


class TestBadInput:
    def refused(self, run, model, tokens, message, code=3, *more):
        result = run("evaluate", model, "--tokens", tokens, *more)
        one_error_line(result, code)
        assert message in result.stderr, result.stderr

    def test_tokens_out_of_range(self, run, language_model, tmp_path):
        numpy.save(tmp_path / "ids.npy", numpy.array([1, 2, 256]))
        self.refused(run, language_model, tmp_path / "ids.npy",
                     "ids.npy: token 2 is 256, but the model has a vocabulary of 256: it was tokenized for another model")  # fmt: skip

    def test_empty_text(self, run, language_model, tmp_path):
        (tmp_path / "ids.txt").write_text("")
        self.refused(run, language_model, tmp_path / "ids.txt", "ids.txt: 0 tokens; at least 2 are needed")

    def test_other_architectures_are_named_with_those_that_work(self, run, copy, tokens):
        self.refused(run, copy({"model_type": "mamba"}), tokens, "model_type 'mamba' is not supported; Ballast can run llama, mistral")

    def test_nan_weights_name_the_tensor(self, run, copy, tokens):
        def change(tensors):
            tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = numpy.nan

        self.refused(run, copy(change=change), tokens, "tensor 'model.layers.1.mlp.up_proj.weight': has values that are NaN or infinite")

    def test_nan_hidden_states_name_the_layer(self, run, copy, tokens):
        def change(tensors):
            for name in ("gate", "up", "down"):
                tensors[f"model.layers.2.mlp.{name}_proj.weight"] = numpy.full_like(tensors[f"model.layers.2.mlp.{name}_proj.weight"], 1e38)

        self.refused(run, copy(change=change), tokens, "layer 2: hidden states are NaN or infinite")

    def test_shapes_that_the_config_does_not_imply(self, run, copy, tokens):
        self.refused(run, copy({"intermediate_size": 100}), tokens, "shape [192, 64], the config implies [100, 64]")

    def test_models_that_cannot_be_compared(self, run, language_model, make_model, tokens):
        other = make_model("--preset", "tiny", "--set", "vocab_size=256", "--set", "num_hidden_layers=2")
        self.refused(run, language_model, tokens, "only a model and its original can be compared", 2, "--against", other)


def attention_received(x, tensors, config, length):
    """How much attention each token of the first layer receives: the mean of the heads."""
    heads, shared = config["num_attention_heads"], config["num_attention_heads"] // config["num_key_value_heads"]
    size = config.get("head_dim", config["hidden_size"] // heads)
    angles = numpy.arange(length)[:, None] / config.get("rope_theta", 10000.0) ** (numpy.arange(0, size, 2) / size)

    def turned(part):
        values = x @ tensors[f"model.layers.0.self_attn.{part}_proj.weight"].T
        values = values.reshape(-1, length, heads if part == "q" else heads // shared, size)
        values = values / numpy.sqrt((values * values).mean(-1, keepdims=True) + 1e-6) * tensors[f"model.layers.0.self_attn.{part}_norm.weight"]
        first, second = numpy.split(values.swapaxes(1, 2), 2, -1)
        turns = numpy.cos(angles), numpy.sin(angles)
        return numpy.concatenate([first * turns[0] - second * turns[1], second * turns[0] + first * turns[1]], -1)

    scores = turned("q") @ turned("k").repeat(shared, 1).swapaxes(2, 3) / numpy.sqrt(size)
    scores = numpy.exp(scores) * numpy.tri(length)
    return (scores / scores.sum(-1, keepdims=True)).sum(2).mean(1).ravel()


class TestCalibrate:
    def test_statistics_are_those_of_the_layers_inputs(self, run, language_model, tokens, tmp_path):
        done = run("calibrate", language_model, "-o", tmp_path / "s.safetensors", "--tokens", tokens, "--hessian", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        statistics = load_file(tmp_path / "s.safetensors")
        assert found["weights"] == 28 == len([name for name in statistics if name.endswith(".count")])
        assert not (tmp_path / "s.safetensors.incomplete").exists()
        # The inputs of the first layer follow from the embedding alone.
        tensors = load_file(language_model / "model.safetensors")
        x = tensors["model.embed_tokens.weight"][numpy.load(tokens).ravel()].astype(numpy.float64)
        x = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * tensors["model.layers.0.input_layernorm.weight"]
        # In the Hessian, a token counts for itself and for those that attend to it.
        config = json.loads((language_model / "config.json").read_text())
        counts = (1 + attention_received(x, tensors, config, length=32)) / 2
        assert counts.mean() == pytest.approx(1) and counts.max() > 1.5
        for part in ("q", "k", "v"):
            base = f"model.layers.0.self_attn.{part}_proj.weight."
            numpy.testing.assert_allclose(statistics[base + "x_mean"], x.mean(0), atol=1e-5)
            numpy.testing.assert_allclose(statistics[base + "x_sqmean"], (x * x).mean(0), rtol=1e-4)
            numpy.testing.assert_allclose(statistics[base + "hessian"], (x.T * counts) @ x / len(x), atol=1e-4)
            assert statistics[base + "count"] == [128]
            assert statistics[base + "x_max"][0] == pytest.approx(x.max(), rel=1e-5)

    def test_quantize_takes_them(self, run, language_model, tokens, tmp_path):
        assert run("calibrate", language_model, "-o", tmp_path / "s.safetensors", "--tokens", tokens, "--hessian").returncode == 0
        errors = {}
        for name, more in {"without": [], "with": ["--calibration", tmp_path / "s.safetensors"]}.items():
            quantized = run("quantize", language_model, tmp_path / name, "--format", "mlx", "--bits", 3, "--group-size", 64, "--min-accuracy", 0, *more)
            assert quantized.returncode == 0, quantized.stderr
            errors[name] = evaluate(run, tmp_path / name, "--tokens", tokens, "--against", language_model)["kl_mean"]
        assert errors["with"] < errors["without"]

    @pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
    def test_killed_run_resumes_to_the_same_statistics(self, build_dir, language_model, tokens, tmp_path, share):
        def command(out):
            return [build_dir / "ballast", "calibrate", language_model, "-o", out, "--tokens", tokens, "--resume"]

        whole, part = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
        calls = count_calls(command(whole), "linkat")
        assert calls >= 9  # two files for each layer, and the result
        assert signal_at(command(part), "linkat", int(share * calls)) == -9
        assert not part.exists() and part.with_name("part.safetensors.incomplete").is_dir()
        done = subprocess.run([*command(part), "--json"], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["resumed_layers"] >= 1
        assert part.read_bytes() == whole.read_bytes()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["part.safetensors", "whole.safetensors"]

    def test_out_must_be_safetensors(self, run, language_model, tokens, tmp_path):
        result = run("calibrate", language_model, "-o", tmp_path / "stats", "--tokens", tokens)
        one_error_line(result, 2)
        assert "statistics are a .safetensors file; give such a name" in result.stderr


class TestCalibrationTokens:
    def quantized(self, run, model, out, *more, format="mlx"):
        options = ["--format", format, "--bits", 3, "--group-size", 64, "--min-accuracy", 0, *more]
        done = run("quantize", model, out, *options, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def test_layers_compensate_for_those_before_them(self, run, language_model, tokens, tmp_path):
        self.quantized(run, language_model, tmp_path / "plain")
        found = self.quantized(run, language_model, tmp_path / "calibrated", "--calibration-tokens", tokens)
        assert {layer["method"] for layer in found["layers"]} == {"gptq", "auto"}
        assert found["calibration"]["covered"] == 28
        assert any("calibrated with 128 tokens" in note for note in found["notes"])
        assert sorted(path.name for path in tmp_path.iterdir()) == ["calibrated", "plain"]
        errors = [evaluate(run, tmp_path / name, "--tokens", tokens, "--against", language_model)["kl_mean"] for name in ("plain", "calibrated")]
        assert errors[1] < errors[0]

    def test_later_layers_see_the_inputs_of_quantized_ones(self, run, language_model, tokens, tmp_path):
        """With a statistics file, the inputs are those of the model as it is, so all but the first layer differ."""
        assert run("calibrate", language_model, "-o", tmp_path / "s.safetensors", "--tokens", tokens, "--hessian").returncode == 0
        self.quantized(run, language_model, tmp_path / "file", "--calibration", tmp_path / "s.safetensors")
        self.quantized(run, language_model, tmp_path / "tokens", "--calibration-tokens", tokens)
        file, sequential = (load_file(tmp_path / name / "model.safetensors") for name in ("file", "tokens"))
        name = "model.layers.{}.self_attn.q_proj.weight"
        assert numpy.array_equal(file[name.format(0)], sequential[name.format(0)])
        assert not numpy.array_equal(file[name.format(3)], sequential[name.format(3)])

    @pytest.mark.parametrize("format", ["mlx", "parquet"])
    def test_bits_for_a_target_size_are_chosen_by_the_outputs(self, run, language_model, tokens, tmp_path, format):
        """First with the inputs of the original; then each layer compensates for those before it, in just these bits."""
        uniform = self.quantized(run, language_model, tmp_path / "uniform", "--calibration-tokens", tokens, format=format)
        options = ["--calibration-tokens", tokens, "--target-size-mb", uniform["bytes"] / 1e6]
        more = ["--group-size", 64, "--format", format, "--dry-run", "--json"]
        planned = run("quantize", language_model, tmp_path / "chosen", *options, *more)
        assert planned.returncode == 0, planned.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["uniform"]
        plan = json.loads(planned.stdout)
        found = self.quantized(run, language_model, tmp_path / "chosen", *options, format=format)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["chosen", "uniform"]
        assert found["bytes"] <= uniform["bytes"]
        assert {layer["name"]: layer["bits"] for layer in found["layers"]} == {
            layer["name"]: layer["bits"] for layer in plan["layers"] if layer["bits"]
        }
        assert len({layer["bits"] for layer in found["layers"]}) > 1
        assert plan["size_fit"]["error_of"] == "outputs" and found["size_fit"]["error"] < 1.5 * plan["size_fit"]["expected_error"]
        kl = {}
        for name in ("uniform", "chosen"):
            kl[name] = evaluate(run, tmp_path / name, "--tokens", tokens, "--against", language_model)["kl_mean"]
        assert kl["chosen"] < kl["uniform"]

    def test_occupied_output_is_refused_before_the_model_runs(self, run, copy, tokens, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "thesis.txt").write_text("")
        result = run("quantize", copy({"model_type": "mamba"}), tmp_path / "out", "--calibration-tokens", tokens)
        one_error_line(result, 4)
        assert "thesis.txt" in result.stderr

    @pytest.mark.parametrize(
        "options, message",
        [
            (["--method", "rtn"], "--method is rtn, --calibration-tokens needs auto or search"),
            (["--calibration", "x.safetensors"], "--calibration and --calibration-tokens cannot be used together"),
        ],
    )
    def test_options_that_exclude_them(self, run, language_model, tokens, tmp_path, options, message):
        result = run("quantize", language_model, tmp_path / "out", "--calibration-tokens", tokens, *options)
        one_error_line(result, 2)
        assert message in result.stderr
        assert list(tmp_path.iterdir()) == []

    def test_models_that_cannot_run_are_refused_before_anything_is_written(self, run, copy, tokens, tmp_path):
        result = run("quantize", copy({"model_type": "mamba"}), tmp_path / "out", "--calibration-tokens", tokens)
        one_error_line(result, 3)
        assert "model_type 'mamba' is not supported" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["copy"]
