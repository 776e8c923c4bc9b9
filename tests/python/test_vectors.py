"""The test vectors in tests/vectors, which bindings/node/test/vectors.test.ts uses too."""

import hashlib
import json
from pathlib import Path

import ballast
import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "vectors"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
TENSORS = [(file, name) for file, found in EXPECTED["files"].items() for name in found["tensors"]]


def index(slices):
    return tuple(slice(None) if each is None else each if isinstance(each, int) else slice(*each) for each in slices)


@pytest.mark.parametrize("file, name", TENSORS)
def test_tensors_match_the_vectors(file, name):
    expected = EXPECTED["files"][file]["tensors"][name]
    tensor = ballast.open(FOLDER / file)[name]
    assert (tensor.dtype, list(tensor.shape)) == (expected["dtype"], expected["shape"])
    assert tensor.numpy().tobytes().hex() == expected["hex"]
    for each in expected["slices"]:
        assert np.ascontiguousarray(tensor[index(each["of"])]).tobytes().hex() == each["hex"]
    if "f32" in expected:
        np.testing.assert_array_equal(tensor.to("f32").ravel(), np.array(expected["f32"], np.float32))


@pytest.mark.parametrize("file", EXPECTED["files"])
def test_metadata_matches_the_vectors(file):
    model = ballast.open(FOLDER / file)
    assert model.metadata == EXPECTED["files"][file]["metadata"]
    assert set(model) == set(EXPECTED["files"][file]["tensors"])


@pytest.mark.parametrize("file", EXPECTED["bad"])
def test_errors_match_the_vectors(file):
    with pytest.raises(ballast.BallastError) as raised:
        ballast.open(FOLDER / file)
    assert type(raised.value).__name__ == EXPECTED["bad"][file]["error"]
    assert str(raised.value) == f"{FOLDER / file}: {EXPECTED['bad'][file]['message']}"


@pytest.mark.parametrize("format", ["mlx", "parquet"])
def test_metrics_of_quantization_match_the_vectors(tmp_path, format):
    (file,) = EXPECTED["quantized"]
    expected = EXPECTED["quantized"][file][format]
    report = ballast.quantize(FOLDER / file, tmp_path / "q", **expected["settings"])
    assert {name: getattr(report, name) for name in expected["report"]} == expected["report"]
    if "sha256" in expected:
        assert hashlib.sha256(Path(report.files[0]).read_bytes()).hexdigest() == expected["sha256"]
