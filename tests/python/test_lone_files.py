"""Files of quantized checkpoints without their directory, metadata of the model, and files that people leave beside the weights."""

import json

import numpy as np
import pytest
from checkpoint_kinds import QUANTIZED_KINDS
from checkpoint_kinds.base import write_shards
from conftest import one_error_line
from layouts import read, read_all, write
from layouts.elements import F8_E4M3
from quantized_files import done, listing

A = "model.layers.0.mlp.down_proj"
RNG = np.random.default_rng(3)
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4321\n"


def matrix(*shape, dtype=np.float32):
    return (RNG.standard_normal(shape or (64, 64)).astype(np.float32) * np.float32(0.02)).astype(dtype)


def plain_model(folder):
    folder.mkdir()
    write(folder / "model.safetensors", {"a.weight": matrix()})
    (folder / "config.json").write_text('{"torch_dtype": "float32"}')
    return folder


class TestMetadata:
    """What describes the model stays with it, whatever its weights are stored as."""

    @pytest.fixture(params=["fp8-block", "comfy-e4m3fn-metadata", "gptq4", "mlx4"])
    def model(self, request, tmp_path):
        made = QUANTIZED_KINDS[request.param].make(tmp_path / "m")
        path = next(made.path.glob("*.safetensors"))
        tensors, metadata = read(path)
        write(path, tensors, metadata | {"license": "mit"})
        return made.path

    def metadata(self, folder):
        return read(next(folder.glob("*.safetensors")))[1]

    def test_dequantized(self, run, model, tmp_path):
        done(run("dequantize", model, tmp_path / "out"))
        assert self.metadata(tmp_path / "out") == {"format": "pt", "license": "mit"}

    def test_converted(self, run, model, tmp_path):
        done(run("convert", model, tmp_path / "out", "--dtype", "bf16"))
        assert self.metadata(tmp_path / "out") == {"format": "pt", "license": "mit"}

    def test_quantized_and_back(self, run, model, tmp_path):
        done(run("quantize", model, tmp_path / "q", "--group-size", "32", "--no-sync"))
        assert json.loads((tmp_path / "q" / "metadata.json").read_text())["metadata"] == {"license": "mit"}
        done(run("dequantize", tmp_path / "q", tmp_path / "out"))
        assert self.metadata(tmp_path / "out") == {"format": "pt", "license": "mit"}


class TestShardAlone:
    """The parts of a weight may be in different shards, as in DeepSeek-V3."""

    COMMANDS = {"quantize": [], "convert": ["--dtype", "bf16"]}

    def refused(self, run, path, out, part):
        for command, options in self.COMMANDS.items():
            result = run(command, path, out, *options)
            assert result.returncode == 3, result.stderr
            assert part in result.stderr and result.stderr.count("ballast: ") == 1, result.stderr
        assert not out.exists()

    def test_codes_without_their_scale(self, run, tmp_path):
        tensors = {
            "a.weight": matrix(dtype=F8_E4M3),
            "a.weight_scale_inv": np.ones((1, 1), np.float32),
            "b.weight": matrix(dtype=F8_E4M3),
        }
        write(tmp_path / "model-00001-of-00002.safetensors", tensors)
        self.refused(run, tmp_path / "model-00001-of-00002.safetensors", tmp_path / "out", "'b.weight': is F8_E4M3 without a scale")

    @pytest.mark.parametrize(
        "name",
        ["weight_scale", "weight_scale_inv", "weight_scale_2", "scale_input", "SCB", "weight.absmax", "weight.quant_map", "qzeros"],
    )
    def test_parameters_without_their_codes(self, run, tmp_path, name):
        values = np.ones((64, 2), np.int32 if name == "qzeros" else np.float32)
        write(tmp_path / "model-00002-of-00002.safetensors", {f"{A}.{name}": values, "lm_head.weight": matrix()})
        self.refused(run, tmp_path / "model-00002-of-00002.safetensors", tmp_path / "out", f"{A}.{name}")
        done(run("convert", tmp_path / "model-00002-of-00002.safetensors", tmp_path / "copy.safetensors"))

    @pytest.mark.parametrize("name", ["fp8-block", "ct-pack4-group", "bnb-nf4", "mlx4"])
    def test_no_shard_gives_other_values(self, run, tmp_path, name):
        made = QUANTIZED_KINDS[name].make(tmp_path / "m")
        next(made.path.glob("*.safetensors")).unlink()
        write_shards(made.path, made.stored, 5)
        for shard in sorted(made.path.glob("*-of-*")):
            out = tmp_path / f"{shard.stem}.safetensors"
            if run("convert", shard, out, "--dtype", "f32").returncode:
                continue
            for weight, values in read(out)[0].items():
                if weight in made.quantized and values.dtype == np.float32:
                    np.testing.assert_array_equal(values, made.dense[weight], err_msg=f"{shard.name}: {weight}")

    FOREIGN = {
        "hqq": {f"{A}.W_q": np.zeros((64, 32), np.uint8), f"{A}.scale": matrix(64, 1), f"{A}.zero": matrix(64, 1)},
        "quanto": {f"{A}.weight._data": np.zeros((64, 64), np.int8), f"{A}.weight._scale": matrix(64, 1)},
        "exl2": {f"{A}.q_weight": np.zeros((8, 64), np.int32), f"{A}.q_scale": np.zeros((2, 8), np.int32)},
        "exl3": {f"{A}.trellis": np.zeros((4, 4, 64), np.int16), f"{A}.suh": matrix(64), f"{A}.svh": matrix(64)},
        "aqlm": {f"{A}.codes": np.zeros((8, 8, 1), np.int16), f"{A}.codebooks": matrix(1, 256, 1, 8), f"{A}.scales": matrix(8, 1, 1, 1)},
    }

    @pytest.mark.parametrize("scheme", FOREIGN)
    def test_other_quantizers_are_named(self, run, tmp_path, scheme):
        write(tmp_path / "model.safetensors", self.FOREIGN[scheme] | {"lm_head.weight": matrix()})
        self.refused(run, tmp_path / "model.safetensors", tmp_path / "out", f"quantized as {scheme} (tensor ")


