"""tools/make_model against the reference safetensors package and published model sizes."""

import importlib.util
import json
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from safetensors import safe_open

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "make_model"


def load_script():
    loader = SourceFileLoader("make_model", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_model", loader))
    loader.exec_module(module)
    return module


script = load_script()


@pytest.fixture
def make(tmp_path):
    """make(name, *options) -> the directory of a new model."""

    def run(name, *options):
        assert script.main([str(tmp_path / name), *options]) == 0
        return tmp_path / name

    return run


def tensors_of(config, dtype="bf16"):
    return script.model_tensors(config, script.DTYPES[dtype], script.DTYPES[dtype])


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def load(directory):
    """All tensors of a directory by name, whatever its sharding."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():
                assert name not in tensors
                tensors[name] = file.get_tensor(name)
    return tensors


def stored(directory):
    """Dtype tag, shape and bytes of every tensor, for dtypes that numpy's safe_open cannot return."""
    files = [safetensors.deserialize(path.read_bytes()) for path in directory.glob("*.safetensors")]
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for file in files for name, t in file}


@pytest.mark.parametrize(
    ("preset", "tensors", "parameters"),
    [
        ("tiny", 46, 230_080),
        ("qwen2-tiny", 50, 230_464),
        ("llama-tiny", 38, 229_952),
        ("mistral-tiny", 39, 262_720),
        ("qwen3-0.6b", 310, 596_049_920),
        ("qwen2.5-0.5b", 290, 494_032_768),
        ("llama-3.2-1b", 146, 1_235_814_400),
        ("mistral-7b", 291, 7_248_023_552),
    ],
)
def test_preset_has_the_size_of_the_published_architecture(preset, tensors, parameters):
    specs = tensors_of(script.preset_config(preset))
    assert (len(specs), sum(spec.count for spec in specs)) == (tensors, parameters)


def test_qwen3_layer_has_query_and_key_norms_and_no_biases():
    shapes = {t.name: t.shape for t in tensors_of(script.preset_config("qwen3-0.6b"))}
    layer = {name.removeprefix("model.layers.27."): s for name, s in shapes.items() if ".27." in name}
    assert layer == {
        "self_attn.q_proj.weight": (2048, 1024),
        "self_attn.k_proj.weight": (1024, 1024),
        "self_attn.v_proj.weight": (1024, 1024),
        "self_attn.o_proj.weight": (1024, 2048),
        "self_attn.q_norm.weight": (128,),
        "self_attn.k_norm.weight": (128,),
        "mlp.gate_proj.weight": (3072, 1024),
        "mlp.up_proj.weight": (3072, 1024),
        "mlp.down_proj.weight": (1024, 3072),
        "input_layernorm.weight": (1024,),
        "post_attention_layernorm.weight": (1024,),
    }
    assert shapes["model.embed_tokens.weight"] == (151936, 1024)
    assert shapes["model.norm.weight"] == (1024,)


def test_qwen2_has_biases_on_query_key_and_value():
    shapes = {t.name: t.shape for t in tensors_of(script.preset_config("qwen2-tiny"))}
    assert {name: s for name, s in shapes.items() if "layers.0." in name and "bias" in name} == {
        "model.layers.0.self_attn.q_proj.bias": (64,),
        "model.layers.0.self_attn.k_proj.bias": (32,),
        "model.layers.0.self_attn.v_proj.bias": (32,),
    }


def test_untied_model_has_an_output_head(make):
    tied, untied = make("tied"), make("untied", "--set", "tie_word_embeddings=false")
    assert load(untied).keys() - load(tied).keys() == {"lm_head.weight"}
    assert json.loads((untied / "config.json").read_text())["tie_word_embeddings"] is False


@pytest.mark.parametrize("preset", ["tiny", "qwen2-tiny", "llama-tiny", "mistral-tiny"])
def test_directory_opens_with_the_shapes_its_config_implies(make, preset):
    directory = make("model", "--preset", preset)
    assert contents(directory).keys() == {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors",
    }  # fmt: skip
    config = json.loads((directory / "config.json").read_text())
    assert config["torch_dtype"] == "bfloat16"
    tensors = load(directory)
    assert {name: t.shape for name, t in tensors.items()} == {t.name: t.shape for t in tensors_of(config)}
    assert {t.dtype for t in tensors.values()} == {np.dtype(ml_dtypes.bfloat16)}
    for name, tensor in tensors.items():
        mean = tensor.astype(np.float32).mean()
        assert abs(mean - name.endswith("norm.weight")) < 0.03, name


