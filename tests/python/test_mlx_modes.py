"""quantize --format mlx --type: the modes of MLX whose values are floats, against mlx and mlx-lm."""

import json

import mlx.core as mx
import numpy as np
import pytest
from calibrated_models import correlated, record
from mlx_lm.utils import load_model
from quantized_files import BF16, contents, done, figures, gauss, quantize, read_safetensors, refused
from safetensors.numpy import save_file

import ballast
from mlx_lm_models import make

mx.set_default_device(mx.cpu)

MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}
BITS_PER_WEIGHT = {"mxfp4": 4.25, "mxfp8": 8.25, "nvfp4": 4.5}
DTYPES = {"F32": (np.float32, mx.float32), "F16": (np.float16, mx.float16), "BF16": (BF16, mx.bfloat16)}
ALL = ("--min-accuracy", 0)


def to_mx(array):
    return mx.array(array.view(np.uint16)).view(mx.bfloat16) if array.dtype == BF16 else mx.array(array)


def groups_of_every_kind(rng, rows, columns, dtype):
    """Blocks of 32 columns: normal, with heavy tails, zeros, close to 0, large, halfway between codes."""
    small, large = {"F32": (1e-32, 1e36), "F16": (1e-6, 3e3), "BF16": (1e-32, 1e36)}[dtype]
    normal = lambda: rng.standard_normal(32)
    kinds = [
        lambda: normal() * 0.02,
        lambda: rng.standard_t(2, 32) * 0.02,
        lambda: rng.standard_cauchy(32),
        lambda: np.full(32, rng.standard_normal()),
        lambda: np.zeros(32),
        lambda: rng.choice([0.0, -0.0], 32),
        lambda: normal() * small,
        lambda: np.clip(normal(), -1, 1) * large,
        lambda: rng.integers(-24, 25, 32) / 4,
        lambda: rng.integers(-448, 449, 32) / 2,
        lambda: np.where(np.arange(32) == 7, 40, normal()),
        lambda: normal() * np.exp(normal() * 3),
        lambda: 6 * 2.0 ** rng.integers(-12, 6) * (1 + rng.integers(-2, 3) * 2.0**-8) * rng.choice([0.5, 1], 32),
        lambda: 448 * 2.0 ** rng.integers(-12, 6) * (1 + rng.integers(-2, 3) * 2.0**-8) * rng.choice([0.5, 1], 32),
    ]
    blocks = [kinds[i % len(kinds)]() for i in range(rows * columns // 32)]
    values = np.concatenate(blocks).reshape(rows, columns)
    return np.clip(values, -6e4, 6e4).astype(np.float16) if dtype == "F16" else values.astype(np.float32).astype(DTYPES[dtype][0])


def in_range_of_nvfp4(tensors):
    """MLX loses codes of NVFP4 when a value is more than 2^24 times the largest scale."""
    return {name: np.clip(array.astype(np.float32), -1e6, 1e6).astype(array.dtype) for name, array in tensors.items()}


@pytest.fixture(scope="module")
def any_weights(tmp_path_factory):
    rng = np.random.default_rng(3)
    shapes = ((1, 32), (7, 96), (64, 448), (301, 256))
    tensors = {f"{d}.{r}x{c}.weight": groups_of_every_kind(rng, r, c, d) for d in DTYPES for r, c in shapes}
    tensors["experts.mlp.switch_mlp.up_proj.weight"] = groups_of_every_kind(rng, 30, 64, "BF16").reshape(3, 10, 64)
    return tensors


@pytest.mark.parametrize("mode", MODES)
def test_rtn_is_bit_for_bit_what_mlx_quantizes(run, any_weights, tmp_path, mode):
    weights = in_range_of_nvfp4(any_weights) if mode == "nvfp4" else any_weights
    save_file(weights, tmp_path / "in.safetensors")
    report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", "--format", "mlx", "--type", mode, "--method", "rtn", *ALL)
    assert {layer["name"] for layer in report["layers"]} == set(weights)
    written = read_safetensors(tmp_path / "out/model.safetensors")
    assert len(written) == 2 * len(weights)
    for name, array in weights.items():
        packed, scales = (np.array(part) for part in mx.quantize(to_mx(array), mode=mode))
        base = name.removesuffix(".weight")
        assert written[f"{base}.scales"].dtype == np.uint8 and written[name].dtype == np.uint32
        assert np.array_equal(written[f"{base}.scales"], scales), name
        assert np.array_equal(written[name], packed), name


@pytest.mark.parametrize("mode", MODES)
def test_config_and_metrics_are_those_of_the_files(run, tmp_path, mode):
    bits, group_size = MODES[mode]
    save_file({"a.weight": gauss(np.random.default_rng(1), 64, 512), "a.norm.weight": np.ones(512, np.float32)}, tmp_path / "in.safetensors")
    source, out = tmp_path / "in.safetensors", tmp_path / "out"
    report = quantize(run, source, out, "--format", "mlx", "--type", mode, *ALL)
    assert report["type"] == mode and report["bit_width"] == bits and report["group_size"] == group_size
    assert report["bits_per_weight"] == BITS_PER_WEIGHT[mode]
    section = {"group_size": group_size, "bits": bits, "mode": mode}
    config = json.loads((out / "config.json").read_text())
    assert config["quantization"] == config["quantization_config"] == section

    files = read_safetensors(out / "model.safetensors")
    values = mx.dequantize(*(mx.array(files[f"a.{part}"]) for part in ("weight", "scales")), mode=mode, dtype=mx.float32)
    original = read_safetensors(source)["a.weight"].astype(np.float32)
    cosine, rmse = figures(original, np.array(values))
    assert report["layers"][0]["cosine_similarity"] == pytest.approx(cosine, abs=1e-6)
    assert report["layers"][0]["relative_rmse"] == pytest.approx(rmse, rel=1e-4)

    validated = json.loads(done(run("validate", source, out, "--json")).stdout)
    assert validated["relative_rmse"] == report["relative_rmse"] and validated["bits_per_weight"] == report["bits_per_weight"]
    done(run("dequantize", out, tmp_path / "back.safetensors", "--dtype", "f32"))
    assert np.array_equal(read_safetensors(tmp_path / "back.safetensors")["a.weight"], np.array(values))
    weight = json.loads(done(run("inspect", out, "--json", "--tensors")).stdout)
    assert mode in json.dumps(weight)
    assert run("diff", out, tmp_path / "back.safetensors").returncode in (0, 1)
    assert run("verify", out, "--values").returncode == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["normal", "student"])
def test_search_lowers_the_error_at_the_same_bytes(run, tmp_path, mode, kind):
    rng = np.random.default_rng(5)
    values = rng.standard_normal((512, 1024)) if kind == "normal" else rng.standard_t(5, (512, 1024))
    save_file({"a.weight": (values * 0.02).astype(np.float32).astype(BF16)}, tmp_path / "in.safetensors")
    found = {}
    for method in ("rtn", "search"):
        report = quantize(run, tmp_path / "in.safetensors", tmp_path / method, "--format", "mlx", "--type", mode, "--method", method, *ALL)
        found[method] = report["layers"][0]["relative_rmse"] ** 2, report["layers"][0]["bytes"]
    assert found["search"][1] == found["rtn"][1]
    assert found["search"][0] <= found["rtn"][0] * {"mxfp4": 0.89, "mxfp8": 1, "nvfp4": 0.82}[mode]


@pytest.mark.parametrize("mode", ["mxfp4", "nvfp4"])
def test_statistics_lower_the_error_of_the_outputs(run, tmp_path, mode):
    rng = np.random.default_rng(6)
    weight = gauss(rng, 256, 512)
    save_file({"a.weight": weight}, tmp_path / "in.safetensors")
    draw = correlated(rng, 512)
    hessian = record(tmp_path / "hessian.safetensors", {("a.weight", None): draw(2048)}, hessian=True)
    plain = record(tmp_path / "plain.safetensors", {("a.weight", None): draw(2048)})
    inputs, errors = draw(512), {}
    for name, options in {"rtn": ["--method", "rtn"], "plain": ["--calibration", plain], "hessian": ["--calibration", hessian]}.items():
        out = tmp_path / name
        report = quantize(run, tmp_path / "in.safetensors", out, "--format", "mlx", "--type", mode, *ALL, *options)
        files = read_safetensors(out / "model.safetensors")
        values = mx.dequantize(*(mx.array(files[f"a.{part}"]) for part in ("weight", "scales")), mode=mode, dtype=mx.float32)
        errors[name] = np.linalg.norm(inputs @ (np.array(values) - weight.astype(np.float32)).T)
        if name != "rtn":
            assert report["layers"][0]["method"] == "weighted search"
    most = {"mxfp4": 0.95, "nvfp4": 0.9}[mode] * errors["rtn"]
    assert errors["plain"] < most and errors["hessian"] < most
    assert any("Hessian" in warning for warning in report["warnings"])


def test_threads_and_interruptions_do_not_change_the_bytes(run, tmp_path):
    rng = np.random.default_rng(7)
    save_file({f"{i}.weight": gauss(rng, 1024, 1024) for i in range(3)}, tmp_path / "in.safetensors")
    for mode in MODES:
        outputs = []
        for options in (["--threads", 1], ["--threads", 4, "--memory-limit", 64], ["--threads", 2, "--resume"]):
            quantize(run, tmp_path / "in.safetensors", tmp_path / "out", "--format", "mlx", "--type", mode, "--force", *ALL, *options)
            outputs.append(contents(tmp_path / "out"))
        assert outputs[0] == outputs[1] == outputs[2]
        again = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", "--format", "mlx", "--type", mode, "--resume", *ALL)
        assert "already up to date" in done(again).stdout


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["llama", "llama-tied", "qwen3_moe"])
def test_mlx_lm_loads_the_model_and_its_logits_are_those_of_the_dequantized_one(run, tmp_path, name, mode):
    made = make(name, tmp_path / "in", mx.float32)
    quantize(run, made.folder, tmp_path / "out", "--format", "mlx", "--type", mode, *ALL)
    done(run("dequantize", tmp_path / "out", tmp_path / "back", "--dtype", "f32"))
    tokens, logits = mx.array([[1, 5, 9, 2, 40, 77]]), []
    for folder in ("out", "back"):
        model, _ = load_model(tmp_path / folder, strict=True)
        logits.append(np.array(model(tokens).astype(mx.float32)))
    assert np.linalg.norm(logits[0] - logits[1]) < 1e-5 * np.linalg.norm(logits[1])


