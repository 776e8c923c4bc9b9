"""Quantized checkpoints with one defect: `verify` reports it and exits with 1, and what reads the weights refuses them in one line."""

import json

import pytest
from checkpoint_defects import STRUCTURE, UNSUPPORTED, VALUES, Checkpoint
from checkpoint_kinds import QUANTIZED_KINDS
from conftest import one_error_line
from layouts import read, write


def every(table):
    return [pytest.param(name, change, id=f"{name}: {label}") for name, changes in table.items() for label, change in changes.items()]


def write_changed(name, change, folder):
    made = QUANTIZED_KINDS[name].make(folder)
    path = next(folder.glob("*.safetensors"))
    tensors, metadata = read(path)
    config = folder / "config.json"
    weight = sorted(made.quantized)[0]
    checkpoint = Checkpoint(weight.removesuffix(".weight"), dict(tensors), json.loads(config.read_text()) if config.exists() else {})
    change(checkpoint)
    write(path, checkpoint.tensors, metadata)
    if config.exists():
        config.write_text(json.dumps(checkpoint.config))
    for each in ("quantize_config.json", "quant_config.json"):  # config.json has the same
        (folder / each).unlink(missing_ok=True)
    return checkpoint


@pytest.mark.parametrize(("name", "change"), every(STRUCTURE))
class TestStructure:
    def test_verify_reports_it(self, run, tmp_path, name, change):
        write_changed(name, change, tmp_path / "m")
        result = run("verify", tmp_path / "m", "--json")
        assert result.returncode == 1, result.stdout + result.stderr
        assert json.loads(result.stdout)["defects"]

    def test_dequantize_refuses_it(self, run, tmp_path, name, change):
        write_changed(name, change, tmp_path / "m")
        message = one_error_line(run("dequantize", tmp_path / "m", tmp_path / "out"), 3)
        assert len(message) < 700 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "change"), every(UNSUPPORTED))
def test_what_is_unsupported_is_said(run, tmp_path, name, change):
    """`verify` reports that it did not check the quantization, or a defect; what reads the weights refuses them."""
    write_changed(name, change, tmp_path / "m")
    result = run("verify", tmp_path / "m", "--json")
    assert result.returncode in (0, 1), result.stdout + result.stderr
    found = json.loads(result.stdout)
    assert {"name": "quantization", "ok": True} not in found["checks"]
    assert found["defects"] or any(each.startswith("quantization") for each in found["skipped"])
    for command in ("dequantize", "quantize"):
        one_error_line(run(command, tmp_path / "m", tmp_path / "out"), 3)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "change"), every(VALUES))
def test_verify_reports_values(run, tmp_path, name, change):
    write_changed(name, change, tmp_path / "m")
    result = run("verify", tmp_path / "m", "--values", "--json")
    assert result.returncode == 1, result.stdout + result.stderr
    assert json.loads(result.stdout)["defects"]
