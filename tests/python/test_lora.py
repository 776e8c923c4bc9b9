"""--lora of convert and quantize: the bytes against a merge in numpy, and what is refused."""

import json
import random

import ml_dtypes
import numpy as np
import pytest
from conftest import one_error_line
from loras import BF16, MODULES, RANK, UP_PROJ, base, diffusers, kohya, load, matrices, merged, peft, some_pairs
from pipeline_models import stable_diffusion, tensors as unet_tensors
from processes import peak_memory
from quantized_files import contents, done, quantize
from range_server import RangeServer
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import ballast


def merge(run, source, out, *loras, options=()):
    """Convert with adapters, and return the tensors and what was said."""
    flags = [part for lora in loras for part in ("--lora", lora)]
    result = done(run("convert", source, out, "--no-sync", *flags, *options))
    return load(out / "model.safetensors" if out.is_dir() else out), result.stderr


def assert_merged(found, source, pairs, scale, dtype=None):
    original = load_file(source / "model.safetensors")
    assert found.keys() == original.keys()
    for name, values in original.items():
        module = name.removesuffix(".weight")
        if module in pairs:
            values = merged(values, (*pairs[module], scale), dtype=dtype)
        elif dtype is not None:
            values = values.astype(dtype)
        assert found[name].dtype == values.dtype and found[name].tobytes() == values.tobytes(), name


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16], ids=str)
@pytest.mark.parametrize("adapter", [np.float32, BF16], ids=str)
def test_an_adapter_of_peft_is_merged_as_in_numpy(run, tmp_path, dtype, adapter):
    source, pairs = base(tmp_path / "base", dtype), some_pairs(adapter)
    found, said = merge(run, source, tmp_path / "out", peft(tmp_path / "adapter", pairs))
    assert_merged(found, source, pairs, 2)
    assert "adapter: merged into 3 weights" in said
    with safe_open(tmp_path / "out" / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt", "license": "mit"}
    assert (tmp_path / "out" / "config.json").read_bytes() == (source / "config.json").read_bytes()
    assert (tmp_path / "out" / "tokenizer.json").exists() and not (tmp_path / "out" / "adapter_config.json").exists()


def test_ranks_and_alphas_of_a_config_scale_each_module(run, tmp_path):
    rng, modules = np.random.default_rng(3), list(MODULES)
    pairs = {module: matrices(rng, rank, *MODULES[module]) for module, rank in zip(modules, (2, 4, 8))}
    adapter = peft(
        tmp_path / "adapter", pairs, r=4, lora_alpha=6, use_rslora=True,
        rank_pattern={"q_proj": 2, r"layers\.1\.mlp\.up_proj": 8}, alpha_pattern={"layers.1.mlp.up_proj": 16, "up_proj": 3},
    )  # fmt: skip
    found, _ = merge(run, base(tmp_path / "base"), tmp_path / "out", adapter)
    original = load_file(tmp_path / "base" / "model.safetensors")
    for module, scale in zip(modules, (6 / 2**0.5, 3 / 2, 16 / 8**0.5)):
        expected = merged(original[f"{module}.weight"], (*pairs[module], scale))
        assert found[f"{module}.weight"].tobytes() == expected.tobytes(), module


def test_several_adapters_add_up_in_order_and_round_once(run, tmp_path):
    source, first, second = base(tmp_path / "base"), some_pairs(), some_pairs(rank=3)
    loras = [peft(tmp_path / "a", first), f"{peft(tmp_path / 'b=c', second, lora_alpha=1)}=-0.25"]
    found, _ = merge(run, source, tmp_path / "out", *loras)
    for name, values in load_file(source / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if module in first:
            expected = merged(values, (*first[module], 2), (*second[module], -0.25 / 3))
            assert found[name].tobytes() == expected.tobytes(), name


def test_names_may_have_other_parts_in_front(run, tmp_path):
    """GPT-2 files have no "transformer.", which the module path of PEFT has; others lack "model."."""
    source, pairs = base(tmp_path / "base"), some_pairs()
    for prefix, strip in (("transformer.", ""), ("", "model.")):
        other = {prefix + module.removeprefix(strip): pair for module, pair in pairs.items()}
        found, said = merge(run, source, tmp_path / f"out{prefix}", peft(tmp_path / f"adapter{prefix}", other))
        assert_merged(found, source, pairs, 2)
        assert "of the adapter is 'model.layers.0.mlp.up_proj'" in said


def test_kohya_and_diffusers_names_give_the_same_bytes(run, tmp_path):
    modules = {"mid_block.attentions.0.to_q": (32, 64), "mid_block.attentions.1.to_q": (32, 64)}
    source = tmp_path / "unet.safetensors"
    save_file(unet_tensors(0, np.float16), source)
    pairs = some_pairs(np.float16, modules)
    loras = [
        kohya(tmp_path / "kohya.safetensors", pairs, alpha=2),
        diffusers(tmp_path / "old.safetensors", pairs, alpha=2),
        diffusers(tmp_path / "new.safetensors", pairs, alpha=2, down=".lora_A.weight", up=".lora_B.weight"),
        diffusers(tmp_path / "comfy.safetensors", pairs, prefix="diffusion_model", alpha=2),
    ]
    outs = [tmp_path / f"out{i}.safetensors" for i in range(len(loras))]
    for lora, out in zip(loras, outs):
        found, _ = merge(run, source, out, lora)
    assert len({out.read_bytes() for out in outs}) == 1
    for module, pair in pairs.items():
        expected = merged(load_file(source)[f"{module}.weight"], (*pair, 0.5))
        assert found[f"{module}.weight"].tobytes() == expected.tobytes()


def test_names_of_the_original_stable_diffusion_are_understood(run, tmp_path):
    """Kohya names the modules of SDXL as its own files do, and the base may be a UNet of diffusers."""
    modules = {"down_blocks.1.attentions.0.proj_in": (32, 64), "up_blocks.0.attentions.1.to_k": (16, 64)}
    original = dict(zip(("input_blocks.4.1.proj_in", "output_blocks.1.1.to_k"), modules))
    weights = {f"{module}.weight": np.zeros(shape, np.float32) for module, shape in (modules | {"conv_in": (8, 4)}).items()}
    pairs = some_pairs(modules=modules)
    lora = kohya(tmp_path / "lora.safetensors", {name: pairs[module] for name, module in original.items()})
    save_file(weights, tmp_path / "diffusers.safetensors")
    found, _ = merge(run, tmp_path / "diffusers.safetensors", tmp_path / "out.safetensors", lora)
    prefix = "model.diffusion_model."
    renamed = {f"{prefix}{name}.weight": weights[f"{module}.weight"] for name, module in original.items()}
    save_file(renamed, tmp_path / "original.safetensors")
    same, _ = merge(run, tmp_path / "original.safetensors", tmp_path / "out2.safetensors", lora)
    for name, module in original.items():
        expected = merged(weights[f"{module}.weight"], (*pairs[module], 1)).tobytes()
        assert found[f"{module}.weight"].tobytes() == expected == same[f"{prefix}{name}.weight"].tobytes()


def test_without_an_alpha_kohya_and_diffusers_scale_by_one(run, tmp_path):
    pairs = some_pairs(modules={"mid_block.attentions.0.to_q": (32, 64)})
    save_file(unet_tensors(0), tmp_path / "unet.safetensors")
    expected = merged(unet_tensors(0)["mid_block.attentions.0.to_q.weight"], (*pairs["mid_block.attentions.0.to_q"], 1))
    for write in (kohya, diffusers):
        found, _ = merge(run, tmp_path / "unet.safetensors", tmp_path / "out.safetensors", write(tmp_path / "l.safetensors", pairs))
        assert found["mid_block.attentions.0.to_q.weight"].tobytes() == expected.tobytes()


def test_names_of_attention_processors_are_understood(run, tmp_path):
    weights = {f"down.0.attn1.{name}.weight": np.zeros((32, 64), np.float32) for name in ("to_q", "to_out.0")}
    save_file(weights, tmp_path / "unet.safetensors")
    down, up = matrices(np.random.default_rng(1), 4, 32, 64)
    old = {f"unet.down.0.attn1.processor.{name}_lora.{part}.weight": values
           for name in ("to_q", "to_out") for part, values in (("down", down), ("up", up))}  # fmt: skip
    save_file(old, tmp_path / "lora.safetensors")
    found, _ = merge(run, tmp_path / "unet.safetensors", tmp_path / "out.safetensors", tmp_path / "lora.safetensors")
    for name, values in weights.items():
        assert found[name].tobytes() == merged(values, (down, up, 1)).tobytes()


def test_fan_in_fan_out_transposes(run, tmp_path):
    rng = np.random.default_rng(4)
    shapes = {"h.0.attn.c_attn": (16, 48), "h.0.attn.c_proj": (16, 16)}
    source = tmp_path / "gpt2.safetensors"
    save_file({f"{name}.weight": rng.standard_normal(shape).astype(BF16) for name, shape in shapes.items()}, source)
    pairs = {name: matrices(rng, RANK, columns, rows) for name, (rows, columns) in shapes.items()}
    adapter = peft(tmp_path / "adapter", {f"transformer.{name}": pair for name, pair in pairs.items()}, fan_in_fan_out=True)
    found, _ = merge(run, source, tmp_path / "out.safetensors", adapter)
    for name, values in load_file(source).items():
        expected = merged(values, (*pairs[name.removesuffix(".weight")], 2), transposed=True)
        assert found[name].tobytes() == expected.tobytes(), name
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"fan_in_fan_out": False}))
    message = one_error_line(run("convert", source, tmp_path / "no.safetensors", "--lora", adapter), 3)
    assert "c_proj.lora_A.weight': the weight is square, and fan_in_fan_out is false, which is wrong for 1 other weight" in message


