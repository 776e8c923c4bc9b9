"""quantize with a target size: what is written fits, is better than the same bits for all layers in as many bytes, and what cannot
fit is refused with the size that can."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from calibrated_models import FORMATS, changing, record, settings
from quantized_files import BF16, gauss, listing, quantize, refused
from safetensors.numpy import save_file

TIMESTEPS = range(0, 1000, 100)
PLAIN = ["--group-size", 64, "--min-accuracy", 0]


def size(folder):
    """Of the files of weights."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".parquet"))


def mean_error(report):
    """Weighted by the layers' sizes; of the outputs where that is known."""
    errors = [layer["relative_rmse"] if layer["output_error"] is None else layer["output_error"] for layer in report["layers"]]
    return np.average(errors, weights=[layer["parameters"] for layer in report["layers"]])


def root_mean(report):
    """As `error` in `size_fit`: tensors count by their size, but those with statistics by the square root of it."""
    errors = [layer["relative_rmse"] if layer["output_error"] is None else layer["output_error"] for layer in report["layers"]]
    sizes = np.array([layer["parameters"] for layer in report["layers"]], float)
    is_covered = np.array([layer["output_error"] is not None for layer in report["layers"]])
    if is_covered.any():
        sizes[is_covered] = np.sqrt(sizes[is_covered] * sizes[is_covered].mean())
    return np.sqrt(np.average(np.square(errors), weights=sizes))


