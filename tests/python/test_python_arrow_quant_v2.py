"""Programs written for ArrowQuant V2, run over Ballast with nothing but their imports changed, and their figures held against the
files that they wrote, which pyarrow and numpy decode."""

import re
import subprocess
import sys
from pathlib import Path

import ballast
import numpy as np
import pyarrow.parquet as pq
import pytest
from ballast.arrow_quant_v2 import ArrowQuantV2, DiffusionQuantConfig, SafeTensorsAdapter, SafeTensorsLoader
from calibrated_models import changing, record
from quantized_files import contents, figures, gauss, read_parquet, read_safetensors
from safetensors.numpy import save_file

REPO = Path(__file__).resolve().parents[2]
EXAMPLE = REPO / "examples/quantize_from_safetensors.py"

LOOK_AND_QUANTIZE = """
from arrow_quant_v2 import ArrowQuantV2
from arrow_quant_v2.python.safetensors_loader import SafeTensorsLoader

loader = SafeTensorsLoader("model.safetensors")
print(loader.summary())

quantizer = ArrowQuantV2(mode="diffusion")
result = quantizer.quantize_from_safetensors(
    safetensors_path="model.safetensors",
    output_path="model_int2/",
    bit_width=2,
)
print(f"{result['compression_ratio']:.2f}x smaller, cosine {result['cosine_similarity']:.4f}")
"""

WITH_CONFIG = """
from arrow_quant_v2 import ArrowQuantV2, DiffusionQuantConfig

config = DiffusionQuantConfig(
    bit_width=2,
    modality="text",
    num_time_groups=10,
    group_size=128,
    enable_time_aware=True,
    enable_spatial=False,
    min_accuracy=0.70,
)
result = ArrowQuantV2(mode="diffusion").quantize_from_safetensors(
    safetensors_path="model.safetensors",
    output_path="configured/",
    config=config,
    progress_callback=lambda c, t, m: print(f"[{c}/{t}] {m}"),
)
"""

OPEN_OR_EXPLAIN = """
from arrow_quant_v2 import SafeTensorsAdapter

def explain(path):
    try:
        adapter = SafeTensorsAdapter.load(path)
    except FileNotFoundError:
        return "nothing there"
    except ValueError as error:
        return f"damaged: {error}"
    return adapter.detect_modality() or "text"
"""


def run_sample(text):
    names = {}
    exec(re.sub(r"^from arrow_quant_v2\b", "from ballast.arrow_quant_v2", text, flags=re.MULTILINE), names)
    return names


@pytest.fixture(scope="module")
def tensors():
    rng = np.random.default_rng(7)
    return {
        "model.embed_tokens.weight": gauss(rng, 256, 192, dtype=np.float16),
        "model.layers.0.self_attn.q_proj.weight": gauss(rng, 192, 192),
        "model.layers.0.conv.weight": gauss(rng, 64, 16, 3, 3, dtype=np.float32),
        "model.norm.weight": gauss(rng, 192, dtype=np.float32),
        "position_ids": np.arange(128, dtype=np.int64),
        "scalar": np.array(2.5, np.float32),
        "mask": np.array([0, 1, 255], np.uint8),
    }