@pytest.mark.parametrize("shape", [(8, 6, 3, 3), (8, 6, 1, 1)], ids=["3x3", "1x1"])
def test_convolutions_are_merged(run, tmp_path, shape):
    rng = np.random.default_rng(5)
    weight = rng.standard_normal(shape).astype(np.float16)
    save_file({"conv_in.weight": weight}, tmp_path / "unet.safetensors")
    down, up = matrices(rng, 2, shape[0], shape[1:])
    pairs = {"conv_in": (down, up[:, :, None, None])}
    lora = kohya(tmp_path / "lora.safetensors", pairs, alpha=1)
    found, _ = merge(run, tmp_path / "unet.safetensors", tmp_path / "out.safetensors", lora)
    assert found["conv_in.weight"].tobytes() == merged(weight, (down, up, 0.5)).tobytes()


def test_embeddings_and_whole_modules(run, tmp_path):
    source, rng = base(tmp_path / "base"), np.random.default_rng(6)
    down, up = rng.standard_normal((2, 50)).astype(np.float32), rng.standard_normal((64, 2)).astype(np.float32)
    whole = rng.standard_normal(64).astype(np.float32)
    wholes = {"model.embed_tokens.lora_embedding_A": down, "model.embed_tokens.lora_embedding_B": up, "model.norm.weight": whole}
    adapter = peft(tmp_path / "adapter", {}, wholes=wholes, r=2, lora_alpha=4)
    found, said = merge(run, source, tmp_path / "out", adapter)
    assert "replaced 'model.norm.weight'" in said
    assert found["model.norm.weight"].tobytes() == whole.astype(BF16).tobytes()
    embedding = load_file(source / "model.safetensors")["model.embed_tokens.weight"]
    expected = merged(embedding, (down, up, 2), transposed=True)
    assert found["model.embed_tokens.weight"].tobytes() == expected.tobytes()
    wholes["model.embed_tokens.base_layer.weight"] = rng.standard_normal((50, 64)).astype(np.float32)  # PEFT may store it, too
    found, said = merge(run, source, tmp_path / "both", peft(tmp_path / "b", {}, wholes=wholes, r=2, lora_alpha=4))
    expected = merged(wholes["model.embed_tokens.base_layer.weight"], (down, up, 2), transposed=True, dtype=BF16)
    assert found["model.embed_tokens.weight"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("name, dtype", [("f16", np.float16), ("f32", np.float32), ("f8_e4m3", np.dtype(ml_dtypes.float8_e4m3fn))])
def test_values_are_rounded_once_to_another_dtype(run, tmp_path, name, dtype):
    source, pairs = base(tmp_path / "base"), some_pairs()
    adapter = peft(tmp_path / "adapter", pairs)
    found, _ = merge(run, source, tmp_path / "out", adapter, options=("--dtype", name))
    assert_merged(found, source, pairs, 2, dtype)
    rules = ("--dtype", f"*q_proj*={name}")
    found, _ = merge(run, source, tmp_path / "ruled", adapter, options=rules)
    module = "model.layers.0.self_attn.q_proj"
    original = load_file(source / "model.safetensors")
    assert found[f"{module}.weight"].tobytes() == merged(original[f"{module}.weight"], (*pairs[module], 2), dtype=dtype).tobytes()
    module = "model.layers.0.mlp.up_proj"
    assert found[f"{module}.weight"].tobytes() == merged(original[f"{module}.weight"], (*pairs[module], 2)).tobytes()


def test_a_quantized_base_is_decoded_first(run, tmp_path):
    modules = {"model.layers.0.mlp.up_proj": (64, 128)}
    source, rng = tmp_path / "base", np.random.default_rng(7)
    source.mkdir()
    weights = {f"{module}.weight": rng.standard_normal(shape).astype(BF16) for module, shape in modules.items()}
    save_file(weights, source / "model.safetensors")
    (source / "config.json").write_text('{"model_type": "llama"}')
    for form in ("mlx", "parquet"):
        small, pairs = tmp_path / form, some_pairs(modules=modules)
        quantize(run, source, small, "--format", form, "--bits", "4")
        done(run("dequantize", small, tmp_path / f"{form}32", "--dtype", "f32"))
        decoded = load_file(tmp_path / f"{form}32" / "model.safetensors")
        adapter = peft(tmp_path / f"adapter-{form}", pairs)
        found, said = merge(run, small, tmp_path / f"out-{form}", adapter)
        assert f"warning: {form} weights were dequantized to their original dtypes" in said
        for name, values in decoded.items():
            expected = merged(values, (*pairs[name.removesuffix(".weight")], 2), dtype=BF16)
            assert found[name].tobytes() == expected.tobytes()
        assert "quantization" not in json.loads((tmp_path / f"out-{form}" / "config.json").read_text())


@pytest.mark.parametrize("form", ["mlx", "parquet", "compressed-tensors"])
def test_quantize_gives_what_the_merged_model_gives(run, tmp_path, form):
    source, pairs = base(tmp_path / "base"), some_pairs()
    adapter = peft(tmp_path / "adapter", pairs)
    merge(run, source, tmp_path / "merged", adapter)
    options = ("--format", form, "--group-size", "32")
    first = quantize(run, tmp_path / "merged", tmp_path / "two", *options)
    second = quantize(run, source, tmp_path / "one", *options, "--lora", adapter, "--validate")
    assert any("merged into 3 weights" in note for note in second["notes"])
    assert second["passed"] and [layer["relative_rmse"] for layer in first["layers"]] == [
        layer["relative_rmse"] for layer in second["layers"]
    ]
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    for name in one.keys() - {"metadata.json", "model.safetensors.index.json"}:  # these name the source files, or their key
        assert one[name] == two[name], name
    plan = json.loads(done(run("quantize", source, tmp_path / "none", *options, "--lora", adapter, "--dry-run", "--json")).stdout)
    assert not (tmp_path / "none").exists() and any("merged into 3 weights" in note for note in plan["notes"])
    done(run("validate", source, tmp_path / "one", "--lora", adapter, "--min-accuracy", "0.98"))
    assert run("validate", source, tmp_path / "one", "--min-accuracy", "0.98").returncode == 1


def test_the_bytes_do_not_depend_on_threads(run, tmp_path):
    rng = np.random.default_rng(8)
    source = tmp_path / "wide.safetensors"
    shapes = {"a": (700, 3001), "b": (64, 40000)}
    save_file({f"{name}.weight": rng.standard_normal(shape).astype(BF16) for name, shape in shapes.items()}, source)
    pairs = {name: matrices(rng, 5, *shape) for name, shape in shapes.items()}
    adapter = peft(tmp_path / "adapter", pairs)
    for threads in ("1", "3"):
        out = tmp_path / f"{threads}.safetensors"
        found, _ = merge(run, source, out, adapter, options=("--threads", threads, "--memory-limit", "16"))
        for name, values in load_file(source).items():
            assert found[name].tobytes() == merged(values, (*pairs[name[0]], 2)).tobytes()


def test_memory_is_bounded(run, tmp_path, build_dir):
    """A matrix of 256 MiB, as one tensor."""
    rng = np.random.default_rng(9)
    source, out = tmp_path / "big.safetensors", tmp_path / "out.safetensors"
    save_file({"a.weight": np.zeros((32768, 4096), BF16)}, source)
    adapter = peft(tmp_path / "adapter", {"a": matrices(rng, 8, 32768, 4096, BF16)})
    command = [build_dir / "ballast", "convert", source, out, "--lora", adapter, "--no-sync", "--memory-limit", "64"]
    assert peak_memory([str(part) for part in command]) < 96 << 20


def test_resuming_depends_on_the_adapters(run, tmp_path):
    source, pairs = base(tmp_path / "base"), some_pairs()
    adapter, out = peft(tmp_path / "adapter", pairs), tmp_path / "out"
    arguments = ("quantize", source, out, "--group-size", "32", "--resume")
    done(run(*arguments, "--lora", adapter))
    assert "already up to date" in done(run(*arguments, "--lora", adapter)).stdout
    first = contents(out)
    assert "already up to date" not in done(run(*arguments, "--lora", f"{adapter}=0.5", "--force")).stdout
    assert "already up to date" not in done(run(*arguments, "--force")).stdout
    done(run(*arguments, "--lora", adapter, "--force"))
    assert contents(out) == first
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 1}))
    assert "already up to date" not in done(run(*arguments, "--lora", adapter, "--force")).stdout
    assert contents(out) != first