def bits_of(report):
    return {layer["name"]: layer["bits"] for layer in report["layers"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Layers of many sizes, of which some are easy and some are hard: neighbours that are alike, as in tables of positions; normal
    numbers; heavy tails; single large values."""
    rng = np.random.default_rng(8)
    folder = tmp_path_factory.mktemp("sizes")

    def table(rows, columns):
        waves = np.outer(2 * rng.random(rows), np.arange(columns) / columns) + rng.random((rows, 1))
        return np.sin(2 * np.pi * waves) * 0.1 + rng.standard_normal((rows, columns)) * 0.005

    weights = {"positions.weight": table(2048, 512)}
    for i in range(4):
        weights |= {
            f"blocks.{i}.query.weight": rng.standard_normal((256, 512)) * 0.02,
            f"blocks.{i}.value.weight": rng.standard_normal((128, 512)) * np.where(rng.random((128, 512)) < 0.015, 0.2, 0.02),
            f"blocks.{i}.up.weight": rng.standard_t(3, (384, 512)) * 0.02,
            f"blocks.{i}.down.weight": rng.standard_normal((192, 1024)) * 0.02,
            f"blocks.{i}.table.weight": table(320, 256),
        }
    weights = {name: weight.astype(BF16) for name, weight in weights.items()}
    save_file(weights | {"norm.weight": gauss(rng, 512)}, folder / "in.safetensors")
    inputs = {}
    for name, weight in weights.items():
        if name.startswith("blocks."):
            draw = changing(rng, weight.shape[1])
            inputs |= {(name, t): draw(16, t) for t in TIMESTEPS}
    return SimpleNamespace(path=folder / "in.safetensors", statistics=record(folder / "s.safetensors", inputs))


def smallest(run, model, tmp_path, *options):
    """What the refusal of a target of next to nothing names."""
    result = run("quantize", model, tmp_path / "out", *options, "--target-size-mb", 0.001)
    refused(result, 2, model, "--target-size-mb is 0.001", "the smallest possible is ")
    assert not (tmp_path / "out").exists()
    return float(re.search(r"possible is (?:about )?([0-9.]+)", result.stderr)[1])


@pytest.mark.parametrize("format", FORMATS)
class TestTarget:
    @pytest.mark.parametrize("kind", ["data-free", "statistics", "time groups", "columns"])
    def test_what_is_written_fits(self, run, model, tmp_path, format, kind):
        options = [*PLAIN, "--format", format, "--modality", "image" if kind == "columns" else "text"]
        options += settings(tmp_path / "q.yaml", enable_time_aware=kind == "time groups")
        options += [] if kind == "data-free" else ["--calibration", model.statistics]
        least = smallest(run, model.path, tmp_path, *options)
        sizes = []
        for target in (least, 1.4 * least, 100):
            report = quantize(run, model.path, tmp_path / "out", *options, "--target-size-mb", target)
            assert size(tmp_path / "out") <= target * 1e6, target
            assert all(layer["planned_bits"] == layer["bits"] for layer in report["layers"])
            sizes.append(report["bytes"])
        assert sizes == sorted(sizes) and len(set(sizes)) == 3
        assert set(bits_of(report).values()) == {8}
        result = run("quantize", model.path, tmp_path / "out", *options, "--target-size-mb", f"{0.9 * least:.3f}")
        refused(result, 2, "the smallest possible is ", f"{least:.3f}")

    @pytest.mark.parametrize("kind", ["data-free", "statistics"])
    @pytest.mark.parametrize("bits", [3, 5])
    def test_better_than_the_same_bits_for_all(self, run, model, tmp_path, format, kind, bits):
        options = [*PLAIN, "--format", format] + ([] if kind == "data-free" else ["--calibration", model.statistics])
        uniform = quantize(run, model.path, tmp_path / "uniform", *options, "--bits", bits)
        report = quantize(run, model.path, tmp_path / "out", *options, "--target-size-mb", size(tmp_path / "uniform") / 1e6)
        assert size(tmp_path / "out") <= size(tmp_path / "uniform")
        assert len(set(bits_of(report).values())) > 1
        assert root_mean(report) < root_mean(uniform)
        assert report["size_fit"]["error"] == pytest.approx(root_mean(report))

    @pytest.mark.parametrize("kind", ["data-free", "statistics"])
    def test_what_is_expected_comes_true(self, run, model, tmp_path, format, kind):
        options = [*PLAIN, "--format", format] + ([] if kind == "data-free" else ["--calibration", model.statistics])
        planned = run("quantize", model.path, tmp_path / "out", *options, "--target-size-mb", 2, "--dry-run", "--json")
        assert planned.returncode == 0, planned.stderr
        plan = json.loads(planned.stdout)
        report = quantize(run, model.path, tmp_path / "out", *options, "--target-size-mb", 2)
        fit = report["size_fit"]
        assert plan["size_fit"] == fit | {"error": None}
        assert fit["error_of"] == ("weights" if kind == "data-free" else "outputs")
        errors = {layer["name"]: layer["expected_error"] for layer in plan["layers"] if layer["bits"]}
        assert errors == {layer["name"]: layer["expected_error"] for layer in report["layers"]}
        for layer in report["layers"]:
            found = layer["relative_rmse"] if layer["output_error"] is None else layer["output_error"]
            assert found == pytest.approx(layer["expected_error"], rel=0.2), layer["name"]
        assert fit["error"] == pytest.approx(fit["expected_error"], rel=0.05)
        assert size(tmp_path / "out") == pytest.approx(fit["expected_bytes"], rel=1e-4 if format == "mlx" else 0.02)
        uniform = quantize(run, model.path, tmp_path / "uniform", *options, "--bits", fit["uniform_bits"])
        assert size(tmp_path / "uniform") == pytest.approx(fit["uniform_bytes"], rel=1e-4 if format == "mlx" else 0.02)
        assert fit["expected_error"] < fit["uniform_error"] and uniform["size_fit"] is None
        assert {layer["expected_error"] for layer in uniform["layers"]} == {None}
        assert root_mean(uniform) == pytest.approx(fit["uniform_error"], rel=0.05)

    def test_what_is_expected_is_printed(self, run, model, tmp_path, format):
        options = [*PLAIN, "--format", format, "--calibration", model.statistics, "--target-size-mb", 2]
        planned = run("quantize", model.path, tmp_path / "out", *options, "--dry-run")
        pattern = r"(0\.\d{4})(?:; \d bits for all: 0\.\d{4}, \d\.\d{3} MB)\n"
        expected = re.search(r"\nexpected: [12]\.\d{3} MB, output error " + pattern, planned.stdout)
        assert expected, planned.stdout
        done = run("quantize", model.path, tmp_path / "out", *options, "--validate")
        found = re.search(r"\noutput error 0\.\d{4}, expected " + pattern, done.stdout)
        assert found and found[1] == expected[1], done.stdout

    def test_the_smallest_is_what_two_bits_take(self, run, model, tmp_path, format):
        options = [*PLAIN, "--format", format]
        quantize(run, model.path, tmp_path / "two", *options, "--bits", 2)
        assert smallest(run, model.path, tmp_path, *options) <= 1.02 * size(tmp_path / "two") / 1e6 + 0.01

    # Where nothing is easier than the rest, no choice is better than that of which the target is the size.
    @pytest.mark.parametrize("shapes", [[(512, 1024)] * 4, [(64, 512), (1024, 2048), (300, 1024)], [(32, 128)] * 50])
    @pytest.mark.parametrize("bits", [2, 4])
    def test_never_worse_than_what_has_just_that_size(self, run, tmp_path, format, shapes, bits):
        rng = np.random.default_rng(10)
        save_file({f"blocks.{i}.weight": gauss(rng, *shape) for i, shape in enumerate(shapes)}, tmp_path / "in.safetensors")
        options = [*PLAIN, "--format", format]
        uniform = quantize(run, tmp_path / "in.safetensors", tmp_path / "uniform", *options, "--bits", bits)
        target = size(tmp_path / "uniform") / 1e6
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options, "--target-size-mb", target)
        assert report["target_model_size_mb"] == target and report["bytes"] == size(tmp_path / "out") <= target * 1e6
        assert mean_error(report) <= mean_error(uniform)
        # One byte less, and it is something else.
        result = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *options, "--target-size-mb", target - 1e-6)
        if bits == 2:
            refused(result, 2, "the smallest possible is ")
        else:
            assert result.returncode == 0 and size(tmp_path / "out") < size(tmp_path / "uniform")
        assert listing(tmp_path) == ["in.safetensors", "out", "uniform"]

    def test_bits_that_are_named_stay(self, run, model, tmp_path, format):
        named = {"positions.weight": 8, "blocks.0.*": 2, "blocks.0.up": 5, "blocks.1.down": 16}
        options = [*PLAIN, "--format", format, *settings(tmp_path / "q.yaml", layer_bit_widths=named)]
        for target in (2.7, 3.2):
            report = quantize(run, model.path, tmp_path / "out", *options, "--target-size-mb", target)
            bits = bits_of(report)
            assert size(tmp_path / "out") <= target * 1e6
            assert bits["positions.weight"] == 8 and bits["blocks.0.up.weight"] == 5 and "blocks.1.down.weight" not in bits
            assert {bits[f"blocks.0.{name}.weight"] for name in ("query", "value", "down", "table")} == {2}
            assert len({bits[name] for name in bits if not name.startswith(("blocks.0", "positions"))}) > 1
        with_positions = smallest(run, model.path, tmp_path / "none", *options)
        assert with_positions > smallest(run, model.path, tmp_path / "none", *PLAIN, "--format", format) + 0.7

    def test_min_accuracy_raises_no_bits_then(self, run, model, tmp_path, format):
        options = ["--group-size", 64, "--format", format, "--min-accuracy", 0.99]
        report = quantize(run, model.path, tmp_path / "out", *options, "--target-size-mb", 1.4)
        assert size(tmp_path / "out") <= 1.4e6 and report["passed"] is False
        assert listing(tmp_path) == ["out"]

    # Layers of few rows, where the scales of the columns take more than the codes.
    def test_scales_of_columns_count(self, run, tmp_path, format):
        rng = np.random.default_rng(9)
        sizes = np.exp(rng.standard_normal((2, 4096)))
        weights = {f"blocks.{i}.weight": (gauss(rng, 8, 4096, dtype=np.float32) * sizes[0]).astype(BF16) for i in range(40)}
        save_file(weights, tmp_path / "in.safetensors")
        inputs = {(name, None): rng.standard_normal((8, 4096)) * sizes[1] for name in weights}
        statistics = record(tmp_path / "s.safetensors", inputs)
        options = [*PLAIN, "--format", format, "--modality", "image", "--calibration", statistics]
        least = smallest(run, tmp_path / "in.safetensors", tmp_path, *options)
        for target in (least, 1.5 * least):
            report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options, "--target-size-mb", target)
            assert all(layer["equalized"] for layer in report["layers"])
            assert size(tmp_path / "out") <= target * 1e6
