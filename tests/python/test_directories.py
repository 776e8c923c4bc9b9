"""Model directories as people have them: adapters, modules of sentence-transformers, several sets of weights, the cache of the
Hugging Face Hub, Git LFS pointers, weights of other libraries; and output directories that are not empty."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from conftest import one_error_line
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import ballast

RNG = np.random.default_rng(7)
QUANTIZE = {"parquet": ("--bits", 4), "mlx": ("--format", "mlx", "--bits", 4, "--group-size", 32)}


def matrix(*shape):
    return RNG.standard_normal(shape or (64, 64)).astype(np.float32)


def save(path, tensors=None, metadata=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors or {"w": matrix()}, path, metadata)
    return path


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def report(result, code=0):
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def sentence(tmp_path):
    """A model of sentence-transformers with what else is found beside it."""
    folder = tmp_path / "sentence"
    save(folder / "model.safetensors", {"embeddings.weight": matrix(), "position_ids": np.arange(4)}, {"license": "mit", "format": "pt"})
    (folder / "config.json").write_text('{"model_type": "bert", "torch_dtype": "float32"}')
    modules = [{"idx": 0, "name": "0", "path": ""}, {"idx": 1, "name": "1", "path": "1_Pooling"}, {"idx": 2, "path": "2_Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text("{}")
    save(folder / "2_Dense/model.safetensors")
    (folder / "2_Dense/config.json").write_text("{}")
    (folder / "2_Dense/pytorch_model.bin").write_bytes(b"other")
    (folder / "onnx").mkdir()
    (folder / "onnx/model.onnx").write_bytes(b"onnx")
    (folder / "onnx/config.json").write_text("{}")
    save(folder / "original/model.safetensors")
    (folder / ".cache/huggingface").mkdir(parents=True)
    (folder / ".cache/huggingface/x.lock").write_text("")
    (folder / ".gitattributes").write_text("x")
    return folder


COPIED = ["1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "config.json", "modules.json", "onnx/config.json"]
NOT_COPIED = ["2_Dense/pytorch_model.bin", "onnx/model.onnx", "original/model.safetensors"]


class TestFolders:
    def test_convert_copies_all_but_other_weights(self, run, sentence, tmp_path):
        result = run("convert", sentence, tmp_path / "out", "--dtype", "f16", "--json")
        assert report(result)["not_copied"] == NOT_COPIED
        assert files(tmp_path / "out") == sorted([*COPIED, "model.safetensors"])
        copy = tmp_path / "out/2_Dense/model.safetensors"
        assert copy.read_bytes() == (sentence / "2_Dense/model.safetensors").read_bytes()
        text = run("convert", sentence, tmp_path / "text").stderr
        assert f"note: not copied: {', '.join(NOT_COPIED)}\n" in text

    @pytest.mark.parametrize("format", QUANTIZE)
    def test_quantize_and_dequantize_copy_them_too(self, run, sentence, tmp_path, format):
        result = run("quantize", sentence, tmp_path / "q", *QUANTIZE[format], "--json")
        assert report(result)["not_copied"] == NOT_COPIED
        assert set(COPIED) < set(files(tmp_path / "q"))
        report(run("dequantize", tmp_path / "q", tmp_path / "back", "--json"))
        assert files(tmp_path / "back") == sorted([*COPIED, "model.safetensors"])

    def test_modules_without_safetensors_keep_their_weights(self, run, sentence, tmp_path):
        (sentence / "2_Dense/model.safetensors").unlink()
        assert report(run("convert", sentence, tmp_path / "out", "--json"))["not_copied"] == NOT_COPIED[1:]
        assert (tmp_path / "out/2_Dense/pytorch_model.bin").read_bytes() == b"other"

    def test_a_rerun_replaces_the_whole_directory(self, run, sentence, tmp_path):
        for dtype in ("f16", "bf16"):
            report(run("convert", sentence, tmp_path / "out", "--dtype", dtype, "--json"))
        assert files(tmp_path / "out") == sorted([*COPIED, "model.safetensors"])
        assert json.loads((tmp_path / "out/config.json").read_text())["torch_dtype"] == "bfloat16"

    def test_python_reports_them(self, sentence, tmp_path):
        done = ballast.convert(sentence, tmp_path / "out")
        assert done.not_copied == NOT_COPIED
        assert done.notes == [f"not copied: {', '.join(NOT_COPIED)}"]
        assert ballast.quantize(sentence, tmp_path / "q", bits=4).not_copied == NOT_COPIED

    def test_verify_names_what_it_did_not_check(self, run, sentence):
        found = report(run("verify", sentence, "--json"))
        text = "\n".join(found["skipped"])
        for name in (*NOT_COPIED, "1_Pooling"):
            assert name in text
        assert ".cache" not in text

    def test_verify_finds_truncated_weights_beside_the_model(self, run, sentence):
        dense = sentence / "2_Dense/model.safetensors"
        dense.write_bytes(dense.read_bytes()[:-1])
        with zipfile.ZipFile(sentence / "pytorch_model.bin", "w") as archive:
            archive.writestr("archive/data.pkl", b"x" * 1000)
        assert len(report(run("verify", sentence, "--json"), 1)["defects"]) == 1
        whole = (sentence / "pytorch_model.bin").read_bytes()
        (sentence / "pytorch_model.bin").write_bytes(whole[:-30])
        messages = [each["message"] for each in report(run("verify", sentence, "--json"), 1)["defects"]]
        assert len(messages) == 2
        assert any("2_Dense/model.safetensors" in message and "truncated" in message for message in messages)
        assert any("pytorch_model.bin" in message and "truncated" in message for message in messages)


class TestStems:
    @pytest.mark.parametrize("stem", ["adapter_model", "diffusion_pytorch_model", "consolidated", "pytorch_lora_weights", "other"])
    def test_convert_keeps_them(self, run, tmp_path, stem):
        save(tmp_path / f"in/{stem}.safetensors", {"a": matrix(), "b": matrix()})
        (tmp_path / "in/config.json").write_text("{}")
        report(run("convert", tmp_path / "in", tmp_path / "one", "--json"))
        assert files(tmp_path / "one") == sorted(["config.json", f"{stem}.safetensors"])
        report(run("convert", tmp_path / "in", tmp_path / "two", "--max-shard-size", "17kB", "--json"))
        assert files(tmp_path / "two") == sorted(
            ["config.json", f"{stem}-00001-of-00002.safetensors", f"{stem}-00002-of-00002.safetensors", f"{stem}.safetensors.index.json"]
        )
        assert run("diff", tmp_path / "one", tmp_path / "two").returncode == 0
        report(run("convert", tmp_path / "two", tmp_path / "two", "--json"))
        assert files(tmp_path / "two") == sorted(["config.json", f"{stem}.safetensors"])

    def test_mlx_writes_the_name_that_its_loader_reads(self, run, tmp_path):
        save(tmp_path / "in/diffusion_pytorch_model.safetensors")
        report(run("quantize", tmp_path / "in", tmp_path / "out", *QUANTIZE["mlx"], "--json"))
        assert (tmp_path / "out/model.safetensors").exists()


class TestAdapters:
    @pytest.fixture
    def adapter(self, tmp_path):
        layer = "base_model.model.model.layers.0.self_attn.q_proj"
        tensors = {f"{layer}.lora_A.weight": matrix(8, 64), f"{layer}.lora_B.weight": matrix(64, 8)}
        save(tmp_path / "lora/adapter_model.safetensors", tensors)
        (tmp_path / "lora/adapter_config.json").write_text('{"r": 8}')
        return tmp_path / "lora"

    def test_convert_keeps_the_directory(self, run, adapter, tmp_path):
        report(run("convert", adapter, tmp_path / "out", "--dtype", "bf16", "--json"))
        assert files(tmp_path / "out") == ["adapter_config.json", "adapter_model.safetensors"]

    def test_quantize_refuses_them(self, run, adapter, tmp_path):
        message = one_error_line(run("quantize", adapter, tmp_path / "out"), 3)
        assert message == f"{adapter}: an adapter (LoRA), not a model (adapter_model.safetensors); quantize the model that it belongs to"
        assert not (tmp_path / "out").exists()

    def test_kohya_names_are_known(self, run, tmp_path):
        names = {"lora_unet_q.lora_down.weight": matrix(4, 64), "lora_unet_q.lora_up.weight": matrix(64, 4), "lora_unet_q.alpha": np.float32(4)}
        path = save(tmp_path / "style.safetensors", {name: np.asarray(value) for name, value in names.items()})
        assert "(tensor 'lora_unet_q.lora_down.weight')" in one_error_line(run("quantize", path, tmp_path / "out"), 3)
        with pytest.raises(ballast.BallastError, match="adapter"):
            ballast.quantize(path, tmp_path / "out", bits=4)


class TestSeveralWeights:
    def test_unrelated_files_are_not_merged(self, run, tmp_path):
        save(tmp_path / "m/a.safetensors", {"x": matrix()})
        save(tmp_path / "m/b.safetensors", {"y": matrix()})
        message = one_error_line(run("inspect", tmp_path / "m"), 3)
        assert message.endswith("which may be different models: 'a.safetensors', 'b.safetensors'; name one of them")
        assert run("inspect", tmp_path / "m/a.safetensors").returncode == 0

    def test_a_shard_alone_opens_with_a_warning(self, run, sharded):
        result = run("inspect", sharded / "model-00002-of-00003.safetensors")
        assert result.returncode == 0
        assert result.stderr == "warning: model-00002-of-00003.safetensors is one of 3 shards; the others are not read\n"

    def test_consolidated_beside_the_model_is_ignored_and_named(self, run, tmp_path):
        save(tmp_path / "m/model.safetensors", {"x": matrix()})
        save(tmp_path / "m/consolidated.safetensors", {"y": matrix()})
        result = run("convert", tmp_path / "m", tmp_path / "out", "--json")
        assert report(result)["not_copied"] == ["consolidated.safetensors"]
        assert f"{tmp_path / 'm/consolidated.safetensors'} is ignored because model.safetensors is used" in report(result)["warnings"]
        assert files(tmp_path / "out") == ["model.safetensors"]


class TestOtherLibraries:
    @pytest.mark.parametrize("name", ["pytorch_model.bin", "x.pt", "x.pth", "x.ckpt", "x.npz", "x.h5", "x.onnx", "x.gguf"])
    def test_a_directory_of_them_names_the_command(self, run, tmp_path, name):
        (tmp_path / name).write_bytes(b"?")
        (tmp_path / "config.json").write_text("{}")
        message = one_error_line(run("inspect", tmp_path), 3)
        assert f"no SafeTensors weights, but '{name}'" in message
        assert 'convert it: python3 -c "import ' in message

    def test_the_command_for_numpy_works(self, run, tmp_path):
        arrays = {"a": matrix(3, 4), "b": np.arange(5)}
        np.savez(tmp_path / "x.npz", **arrays)
        message = one_error_line(run("inspect", tmp_path / "x.npz"), 3)
        code = message.split('python3 -c "')[1].rstrip('"')
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        assert all(np.array_equal(value, arrays[name]) for name, value in load_file(tmp_path / "x.safetensors").items())

    def test_a_git_lfs_pointer_names_its_size(self, run, tmp_path):
        (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4321\n")
        assert "not downloaded, 4321 bytes" in one_error_line(run("inspect", tmp_path), 3)
        assert run("verify", tmp_path).returncode == 1


class TestHubCache:
    @pytest.fixture
    def cache(self, tmp_path):
        root = tmp_path / "models--org--name"
        save(root / "blobs/abc", {"w": matrix()})
        (root / "blobs/def.incomplete").write_bytes(b"part")
        (root / "refs").mkdir()
        (root / "refs/main").write_text("c0ffee")
        (root / ".no_exist/c0ffee").mkdir(parents=True)
        snapshot = root / "snapshots/c0ffee"
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
        (snapshot / "config.json").write_text("{}")
        return root

    def test_the_root_names_the_snapshot(self, run, cache):
        message = one_error_line(run("inspect", cache), 3)
        assert message.endswith(f"give the path of the model in it, {cache}/snapshots/c0ffee")

    def test_a_snapshot_is_a_model_with_the_names_of_its_links(self, run, cache, tmp_path):
        report(run("convert", cache / "snapshots/c0ffee", tmp_path / "out", "--json"))
        assert files(tmp_path / "out") == ["config.json", "model.safetensors"]
        assert not (tmp_path / "out/model.safetensors").is_symlink()

    def test_blobs_never_change(self, run, cache, tmp_path):
        before = (cache / "blobs/abc").read_bytes()
        snapshot = cache / "snapshots/c0ffee"
        link = tmp_path / "link.safetensors"
        link.symlink_to(cache / "blobs/abc")
        other = save(tmp_path / "other.safetensors")
        for arguments in (
            ("metadata", snapshot / "model.safetensors", "--set", "k=v"),
            ("metadata", link, "--set", "k=v"),
            ("convert", other, snapshot / "model.safetensors"),
            ("convert", other, link, "--force"),
            ("convert", snapshot, snapshot, "--dtype", "f16"),
            ("quantize", other, snapshot, "--force"),
        ):
            assert "Hugging Face cache" in one_error_line(run(*arguments), 4)
        with pytest.raises(ballast.BallastError, match="Hugging Face cache"):
            ballast.save({"a": np.zeros(3)}, link)
        assert (cache / "blobs/abc").read_bytes() == before
        assert (snapshot / "model.safetensors").is_symlink()

    def test_metadata_is_not_edited_through_a_link(self, run, tmp_path):
        real = save(tmp_path / "real.safetensors")
        (tmp_path / "link.safetensors").symlink_to(real)
        message = one_error_line(run("metadata", tmp_path / "link.safetensors", "--set", "k=v"), 2)
        assert message.endswith(f"a symbolic link; give the path of the file itself, {real}")

    def test_a_missing_blob_is_explained(self, run, cache):
        (cache / "blobs/abc").unlink()
        message = one_error_line(run("inspect", cache / "snapshots/c0ffee"), 3)
        assert message.endswith("a link to a file that does not exist; download the model again")


class TestForce:
    @pytest.fixture
    def model(self, tmp_path):
        save(tmp_path / "in/model.safetensors")
        (tmp_path / "in/config.json").write_text("{}")
        return tmp_path / "in"

    def commands(self, model, quantized, out):
        yield "convert", model, out
        yield "quantize", model, out, *QUANTIZE["mlx"]
        yield "dequantize", quantized, out

    def test_other_files_need_it(self, run, model, tmp_path):
        report(run("quantize", model, tmp_path / "q", *QUANTIZE["mlx"], "--json"))
        for command in self.commands(model, tmp_path / "q", tmp_path / "out"):
            out = tmp_path / "out"
            out.mkdir()
            (out / "notes.txt").write_text("mine")
            assert one_error_line(run(*command), 4) == (
                f"{out}: the directory is not empty: 'notes.txt' would stay beside the model; choose another directory, or "
                "allow it (--force)"
            )
            assert files(out) == ["notes.txt"]
            assert run(*command, "--force").returncode == 0
            assert {"notes.txt", "model.safetensors", "config.json"} <= set(files(out))
            assert run("verify", out).returncode == 0
            for path in sorted(out.rglob("*"), reverse=True):
                path.unlink()
            out.rmdir()

    def test_a_model_of_the_same_files_does_not(self, run, model, tmp_path):
        (tmp_path / "out/.cache").mkdir(parents=True)
        (tmp_path / "out/.cache/x").write_text("")
        for _ in range(2):
            assert run("convert", model, tmp_path / "out").returncode == 0
        assert run("quantize", model, tmp_path / "out", *QUANTIZE["mlx"]).returncode == 0
        assert run("quantize", model, tmp_path / "out", *QUANTIZE["mlx"], "--resume").returncode == 0

    def test_the_config_of_another_model_does_not_stay_silently(self, run, model, tmp_path):
        assert run("convert", model, tmp_path / "out").returncode == 0
        message = one_error_line(run("convert", model / "model.safetensors", tmp_path / "out"), 4)
        assert "'config.json' would stay beside the model" in message

    def test_python(self, model, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out/notes.txt").write_text("mine")
        for call in (
            lambda **force: ballast.convert(model, tmp_path / "out", **force),
            lambda **force: ballast.quantize(model, tmp_path / "out", bits=4, **force),
        ):
            with pytest.raises(ballast.BallastError, match=r"not empty: 'notes.txt' would stay .* \(force\)"):
                call()
            call(force=True)


class TestWhatIsQuantizedAndConverted:
    @pytest.mark.parametrize("format", QUANTIZE)
    def test_columns_masks_and_what_would_grow_stay(self, run, tmp_path, format):
        tensors = {
            "up.weight": matrix(),
            "gate.weight": matrix(64, 1),
            "attn.bias": np.tril(np.ones((1, 1, 32, 32), np.float32)),
            "conv.weight": matrix(64, 1, 2).astype(np.float16),
        }
        save(tmp_path / "m.safetensors", tensors)
        done = report(run("quantize", tmp_path / "m.safetensors", tmp_path / "q", *QUANTIZE[format], "--json"))
        assert [layer["name"] for layer in done["layers"]] == ["up.weight"]

    @pytest.mark.parametrize("format", QUANTIZE)
    def test_the_metadata_of_the_model_stays(self, run, sentence, tmp_path, format):
        report(run("quantize", sentence, tmp_path / "q", *QUANTIZE[format], "--json"))
        if format == "mlx":
            with safe_open(tmp_path / "q/model.safetensors", "np") as file:
                assert file.metadata() == {"format": "mlx", "license": "mit"}
        else:
            assert json.loads((tmp_path / "q/metadata.json").read_text())["metadata"] == {"license": "mit"}

    def test_frequencies_and_corrections_keep_their_dtype(self, run, tmp_path):
        path = save(
            tmp_path / "m.safetensors",
            {"rotary.inv_freq": matrix(8), "gate.e_score_correction_bias": matrix(8), "w": matrix()},
        )
        result = report(run("convert", path, tmp_path / "a.safetensors", "--dtype", "f16", "--json"))
        assert result["notes"] == [
            "'gate.e_score_correction_bias' and 1 more are not converted: rotary frequencies, router corrections and scales keep "
            "their dtype unless a pattern names them"
        ]
        dtypes = {name: str(value.dtype) for name, value in load_file(tmp_path / "a.safetensors").items()}
        assert dtypes == {"rotary.inv_freq": "float32", "gate.e_score_correction_bias": "float32", "w": "float16"}
        report(run("convert", path, tmp_path / "b.safetensors", "--dtype", "f16", "--dtype", "*inv_freq=f16", "--json"))
        assert load_file(tmp_path / "b.safetensors")["rotary.inv_freq"].dtype == np.float16

    def test_claims_of_a_quantization_are_dropped_with_it(self, run, tmp_path):
        save(tmp_path / "in/model.safetensors")
        (tmp_path / "in/config.json").write_text("{}")
        report(run("quantize", tmp_path / "in", tmp_path / "q", *QUANTIZE["mlx"], "--json"))
        section = json.loads((tmp_path / "q/config.json").read_text())["quantization"]
        names = ["hf_quant_config.json", "quant_config.json", "quantization_config.json", "quantize_config.json"]
        for name in names:
            (tmp_path / "q" / name).write_text(json.dumps(section) if name == "quantization_config.json" else "{}")
        done = report(run("dequantize", tmp_path / "q", tmp_path / "back", "--json"))
        assert done["not_copied"] == names
        assert files(tmp_path / "back") == ["config.json", "model.safetensors"]
        assert "quantization" not in (tmp_path / "back/config.json").read_text()