def test_a_remote_base_and_adapter(run, tmp_path):
    source, pairs = base(tmp_path / "base"), some_pairs()
    adapter = peft(tmp_path / "adapter", pairs)
    files = {f"/{name}": (source / name).read_bytes() for name in ("model.safetensors",)}
    files |= {f"/lora/{path.name}": path.read_bytes() for path in adapter.iterdir()}
    with RangeServer(files) as server:
        done(run("convert", f"{server.url}/model.safetensors", tmp_path / "a.safetensors",
                 "--lora", f"{server.url}/lora/adapter_model.safetensors=0.5"))  # fmt: skip
    assert_merged(load_file(tmp_path / "a.safetensors"), source, pairs, 1)


def pipeline_adapter(tmp_path):
    """Of the UNet and the text encoder, as Kohya writes it."""
    module, shape = "mid_block.attentions.0.to_q", (32, 64)
    unet, text = some_pairs(modules={module: shape}), some_pairs(np.float16, {module: shape})
    kohya(tmp_path / "u.safetensors", unet, alpha=2)
    kohya(tmp_path / "t.safetensors", text, prefix="lora_te", alpha=4)
    save_file(load_file(tmp_path / "u.safetensors") | load_file(tmp_path / "t.safetensors"), tmp_path / "lora.safetensors")
    return tmp_path / "lora.safetensors", {"unet": (*unet[module], 0.5), "text_encoder": (*text[module], 1)}


