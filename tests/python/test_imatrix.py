"""Importance matrices of llama.cpp as statistics, written by its own package."""

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

import ballast


@pytest.fixture(scope="module")
def squares(tiny):
    """Mean squares of the inputs of each linear layer, by its name in GGUF and in the model."""
    names = {"attn_q": "self_attn.q_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_down": "mlp.down_proj"}
    rng = np.random.default_rng(0)
    opened = ballast.open(tiny)
    found = {}
    for layer in range(2):
        for ours, theirs in names.items():
            name = f"model.layers.{layer}.{theirs}.weight"
            found[f"blk.{layer}.{ours}.weight", name] = rng.lognormal(0, 2, opened[name].shape[1]).astype(np.float32)
    return found


def write_imatrix(path, squares, count=128, file_type="imatrix"):
    writer = gguf.GGUFWriter(path, "", use_temp_file=False)
    writer.add_type(file_type)
    writer.add_array("imatrix.datasets", ["text"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", count)
    for name, values in squares.items():
        writer.add_tensor(f"{name}.in_sum2", (values * count)[None])
        writer.add_tensor(f"{name}.counts", np.full((1, 1), count, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gives_the_bytes_of_the_same_statistics(run, tiny, squares, tmp_path):
    theirs = write_imatrix(tmp_path / "imatrix.gguf", {ours: values for (ours, _), values in squares.items()})
    ours = tmp_path / "statistics.safetensors"
    tensors = {f"{name}.x_sqmean": values for (_, name), values in squares.items()}
    save_file(tensors, ours, metadata={"format": "timecalib.v1"})
    for statistics, out in ((theirs, "a"), (ours, "b")):
        result = run("quantize", tiny, tmp_path / out, "--format", "mlx", "--group-size", "64", "--bits", "3", "--calibration", statistics)
        assert result.returncode == 0, result.stderr
        assert "statistics for 8 of 29 layers" in result.stdout
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    plain = run("quantize", tiny, tmp_path / "c", "--format", "mlx", "--group-size", "64", "--bits", "3")
    assert plain.returncode == 0 and (tmp_path / "c/model.safetensors").read_bytes() != (tmp_path / "a/model.safetensors").read_bytes()


def test_a_weight_that_the_model_lacks_is_named(run, tiny, tmp_path):
    path = write_imatrix(tmp_path / "imatrix.gguf", {"blk.9.attn_q.weight": np.ones(64, np.float32)})
    result = run("quantize", tiny, tmp_path / "out", "--format", "mlx", "--group-size", "64", "--calibration", path)
    assert result.returncode == 3 and not (tmp_path / "out").exists()
    assert f"{path}: has statistics for tensor 'blk.9.attn_q.weight', which {tiny} does not have" in result.stderr


def test_a_model_is_not_an_importance_matrix(run, tiny, tmp_path):
    path = write_imatrix(tmp_path / "model.gguf", {"a": np.ones(64, np.float32)}, file_type="model")
    result = run("quantize", tiny, tmp_path / "out", "--format", "mlx", "--group-size", "64", "--calibration", path)
    assert result.returncode == 3 and "not an importance matrix: general.type is not 'imatrix'" in result.stderr


def test_time_groups_need_means(run, tiny, squares, tmp_path):
    path = write_imatrix(tmp_path / "imatrix.gguf", {ours: values for (ours, _), values in squares.items()})
    config = tmp_path / "settings.yaml"
    config.write_text("enable_time_aware: true\n")
    result = run("quantize", tiny, tmp_path / "out", "--format", "mlx", "--group-size", "64", "--calibration", path, "--config", config)
    assert result.returncode == 2 and "enable_time_aware needs the means of the inputs" in result.stderr