def test_routers_are_8_bit_integers(run, tmp_path):
    made = make("qwen3_moe", tmp_path / "in")
    quantize(run, made.folder, tmp_path / "out", "--format", "mlx", "--type", "mxfp4", *ALL)
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization"]
    assert config["mode"] == "mxfp4" and config["model.layers.0.mlp.gate"] == {"group_size": 64, "bits": 8, "mode": "affine"}
    model, _ = load_model(tmp_path / "out", strict=True)
    assert model.layers[0].mlp.gate.mode == "affine" and model.layers[0].mlp.switch_mlp.up_proj.mode == "mxfp4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bits", 8], "--bits is 8, but type mxfp4 fixes it to 4; leave out --bits"),
        (["--group-size", 64], "--group-size is 64, but type mxfp4 fixes it to 32; leave out --group-size"),
        (["--group-size", 128], "--group-size is 128, but type mxfp4 fixes it to 32; leave out --group-size"),
        (["--format", "parquet"], "--type is mxfp4, which format parquet does not have; give --format mlx"),
        (["--method", "hqq"], "--method is hqq, which needs type int, not mxfp4; give --method auto, search or rtn"),
        (["--recipe", "mixed_4_6"], "--recipe is mixed_4_6, but type mxfp4 fixes the bits; leave out --recipe"),
        (["--target-size-mb", 1], "--target-size-mb needs a choice of bits, but type mxfp4 fixes them; leave out --target-size-mb"),
        (["--type", "fp4"], "--type is 'fp4', it must be int, fp8, mxfp4, mxfp8 or nvfp4"),
        (["--type", "int", "--group-size", 16], "--group-size is 16, it must be 32, 64, 128 or 256"),
    ],
)
def test_contradictions_are_refused(run, tmp_path, options, message):
    save_file({"a.weight": np.ones((4, 64), np.float32)}, tmp_path / "in.safetensors")
    base = [] if "--type" in options else ["--type", "mxfp4"]
    base += [] if "--format" in options else ["--format", "mlx"]
    refused(run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *base, *options), 2, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("profile", ["edge", "local", "cloud"])