def test_each_component_of_a_pipeline_gets_its_part(run, tmp_path):
    root = stable_diffusion(tmp_path / "sd")
    lora, changes = pipeline_adapter(tmp_path)
    result = done(run("convert", root, tmp_path / "out", "--lora", lora, "--no-sync"))
    assert "unet: " in result.stderr and "text_encoder: " in result.stderr
    for component in ("unet", "text_encoder", "vae"):
        stem = "model" if component == "text_encoder" else "diffusion_pytorch_model"
        original, found = (load_file(place / component / f"{stem}.safetensors") for place in (root, tmp_path / "out"))
        for name, values in original.items():
            if component in changes and name == "mid_block.attentions.0.to_q.weight":
                values = merged(values, changes[component])
            assert found[name].tobytes() == values.tobytes(), (component, name)
    done(run("convert", root, tmp_path / "unet", "--component", "unet", "--lora", lora))
    name = "unet/diffusion_pytorch_model.safetensors"
    assert (tmp_path / "unet" / "diffusion_pytorch_model.safetensors").read_bytes() == (tmp_path / "out" / name).read_bytes()
    direct = done(run("convert", root / "unet", tmp_path / "direct", "--lora", lora))
    assert "left out what is for lora_te" in direct.stderr
    assert contents(tmp_path / "direct") == contents(tmp_path / "unet")

    quantized = quantize(run, root, tmp_path / "q", "--lora", lora, "--validate")
    assert quantized["passed"] and any("merged" in note for note in quantized["notes"])
    assert (tmp_path / "q" / "text_encoder" / "model.safetensors").read_bytes() == (
        tmp_path / "out" / "text_encoder" / "model.safetensors"
    ).read_bytes()