def test_config_file_takes_the_place_of_a_preset(make, tmp_path):
    config = script.preset_config("llama-tiny") | {"num_hidden_layers": 1, "custom": [1, 2]}
    del config["num_key_value_heads"], config["head_dim"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = ["--config", str(tmp_path / "config.json"), "--dtype", "f16", "--set", "vocab_size=100"]
    directory = make("model", *options)
    tensors = load(directory)
    assert tensors["model.embed_tokens.weight"].shape == (100, 64)
    assert tensors["model.layers.0.self_attn.k_proj.weight"].shape == (64, 64)
    written = json.loads((directory / "config.json").read_text())
    assert written == config | {"vocab_size": 100, "torch_dtype": "float16"}


@pytest.mark.parametrize("options", [["--dtype", "f32"], ["--dtype", "f16", "--norm-dtype", "f32"]])
def test_bytes_are_those_of_the_reference_writer(make, options):
    directory = make("model", "--preset", "qwen2-tiny", *options)
    expected = safetensors.numpy.save(load(directory), metadata={"format": "pt"})
    assert (directory / "model.safetensors").read_bytes() == expected


@pytest.mark.parametrize(
    ("option", "tag", "dtype"),
    [
        ("f64", "F64", np.float64),
        ("f16", "F16", np.float16),
        ("bf16", "BF16", ml_dtypes.bfloat16),
        ("f8_e4m3", "F8_E4M3", ml_dtypes.float8_e4m3fn),
        ("f8_e5m2", "F8_E5M2", ml_dtypes.float8_e5m2),
    ],
)
def test_every_dtype_is_the_f32_model_rounded(make, option, tag, dtype):
    exact = load(make("f32", "--dtype", "f32", "--values", "outliers"))
    rounded = {name: (tag, t.shape, t.astype(dtype).tobytes()) for name, t in exact.items()}
    assert stored(make(option, "--dtype", option, "--values", "outliers")) == rounded


def test_bf16_rounding_goes_to_nearest_even():
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7F7FFF, 0x80000000], np.uint32)
    assert [hex(x) for x in script.to_bf16(bits.view(np.float32))] == [
        "0x3f80", "0x3f82", "0x3f81", "0x3f80", "0x7f7f", "0x8000",
    ]  # fmt: skip


def test_same_command_gives_the_same_directory(make):
    options = ["--seed", "7", "--values", "laplace", "--shards", "3"]
    assert contents(make("a", *options)) == contents(make("b", *options))


def test_another_seed_changes_every_tensor(make):
    first, second = stored(make("a", "--seed", "1")), stored(make("b", "--seed", "2"))
    assert not [name for name in first if first[name] == second[name]]


@pytest.mark.parametrize("sharding", [["--shards", "1"], ["--shards", "5"], ["--max-shard-size", "50KB"]])
def test_sharding_does_not_change_tensors(make, sharding):
    assert stored(make("whole")) == stored(make("sharded", *sharding))


@pytest.mark.parametrize("count", [2, 3, 7, 46])
def test_shards_option_gives_exactly_that_many_files(make, count):
    directory = make("model", "--shards", str(count))
    assert sorted(path.name for path in directory.glob("*.safetensors")) == [
        f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)
    ]