@pytest.fixture
def folder(tensors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file(tensors, tmp_path / "model.safetensors", {"architecture": "diffusion-text"})
    return tmp_path


def parquet_files(directory):
    return sorted(directory.glob("*.parquet"))


def assert_figures_are_those_of_the_files(result, source, directory, tensors):
    size = sum(path.stat().st_size for path in parquet_files(directory))
    assert result["bytes"] == size and result["model_size_mb"] == size / 1e6
    assert result["compression_ratio"] == pytest.approx(source.stat().st_size / size)
    restored = read_parquet(directory)
    total = parameters = 0
    for layer in result["layers"]:
        original = tensors[layer["name"]]
        cosine, rmse = figures(original, restored[layer["name"]])
        assert layer["cosine_similarity"] == pytest.approx(cosine, abs=1e-9)
        assert layer["relative_rmse"] == pytest.approx(rmse, rel=1e-6)
        total += cosine * original.size
        parameters += original.size
    assert result["cosine_similarity"] == pytest.approx(total / parameters, abs=1e-9)
    for name in set(tensors) - {layer["name"] for layer in result["layers"]}:
        assert restored[name].tobytes() == tensors[name].tobytes()


class TestSamples:
    def test_looks_and_quantizes(self, folder, tensors, capsys):
        result = run_sample(LOOK_AND_QUANTIZE)["result"]
        printed = capsys.readouterr().out
        assert "7 tensors" in printed and "modality text" in printed and "architecture = diffusion-text" in printed
        assert f"{result['compression_ratio']:.2f}x smaller" in printed
        assert result["bit_width"] == 2 and result["modality"] == "text"
        assert 0 < result["quantization_time_s"] < 60
        assert len(result["layers"]) == 3 and result["unquantized"] == 4
        assert_figures_are_those_of_the_files(result, folder / "model.safetensors", folder / "model_int2", tensors)

    def test_takes_a_config_and_reports_progress(self, folder, tensors, capsys):
        names = run_sample(WITH_CONFIG)
        lines = capsys.readouterr().out.splitlines()
        calls = [re.fullmatch(r"\[(\d+)/(\d+)\] (.+)", line) for line in lines]
        assert all(calls) and {call[3] for call in calls} <= set(tensors)
        assert calls[-1][1] == calls[-1][2] == str(sum(array.nbytes for array in tensors.values()))
        assert names["result"]["group_size"] == 128
        assert "enable_time_aware has no effect without activation statistics" in names["result"]["warnings"][0]
        assert_figures_are_those_of_the_files(names["result"], folder / "model.safetensors", folder / "configured", tensors)

    def test_errors_are_the_built_in_ones(self, folder):
        explain = run_sample(OPEN_OR_EXPLAIN)["explain"]
        data = (folder / "model.safetensors").read_bytes()
        (folder / "cut.safetensors").write_bytes(data[:-7])
        (folder / "other.safetensors").write_bytes(b"PK\x03\x04 is what a checkpoint of torch begins with")
        assert explain("model.safetensors") == "text"
        assert explain("none.safetensors") == "nothing there"
        assert re.search(r"damaged: cut.safetensors: .*7 missing", explain("cut.safetensors"))
        assert explain("other.safetensors").startswith("damaged: other.safetensors: ")


class TestLoader:
    def test_tells_what_is_there(self, folder, tensors):
        loader = SafeTensorsLoader("model.safetensors")
        assert set(loader.tensor_names) == set(tensors) and loader.tensor_names() == loader.tensor_names
        assert loader.get_num_parameters() == sum(array.size for array in tensors.values())
        assert loader.get_model_size_mb() == (folder / "model.safetensors").stat().st_size / 1e6
        assert loader.detect_modality() == "text" and loader.metadata == {"architecture": "diffusion-text"}
        info = loader.get_tensor_info("model.layers.0.conv.weight")
        assert info == {"name": "model.layers.0.conv.weight", "dtype": "F32", "shape": (64, 16, 3, 3), "num_parameters": 9216,
                        "nbytes": 36864}  # fmt: skip
        with pytest.raises(KeyError, match="no tensor 'nothing' among 7"):
            loader.get_tensor_info("nothing")

    def test_gives_float32_of_every_dtype(self, folder, tensors):
        with SafeTensorsLoader("model.safetensors") as loader:
            arrays = loader.get_all_tensors()
        assert set(arrays) == set(tensors)
        for name, array in arrays.items():
            assert array.dtype == np.float32 and array.flags.writeable
            np.testing.assert_array_equal(array, tensors[name].astype(np.float32), strict=True)
        with pytest.raises(ValueError, match="closed"):
            loader.get_tensor("scalar")

    def test_rounds_what_float32_cannot_hold(self, tmp_path):
        values = {"i": np.array([2**24 + 1, -(2**53) - 1]), "f": np.array([0.1, 1e-300])}
        save_file(values, tmp_path / "m.safetensors")
        for name, array in SafeTensorsLoader(tmp_path / "m.safetensors").get_all_tensors().items():
            np.testing.assert_array_equal(array, values[name].astype(np.float32))

    def test_matrices_have_the_first_dimension_by_all_others(self, folder, tensors):
        adapter = SafeTensorsAdapter.load("model.safetensors")
        matrices = adapter.get_all_tensors_2d()
        assert matrices["model.layers.0.conv.weight"].shape == (64, 144)
        assert matrices["model.norm.weight"].shape == (192, 1) and matrices["scalar"].shape == (1, 1)
        for name, matrix in matrices.items():
            np.testing.assert_array_equal(matrix.ravel(), tensors[name].astype(np.float32).ravel())

    def test_empty_tensors_are_matrices_too(self, tmp_path):
        save_file({"a": np.zeros((3, 0, 4), np.float32), "b": np.zeros((0, 4), np.float32)}, tmp_path / "m.safetensors")
        matrices = SafeTensorsAdapter.load(tmp_path / "m.safetensors").get_all_tensors_2d()
        assert matrices["a"].shape == (3, 0) and matrices["b"].shape == (0, 4)

    @pytest.mark.parametrize(
        "metadata, modality",
        [({"modality": "audio", "architecture": "dit"}, "audio"), ({"architecture": "MDLM"}, "text"), ({"architecture": "DiT-XL"}, "image"),
         ({"architecture": "wavegrad"}, "audio"), ({"architecture": "codegen"}, "code"), ({}, None)],
    )  # fmt: skip
    def test_modality_is_that_of_the_metadata(self, tmp_path, metadata, modality):
        save_file({"w": np.zeros(4, np.float32)}, tmp_path / "m.safetensors", metadata)
        assert SafeTensorsLoader(tmp_path / "m.safetensors").detect_modality() == modality


class TestQuantizing:
    def test_bits_make_different_bytes_and_better_figures(self, folder, tensors):
        results = {}
        for bits in (2, 4, 8):
            directory = folder / f"int{bits}"
            results[bits] = ArrowQuantV2().quantize_from_safetensors("model.safetensors", directory, bit_width=bits, sync=False)
            assert_figures_are_those_of_the_files(results[bits], folder / "model.safetensors", directory, tensors)
            for row in pq.read_table(directory / "model-00001-of-00001.parquet").to_pylist():
                if row["quant_type"] != "none":
                    assert row["quant_type"] == f"int{bits}" and len(row["data"]) == row["num_params"] * bits // 8
                    assert len(set(row["data"])) > 3  # really data
        cosines = [result["cosine_similarity"] for result in results.values()]
        assert cosines == sorted(cosines)
        assert all(cosine >= target for cosine, target in zip(cosines, (0.70, 0.90, 0.95), strict=True))
        ratios = [result["compression_ratio"] for result in results.values()]
        assert ratios == sorted(ratios, reverse=True) and len(set(ratios)) == 3

    def test_shards_and_directories_come_to_the_same(self, folder, tensors):
        ballast.save(ballast.open("model.safetensors"), "shards", max_shard_size="80kB", metadata={"architecture": "diffusion-text"})
        assert len(list((folder / "shards").glob("*.safetensors"))) > 1
        made = []
        for i, source in enumerate(("model.safetensors", "shards", "shards/model.safetensors.index.json")):
            result = ArrowQuantV2().quantize_from_safetensors(source, folder / f"out{i}", bit_width=4, sync=False)
            rows = [row for file in result["files"] for row in pq.read_table(file).to_pylist()]
            made.append(sorted(rows, key=lambda row: (row["layer_name"], row["block"])))
            assert SafeTensorsLoader(source).get_num_parameters() == sum(array.size for array in tensors.values())
        assert made[0] == made[1] == made[2]

    def test_bit_width_goes_before_the_config(self, folder):
        config = DiffusionQuantConfig(bit_width=8, group_size=32)
        result = ArrowQuantV2().quantize_from_safetensors("model.safetensors", "out", 4, config, sync=False)
        assert result["bit_width"] == 4 and {(layer["bits"], layer["group_size"]) for layer in result["layers"]} == {(4, 32)}

    def test_validates_what_was_written(self, folder, tensors):
        quantizer = ArrowQuantV2()
        written = quantizer.quantize_from_safetensors("model.safetensors", "out", bit_width=4, sync=False)
        checked = quantizer.quantize_from_safetensors("model.safetensors", "out", bit_width=4, sync=False, validate=True)
        again = quantizer.validate_quality("model.safetensors", "out")
        assert written["cosine_similarity"] == checked["cosine_similarity"] == again["cosine_similarity"]
        assert (written["validated"], checked["validated"]) == (False, True)
        assert again["passed"] and not quantizer.validate_quality("model.safetensors", "out", min_accuracy=0.99999)["passed"]
        (part,) = parquet_files(folder / "out")
        part.write_bytes(part.read_bytes()[:-1])
        with pytest.raises(ValueError, match=part.name):
            quantizer.validate_quality("model.safetensors", "out")

    def test_mlx_has_the_same_result(self, folder):
        config = DiffusionQuantConfig(format="mlx", group_size=64, sensitive_layer_names=["*conv*"])
        result = ArrowQuantV2().quantize_from_safetensors("model.safetensors", "mlx", config=config, sync=False)
        assert result["format"] == "mlx" and "model.embed_tokens.scales" in read_safetensors(folder / "mlx/model.safetensors")

    def test_base_has_nothing_that_goes_by_timestep_or_scales_columns(self, tmp_path):
        rng = np.random.default_rng(3)
        save_file({"up.weight": gauss(rng, 128, 128)}, tmp_path / "m.safetensors", {"modality": "text"})
        draw = changing(rng, 128)
        statistics = record(tmp_path / "s.safetensors", {("up.weight", t): draw(64, t) for t in range(0, 1000, 100)})
        config = DiffusionQuantConfig(num_time_groups=5, enable_time_aware=True, enable_spatial=True, min_accuracy=0)
        results = {
            mode: ArrowQuantV2(mode).quantize_from_safetensors(
                tmp_path / "m.safetensors", tmp_path / mode, config=config, calibration=statistics, sync=False
            )
            for mode in ("diffusion", "base")
        }
        assert results["diffusion"]["calibration"]["time_groups"] == 5
        assert results["base"]["calibration"]["time_groups"] <= 1 and not results["base"]["layers"][0]["equalized"]
        assert contents(tmp_path / "diffusion") != contents(tmp_path / "base")


class TestCallbacks:
    def calls(self, make):
        seen = []
        ArrowQuantV2().quantize_from_safetensors("model.safetensors", "out", 4, progress_callback=make(seen), sync=False)
        return seen

    def test_three_arguments_are_bytes_done_bytes_in_all_and_a_message(self, folder, tensors):
        total = sum(array.nbytes for array in tensors.values())
        for make in (lambda seen: lambda done, all, message: seen.append((done, all, message)), lambda seen: lambda *a: seen.append(a)):
            seen = self.calls(make)
            assert seen[-1][:2] == (total, total) and {type(message) for _, _, message in seen} == {str}

    def test_two_arguments_are_a_message_and_a_fraction(self, folder, tensors):
        class Watcher:
            def __init__(self, seen):
                self.seen = seen

            def on_progress(self, message, fraction):
                self.seen.append((message, fraction))

        seen = self.calls(lambda seen: Watcher(seen).on_progress)
        fractions = [fraction for _, fraction in seen]
        assert fractions == sorted(fractions) and fractions[0] >= 0 and fractions[-1] == 1
        assert {message for message, _ in seen} <= set(tensors)

    def test_false_stops_the_work_and_leaves_nothing(self, folder):
        with pytest.raises(ballast.CancelledError):
            ArrowQuantV2().quantize_from_safetensors("model.safetensors", "out", 4, progress_callback=lambda done, total, what: False)
        assert not (folder / "out").exists()

    def test_what_cannot_be_called_is_refused(self, folder):
        with pytest.raises(TypeError, match="progress must be a function"):
            ArrowQuantV2().quantize_from_safetensors("model.safetensors", "out", 4, progress_callback=3)


class TestConfig:
    @pytest.mark.parametrize(
        "profile, expected",
        [("edge", (2, 5, 256, 0.65, 32, False)), ("local", (4, 10, 128, 0.85, 128, None)), ("cloud", (8, 20, 64, 0.95, 512, None))],
    )
    def test_profiles(self, profile, expected):
        config = DiffusionQuantConfig.from_profile(profile)
        assert config == DiffusionQuantConfig(deployment_profile=profile)
        assert (config.bit_width, config.num_time_groups, config.group_size, config.min_accuracy, config.calibration_samples,
                config.enable_spatial) == expected  # fmt: skip

    def test_yaml_goes_there_and_back(self, tmp_path):
        config = DiffusionQuantConfig.from_profile("cloud", layer_bit_widths={"*.mlp.*": 4}, sensitive_layer_patterns=["^head"])
        text = config.to_yaml(tmp_path / "c.yaml")
        assert (tmp_path / "c.yaml").read_text() == text
        for source in (text, tmp_path / "c.yaml", str(tmp_path / "c.yaml")):
            again = DiffusionQuantConfig.from_yaml(source)
            assert again == config and type(again) is DiffusionQuantConfig

    def test_mistakes_are_told(self, tmp_path):
        with pytest.raises(ValueError, match="bit_width is 7, it must be"):
            DiffusionQuantConfig(bit_width=7)
        with pytest.raises(ValueError, match="mode is 'fast'"):
            ArrowQuantV2(mode="fast")
        with pytest.raises(TypeError, match="config must be a DiffusionQuantConfig, not dict"):
            ArrowQuantV2().quantize_from_safetensors("model.safetensors", tmp_path / "out", config={"bit_width": 2})
        with pytest.raises(FileNotFoundError):
            ArrowQuantV2().quantize_from_safetensors(tmp_path / "none.safetensors", tmp_path / "out", bit_width=2)


class TestExample:
    @pytest.fixture
    def program(self, folder):
        path = str(Path(ballast.__file__).parents[1])

        def program(*arguments):
            command = [sys.executable, EXAMPLE, *arguments]
            return subprocess.run(command, capture_output=True, text=True, cwd=folder, env={"PYTHONPATH": path, "PYTHONUTF8": "1"})

        return program

    def refused(self, result, code):
        assert result.returncode == code, result.stderr
        assert "Traceback" not in result.stderr
        return result.stderr

    @pytest.mark.parametrize(
        "options, bits",
        [(["--bit-width", "2"], 2), (["--bit-width", "2", "--profile", "edge", "--validate"], 2), (["--profile", "cloud"], 8),
         (["--bit-width", "4", "--modality", "image", "--profile", "local"], 4)],
    )  # fmt: skip
    def test_flags(self, program, folder, options, bits):
        result = program("--input", "model.safetensors", "--output", "out/", *options)
        assert (result.returncode, result.stderr) == (0, "")
        size = sum(path.stat().st_size for path in parquet_files(folder / "out"))
        ratio = (folder / "model.safetensors").stat().st_size / size
        assert f"Compression: {ratio:.2f}x" in result.stdout
        assert f"q_proj.weight: {bits} bits" in result.stdout
        assert ("measured on the files" in result.stdout) == ("--validate" in options)
        if "image" in options:
            assert ballast.inspect(folder / "out")["modality"] == "image"

    def test_wrong_usage_is_2(self, program, folder):
        assert "required: --input, --output" in self.refused(program(), 2)
        assert "bit_width is 7" in self.refused(program("--input", "model.safetensors", "--output", "out", "--bit-width", "7"), 2)
        assert "invalid choice" in self.refused(program("--input", "model.safetensors", "--output", "out", "--profile", "moon"), 2)
        assert not (folder / "out").exists()

    def test_bad_input_is_3(self, program, folder):
        assert "none.safetensors" in self.refused(program("--input", "none.safetensors", "--output", "out"), 3)
        (folder / "bad.safetensors").write_bytes(b"\xff" * 20)
        message = self.refused(program("--input", "bad.safetensors", "--output", "out"), 3)
        assert message.startswith("quantize_from_safetensors: bad.safetensors: ") and message.count("\n") == 1

    def test_output_that_cannot_be_written_is_4(self, program, folder):
        (folder / "file").write_text("")
        assert "cannot write" in self.refused(program("--input", "model.safetensors", "--output", "file"), 4)

    def test_below_the_minimum_is_1_when_validated(self, program, folder):
        smallest = np.random.default_rng(0).integers(-3, 4, (64, 64)) * np.float32(1e-45)  # which no scale can hold
        save_file({"w": smallest.astype(np.float32)}, folder / "hard.safetensors")
        written = program("--input", "hard.safetensors", "--output", "out")
        assert written.returncode == 0 and "below min_accuracy 0.85" in written.stderr
        assert "below min_accuracy 0.85" in self.refused(program("--input", "hard.safetensors", "--output", "out", "--validate"), 1)


def test_loaders_tell_what_they_are(tmp_path):
    ballast.save({"a": np.ones(2)}, tmp_path / "m.safetensors")
    for kind in (SafeTensorsLoader, SafeTensorsAdapter):
        assert repr(kind(str(tmp_path / "m.safetensors"))) == f"{kind.__name__}('{tmp_path}/m.safetensors')"


def test_callbacks_that_would_have_to_be_awaited_are_refused(tmp_path):
    async def later(message, fraction):
        pass

    ballast.save({"a": np.ones((32, 32))}, tmp_path / "m.safetensors")
    with pytest.raises(TypeError, match="progress must be a plain function, not an async one"):
        ArrowQuantV2().quantize_from_safetensors(tmp_path / "m.safetensors", tmp_path / "q", progress_callback=later)