def test_adapters_that_fit_no_component_are_refused(run, tmp_path):
    root = stable_diffusion(tmp_path / "sd")
    lora, _ = pipeline_adapter(tmp_path)
    message = one_error_line(run("convert", root, tmp_path / "out", "--component", "vae", "--lora", lora), 3)
    assert "nothing for the component vae, only for lora_te, lora_unet" in message
    pairs = some_pairs(modules={"mid_block.attentions.0.to_q": (32, 64)})
    te2 = kohya(tmp_path / "te2.safetensors", pairs, prefix="lora_te2")
    assert "the pipeline has no component for lora_te2" in one_error_line(run("convert", root, tmp_path / "out", "--lora", te2), 3)
    message = one_error_line(run("convert", root, tmp_path / "out", "--lora", peft(tmp_path / "peft", pairs)), 2)
    assert message.endswith("does not say for which component it is; give --component")


def test_front_ends_take_adapters_in_several_forms(tmp_path):
    source, pairs = base(tmp_path / "base"), some_pairs()
    adapter = peft(tmp_path / "adapter", pairs)
    for i, lora in enumerate((str(adapter), adapter, {adapter: 1}, [adapter], [(adapter, 1.0)])):
        report = ballast.convert(source, tmp_path / f"{i}.safetensors", lora=lora)
        assert report.converted == 3 and "merged into 3 weights" in report.notes[0]
        assert_merged(load_file(tmp_path / f"{i}.safetensors"), source, pairs, 2)
    report = ballast.quantize(source, tmp_path / "q", lora=[(adapter, 0.5)], group_size=32)
    again = ballast.validate(source, tmp_path / "q", lora={adapter: 0.5})
    assert again.cosine_similarity == pytest.approx(report.cosine_similarity)
    unmerged = "lora: the model was opened without the adapters"
    with ballast.open(source) as model, pytest.raises(ballast.ArgumentError, match=unmerged):
        ballast.convert(model, tmp_path / "x.safetensors", lora=adapter)
    for wrong in (3, [3], [(adapter, "1")]):
        with pytest.raises(TypeError, match="lora"):
            ballast.convert(source, tmp_path / "x.safetensors", lora=wrong)


