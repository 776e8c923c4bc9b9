"""Diffusers pipelines: finding components and variants, and the commands that work on all components."""

import json
import os
import signal

import numpy as np
import pytest
from conftest import one_error_line
from hub_server import Hub
from pipeline_models import add_model, flux, stable_diffusion, stable_diffusion_xl, tensors, write_index, write_shards
from processes import signal_at
from range_server import RangeServer
from safetensors.numpy import load_file, save_file

import ballast


@pytest.fixture
def sd(tmp_path):
    return stable_diffusion(tmp_path / "sd")


@pytest.fixture
def sdxl(tmp_path):
    return stable_diffusion_xl(tmp_path / "sdxl")


@pytest.fixture
def flux_model(tmp_path):
    return flux(tmp_path / "flux")


def files_of(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def json_of(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def same_tensors(file, expected):
    found = load_file(file)
    assert found.keys() == expected.keys()
    return all(found[name].dtype == expected[name].dtype and np.array_equal(found[name], expected[name]) for name in expected)


# Finding components


def test_inspect_lists_the_components(run, sd):
    shown = run("inspect", sd)
    assert shown.returncode == 0 and shown.stderr == ""
    for word in ("UNet2DConditionModel", "AutoencoderKL", "CLIPTokenizer", "scheduler", "7 components"):
        assert word in shown.stdout
    found = json_of(run("inspect", sd, "--json"))
    assert found["format"] == "pipeline"
    assert [each["name"] for each in found["components"]] == [
        "vae", "text_encoder", "unet", "safety_checker", "tokenizer", "scheduler", "feature_extractor",
    ]  # fmt: skip
    by_name = {each["name"]: each for each in found["components"]}
    assert by_name["unet"]["model"]["tensor_count"] == len(tensors(2))
    assert by_name["unet"]["denoiser"] and not by_name["vae"]["denoiser"]
    assert not by_name["tokenizer"]["has_weights"] and "model" not in by_name["tokenizer"]
    assert found["tensor_count"] == 4 * len(tensors(2))


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_component_option_is_the_same_as_the_folder(run, sd, command):
    by_option = json_of(run(command, sd, "--component", "unet", "--json"))
    by_path = json_of(run(command, sd / "unet", "--json"))
    assert by_option["tensor_count"] == by_path["tensor_count"] == len(tensors(2))
    assert by_option["files"] == by_path["files"]


def test_wrong_component_suggests_the_closest(run, sd):
    message = one_error_line(run("inspect", sd, "--component", "unte"), 2)
    assert message == (
        f"{sd}: no component 'unte' among vae, text_encoder, unet, safety_checker, tokenizer, scheduler, feature_extractor"
    ) or message.endswith("did you mean 'unet'?")
    assert "; did you mean 'text_encoder'?" in one_error_line(run("verify", sd, "--component", "text_encodr"), 2)


def test_component_of_a_plain_model(run, sd):
    message = one_error_line(run("inspect", sd / "unet", "--component", "unet"), 2)
    assert message == f"{sd / 'unet'}: not a pipeline: model_index.json names no components; leave out --component 'unet'"


@pytest.mark.parametrize(
    "arguments", [["extract", "conv_in.bias"], ["diff", "{}"], ["metadata"]], ids=["extract", "diff", "metadata"]
)
def test_commands_for_one_model_list_the_components(run, sd, arguments):
    command, *rest = [each.format(sd) for each in arguments]
    message = one_error_line(run(command, sd, *rest), 2)
    assert message == (
        f"{sd}: a pipeline with the components vae, text_encoder, unet, safety_checker, tokenizer, scheduler, feature_extractor; "
        "give --component vae, or the path of its folder"
    )


def test_extract_and_diff_take_a_component(run, sd, tmp_path):
    made = run("extract", sd, "conv_in.bias", "--component", "unet", "-o", tmp_path / "bias.npy")
    assert made.returncode == 0, made.stderr
    assert np.array_equal(np.load(tmp_path / "bias.npy"), tensors(2)["conv_in.bias"])
    assert run("diff", sd, sd / "unet", "--component", "unet").returncode == 0
    assert run("diff", sd, sd / "vae", "--component", "unet").returncode == 1


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", ""])
def test_a_component_outside_the_folder_is_refused(run, sd, name):
    write_index(sd, ["unet"], [], **{name: ["diffusers", "AutoencoderKL"]})
    for command in (["inspect", sd], ["verify", sd], ["convert", sd, sd.parent / "out"]):
        result = run(*command)
        if command[0] == "verify" and result.returncode == 1:
            assert "is not the name of a subfolder" in result.stdout
            continue
        message = one_error_line(result, 3)
        assert message == f"{sd / 'model_index.json'}: the component '{name}' is not the name of a subfolder"
    assert not (sd.parent / "out").exists()


def test_an_index_that_is_not_json(run, sd):
    (sd / "model_index.json").write_text("{")
    assert one_error_line(run("inspect", sd), 3).startswith(f"{sd / 'model_index.json'}: ")


def test_a_model_index_without_components_is_an_ordinary_file(run, sd):
    (sd / "unet" / "model_index.json").write_text('{"_class_name": "x", "size": [1, 2]}')
    assert json_of(run("inspect", sd / "unet", "--json"))["tensor_count"] == len(tensors(2))


def test_missing_component_folder(run, sd, tmp_path):
    for file in (sd / "vae").iterdir():
        file.unlink()
    (sd / "vae").rmdir()
    expected = f"{sd / 'vae'}: the component 'vae' of model_index.json is not a directory; download it"
    assert one_error_line(run("inspect", sd), 3) == expected
    assert one_error_line(run("convert", sd, tmp_path / "out"), 3) == expected
    assert one_error_line(run("quantize", sd, tmp_path / "out"), 3) == expected
    checked = run("verify", sd, "--json")
    assert checked.returncode == 1
    assert json.loads(checked.stdout)["defects"] == [{"check": "components", "message": expected, "component": "vae"}]
    assert not (tmp_path / "out").exists()


# Variants


def test_plain_weights_are_used_and_variants_are_reported(run, sdxl):
    shown = run("inspect", sdxl / "unet")
    assert shown.returncode == 0 and "F32" in shown.stdout and "F16" not in shown.stdout
    assert shown.stderr == "warning: the variant fp16 is ignored because the plain weights are used\n"
    found = json_of(run("inspect", sdxl / "unet", "--json"))
    assert found["warnings"] == ["the variant fp16 is ignored because the plain weights are used"]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("index", [False, True])
def test_sharded_variants_are_found(run, tmp_path, legacy, index):
    (tmp_path / "m").mkdir()
    for variant in ("", "fp16"):
        weights = tensors(1, np.float16 if variant else np.float32)
        write_shards(tmp_path / "m", "diffusion_pytorch_model", weights, variant=variant, legacy=legacy, index=index)
    for arguments, dtype in (([], "F32"), (["--variant", "fp16"], "F16")):
        found = json_of(run("inspect", tmp_path / "m", *arguments, "--json"))
        assert (list(found["dtypes"]), found["tensor_count"], len(found["files"])) == ([dtype], len(tensors(1)), 2)


def test_index_of_a_variant_by_its_path(run, tmp_path):
    write_shards(tmp_path, "model", tensors(1, np.float16), variant="fp16")
    found = json_of(run("inspect", tmp_path / "model.safetensors.index.fp16.json", "--json"))
    assert found["tensor_count"] == len(tensors(1))


def test_only_variants_need_the_option(run, tmp_path):
    root = stable_diffusion_xl(tmp_path / "m", variants=("fp16",))
    expected = "only weights of variants: fp16; give --variant fp16"
    assert one_error_line(run("inspect", root / "unet"), 2) == f"{root / 'unet'}: {expected}"
    assert one_error_line(run("convert", root, tmp_path / "out"), 2) == f"{root / 'vae'}: {expected}"
    assert one_error_line(run("verify", root), 2) == f"{root / 'vae'}: {expected}"
    assert json_of(run("inspect", root, "--variant", "fp16", "--json"))["components"][3]["model"]["dtypes"].keys() == {"F16"}
    assert run("verify", root, "--variant", "fp16").returncode == 0


def test_unknown_variant(run, sdxl, tmp_path):
    message = one_error_line(run("inspect", sdxl / "unet", "--variant", "fp61"), 3)
    assert message == f"{sdxl / 'unet'}: no weights of the variant 'fp61'; variants here: fp16"
    message = one_error_line(run("convert", sdxl, tmp_path / "out", "--variant", "bf16"), 3)
    assert message == f"{sdxl}: no component has weights of the variant 'bf16'; variants here: fp16"
    message = one_error_line(run("inspect", sdxl / "unet" / "diffusion_pytorch_model.safetensors", "--variant", "fp16"), 2)
    assert message.endswith("--variant is 'fp16', but this is a file; give its directory")


def test_a_component_without_the_variant_uses_plain_weights(run, sdxl, tmp_path):
    (sdxl / "vae" / "diffusion_pytorch_model.fp16.safetensors").unlink()
    made = run("convert", sdxl, tmp_path / "out", "--variant", "fp16")
    assert made.returncode == 0, made.stderr
    assert "warning: vae has no weights of the variant 'fp16'; its plain weights are used\n" in made.stderr
    assert same_tensors(tmp_path / "out" / "vae" / "diffusion_pytorch_model.safetensors", tensors(0))
    assert same_tensors(tmp_path / "out" / "unet" / "diffusion_pytorch_model.safetensors", tensors(3, np.float16))
    assert [name for name in files_of(tmp_path / "out") if "fp16" in name] == []


# verify


def test_verify_checks_every_component(run, flux_model):
    found = json_of(run("verify", flux_model, "--values", "--json"))
    assert found["ok"] and found["components"] == ["transformer", "text_encoder", "text_encoder_2", "vae"]
    assert found["tensor_count"] == 4 * len(tensors(0)) and len(found["files"]) == 6
    assert {check["name"] for check in found["checks"]} >= {"components", "header", "index", "values"}


def test_verify_names_the_truncated_component(run, sd):
    file = sd / "unet" / "diffusion_pytorch_model.safetensors"
    os.truncate(file, file.stat().st_size - 100)
    checked = run("verify", sd, "--json")
    assert checked.returncode == 1
    [defect] = json.loads(checked.stdout)["defects"]
    assert defect["component"] == "unet" and defect["check"] == "header" and defect["message"].startswith(f"unet: {file}: ")
    shown = run("verify", sd)
    assert shown.returncode == 1 and "1 defect" in shown.stdout and str(file) in shown.stdout


def test_verify_names_the_missing_shard(run, flux_model):
    (flux_model / "transformer" / "diffusion_pytorch_model-00002-of-00002.safetensors").unlink()
    checked = run("verify", flux_model, "--json")
    assert checked.returncode == 1
    [defect] = json.loads(checked.stdout)["defects"]
    assert defect["component"] == "transformer" and "00002-of-00002" in defect["message"]


def test_verify_names_what_is_beside_the_components(run, sd):
    single = sd / "sd-v1-5.safetensors"
    single.write_bytes((sd / "vae" / "diffusion_pytorch_model.safetensors").read_bytes())
    (sd / "assets").mkdir()
    (sd / "assets" / "teaser.png").write_bytes(b"png")
    skipped = "\n".join(json_of(run("verify", sd, "--json"))["skipped"])
    assert "sd-v1-5.safetensors" in skipped and "assets" in skipped and "tokenizer" not in skipped
    os.truncate(single, single.stat().st_size - 4)
    [defect] = json.loads(run("verify", sd, "--json").stdout)["defects"]
    assert defect["check"] == "other weights" and "truncated" in defect["message"]


def test_verify_checks_a_folder_that_is_no_component(run, sd):
    index = json.loads((sd / "model_index.json").read_text())
    (sd / "model_index.json").write_text(json.dumps(index | {"safety_checker": [None, None]}))
    file = sd / "safety_checker" / "model.safetensors"
    assert "safety_checker/model.safetensors" in "\n".join(json_of(run("verify", sd, "--json"))["skipped"])
    os.truncate(file, file.stat().st_size - 4)
    assert run("verify", sd).returncode == 1


def test_no_command_ignores_an_unknown_variant(run, flux_model, tmp_path):
    for command in (["inspect"], ["verify"], ["convert", tmp_path / "out"], ["quantize", tmp_path / "out"]):
        message = one_error_line(run(command[0], flux_model, *command[1:], "--variant", "fp16"), 3)
        assert "no component has weights of the variant 'fp16'" in message


# convert


def test_convert_writes_the_same_structure(run, sd, tmp_path):
    (sd / "v1-5-pruned.safetensors").write_bytes((sd / "unet" / "diffusion_pytorch_model.safetensors").read_bytes())
    made = run("convert", sd, tmp_path / "out", "--dtype", "bf16", "--json")
    report = json_of(made)
    assert files_of(tmp_path / "out") == [name for name in files_of(sd) if name != "v1-5-pruned.safetensors"]
    assert (tmp_path / "out" / "model_index.json").read_bytes() == (sd / "model_index.json").read_bytes()
    assert json.loads((tmp_path / "out" / "unet" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert json_of(run("inspect", tmp_path / "out" / "unet", "--json"))["dtypes"].keys() == {"BF16"}
    assert report["warnings"] == ["not part of the pipeline and not copied: v1-5-pruned.safetensors"]
    assert [(each["name"], each["action"]) for each in report["components"]] == [
        ("vae", "converted"), ("text_encoder", "converted"), ("unet", "converted"), ("safety_checker", "converted"),
        ("tokenizer", "copied"), ("scheduler", "copied"), ("feature_extractor", "copied"),
    ]  # fmt: skip
    assert report["tensor_count"] == report["converted"] == 4 * len(tensors(0))
    assert all(os.path.exists(file["path"]) for file in report["files"]) and len(report["files"]) == 4
    assert sorted(os.listdir(tmp_path)) == ["out", "sd"]


def test_convert_writes_shards_under_the_stem(run, flux_model, tmp_path):
    made = run("convert", flux_model, tmp_path / "out", "--max-shard-size", "9000")
    assert made.returncode == 0, made.stderr
    names = files_of(tmp_path / "out")
    assert "transformer/diffusion_pytorch_model.safetensors.index.json" in names
    assert "text_encoder_2/model.safetensors.index.json" in names
    found = ballast.open(tmp_path / "out" / "transformer")
    assert all(np.array_equal(found[name].numpy(), values) for name, values in tensors(0).items())


def test_convert_one_component(run, sd, tmp_path):
    assert run("convert", sd, tmp_path / "out", "--component", "unet", "--dtype", "f16").returncode == 0
    assert files_of(tmp_path / "out") == ["config.json", "diffusion_pytorch_model.safetensors"]


@pytest.mark.parametrize(
    "option", [["--include", "*"], ["--exclude", "x"], ["--rename", "a=b"], ["--metadata", "a=b"], ["--dtype", "*=f16"]],
    ids=lambda option: option[0] if option[1] != "*=f16" else "--dtype",
)  # fmt: skip
def test_options_about_names_need_a_component(run, sd, tmp_path, option):
    message = one_error_line(run("convert", sd, tmp_path / "out", *option), 2)
    assert message.endswith("not possible for all components at once; give --component") and option[0] in message
    assert not (tmp_path / "out").exists()


def test_a_failing_component_leaves_nothing(run, sd, tmp_path):
    file = sd / "safety_checker" / "model.safetensors"
    os.truncate(file, file.stat().st_size - 100)
    for command in ("convert", "quantize"):
        message = one_error_line_after_notes(run(command, sd, tmp_path / "out"), 3)
        assert message.startswith(f"{file}: ")
        assert sorted(os.listdir(tmp_path)) == ["sd"]


def test_a_failing_job_leaves_the_old_output(run, sd, tmp_path):
    out = tmp_path / "out"
    assert run("convert", sd, out).returncode == 0
    before = {name: (out / name).read_bytes() for name in files_of(out)}
    file = sd / "safety_checker" / "model.safetensors"
    os.truncate(file, file.stat().st_size - 100)
    assert run("convert", sd, out, "--dtype", "f16").returncode == 3
    assert {name: (out / name).read_bytes() for name in files_of(out)} == before
    assert sorted(os.listdir(tmp_path)) == ["out", "sd"]


def test_a_killed_job_leaves_a_hidden_directory_that_the_next_one_removes(build_dir, run, sd, tmp_path):
    out = tmp_path / "out"
    assert signal_at([build_dir / "ballast", "convert", sd, out], "pwrite64", 3) == -signal.SIGKILL
    left = sorted(os.listdir(tmp_path))
    assert len(left) == 2 and left[0].startswith(".ballast-") and left[0].endswith("-out") and left[1] == "sd"
    assert run("convert", sd, out).returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["out", "sd"]


def one_error_line_after_notes(result, code):
    assert result.returncode == code, result.stderr
    [line] = [line for line in result.stderr.splitlines() if line.startswith("ballast: ")]
    return line.removeprefix("ballast: ")


def test_output_replaces_an_older_one_but_no_other_files(run, sd, tmp_path):
    out = tmp_path / "out"
    assert run("convert", sd, out).returncode == 0
    assert run("convert", sd, out, "--dtype", "f16").returncode == 0
    assert json_of(run("inspect", out / "vae", "--json"))["dtypes"].keys() == {"F16"}
    (out / "notes.txt").write_text("mine")
    message = one_error_line(run("convert", sd, out), 4)
    assert message == (
        f"{out}: the directory is not empty: 'notes.txt' would stay beside the pipeline; "
        "choose another directory, or allow it (--force)"
    )
    (out / "notes.txt").rename(out / "unet" / "notes.txt")
    assert "'unet/notes.txt'" in one_error_line(run("convert", sd, out), 4)
    assert (out / "unet" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "command", [["convert"], ["quantize", "--format", "mlx", "--group-size", "32"], ["quantize", "--resume"]], ids=" ".join
)
def test_force_keeps_the_other_files(run, sd, tmp_path, command):
    out = tmp_path / "out"
    name, *options = command
    assert run("convert", sd, out).returncode == 0
    others = ["notes.txt", "mine/a.txt", "unet/notes.txt", "unet/mine/b.txt"]
    for other in others:
        (out / other).parent.mkdir(exist_ok=True)
        (out / other).write_text(other)
    assert "'mine' and 3 more files would stay" in one_error_line_after_notes(run(name, sd, out, *options), 4)
    made = run(name, sd, out, *options, "--force")
    assert made.returncode == 0, made.stderr
    assert all((out / other).read_text() == other for other in others)
    assert sorted(os.listdir(tmp_path)) == ["out", "sd"]
    assert run("verify", out).returncode == 0


def test_output_cannot_be_the_input(run, sd):
    for out in (sd, sd / "unet", sd / "new", sd.parent):
        message = one_error_line(run("convert", sd, out), 2)
        assert message == f"{out}: the pipeline is read from here; give another output directory"
    assert one_error_line(run("convert", sd, sd.parent / "x.safetensors"), 2).endswith("give the name of one")


# quantize


def test_quantize_leaves_encoders_and_vae_alone(run, sd, tmp_path):
    out = tmp_path / "out"
    made = run("quantize", sd, out, "--format", "mlx", "--group-size", "32", "--json")
    report = json_of(made)
    assert made.stderr == "note: copied unquantized: vae, text_encoder, safety_checker; --component quantizes one of them\n"
    actions = {each["name"]: each["action"] for each in report["components"]}
    assert actions == {
        "vae": "unquantized", "text_encoder": "unquantized", "unet": "quantized", "safety_checker": "unquantized",
        "tokenizer": "copied", "scheduler": "copied", "feature_extractor": "copied",
    }  # fmt: skip
    assert {layer["name"].split("/")[0] for layer in report["layers"]} == {"unet"}
    assert same_tensors(out / "vae" / "diffusion_pytorch_model.safetensors", tensors(0))
    assert "quantization" in json.loads((out / "unet" / "config.json").read_text())
    assert (out / "tokenizer" / "merges.txt").read_text() == "a b\n"
    assert json_of(run("validate", sd, out, "--json"))["passed"]
    assert run("validate", sd, out / "unet", "--component", "unet").returncode == 0
    shown = json_of(run("inspect", out, "--json"))
    assert "quantization" in {each["name"]: each for each in shown["components"]}["unet"]["model"]


@pytest.mark.parametrize("format", ["mlx", "parquet"])
def test_quantize_sharded_components_and_dequantize(run, flux_model, tmp_path, format):
    out, back = tmp_path / "out", tmp_path / "back"
    made = run("quantize", flux_model, out, "--format", format, "--bits", "8", "--group-size", "32", "--validate")
    assert made.returncode == 0, made.stderr
    names = files_of(out)
    assert "text_encoder_2/model-00001-of-00002.safetensors" in names and "text_encoder_2/model.safetensors.index.json" in names
    assert run("verify", out).returncode == 0
    made = run("dequantize", out, back, "--json")
    report = json_of(made)
    assert {each["name"]: each["action"] for each in report["components"]}["transformer"] == "dequantized"
    assert {each["name"]: each["action"] for each in report["components"]}["vae"] == "unquantized"
    found = ballast.open(back / "transformer")
    for name, values in tensors(0).items():
        assert np.allclose(found[name].numpy(), values, atol=0.05)


def test_quantize_one_named_component(run, sd, tmp_path):
    made = run("quantize", sd, tmp_path / "out", "--format", "mlx", "--group-size", "32", "--component", "text_encoder", "--json")
    report = json_of(made)
    assert "components" not in report and len(report["layers"]) == 2
    assert "config.json" in files_of(tmp_path / "out")


def test_quantized_components_are_decoded(run, sd, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--group-size", "32", "--bits", "8"]
    assert run("quantize", sd, first, "--format", "mlx", *options).returncode == 0
    report = json_of(run("quantize", first, second, "--format", "parquet", *options, "--json"))
    assert {layer["name"].split("/")[0] for layer in report["layers"]} == {"unet"}
    assert json_of(run("validate", first, second, "--json"))["passed"]
    assert ballast.quantize(first, tmp_path / "third", component="unet", group_size=32).layers
    assert ballast.validate(sd, second).passed and report["bits_per_weight_total"] > report["bits_per_weight"]


def test_quantize_a_variant(run, sdxl, tmp_path):
    out = tmp_path / "out"
    made = run("quantize", sdxl, out, "--format", "mlx", "--group-size", "32", "--variant", "fp16", "--json")
    assert {layer["dtype"] for layer in json_of(made)["layers"]} == {"F16"}
    assert same_tensors(out / "text_encoder_2" / "model.safetensors", tensors(2, np.float16))
    assert run("validate", sdxl, out, "--variant", "fp16").returncode == 0
    assert run("validate", sdxl, out).returncode != 0


def test_dry_run_writes_nothing(run, sd, tmp_path):
    plan = json_of(run("quantize", sd, tmp_path / "out", "--dry-run", "--json"))
    assert {layer["name"].split("/")[0] for layer in plan["layers"]} == {"unet"}
    assert {each["name"]: each["action"] for each in plan["components"]}["text_encoder"] == "unquantized"
    assert sorted(os.listdir(tmp_path)) == ["sd"]


def test_nothing_to_quantize_by_default(run, tmp_path):
    root = tmp_path / "m"
    for seed, name in enumerate(("vae", "text_encoder")):
        add_model(root, name, seed)
    write_index(root, ["vae", "text_encoder"], [])
    message = one_error_line(run("quantize", root, tmp_path / "out"), 2)
    assert message == (
        f"{root}: none of the components vae, text_encoder is quantized unless it is named; give --component vae"
    )


def test_statistics_and_target_size_need_one_component(run, tmp_path):
    root = tmp_path / "m"
    for seed, name in enumerate(("unet", "transformer")):
        add_model(root, name, seed)
    write_index(root, ["unet", "transformer"], [])
    message = one_error_line_after_notes(run("quantize", root, tmp_path / "out", "--target-size-mb", "1"), 2)
    assert message == f"{root}: --target-size-mb: not possible for unet and transformer at once; give --component unet"


def test_resume_keeps_finished_components(run, sd, tmp_path):
    out = tmp_path / "out"
    file = sd / "safety_checker" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    arguments = ["quantize", sd, out, "--format", "mlx", "--group-size", "32", "--resume"]
    assert run(*arguments).returncode == 3
    assert sorted(os.listdir(tmp_path)) == ["out.incomplete", "sd"]
    kept = (tmp_path / "out.incomplete" / "unet" / "model.safetensors").stat().st_ino
    copied = (tmp_path / "out.incomplete" / "vae" / "diffusion_pytorch_model.safetensors").stat().st_ino
    file.write_bytes(whole)
    report = json_of(run(*arguments, "--json"))
    assert sorted(os.listdir(tmp_path)) == ["out", "sd"]
    assert (out / "unet" / "model.safetensors").stat().st_ino == kept
    assert (out / "vae" / "diffusion_pytorch_model.safetensors").stat().st_ino == copied
    assert len(report["layers"]) == 2 and all(layer["cosine_similarity"] > 0.9 for layer in report["layers"])
    assert not [name for name in files_of(out) if name.startswith(".")]
    again = run(*arguments)
    assert again.returncode == 0 and "already up to date" in again.stdout
    assert (out / "unet" / "model.safetensors").stat().st_ino == kept


def test_resume_converts_a_changed_component_again(run, sd, tmp_path):
    file = sd / "safety_checker" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    arguments = ["convert", sd, tmp_path / "out", "--dtype", "f16", "--resume"]
    assert run(*arguments).returncode == 3
    file.write_bytes(whole)
    save_file(tensors(77), sd / "unet" / "diffusion_pytorch_model.safetensors")
    assert run(*arguments).returncode == 0
    assert same_tensors(tmp_path / "out" / "unet" / "diffusion_pytorch_model.safetensors", tensors(77, np.float16))
    assert same_tensors(tmp_path / "out" / "vae" / "diffusion_pytorch_model.safetensors", tensors(0, np.float16))


def test_output_bytes_do_not_depend_on_threads_or_resume(run, sd, tmp_path):
    outs = [tmp_path / name for name in ("a", "b", "c")]
    for out, options in zip(outs, (["--threads", "1"], ["--threads", "4"], ["--resume"])):
        assert run("quantize", sd, out, "--format", "mlx", "--group-size", "32", *options).returncode == 0
    contents = [{name: (out / name).read_bytes() for name in files_of(out)} for out in outs]
    assert contents[0] == contents[1] == contents[2]


# Python


def test_python_functions(sdxl, tmp_path):
    assert [each.name for each in ballast.components(sdxl)] == [
        "vae", "text_encoder", "text_encoder_2", "unet", "tokenizer", "scheduler",
    ]  # fmt: skip
    assert ballast.components(sdxl)[3].variants == ["", "fp16"] and ballast.components(sdxl / "unet") == []
    assert ballast.open(sdxl, component="unet", variant="fp16")["conv_in.bias"].dtype == "F16"
    with pytest.raises(ballast.ArgumentError, match="give component vae, or the path of its folder"):
        ballast.open(sdxl)
    assert ballast.verify(sdxl).ok and ballast.verify(sdxl, variant="fp16").bytes < ballast.verify(sdxl).bytes
    report = ballast.quantize(sdxl, tmp_path / "q", group_size=32, format="mlx", variant="fp16")
    assert {each.name: each.action for each in report.components}["unet"] == "quantized"
    assert ballast.validate(sdxl, tmp_path / "q", variant="fp16").passed
    assert ballast.convert(sdxl, tmp_path / "c", dtype="bf16").tensors == 4 * len(tensors(0))
    assert ballast.convert(sdxl, tmp_path / "one", component="vae").tensors == len(tensors(0))
    assert ballast.dequantize(tmp_path / "q", tmp_path / "d").components[3].action == "dequantized"
    assert ballast.inspect(sdxl)["format"] == "pipeline"
    assert ballast.inspect(sdxl, component="unet")["tensor_count"] == len(tensors(0))


# Servers


@pytest.fixture
def hub(sdxl, tmp_path, monkeypatch):
    files = {name: (sdxl / name).read_bytes() for name in files_of(sdxl)}
    with Hub("org/model", files, large=[name for name in files if name.endswith(".safetensors")]) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        yield hub


def test_inspect_and_verify_a_pipeline_on_the_hub(run, hub, sdxl):
    found = json_of(run("inspect", "hf://org/model", "--json"))
    local = json_of(run("inspect", sdxl, "--json"))
    for ours, theirs in zip(local["components"], found["components"]):
        assert ours["name"] == theirs["name"] and ours["variants"] == theirs["variants"]
        assert ours.get("model", {}).get("dtypes") == theirs.get("model", {}).get("dtypes")
    assert json_of(run("verify", "hf://org/model", "--variant", "fp16", "--json"))["ok"]
    shown = json_of(run("inspect", "hf://org/model", "--component", "unet", "--variant", "fp16", "--json"))
    assert shown["dtypes"].keys() == {"F16"}


def test_quantize_a_pipeline_from_the_hub(run, hub, sdxl, tmp_path):
    options = ["--format", "mlx", "--group-size", "32"]
    assert run("quantize", "hf://org/model", tmp_path / "a", *options).returncode == 0
    assert run("quantize", sdxl, tmp_path / "b", *options).returncode == 0
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert run("diff", tmp_path / "a", tmp_path / "b", "--component", "unet").returncode == 0


def test_download_one_variant_or_component(run, hub, sdxl, tmp_path):
    assert run("download", "hf://org/model", tmp_path / "all").returncode == 0
    assert files_of(tmp_path / "all") == files_of(sdxl)
    assert run("download", "hf://org/model", tmp_path / "fp16", "--variant", "fp16").returncode == 0
    names = files_of(tmp_path / "fp16")
    assert "unet/diffusion_pytorch_model.fp16.safetensors" in names and "unet/diffusion_pytorch_model.safetensors" not in names
    assert run("verify", tmp_path / "fp16", "--variant", "fp16").returncode == 0
    assert run("download", "hf://org/model", tmp_path / "vae", "--component", "vae").returncode == 0
    assert files_of(tmp_path / "vae") == [name for name in files_of(sdxl) if name.startswith("vae/")]
    message = one_error_line(run("download", "hf://org/model", tmp_path / "x", "--component", "vea"), 2)
    assert "no component 'vea' among" in message
    message = one_error_line(run("download", "hf://org/model", tmp_path / "x", "--variant", "bf16"), 3)
    assert message.endswith("no weights of the variant 'bf16'")


def test_a_server_without_file_lists(run, flux_model, tmp_path):
    files = {f"/m/{name}": (flux_model / name).read_bytes() for name in files_of(flux_model)}
    with RangeServer(files) as server:
        found = json_of(run("inspect", f"{server.url}/m", "--json"))
        assert found["tensor_count"] == 4 * len(tensors(0))
        assert run("download", f"{server.url}/m", tmp_path / "out").returncode == 0
    assert files_of(tmp_path / "out") == files_of(flux_model)
    assert run("verify", tmp_path / "out", "--values").returncode == 0