class TestFileAlone:
    @pytest.mark.parametrize("name", ["comfy-e4m3fn-metadata", "comfy-nvfp4-tensor", "comfy-old-e5m2", "bnb-nf4-nested"])
    def test_a_file_that_describes_itself_is_copied(self, run, tmp_path, name):
        made = QUANTIZED_KINDS[name].make(tmp_path / "m")
        path = next(made.path.glob("*.safetensors"))
        result = done(run("convert", path, tmp_path / "copy.safetensors"))
        assert result.stderr == ""
        (found, metadata), (expected, said) = read(tmp_path / "copy.safetensors"), read(path)
        assert found.keys() == expected.keys() and metadata == said
        assert all(found[each].tobytes() == expected[each].tobytes() for each in expected)

    def test_modelopt_blocks_are_decoded(self, run, tmp_path):
        made = QUANTIZED_KINDS["modelopt-fp8-block"].make(tmp_path / "m")
        done(run("convert", made.path / "model.safetensors", tmp_path / "out.safetensors", "--dtype", "f32"))
        found = read(tmp_path / "out.safetensors")[0]
        assert found.keys() == made.dense.keys()
        for weight in made.quantized:
            np.testing.assert_array_equal(found[weight], made.dense[weight], err_msg=weight)


class TestBesideTheWeights:
    def test_claims_are_not_copied_with_plain_weights(self, run, tmp_path):
        model = plain_model(tmp_path / "m")
        names = ["hf_quant_config.json", "quant_config.json", "quantize_config.json"]
        for name in names:
            (model / name).write_text('{"bits": 4, "w_bit": 4, "quantization": {"quant_algo": "FP8"}}')
        for out, options in {"a": [], "b": ["--dtype", "bf16"]}.items():
            found = json.loads(done(run("convert", model, tmp_path / out, *options, "--json")).stdout)
            assert found["not_copied"] == names
            assert listing(tmp_path / out) == ["config.json", "model.safetensors"]

    @pytest.mark.parametrize("name", ["rust_model.ot", "model.pdparams", "x.nemo"])
    def test_weights_of_other_programs_are_not_copied(self, run, tmp_path, name):
        model = plain_model(tmp_path / "m")
        (model / name).write_bytes(b"other weights")
        assert json.loads(done(run("convert", model, tmp_path / "out", "--json")).stdout)["not_copied"] == [name]
        assert name in "".join(json.loads(done(run("verify", model, "--json")).stdout)["skipped"])

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
    def test_git_lfs_pointers_are_named(self, run, tmp_path, name):
        model = plain_model(tmp_path / "m")
        (model / name).write_text(LFS)
        message = one_error_line(run("convert", model, tmp_path / "out"), 3)
        assert "this is a Git LFS pointer: not downloaded" in message and str(model / name) in message


def test_scales_that_are_all_the_same_are_no_defect(run, tmp_path):
    """Powers of two, as in DeepSeek-V3.1, are the same for many blocks."""
    made = QUANTIZED_KINDS["fp8-block-e8m0"].make(tmp_path / "m")
    path = made.path / "model.safetensors"
    tensors, metadata = read(path)
    for name, tensor in tensors.items():
        if name.endswith("weight_scale_inv"):
            tensors[name] = np.full(tensor.shape, 2.0**-12).astype(tensor.dtype)
    write(path, tensors, metadata)
    done(run("verify", made.path, "--values"))


