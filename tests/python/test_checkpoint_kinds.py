"""Every command on every kind of checkpoint that is not quantized: the right result, or one line that says why not."""

import io
import json
import subprocess

import numpy as np
import pytest
from checkpoint_kinds import DEQUANTIZE, PLAIN_KINDS, QUANTIZE, VARIANT
from conftest import one_error_line
from layouts import read_all
from layouts.elements import BF16
from quantized_files import done

# What is wrong in fewer bits.
KEPT = "e_score_correction_bias"
# Why a model cannot be quantized for MLX: a matrix of an uncommon width, or weights that mlx-lm would change.
REASONS = ("not a multiple of --group-size", "for mlx-lm")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("kinds"), {}

    def made(name):
        if name not in found:
            found[name] = PLAIN_KINDS[name].make(folder / name)
        return found[name]

    return made


def plainly_refused(result, part=""):
    assert result.returncode in (2, 3), result.stderr
    assert part in one_error_line(result, result.returncode)


def each_kind(command, *, refusing=False):
    return pytest.mark.parametrize("name", [name for name, kind in PLAIN_KINDS.items() if (command in kind.refused) == refusing])


@pytest.mark.parametrize("name", PLAIN_KINDS)
class TestEveryKind:
    def test_inspect_counts(self, made, run, name):
        found = json.loads(done(run("inspect", made(name).path, "--json")).stdout)
        assert found["tensor_count"] == len(made(name).stored)
        assert found["parameter_count"] == sum(tensor.size for tensor in made(name).stored.values())
        assert not found.get("quantization")

    def test_verify_finds_no_defect(self, made, run, name):
        found = json.loads(done(run("verify", made(name).path, "--json")).stdout)
        assert found["ok"] and found["defects"] == []

    def test_convert_rounds(self, made, run, tmp_path, name):
        done(run("convert", made(name).path, tmp_path / "out", "--dtype", "bf16"))
        found = read_all(tmp_path / "out")
        assert found.keys() == made(name).stored.keys()
        for weight, values in made(name).stored.items():
            kept = values.dtype.kind in "iub" or (weight.endswith(KEPT) and found[weight].dtype == values.dtype)
            expected = values if kept else values.astype(np.float32).astype(BF16)
            np.testing.assert_array_equal(found[weight].astype(np.float32), expected.astype(np.float32), err_msg=weight)
        config = made(name).path / "config.json"
        assert (tmp_path / "out" / "config.json").exists() == config.exists()

    def test_convert_without_options_keeps_the_tensors(self, made, run, tmp_path, name):
        done(run("convert", made(name).path, tmp_path / "out"))
        assert json.loads(done(run("diff", made(name).path, tmp_path / "out", "--json")).stdout)["equal"]

    def test_extract_reads_the_values(self, build_dir, made, name):
        weight = max(made(name).dense, key=lambda each: made(name).dense[each].size)
        command = [build_dir / "ballast", "extract", made(name).path, weight]
        found = np.load(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout))
        np.testing.assert_array_equal(found.astype(np.float32), made(name).dense[weight].astype(np.float32))


@each_kind(QUANTIZE)
def test_quantize_for_mlx(made, run, tmp_path, name):
    result = run("quantize", made(name).path, tmp_path / "out", "--format", "mlx", "--group-size", "32", "--no-sync")
    if result.returncode:
        plainly_refused(result)
        assert any(reason in result.stderr for reason in REASONS), result.stderr
    else:
        done(run("verify", tmp_path / "out"))
        done(run("inspect", tmp_path / "out"))


@each_kind(QUANTIZE)
def test_quantize_and_validate(made, run, tmp_path, name):
    done(run("quantize", made(name).path, tmp_path / "out", "--bits", "8", "--group-size", "32", "--no-sync"))
    done(run("validate", made(name).path, tmp_path / "out", "--min-accuracy", "0.99"))
    done(run("dequantize", tmp_path / "out", tmp_path / "back"))
    assert read_all(tmp_path / "back").keys() == made(name).stored.keys()


@each_kind(QUANTIZE, refusing=True)
def test_adapters_are_not_quantized(made, run, tmp_path, name):
    plainly_refused(run("quantize", made(name).path, tmp_path / "out", "--format", "mlx", "--group-size", "32"))


@each_kind(DEQUANTIZE, refusing=True)
def test_dequantize_refuses(made, run, tmp_path, name):
    plainly_refused(run("dequantize", made(name).path, tmp_path / "out"), PLAIN_KINDS[name].refused[DEQUANTIZE])


def test_folders_of_sentence_transformers_are_kept(made, run, tmp_path):
    done(run("convert", made("sentence-transformers").path, tmp_path / "out", "--dtype", "bf16"))
    for name in ("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"):
        assert (tmp_path / "out" / name).is_file(), name


def test_a_variant_is_opened_or_asked_for(run, tmp_path):
    """A component of which there is only the variant fp16."""
    made = VARIANT.make(tmp_path / "unet")
    found = run("verify", made.path)
    if found.returncode:
        plainly_refused(found, "--variant fp16")
        found = run("verify", made.path, "--variant", "fp16")
    assert found.returncode == 0, found.stderr
