"""quantize with statistics of activations: less error of the outputs, measured with numpy on inputs that were not recorded, from
the files read back; groups of timesteps; columns that are scaled; and which layers of diffusion models are spared."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from calibrated_models import (
    FORMATS, after_gelu, changing, column_scales, correlated, decode, decode_parquet, dequantized, independent, load, outliers,
    output_errors, parquet_rows, percent, record, settings, time_parameters,
)  # fmt: skip
from quantized_files import BF16, contents, done, figures, gauss, quantize
from safetensors.numpy import save_file

TIMESTEPS = range(0, 1000, 40)
PLAIN = ["--group-size", 64, "--min-accuracy", 0]


def quantized_errors(run, layers, out, *options, statistics=None, held_out=None):
    """The report of a run, and what is wrong with the outputs then."""
    calibration = [] if statistics is None else ["--calibration", statistics]
    report = quantize(run, layers.path, out, *PLAIN, *options, *calibration)
    return report, output_errors(run, out, layers.weights, held_out or layers.held_out)


def methods(report):
    return {layer["name"]: layer["method"] for layer in report["layers"]}


def without_keys(files):
    """JSON documents, of which the settings and the hash of them are left out."""
    for name, data in files.items():
        if name == "metadata.json":
            document = json.loads(data)
            del document["config"]["num_time_groups"], document["key"]
            files[name] = document
        if name == "model.safetensors.index.json":
            files[name] = json.loads(data)
            del files[name]["metadata"]["ballast_key"]
    return files


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """Layers whose inputs go together and have outliers, with statistics of 4096 inputs."""
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("layers")
    shapes = {"attention.weight": (256, 512), "mlp.weight": (192, 768)}
    weights = {name: gauss(rng, *shape) for name, shape in shapes.items()}
    save_file(weights, folder / "in.safetensors")
    draws = {name: correlated(rng, shape[1]) for name, shape in shapes.items()}
    recorded = {(name, None): draw(4096) for name, draw in draws.items()}
    return SimpleNamespace(
        path=folder / "in.safetensors",
        weights=weights,
        recorded=recorded,
        plain=record(folder / "plain.safetensors", recorded),
        hessian=record(folder / "hessian.safetensors", recorded, hessian=True),
        held_out={(name, None): draw(1024) for name, draw in draws.items()},
    )


class TestOutputError:
    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("bits", [2, 3, 4])
    def test_less_than_without_statistics(self, run, layers, tmp_path, format, bits):
        options = ["--format", format, "--bits", bits]
        _, rtn = quantized_errors(run, layers, tmp_path / "rtn", *options, "--method", "rtn")
        _, search = quantized_errors(run, layers, tmp_path / "search", *options)
        weighted_report, weighted = quantized_errors(run, layers, tmp_path / "weighted", *options, statistics=layers.plain)
        gptq_report, gptq = quantized_errors(run, layers, tmp_path / "gptq", *options, statistics=layers.hessian)
        assert set(methods(weighted_report).values()) == {"weighted search"} and set(methods(gptq_report).values()) == {"gptq"}
        for name in layers.weights:
            assert percent(search, rtn, name) > 80
            assert percent(weighted, rtn, name) <= 70, name
            assert percent(gptq, rtn, name) <= 55, name

    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("kind", [
        "plain",
        "hessian",
    ])  # fmt: skip
    def test_the_report_tells_what_numpy_finds(self, run, layers, tmp_path, format, kind):
        options = [*PLAIN, "--format", format, "--calibration", getattr(layers, kind)]
        report = quantize(run, layers.path, tmp_path / "out", *options)
        nothing = {"timesteps": 0, "recorded_timesteps": 0, "time_groups": 1, "boundaries": []}
        assert report["calibration"] == {"covered": 2, "uncovered": []} | nothing
        validated = json.loads(done(run("validate", layers.path, tmp_path / "out", "--json")).stdout)
        for ours, theirs in zip(report["layers"], validated["layers"]):
            assert ours["cosine_similarity"] == theirs["cosine_similarity"] and theirs["output_error"] is None
        restored = decode(tmp_path / "out", report)
        for layer in report["layers"]:
            weight, x = layers.weights[layer["name"]].astype(np.float64), layers.recorded[layer["name"], None]
            error, squares = restored[layer["name"]] - weight, np.mean(x**2, axis=0)
            wrong = np.sum(error**2 * squares) if kind == "plain" else np.sum((x @ error.T) ** 2) / len(x)
            assert layer["output_error"] == pytest.approx(np.sqrt(wrong / np.sum(weight**2 * squares)), rel=1e-5)

    @pytest.mark.parametrize("format", FORMATS)
    def test_other_layers_are_as_without(self, run, layers, tmp_path, format):
        some = {key: x for key, x in layers.recorded.items() if key[0] == "mlp.weight"}
        statistics = record(tmp_path / "s.safetensors", some)
        options = [*PLAIN, "--format", format]
        before = quantize(run, layers.path, tmp_path / "before", *options)
        after = quantize(run, layers.path, tmp_path / "after", *options, "--calibration", statistics)
        assert methods(after) == {"attention.weight": "auto", "mlp.weight": "weighted search"}
        assert (after["calibration"]["covered"], after["calibration"]["uncovered"]) == (1, ["attention.weight"])
        for report in (before, after):
            report["layers"] = {layer.pop("name"): layer for layer in report["layers"]}
        assert after["layers"]["attention.weight"] == before["layers"]["attention.weight"]
        restored = [dequantized(run, tmp_path / out) for out in ("before", "after")]
        assert restored[0]["attention.weight"].tobytes() == restored[1]["attention.weight"].tobytes()
        assert restored[0]["mlp.weight"].tobytes() != restored[1]["mlp.weight"].tobytes()
        text = done(run("quantize", layers.path, tmp_path / "after", *options, "--calibration", statistics)).stdout
        assert "statistics for 1 of 2 layers" in text and "no statistics for attention.weight" in text

    # Columns that are quiet must neither be drowned by loud ones nor be moved far to make good for them.
    @pytest.mark.parametrize("spread", [1, 1.5])
    @pytest.mark.parametrize("power", [0, 0.5, 1])
    def test_a_hessian_is_better_whatever_the_columns_are_like(self, run, tmp_path, spread, power):
        rng = np.random.default_rng(6)
        mix, loud, name = rng.standard_normal((96, 512)) * 0.1, np.exp(rng.normal(0, spread, 512)), "a.weight"
        draw = lambda count: (rng.standard_normal((count, 96)) @ mix + 0.3 * rng.standard_normal((count, 512))) * loud
        weights = {name: (gauss(rng, 128, 512, dtype=np.float32) / loud**power).astype(BF16)}
        case = SimpleNamespace(path=tmp_path / "in.safetensors", weights=weights, held_out={(name, None): draw(2048)})
        save_file(weights, case.path)
        inputs = {(name, None): draw(4096)}
        plain, hessian = (record(tmp_path / f"{kind}.safetensors", inputs, hessian=kind) for kind in (False, True))
        for bits in (3, 4):
            _, weighted = quantized_errors(run, case, tmp_path / "weighted", "--bits", bits, statistics=plain)
            _, gptq = quantized_errors(run, case, tmp_path / "gptq", "--bits", bits, statistics=hessian)
            assert percent(gptq, weighted, name) <= 85

    def test_timesteps_that_are_left_out_do_not_weaken_a_hessian(self, run, tmp_path):
        rng = np.random.default_rng(7)
        draw = changing(rng, 256)
        save_file({"a.weight": gauss(rng, 64, 256)}, tmp_path / "in.safetensors")
        statistics = record(tmp_path / "s.safetensors", {("a.weight", t): draw(8, t) for t in range(0, 1000, 5)}, hessian=True)
        codes = []
        for samples in (200, 20):
            options = [*PLAIN, "--format", "mlx", *settings(tmp_path / "q.yaml", calibration_samples=samples)]
            quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options, "--calibration", statistics)
            codes.append((tmp_path / "out/model.safetensors").read_bytes())
        assert codes[0] == codes[1]

    def test_inputs_at_timesteps_that_are_left_out(self, run, tmp_path):
        rng = np.random.default_rng(8)
        save_file({"a.weight": gauss(rng, 64, 128), "b.weight": gauss(rng, 64, 128)}, tmp_path / "in.safetensors")
        inputs = {("a.weight", t): rng.standard_normal((4, 128)) for t in range(9)}
        inputs |= {("b.weight", t): rng.standard_normal((4, 128)) for t in range(1, 9, 2)}
        statistics = record(tmp_path / "s.safetensors", inputs)
        for samples, used in ((5, ["weighted search", "auto"]), (9, ["weighted search"] * 2)):
            options = [*PLAIN, *settings(tmp_path / "q.yaml", calibration_samples=samples), "--calibration", statistics]
            report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options)
            assert list(methods(report).values()) == used
            expected = ["1 of the weights, such as 'b.weight', had no inputs at the 5 timesteps that are used; raise calibration_samples"]
            assert report["warnings"] == (expected if samples == 5 else [])

    def test_a_hessian_of_few_inputs_does_no_harm(self, run, tmp_path):
        rng = np.random.default_rng(5)
        draw, name = independent(rng, 512), "a.weight"
        few = SimpleNamespace(path=tmp_path / "in.safetensors", weights={name: gauss(rng, 256, 512)})
        few.held_out = {(name, None): draw(1024)}
        save_file(few.weights, few.path)
        statistics = record(tmp_path / "s.safetensors", {(name, None): draw(256)}, hessian=True)
        _, search = quantized_errors(run, few, tmp_path / "search")
        _, calibrated = quantized_errors(run, few, tmp_path / "calibrated", statistics=statistics)
        assert percent(calibrated, search, name) <= 105


@pytest.fixture(scope="module")
def drifting(tmp_path_factory):
    """Layers whose inputs change with the timestep, 128 inputs at each of 25; and the same inputs at timesteps by chance."""
    rng = np.random.default_rng(2)
    folder = tmp_path_factory.mktemp("drifting")
    draws = {"gelu.weight": after_gelu(rng, 512), "changing.weight": changing(rng, 512)}
    weights = {name: gauss(rng, 256, 512) for name in draws}
    save_file(weights, folder / "in.safetensors")
    recorded = {(name, t): draw(128, t) for name, draw in draws.items() for t in TIMESTEPS}
    shuffled = {}
    for name in draws:
        rows = rng.permutation(np.concatenate([recorded[name, t] for t in TIMESTEPS]))
        shuffled |= {(name, t): rows[i :: len(TIMESTEPS)] for i, t in enumerate(TIMESTEPS)}
    return SimpleNamespace(
        path=folder / "in.safetensors",
        weights=weights,
        recorded=recorded,
        timed=record(folder / "timed.safetensors", recorded),
        shuffled=record(folder / "shuffled.safetensors", shuffled),
        held_out={(name, t): draw(128, t) for name, draw in draws.items() for t in TIMESTEPS},
    )


@pytest.mark.parametrize("format", FORMATS)
class TestTimeAware:
    @pytest.mark.parametrize("bits", [2, 4])
    def test_less_error_at_every_timestep(self, run, drifting, tmp_path, format, bits):
        options = ["--format", format, "--bits", bits, "--modality", "text"]
        _, rtn = quantized_errors(run, drifting, tmp_path / "rtn", *options, "--method", "rtn")
        report, timed = quantized_errors(run, drifting, tmp_path / "timed", *options, statistics=drifting.timed)
        assert report["calibration"]["time_groups"] == 10
        for key in rtn:
            assert 100 * np.sqrt(timed[key] / rtn[key]) <= 75, key

    def test_more_groups_are_better_if_the_timesteps_are_true(self, run, drifting, tmp_path, format):
        def errors(statistics, groups):
            options = settings(tmp_path / "q.yaml", enable_time_aware=True, num_time_groups=groups)
            report, found = quantized_errors(run, drifting, tmp_path / "out", "--format", format, *options, statistics=statistics)
            assert report["calibration"]["time_groups"] == groups
            assert len(report["calibration"]["boundaries"]) == groups - 1
            return found

        one, eight, shuffled = errors(drifting.timed, 1), errors(drifting.timed, 8), errors(drifting.shuffled, 8)
        assert percent(eight, one, "gelu.weight") <= 95
        assert percent(shuffled, one, "gelu.weight") == pytest.approx(100, abs=1.5)
        assert percent(eight, shuffled, "gelu.weight") <= 95
        assert percent(eight, one, "changing.weight") <= 100.5

    def test_biases_make_up_for_the_error_at_the_groups_means(self, run, drifting, tmp_path, format):
        options = settings(tmp_path / "q.yaml", enable_time_aware=True, num_time_groups=8, enable_spatial=True)
        options += ["--format", format, "--calibration", drifting.timed]
        report = quantize(run, drifting.path, tmp_path / "out", *PLAIN, *options)
        boundaries, found = time_parameters(tmp_path / "out")
        assert boundaries == report["calibration"]["boundaries"] and found.keys() == drifting.weights.keys()
        assert set(boundaries) < set(TIMESTEPS) and boundaries == sorted(boundaries)
        restored = decode(tmp_path / "out", report)
        for name, parameters in found.items():
            bias = parameters["time_bias"]
            assert bias.shape == (8, 256)
            for group in range(8):
                steps = [t for t in TIMESTEPS if np.searchsorted(boundaries, t, side="right") == group]
                mean = np.mean([drifting.recorded[name, t].mean(axis=0) for t in steps], axis=0)
                expected = -(restored[name] - drifting.weights[name].astype(np.float64)) @ mean
                kept = bias[group] != 0
                assert bias[group][kept] == pytest.approx(expected[kept], rel=1e-3, abs=1e-6)
                assert np.abs(expected[~kept]).max(initial=0) < 2 * np.abs(expected).mean()  # small ones may be chance
            assert np.mean(bias != 0) > (0.9 if name == "gelu.weight" else 0.3)

    def test_scales_for_the_inputs(self, run, drifting, tmp_path, format):
        options = settings(tmp_path / "q.yaml", enable_time_aware=True, num_time_groups=4)
        quantize(run, drifting.path, tmp_path / "out", *PLAIN, "--format", format, *options, "--calibration", drifting.timed)
        boundaries, found = time_parameters(tmp_path / "out")
        for name, parameters in found.items():
            assert parameters["act_scale"].shape == parameters["act_zero"].shape == (4,)
            for group, (scale, zero) in enumerate(zip(parameters["act_scale"].tolist(), parameters["act_zero"].tolist())):
                steps = [t for t in TIMESTEPS if np.searchsorted(boundaries, t, side="right") == group]
                inputs = np.concatenate([drifting.recorded[name, t] for t in steps])
                low, high = min(inputs.min(), 0), max(inputs.max(), 0)
                assert scale == pytest.approx((high - low) / 255, rel=1e-5) and zero == np.round(zero) and 0 <= zero <= 255
                assert (0 - zero) * scale == pytest.approx(low, abs=0.51 * scale)
                assert (255 - zero) * scale == pytest.approx(high, abs=0.51 * scale)
        # Without ranges there are none.
        metadata, tensors = load(drifting.timed)
        tensors = {key: values for key, values in tensors.items() if not key.endswith(("x_min", "x_max"))}
        save_file(tensors, tmp_path / "s.safetensors", metadata)
        options += ["--format", format, "--calibration", tmp_path / "s.safetensors"]
        quantize(run, drifting.path, tmp_path / "out", *PLAIN, *options)
        assert {kind for parameters in time_parameters(tmp_path / "out")[1].values() for kind in parameters} == {"time_bias"}

    def test_groups_begin_where_the_inputs_change(self, run, tmp_path, format):
        rng = np.random.default_rng(3)
        weights = {name: gauss(rng, 64, columns) for name, columns in (("a.weight", 128), ("b.weight", 256))}
        save_file(weights, tmp_path / "in.safetensors")
        means = {name: rng.standard_normal((4, weight.shape[1])) for name, weight in weights.items()}
        inputs = {}
        for name, mean in means.items():
            for t in rng.permutation(range(-50, 50, 5)).tolist():
                piece = (t >= -35) + (t >= 10) + (t >= 15)
                inputs[name, t] = rng.standard_normal((64, mean.shape[1])) + mean[piece]
        statistics = record(tmp_path / "s.safetensors", inputs)
        options = settings(tmp_path / "q.yaml", enable_time_aware=True, num_time_groups=4)
        options += ["--format", format, "--calibration", statistics]
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *PLAIN, *options)
        assert report["calibration"]["boundaries"] == time_parameters(tmp_path / "out")[0] == [-35, 10, 15]
        assert (report["calibration"]["timesteps"], report["calibration"]["recorded_timesteps"]) == (20, 20)
        few = settings(tmp_path / "few.yaml", enable_time_aware=True, num_time_groups=2, calibration_samples=5)
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *PLAIN, *options[2:], *few)
        assert (report["calibration"]["timesteps"], report["calibration"]["recorded_timesteps"]) == (5, 20)
        assert report["calibration"]["time_groups"] == 2

    def test_inputs_that_stay_the_same_have_one_group(self, run, drifting, tmp_path, format):
        rng = np.random.default_rng(4)
        inputs = {name: rng.standard_normal((128, 512)) + rng.standard_normal(512) for name in drifting.weights}
        statistics = record(tmp_path / "s.safetensors", {(name, t): inputs[name] for name in inputs for t in TIMESTEPS})
        results = []
        for groups in (1, 8):
            options = settings(tmp_path / "q.yaml", enable_time_aware=True, num_time_groups=groups)
            options += [*PLAIN, "--format", format, "--calibration", statistics]
            report = quantize(run, drifting.path, tmp_path / f"{groups}", *options)
            assert report["calibration"]["time_groups"] == 1 and report["calibration"]["boundaries"] == []
            assert all(np.any(found["time_bias"]) for found in time_parameters(tmp_path / f"{groups}")[1].values())
            results.append(without_keys(contents(tmp_path / f"{groups}")))
        assert results[0] == results[1]

    def test_few_inputs_do_no_harm(self, run, tmp_path, format):
        rng = np.random.default_rng(6)
        size, name = outliers(rng, 512), "a.weight"
        draw = lambda count: rng.standard_normal((count, 512)) * size
        still = SimpleNamespace(path=tmp_path / "in.safetensors", weights={name: gauss(rng, 256, 512)})
        still.held_out = {(name, t): draw(64) for t in TIMESTEPS}
        save_file(still.weights, still.path)
        statistics = record(tmp_path / "s.safetensors", {(name, t): draw(1) for t in TIMESTEPS})
        errors = []
        for value in (False, True):
            options = settings(tmp_path / "q.yaml", enable_time_aware=value, num_time_groups=25)
            errors.append(quantized_errors(run, still, tmp_path / "out", "--format", format, *options, statistics=statistics)[1])
        assert percent(errors[1], errors[0], name) <= 103


class TestStatisticsThatAreOfNoUse:
    def test_hessians_for_hqq(self, run, layers, tmp_path):
        options = [*PLAIN, "--format", "mlx", "--method", "hqq", "--calibration"]
        assert quantize(run, layers.path, tmp_path / "out", *options, layers.plain)["warnings"] == []
        report = quantize(run, layers.path, tmp_path / "out", *options, layers.hessian)
        assert report["warnings"] == ["--method hqq does not use Hessians"]

    def test_of_layers_that_are_kept(self, run, layers, tmp_path):
        options = [*PLAIN, "--format", "mlx", "--calibration", layers.plain, "--keep", "attention.*", "--keep", "mlp.*"]
        report = quantize(run, layers.path, tmp_path / "out", *options)
        assert report["warnings"][0] == "the statistics cover none of the quantized layers"


class TestWhoIsTimeAware:
    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("modality, chosen, groups", [
        ("text", None, 8), ("code", None, 8), ("image", None, 0), ("audio", None, 0),
        ("text", True, 8), ("image", True, 8), ("text", False, 0), ("image", False, 0),
    ])  # fmt: skip
    def test_by_modality_unless_it_is_said(self, run, drifting, tmp_path, format, modality, chosen, groups):
        options = settings(tmp_path / "q.yaml", num_time_groups=8, enable_time_aware=chosen, enable_spatial=False)
        options += [*PLAIN, "--format", format, "--method", "rtn", "--modality", modality, "--calibration", drifting.timed]
        report = quantize(run, drifting.path, tmp_path / "out", *options)
        boundaries, found = time_parameters(tmp_path / "out")
        assert report["calibration"]["time_groups"] == max(groups, 1)
        assert report["warnings"] == ([] if groups else ["--method rtn does not use statistics"])
        assert len(found) == (2 if groups else 0) and len(boundaries) == max(groups - 1, 0)
        if format == "mlx":
            assert (tmp_path / "out/timeaware.safetensors").exists() == bool(groups)

    @pytest.mark.parametrize("format", FORMATS)
    def test_plain_statistics(self, run, layers, tmp_path, format):
        options = [*PLAIN, "--format", format, "--modality", "text"]
        report = quantize(run, layers.path, tmp_path / "out", *options, "--calibration", layers.plain)
        assert report["calibration"]["time_groups"] == 1 and time_parameters(tmp_path / "out") == ([], {})
        options += settings(tmp_path / "q.yaml", enable_time_aware=True, num_time_groups=8)
        report = quantize(run, layers.path, tmp_path / "out", *options, "--calibration", layers.plain)
        boundaries, found = time_parameters(tmp_path / "out")
        assert report["calibration"]["time_groups"] == 1 and boundaries == []
        assert {name: parameters["time_bias"].shape for name, parameters in found.items()} == {
            "attention.weight": (1, 256), "mlp.weight": (1, 192),
        }  # fmt: skip

    # Of one input at each timestep nobody can say how far its mean is off.
    def test_it_is_said_that_there_were_too_few_inputs(self, run, tmp_path):
        rng = np.random.default_rng(3)
        draw = changing(rng, 128)
        save_file({"a.weight": gauss(rng, 64, 128)}, tmp_path / "in.safetensors")
        options = [*PLAIN, "--format", "mlx", "--modality", "text", *settings(tmp_path / "q.yaml", num_time_groups=4)]
        warnings = []
        for count in (1, 64):
            statistics = record(tmp_path / "s.safetensors", {("a.weight", t): draw(count, t) for t in (0, 300, 600, 900)})
            warnings.append(quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options, "--calibration", statistics)["warnings"])
        assert warnings == [["no time bias is significant; record more inputs per timestep, and their counts"], []]

    @pytest.mark.parametrize("format", FORMATS)
    def test_without_statistics_it_is_said_that_there_is_one_group(self, run, layers, tmp_path, format):
        options = [*PLAIN, "--format", format, "--modality", "text"]
        quantize(run, layers.path, tmp_path / "plain", *options)
        options += settings(tmp_path / "q.yaml", enable_time_aware=True, num_time_groups=8)
        report = quantize(run, layers.path, tmp_path / "out", *options)
        assert [warning for warning in report["warnings"] if "1 time group instead of 8" in warning]
        assert report["calibration"] is None and time_parameters(tmp_path / "out") == ([], {})
        plain, out = contents(tmp_path / "plain"), contents(tmp_path / "out")
        assert plain.keys() == out.keys()
        assert all(plain[name] == out[name] for name in out if not name.endswith(".json"))


@pytest.fixture(scope="module")
def spatial(tmp_path_factory):
    """Columns of other sizes than their neighbours, outliers, nothing special, columns of zeros, and one of two blocks."""
    rng = np.random.default_rng(7)
    folder = tmp_path_factory.mktemp("spatial")
    each = lambda *shape: np.exp(rng.standard_normal(shape))
    zeros = np.where(np.arange(512) % 7 == 0, 0, 1)
    weights = {
        "columns.weight": rng.standard_normal((300, 512)) * each(512),
        "outliers.weight": rng.standard_normal((300, 512)) * outliers(rng, 512),
        "normal.weight": rng.standard_normal((300, 512)),
        "zeros.weight": rng.standard_normal((100, 512)) * zeros * each(512),
        "blocks.weight": rng.standard_normal((4200, 1024)) * each(1024),
        "filter.conv.weight": rng.standard_normal((64, 32, 3, 3)) * each(32, 1, 1),
    }
    weights = {name: (weight * 0.02).astype(BF16) for name, weight in weights.items()}
    save_file(weights, folder / "in.safetensors")
    inputs = {}
    for name, weight in weights.items():
        columns = weight[0].size
        inputs[name, None] = rng.standard_normal((256, columns)) * each(columns) ** 0.7 * outliers(rng, columns)
    return SimpleNamespace(
        path=folder / "in.safetensors",
        weights=weights,
        plain=record(folder / "plain.safetensors", inputs),
        hessian=record(folder / "hessian.safetensors", {key: x for key, x in inputs.items() if key[0] == "columns.weight"}, True),
    )


class TestSpatial:
    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("bits", [2, 4, 8])
    def test_columns_are_scaled_where_that_is_better(self, run, spatial, tmp_path, format, bits):
        options = [*PLAIN, "--format", format, "--bits", bits, "--modality", "image", "--calibration", spatial.plain]
        without = quantize(run, spatial.path, tmp_path / "w", *options, *settings(tmp_path / "q.yaml", enable_spatial=False))
        report = quantize(run, spatial.path, tmp_path / "out", *options)
        scales = column_scales(tmp_path / "out")
        assert {layer["name"] for layer in report["layers"] if layer["equalized"]} == scales.keys()
        assert not any(layer["equalized"] for layer in without["layers"]) and column_scales(tmp_path / "w") == {}
        for layer, before in zip(report["layers"], without["layers"]):
            if layer["equalized"]:
                assert layer["output_error"] < before["output_error"], layer["name"]
            else:
                assert layer == before
        assert {"columns.weight", "outliers.weight", "blocks.weight"} <= scales.keys()
        assert bits == 8 or "normal.weight" not in scales
        for name, values in scales.items():
            assert values.shape == (spatial.weights[name][0].size,)
            assert np.all(np.frexp(values)[0] == 0.5) and len(np.unique(values)) > 1  # powers of two, not all the same

        restored = dequantized(run, tmp_path / "out")
        validated = json.loads(done(run("validate", spatial.path, tmp_path / "out", "--json")).stdout)
        for layer, other in zip(report["layers"], validated["layers"]):
            for key in ("name", "cosine_similarity", "relative_rmse", "max_error", "equalized", "bits", "bytes"):
                assert other[key] == layer[key]
            cosine, rmse = figures(spatial.weights[layer["name"]], restored[layer["name"]])
            assert cosine > {2: 0.8, 4: 0.95, 8: 0.999}[bits]
            rounding = 1e-6 if format == "parquet" else 3e-3  # dequantize does as mlx does, which rounds to BF16 twice
            assert rmse == pytest.approx(layer["relative_rmse"], abs=rounding)

    def test_pyarrow_and_numpy_read_what_dequantize_writes(self, run, spatial, tmp_path):
        quantize(run, spatial.path, tmp_path / "out", *PLAIN, "--modality", "image", "--calibration", spatial.plain)
        found, restored = decode_parquet(tmp_path / "out"), dequantized(run, tmp_path / "out")
        assert len(column_scales(tmp_path / "out")) >= 4 and found.keys() == restored.keys()
        assert sum(row["layer_name"] == "blocks.weight" for row in parquet_rows(tmp_path / "out")) == 2
        for name, values in found.items():
            assert values.tobytes() == restored[name].tobytes(), name

    @pytest.mark.parametrize("format", FORMATS)
    def test_by_modality_and_profile_unless_it_is_said(self, run, spatial, tmp_path, format):
        save_file({"columns.weight": spatial.weights["columns.weight"]}, tmp_path / "in.safetensors")
        _, tensors = load(spatial.plain)
        tensors = {key: values for key, values in tensors.items() if key.startswith("columns.")}
        save_file(tensors, tmp_path / "plain.safetensors", {"format": "timecalib.v1"})

        def is_spatial(modality, *options, statistics=tmp_path / "plain.safetensors"):
            options = ["--bits", 4, *PLAIN, "--format", format, "--modality", modality, *options, "--calibration", statistics]
            report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options)
            assert report["warnings"] == []
            return any(layer["equalized"] for layer in report["layers"])

        yes, no = (settings(tmp_path / f"{value}.yaml", enable_spatial=value) for value in (True, False))
        assert is_spatial("image") and is_spatial("audio") and not is_spatial("text")
        assert is_spatial("text", *yes) and not is_spatial("image", *no)
        assert not is_spatial("image", "--profile", "edge") and is_spatial("image", "--profile", "edge", *yes)
        assert is_spatial("image", statistics=spatial.hessian)

    def test_the_minimum_is_kept(self, run, tmp_path):
        rng = np.random.default_rng(14)
        save_file({"a.weight": (rng.standard_t(4, (300, 512)) * 0.02).astype(BF16)}, tmp_path / "in.safetensors")
        inputs = rng.standard_normal((1024, 512)) * np.exp(rng.standard_normal(512))
        statistics = record(tmp_path / "s.safetensors", {("a.weight", None): inputs})
        options = ["--group-size", 64, "--modality", "image", "--calibration", statistics]
        cosines = []
        for value in (True, False):
            options += settings(tmp_path / f"{value}.yaml", enable_spatial=value)
            (layer,) = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options, "--min-accuracy", 0)["layers"]
            cosines.append(layer["cosine_similarity"])
            del options[-2:]
        assert cosines[0] < cosines[1]
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options, "--min-accuracy", sum(cosines) / 2)
        assert report["passed"]


class TestDiffusion:
    KEPT = ("time_embed.0.weight", "t_embedder.mlp.0.weight", "conv_in.weight", "x_embedder.proj.weight",
            "final_layer.linear.weight", "proj_out.weight", "conv_out.weight")  # fmt: skip
    MODULATION = ("blocks.0.adaLN_modulation.1.weight", "blocks.0.norm1.linear.weight", "blocks.0.img_mod.lin.weight")
    OTHERS = ("blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight")

    @pytest.fixture
    def model(self, tmp_path):
        rng = np.random.default_rng(8)
        names = (*self.KEPT, *self.MODULATION, *self.OTHERS)
        save_file({name: gauss(rng, 64, 128) for name in names}, tmp_path / "in.safetensors")
        return tmp_path / "in.safetensors"

    @pytest.mark.parametrize("format", FORMATS)
    def test_layers_that_are_spared(self, run, model, tmp_path, format):
        expected = dict.fromkeys(self.MODULATION, 8) | dict.fromkeys(self.OTHERS, 3)
        bits = lambda report: {layer["name"]: layer["bits"] for layer in report["layers"]}
        options = [*PLAIN, "--format", format, "--bits", 3]
        for modality in (["--modality", "image"], ["--modality", "audio"], []):  # a time embedding tells, too
            assert bits(quantize(run, model, tmp_path / "out", *options, *modality)) == expected
        named = {"final_layer.linear": 4, "time_embed.0.weight": 2, "*adaLN_modulation*": 3}
        options += ["--modality", "image", *settings(tmp_path / "q.yaml", layer_bit_widths=named)]
        expected |= {"final_layer.linear.weight": 4, "time_embed.0.weight": 2, "blocks.0.adaLN_modulation.1.weight": 3}
        assert bits(quantize(run, model, tmp_path / "out", *options)) == expected

    @pytest.mark.parametrize("format", FORMATS)
    def test_a_target_does_not_change_that(self, run, model, tmp_path, format):
        report = quantize(run, model, tmp_path / "out", *PLAIN, "--format", format, "--modality", "image", "--target-size-mb", 0.3)
        bits = {layer["name"]: layer["bits"] for layer in report["layers"]}
        assert bits.keys() == {*self.MODULATION, *self.OTHERS} and {bits[name] for name in self.MODULATION} == {8}
