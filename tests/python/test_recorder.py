"""ballast.calibration.Recorder against NumPy, the reference safetensors package and the library's reader."""

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ballast.calibration import Recorder
from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[2]


def load(path):
    with safe_open(path, framework="numpy") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}


def saved(recorder, tmp_path):
    recorder.save(tmp_path / "s.safetensors")
    return load(tmp_path / "s.safetensors")


@pytest.fixture
def rng():
    return np.random.default_rng(3)


class TestFigures:
    def test_by_timestep(self, rng, tmp_path):
        inputs = {t: rng.normal(t, 2, (3, 7, 5)) for t in (20, 0.5, 10)}
        outputs = {t: rng.normal(0, 1 + t, (3, 7, 2)) for t in inputs}
        recorder = Recorder(hessian=True)
        for t in inputs:
            for x, y in zip(inputs[t], outputs[t]):
                recorder.add("a.weight", x, t, y)
            recorder.add("b", inputs[t][..., :2].astype(np.float32), timestep=t)
        metadata, tensors = saved(recorder, tmp_path)

        assert metadata == {"format": "timecalib.v1", "timesteps": "[0.5, 10, 20]"}
        x = np.stack([inputs[t].reshape(21, 5) for t in (0.5, 10, 20)])
        y = np.stack([outputs[t] for t in (0.5, 10, 20)])
        rows = x.reshape(-1, 5)
        expected = {
            "a.weight.count": np.full(3, 21),
            "a.weight.hessian": rows.T @ rows / len(rows),
            "a.weight.x_max": x.max(axis=(1, 2)),
            "a.weight.x_mean": x.mean(axis=1),
            "a.weight.x_min": x.min(axis=(1, 2)),
            "a.weight.x_sqmean": (x**2).mean(axis=1),
            "a.weight.y_sqmean": (y**2).mean(axis=(1, 2, 3)),
        }
        assert {name for name in tensors if name.startswith("a.")} == set(expected)
        for name, values in expected.items():
            assert tensors[name].dtype == np.float32
            assert tensors[name].shape == values.shape, name
            np.testing.assert_allclose(tensors[name], values, rtol=1e-6, atol=1e-7, err_msg=name)
        assert {name for name in tensors if name.startswith("b.")} == {
            "b.count", "b.hessian", "b.x_max", "b.x_mean", "b.x_min", "b.x_sqmean"
        }  # fmt: skip
        assert tensors["b.x_mean"].shape == (3, 2)

    def test_without_timesteps(self, rng, tmp_path):
        x = rng.normal(1, 2, (40, 6)).astype(np.float32)
        recorder = Recorder()
        recorder.add("w", x[:10])
        recorder.add("w", x[10:].reshape(5, 6, 6))
        metadata, tensors = saved(recorder, tmp_path)
        assert metadata == {"format": "timecalib.v1"}
        shapes = {name: values.shape for name, values in tensors.items()}
        assert shapes == {"w.count": (1,), "w.x_max": (1,), "w.x_mean": (6,), "w.x_min": (1,), "w.x_sqmean": (6,)}
        np.testing.assert_allclose(tensors["w.x_mean"], x.mean(axis=0, dtype=np.float64), rtol=1e-6)
        np.testing.assert_allclose(tensors["w.x_sqmean"], (x.astype(np.float64) ** 2).mean(axis=0), rtol=1e-6)
        assert tensors["w.count"] == [40] and tensors["w.x_min"] == [x.min()] and tensors["w.x_max"] == [x.max()]

    @pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64])
    def test_any_floats_are_added_up_in_float64(self, tmp_path, dtype):
        recorder = Recorder()
        for _ in range(3):
            recorder.add("w", np.full((1000, 2), 3.5, dtype))
        _, tensors = saved(recorder, tmp_path)
        assert tensors["w.x_mean"].tolist() == [3.5, 3.5] and tensors["w.x_sqmean"].tolist() == [12.25, 12.25]

    def test_one_vector_is_one_input(self, tmp_path):
        recorder = Recorder()
        recorder.add("w", np.array([1.0, 2.0]))
        _, tensors = saved(recorder, tmp_path)
        assert tensors["w.count"] == [1] and tensors["w.x_mean"].tolist() == [1, 2]

    def test_timesteps_that_a_weight_did_not_see_have_count_0(self, tmp_path):
        recorder = Recorder()
        recorder.add("a", np.ones((2, 3)), 1)
        recorder.add("b", np.ones((2, 3)), 2)
        recorder.add("b", np.ones((0, 3)), 3)
        recorder.add("never", np.ones((0, 3)), 1)
        metadata, tensors = saved(recorder, tmp_path)
        assert metadata["timesteps"] == "[1, 2, 3]"
        assert tensors["a.count"].tolist() == [2, 0, 0] and tensors["b.count"].tolist() == [0, 2, 0]
        assert tensors["a.x_mean"].tolist() == [[1] * 3, [0] * 3, [0] * 3] and tensors["b.x_max"].tolist() == [0, 1, 0]
        assert not any(name.startswith("never") for name in tensors)

    @pytest.mark.parametrize("timestep, written", [(-0.0, 0), (1e300, 1e300), (np.float32(0.1), float(np.float32(0.1)))])
    def test_timesteps_are_kept_exactly(self, tmp_path, timestep, written):
        recorder = Recorder()
        recorder.add("w", np.ones((1, 1)), timestep)
        metadata, _ = saved(recorder, tmp_path)
        assert json.loads(metadata["timesteps"]) == [written]