def test_numbers_of_profiles_do_not_count_as_given(run, tmp_path, profile):
    save_file({"a.weight": gauss(np.random.default_rng(1), 4, 64)}, tmp_path / "in.safetensors")
    report = quantize(
        run, tmp_path / "in.safetensors", tmp_path / "out", "--format", "mlx", "--type", "nvfp4", "--profile", profile, *ALL
    )
    assert (report["layers"][0]["bits"], report["layers"][0]["group_size"]) == (4, 16)
    given = quantize(
        run, tmp_path / "in.safetensors", tmp_path / "same", "--format", "mlx", "--type", "nvfp4", "--bits", 4, "--group-size", 16, *ALL
    )
    assert given["bits_per_weight"] == 4.5


def test_layers_below_min_accuracy_are_reported_or_stop_the_run(run, tmp_path):
    save_file({"a.weight": gauss(np.random.default_rng(1), 64, 64)}, tmp_path / "in.safetensors")
    options = ["--format", "mlx", "--type", "mxfp4", "--min-accuracy", 0.9999]
    kept = run("quantize", tmp_path / "in.safetensors", tmp_path / "out", *options)
    assert done(kept) and "are below --min-accuracy 0.9999, and type mxfp4 fixes the bits: 'a.weight'" in kept.stderr
    stopped = run("quantize", tmp_path / "in.safetensors", tmp_path / "no", *options, "--fail-fast")
    refused(stopped, 2 if stopped.returncode == 2 else 1, "nothing was written; give another type or remove --fail-fast")


def test_python_takes_the_type(tmp_path):
    save_file({"a.weight": gauss(np.random.default_rng(1), 64, 64)}, tmp_path / "in.safetensors")
    report = ballast.quantize(tmp_path / "in.safetensors", tmp_path / "out", format="mlx", type="nvfp4", min_accuracy=0)
    assert report.bits_per_weight == 4.5
    config = ballast.QuantizeConfig(type="mxfp8", format="mlx")
    assert (config.type, config.bit_width, config.group_size) == ("mxfp8", 8, 32)
    assert ballast.QuantizeConfig.from_yaml(config.to_yaml()) == config
    assert config.replace(type=None).group_size == 128
    with pytest.raises(ballast.ArgumentError, match="group_size is 128, but type mxfp8 fixes it to 32; leave out group_size"):
        config.replace(group_size=128)


def test_environment_and_yaml_take_the_type(run, tmp_path):
    save_file({"a.weight": gauss(np.random.default_rng(1), 64, 64)}, tmp_path / "in.safetensors")
    (tmp_path / "settings.yaml").write_text("type: mxfp8\nformat: mlx\n")
    report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", "--config", tmp_path / "settings.yaml", *ALL)
    assert report["bits_per_weight"] == 8.25