@pytest.mark.parametrize("name", ["ct-nvfp4", "modelopt-fp8-channel", "bnb-nf4", "ct-fp8-block"])
@pytest.mark.parametrize("options", [[], ["--tensors"], ["--stats"]])
def test_inspect_fits_80_columns(run, tmp_path, name, options):
    made = QUANTIZED_KINDS[name].make(tmp_path / "m")
    text = done(run("inspect", made.path, *options)).stdout
    assert max(len(line) for line in text.splitlines() if str(made.path) not in line) <= 80


class TestContradictions:
    """What a config says and other files, or the tensors, deny: the weights have the values of the tensors, and `verify` says it."""

    def defects(self, run, model):
        result = run("verify", model, "--json")
        assert result.returncode == 1, result.stdout + result.stderr
        return " ".join(each["message"] for each in json.loads(result.stdout)["defects"])

    OTHERS = {
        "hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4", "group_size": 16}},
        "quantize_config.json": {"bits": 4, "group_size": 128},
        "quant_config.json": {"w_bit": 4},
    }

    @pytest.mark.parametrize("name", OTHERS)
    def test_side_file_of_another_quantizer(self, run, tmp_path, name):
        made = QUANTIZED_KINDS["fp8-block"].make(tmp_path / "m")
        (made.path / name).write_text(json.dumps(self.OTHERS[name]))
        message = self.defects(run, made.path)
        assert message.startswith("config.json: quant_method 'fp8', but ") and name in message

    @pytest.mark.parametrize("key", [{"quant_algo": "FP8"}, {"quant_algo": "NVFP4", "group_size": 32}])
    def test_modelopt_says_two_things(self, run, tmp_path, key):
        made = QUANTIZED_KINDS["modelopt-nvfp4"].make(tmp_path / "m")
        (made.path / "hf_quant_config.json").write_text(json.dumps({"quantization": key}))
        assert "but hf_quant_config.json has" in self.defects(run, made.path)
        one_error_line(run("dequantize", made.path, tmp_path / "out"), 3)

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("bnb-nf4", {"load_in_4bit": False, "load_in_8bit": True}),
            ("bnb-nf4", {"bnb_4bit_quant_type": "fp4"}),
            ("bnb-int8", {"load_in_4bit": True, "load_in_8bit": False}),
        ],
    )
    def test_bitsandbytes_in_another_mode(self, run, tmp_path, name, change):
        made = QUANTIZED_KINDS[name].make(tmp_path / "m")
        config = json.loads((made.path / "config.json").read_text())
        config["quantization_config"] |= change
        (made.path / "config.json").write_text(json.dumps(config))
        assert "is stored as" in self.defects(run, made.path)


def test_metadata_names_only_layers_that_are_there(run, tmp_path):
    made = QUANTIZED_KINDS["comfy-e4m3fn-metadata"].make(tmp_path / "m")
    message = one_error_line(run("convert", made.path, tmp_path / "out", "--exclude", "*img_attn.qkv*"), 3)
    assert "the metadata names 'double_blocks.0.img_attn.qkv.weight', which is left out" in message
    done(run("convert", made.path, tmp_path / "out", "--exclude", "*img_attn.qkv*", "--dtype", "bf16"))


@pytest.mark.parametrize("command", ["convert", "dequantize"])
def test_values_that_do_not_fit_are_counted(run, tmp_path, command):
    made = QUANTIZED_KINDS["fp8-tensor"].make(tmp_path / "m")
    path = made.path / "model.safetensors"
    tensors, metadata = read(path)
    tensors[f"{A}.weight_scale"] = np.full_like(tensors[f"{A}.weight_scale"], 1e4)
    write(path, tensors, metadata)
    result = done(run(command, made.path, tmp_path / "out", "--dtype", "f16"))
    count = np.count_nonzero(~np.isfinite(read_all(tmp_path / "out")[f"{A}.weight"]))
    size = tensors[f"{A}.weight"].size
    assert count and f"warning: tensor '{A}.weight': {count} of {size} values are NaN or infinite as F16\n" in result.stderr


def test_the_dtype_of_a_tensor_is_no_option(run, tmp_path):
    made = QUANTIZED_KINDS["fp8-tensor"].make(tmp_path / "m")
    path = made.path / "model.safetensors"
    tensors, metadata = read(path)
    del tensors[f"{A}.weight_scale"]
    write(path, tensors, metadata)
    message = one_error_line(run("convert", made.path, tmp_path / "out", "--dtype", "bf16"), 3)
    assert f"tensor '{A}.weight': dtype is F8_E4M3, but " in message