def refusals():
    """Adapters that are refused: a change to the tensors or to the config, and what the message says."""
    down, up = (f"base_model.model.{UP_PROJ}.lora_{part}.weight" for part in "AB")
    f32 = np.float32

    def drop(name):
        return lambda tensors: tensors.pop(name)

    def put(name, shape, dtype=f32):
        return lambda tensors: tensors.update({name: np.zeros(shape, dtype)})

    def move(old, new):
        parts = (".lora_A.weight", ".lora_B.weight")
        return lambda tensors: tensors.update({new + part: tensors.pop(old + part) for part in parts})

    prefix = "base_model.model.model.layers.0.mlp."
    return {
        "dora": (put(f"{prefix}up_proj.lora_magnitude_vector", 40), {}, "lora_magnitude_vector': DoRA, which cannot be merged"),
        "dora config": (None, {"use_dora": True}, "use_dora is true: this kind of adapter cannot be merged (DoRA)"),
        "loha": (put(f"{prefix}up_proj.hada_w1_a", (40, 4)), {}, "LoHa"),
        "lokr": (put(f"{prefix}up_proj.lokr_w1", (4, 4)), {}, "LoKr"),
        "loha config": (None, {"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        "pissa": (None, {"init_lora_weights": "pissa_niter_4"}, "also changes the base"),
        "replicated": (None, {"layer_replication": [[0, 1]]}, "layer_replication"),
        "parameters": (None, {"target_parameters": ["experts.w1"]}, "target_parameters"),
        "unknown use": (None, {"use_qalora": True}, "use_qalora is true"),
        "no alpha": (None, {"lora_alpha": None}, "lora_alpha is missing"),
        "bad alpha": (None, {"lora_alpha": "8"}, "lora_alpha is '8', expected a number"),
        "bad rank": (None, {"r": 0}, "r is 0, expected a positive whole number"),
        "other rank": (None, {"r": 8}, "the rank is 4, adapter_config.json has 8"),
        "bad pattern": (None, {"rank_pattern": {"(": 1}}, "rank_pattern: '^("),
        "no up": (drop(up), {}, "lora_A.weight': the module has no matrix B (up)"),
        "no down": (drop(down), {}, "lora_B.weight': the module has no matrix A (down)"),
        "ranks": (put(up, (40, 3)), {}, "shape is [40, 3], '" + down + "' has rank 4: expected [40, 4]"),
        "vector": (put(down, 64), {}, "shape is [64], expected a matrix"),
        "integers": (put(down, (4, 64), np.int32), {}, "the dtype is I32"),
        "columns": (put(down, (4, 32)), {}, "shapes are [4, 32] and [40, 4], 'model.layers.0.mlp.up_proj.weight' of"),
        "bias": (put(f"{prefix}up_proj.lora_B.bias", 40), {}, "a bias, which cannot be merged"),
        "unknown": (put("what", 3), {}, "tensor 'what': not a part of an adapter"),
        "closest": (move(f"{prefix}up_proj", f"{prefix}up_prof"), {},
                    f"has no module 'model.layers.0.mlp.up_prof'; the closest is '{UP_PROJ}'"),
        "twice": (put(f"{prefix}up_proj.lora_A.default.weight", (4, 64)), {}, "the same matrix as"),
        "resized": (put("base_model.model.model.embed_tokens.weight", (51, 64)), {}, "its shape is [51, 64] instead of [50, 64]"),
        "new module": (put("base_model.model.score.weight", (2, 64)), {}, "has no module 'score'"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", refusals())
def test_what_cannot_be_merged_is_refused(run, tmp_path, kind):
    change, config, said = refusals()[kind]
    source, adapter = base(tmp_path / "base"), peft(tmp_path / "adapter", some_pairs(), **config)
    file = adapter / "adapter_model.safetensors"
    if change:
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file)
    message = one_error_line(run("convert", source, tmp_path / "out", "--lora", adapter), 3)
    assert said in message and not (tmp_path / "out").exists()


def test_arguments_that_are_wrong_are_refused(run, tmp_path):
    source, adapter = base(tmp_path / "base"), peft(tmp_path / "adapter", some_pairs())
    message = one_error_line(run("convert", source, source, "--lora", adapter), 2)
    assert message.endswith("the base model is read from here; give another output")
    assert "the scale is inf" in one_error_line(run("convert", source, tmp_path / "out", "--lora", f"{adapter}=inf"), 2)
    message = one_error_line(run("convert", source, tmp_path / "out", "--lora", tmp_path / "none=x"), 3)
    assert message.endswith("none=x: cannot open: No such file or directory")
    save_file({}, tmp_path / "empty.safetensors")
    message = one_error_line(run("convert", source, tmp_path / "out", "--lora", tmp_path / "empty.safetensors"), 3)
    assert message.endswith("no tensors of an adapter (LoRA)")
    (adapter / "adapter_config.json").unlink()
    message = one_error_line(run("convert", source, tmp_path / "out", "--lora", adapter), 3)
    assert message.endswith("adapter_config.json: not found; its lora_alpha is needed to scale the adapter")
    double = base(tmp_path / "double", np.float64)
    message = one_error_line(run("convert", double, tmp_path / "out", "--lora", peft(tmp_path / "other", some_pairs())), 3)
    assert "is F64; adapters are merged into floats of 8 to 32 bits" in message


def test_underscores_that_may_stand_for_two_modules_are_refused(run, tmp_path):
    save_file({"a.b_c.weight": np.zeros((32, 64), np.float32), "a_b.c.weight": np.zeros((32, 64), np.float32)}, tmp_path / "m.safetensors")
    lora = kohya(tmp_path / "lora.safetensors", some_pairs(modules={"a.b.c": (32, 64)}))
    message = one_error_line(run("convert", tmp_path / "m.safetensors", tmp_path / "o.safetensors", "--lora", lora), 3)
    assert "the module 'a_b_c' may be 'a.b_c' or 'a_b.c'" in message


@pytest.mark.parametrize("seed", range(60))
def test_mutated_adapters_are_merged_or_refused_in_one_line(run, tmp_path, seed):
    """Names, shapes, dtypes and settings with a random change."""
    rng = random.Random(seed)
    source, adapter = base(tmp_path / "base"), peft(tmp_path / "adapter", some_pairs())
    file, config = adapter / "adapter_model.safetensors", adapter / "adapter_config.json"
    tensors = load_file(file)
    name = rng.choice(sorted(tensors))
    kind = rng.randrange(5)
    if kind == 0:
        at = rng.randrange(len(name))
        tensors[name[:at] + rng.choice(["", ".", "_", "0", "x", "lora", "é"]) + name[at + rng.randrange(3) :]] = tensors.pop(name)
    elif kind == 1:
        shape = [rng.choice([0, 1, 4, 24, 40, 64]) for _ in range(rng.randrange(4))]
        tensors[name] = np.zeros(shape, np.float32)
    elif kind == 2:
        tensors[name] = tensors[name].astype(rng.choice([np.float16, np.float64, np.int8, np.bool_, BF16]))
    elif kind == 3:
        settings = json.loads(config.read_text())
        settings[rng.choice([*settings, "alpha_pattern", "use_x"])] = rng.choice([None, 0, -1, 1e400, "x", [], {}, {"x": "y"}, True])
        config.write_text(json.dumps(settings))
    else:
        text = config.read_text()
        at = rng.randrange(len(text))
        config.write_text(text[:at] + rng.choice(["", "{", "}", '"', ",", "\0"]) + text[at + rng.randrange(3) :])
    save_file(tensors, file)
    result = run("convert", source, tmp_path / "out", "--lora", adapter)
    if result.returncode != 0:
        assert "adapter" in one_error_line(result, 3)