def with_least(importance):
    positive = np.sort(importance[importance > 0])
    return np.maximum(importance, 1e-4 * positive[len(positive) // 2])


class TestLibraryReads:
    def test_by_timestep(self, probe, rng, tmp_path):
        recorder = Recorder(hessian=True)
        means = np.zeros((12, 8))
        means[5:] = rng.normal(0, 2, 8)
        energies = np.linspace(1, 3, 12) ** 2
        for t in range(12):
            x = rng.normal(0, 1, (50 + t, 8)) * [1, 2, 3, 4, 5, 0, 1, 1]
            x += means[t] - x.mean(axis=0)
            recorder.add("w", x, 100 - t, np.full((50 + t, 2), energies[t] ** 0.5))
        _, tensors = saved(recorder, tmp_path)
        found = probe(f"statistics {tmp_path / 's.safetensors'} 10")
        assert found["ok"] and found["timesteps"] == list(range(89, 101))
        assert found["groups"] == [0, 7]
        weights = (np.arange(50, 62) / energies)[::-1]
        weights /= weights.sum()
        np.testing.assert_allclose(found["weights"]["w"]["weights"], weights, rtol=1e-6)
        importance = weights @ tensors["w.x_sqmean"].astype(np.float64)
        importance = with_least(importance / importance.mean())
        np.testing.assert_allclose(found["weights"]["w"]["importance"], importance, rtol=1e-6)
        assert found["weights"]["w"]["means"] == tensors["w.x_mean"].ravel().tolist()

    def test_without_timesteps(self, probe, rng, tmp_path):
        recorder = Recorder()
        recorder.add("w", rng.normal(0, 1, (100, 4)) * [0, 1, 2, 3])
        _, tensors = saved(recorder, tmp_path)
        found = probe(f"statistics {tmp_path / 's.safetensors'} 10")
        assert found["ok"] and found["timesteps"] == [] and found["groups"] == [0]
        squares = tensors["w.x_sqmean"]
        np.testing.assert_allclose(found["weights"]["w"]["importance"], with_least(squares / squares.mean()), rtol=1e-6)


class TestMistakes:
    @pytest.mark.parametrize(
        "name, x, options, message",
        [
            ("w", [[1.0, np.nan]], {}, "w: x has NaN or infinite values"),
            ("w", [[1.0, np.inf]], {}, "w: x has NaN or infinite values"),
            ("w", [[1.0, 2.0, 3.0]], {}, "w: x has 3 columns, earlier inputs had 2"),
            ("w", [[1, 2]], {}, "w: x must have floats, not int64"),
            ("w", 1.0, {}, r"w: x has shape \[\], it must have at least one column"),
            ("w", np.ones((3, 0)), {}, r"w: x has shape \[3, 0\], it must have at least one column"),
            ("w", [[1.0, 2.0]], {"timestep": 1}, "w: give a timestep in all calls or in none"),
            ("v", [[1.0, 2.0]], {"timestep": 1}, "v: give a timestep in all calls or in none"),
            ("w", [[1.0, 2.0]], {"y": [[1.0]]}, "w: give y in all calls or in none"),
            ("v", [[1.0, 2.0]], {"y": [[1.0], [2.0]]}, "v: x has 1 rows, y has 2"),
            ("v", [[1.0, 2.0]], {"y": [[np.nan]]}, "v: y has NaN or infinite values"),
            ("", [[1.0, 2.0]], {}, "weight_name must be a non-empty str, not ''"),
        ],
    )
    def test_are_told_and_change_nothing(self, tmp_path, name, x, options, message):
        recorder = Recorder()
        recorder.add("w", np.ones((1, 2)))
        before = saved(recorder, tmp_path)[1]
        with pytest.raises(ValueError, match=f"^{message}$"):
            recorder.add(name, x, **options)
        after = saved(recorder, tmp_path)[1]
        assert {name: values.tolist() for name, values in after.items()} == {name: values.tolist() for name, values in before.items()}

    def test_a_timestep_is_a_number(self):
        with pytest.raises(ValueError, match="w: timestep is nan, it must be finite"):
            Recorder().add("w", np.ones((1, 2)), float("nan"))
        for timestep in (True, "7", b"7", np.True_):
            with pytest.raises(ValueError, match="w: timestep must be a number, not .*"):
                Recorder().add("w", np.ones((1, 2)), timestep)

    def test_more_timesteps_than_the_format_has(self, tmp_path):
        recorder = Recorder()
        for timestep in range(100_001):
            recorder.add("w", np.ones((1, 1)), timestep)
        with pytest.raises(ValueError, match="100001 timesteps, the format allows 100000"):
            recorder.save(tmp_path / "s.safetensors")
        assert not any(tmp_path.iterdir())

    def test_a_call_without_a_timestep_after_others_with_one(self):
        recorder = Recorder()
        recorder.add("w", np.ones((1, 2)), 3)
        with pytest.raises(ValueError, match="give a timestep in all calls or in none"):
            recorder.add("w", np.ones((1, 2)))

    def test_nothing_recorded(self, tmp_path):
        with pytest.raises(ValueError, match="no inputs were recorded"):
            Recorder().save(tmp_path / "s")
        assert list(tmp_path.iterdir()) == []

    def test_what_does_not_fit_float32_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "s.safetensors"
        path.write_text("old")
        recorder = Recorder()
        recorder.add("w", np.full((1, 2), 1e30))
        with pytest.raises(ValueError, match="w.x_sqmean has values too large for float32"):
            recorder.save(path)
        assert path.read_text() == "old" and os.listdir(tmp_path) == ["s.safetensors"]

    def test_a_broken_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "s.safetensors"
        path.write_text("old")
        recorder = Recorder()
        recorder.add("w", np.ones((1, 2)))

        def full(_):
            raise OSError("no space left")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            recorder.save(path)
        assert path.read_text() == "old" and os.listdir(tmp_path) == ["s.safetensors"]


def test_example(tmp_path):
    path = tmp_path / "toy.safetensors"
    result = subprocess.run(
        [sys.executable, ROOT / "examples/record_statistics.py", path], capture_output=True, text=True, check=True
    )
    assert result.stdout == (
        f"{path}: 12 tensors about 2 weights at 50 timesteps, 0 to 49\n  up.weight: 64 inputs\n  down.weight: 128 inputs\n"
    )
    metadata, tensors = load(path)
    assert json.loads(metadata["timesteps"]) == list(range(50))
    assert tensors["down.weight.x_mean"].shape == (50, 128) and tensors["up.weight.count"].tolist() == [32] * 50