def test_index_names_the_file_of_every_tensor(make):
    directory = make("model", "--shards", "3")
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 2 * 230_080}
    assert list(index["weight_map"]) == sorted(load(directory))
    for path in directory.glob("*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            assert set(file.keys()) == {n for n, shard in index["weight_map"].items() if shard == path.name}


def test_shards_fill_in_layer_order_up_to_the_size(make):
    limit = 50_000
    directory = make("model", "--max-shard-size", "50KB")
    shards = [safetensors.numpy.load_file(path) for path in sorted(directory.glob("*.safetensors"))]
    sizes = [sum(tensor.nbytes for tensor in shard.values()) for shard in shards]
    assert list(shards[0]) == ["model.embed_tokens.weight"] and sizes[0] > limit
    assert all(size <= limit for size in sizes[1:])
    layers = [[int(name.split(".")[2]) for name in shard if "layers" in name] for shard in shards[1:]]
    assert all(max(a) <= min(b) for a, b in zip(layers, layers[1:]))


def test_a_limit_above_the_model_size_gives_one_plain_file(make):
    assert "model.safetensors" in contents(make("model", "--max-shard-size", "1GiB"))


@pytest.mark.parametrize(
    ("text", "size"),
    [("300MB", 300_000_000), ("300MiB", 300 << 20), ("1.5gb", 1_500_000_000), ("2 KiB", 2048), ("17", 17)],
)
def test_sizes_are_decimal_unless_binary_is_named(text, size):
    assert script.parse_size(text) == size


@pytest.mark.parametrize("kind", ["normal", "uniform", "laplace"])
def test_random_values_have_zero_mean_and_the_usual_deviation(make, kind):
    values = load(make("model", "--dtype", "f32", "--values", kind))["model.embed_tokens.weight"]
    assert abs(values.mean()) < 0.001
    assert values.std() == pytest.approx(0.02, rel=0.03)


def test_outlier_channels_are_the_same_columns_in_every_block(make):
    size = ["--set", "vocab_size=40000", "--set", "num_hidden_layers=1"]
    values = load(make("model", *size, "--dtype", "f32", "--values", "outliers"))["model.embed_tokens.weight"]
    assert values.size > 2 * script.BLOCK
    for rows in (values[:1000], values[-1000:]):
        deviation = rows.std(axis=0) / 0.02
        assert np.count_nonzero(deviation > 1.5) == 1
        assert 9 < deviation.max() < 33
    assert values[:1000].std(axis=0).argmax() == values[-1000:].std(axis=0).argmax()


def test_ramp_rises_through_the_whole_tensor(make):
    options = ["--set", "vocab_size=20000", "--set", "num_hidden_layers=1", "--dtype", "f64", "--values", "ramp"]
    values = load(make("model", *options))["model.embed_tokens.weight"].ravel()
    assert values.size > script.BLOCK
    assert (values[0], values[-1]) == (-1, 1)
    assert np.all(np.diff(values) >= 0)


def test_zeros_leave_norms_near_one(make):
    tensors = load(make("model", "--values", "zeros", "--dtype", "f32"))
    assert not tensors["model.layers.0.mlp.up_proj.weight"].any()
    assert tensors["model.norm.weight"] == pytest.approx(1, abs=0.1)


def test_unwanted_files_can_be_left_out(make):
    directory = make("model", "--shards", "2", "--no-index", "--no-config", "--no-tokenizer")
    assert contents(directory).keys() == {f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}


def test_force_replaces_the_model_and_keeps_other_files(make):
    directory = make("model", "--shards", "2")
    (directory / "notes.txt").write_text("mine")
    make("model", "--force")
    assert contents(directory).keys() == contents(make("fresh")).keys() | {"notes.txt"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "huge"], "invalid choice: 'huge'"),
        (["--max-shard-size", "lots"], "'lots' is not a size such as 300MB or 2GiB"),
        (["--set", "vocab_size"], "'vocab_size' is not key=value"),
        (["--set", "vocab_size=0"], "vocab_size must be a positive integer, not 0"),
        (["--set", "hidden_size=null"], "hidden_size must be a positive integer, not null"),
        (["--set", "tie_word_embeddings=no"], 'tie_word_embeddings must be true or false, not "no"'),
        (["--set", "model_type=gpt2"], 'model_type must be one of llama, mistral, qwen2, qwen3, not "gpt2"'),
        (["--shards", "47"], "--shards must be 1 to 46 for 46 tensors, not 47"),
        (["--config", "/nowhere/config.json"], "/nowhere/config.json"),
    ],
)
def test_a_bad_request_is_one_line_and_writes_nothing(tmp_path, capsys, options, message):
    try:
        code = script.main([str(tmp_path / "model"), *options])
    except SystemExit as stop:
        code = stop.code
    output = capsys.readouterr()
    assert (code, output.out, output.err.count("\n")) == (2, "", 1)
    assert output.err.startswith("make_model: ") and message in output.err
    assert not (tmp_path / "model").exists()


def test_a_directory_in_use_is_refused(make, tmp_path, capsys):
    before = contents(make("model"))
    assert script.main([str(tmp_path / "model")]) == 2
    assert "is not empty; --force replaces the model in it" in capsys.readouterr().err
    assert contents(tmp_path / "model") == before


def test_script_runs_by_its_own_name_and_prints_one_line(tmp_path):
    run = subprocess.run([SCRIPT, tmp_path / "model", "--shards", "2"], capture_output=True, text=True, check=True)
    assert run.stdout == "model: 46 tensors, 230,080 parameters, 464.95 kB in 2 files\n"
    assert run.stderr == ""
