"""quantize and dequantize: the bytes they write against the real mlx, pyarrow, numpy, DuckDB and safetensors, and the figures they
tell against what numpy finds in the files."""

import hashlib
import json
import os

import duckdb
import mlx.core as mx
import numpy as np
import pyarrow.parquet as pq
import pytest
from quantized_files import (
    BF16, NUMPY, contents, done, each_column, figures, gauss, join_blocks, listing, quantize, read_mlx, read_parquet,
    read_safetensors,
)  # fmt: skip
from safetensors.numpy import save_file

mx.set_default_device(mx.cpu)

WIDTHS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
MLX = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
FULL = bool(os.environ.get("BALLAST_FULL"))

KEYS = {"compression_ratio", "bits_per_weight", "bits_per_weight_total", "cosine_similarity", "relative_rmse", "model_size_mb", "modality", "bit_width",
        "quantization_time_s", "passed", "layers"}  # fmt: skip
LAYER_KEYS = {"name", "bits", "group_size", "cosine_similarity", "relative_rmse", "bytes"}


def to_mx(array):
    """The same bits in mlx, which takes no BF16 from numpy."""
    return mx.array(array.view(np.uint16)).view(mx.bfloat16) if array.dtype == BF16 else mx.array(array)


def raw(array):
    return bytes(memoryview(mx.contiguous(array).view(mx.uint8)))


def any_groups(rng, rows, columns, dtype):
    """Blocks of 128 columns of every kind, side by side."""
    small = {"F32": 1e-42, "F16": 3e-7, "BF16": 1e-39}[dtype]
    large = {"F32": 1e38, "F16": 3e4, "BF16": 1e38}[dtype]
    normal = lambda: rng.standard_normal(128)
    kinds = [
        lambda: normal() * 0.02,
        lambda: np.full(128, rng.standard_normal()),
        lambda: np.zeros(128),
        lambda: normal() * 1e-8,
        lambda: normal() * small,
        lambda: np.clip(normal(), -1, 1) * large,
        lambda: np.abs(normal()),
        lambda: -np.abs(normal()) - 5,
        lambda: rng.integers(-8, 8, 128) / 2,  # ties
        lambda: np.where(np.arange(128) == 77, 40, normal()),
        lambda: rng.choice([0.0, -0.0], 128),
        lambda: 3 + normal() * 1e-4,  # far from zero, and close together
        lambda: normal() * np.exp(normal() * 2),
    ]
    first = int(rng.integers(len(kinds)))
    blocks = [kinds[(first + i) % len(kinds)]() for i in range(rows * columns // 128)]
    return np.concatenate(blocks).reshape(rows, columns).astype(NUMPY[dtype])


@pytest.fixture(scope="module")
def any_weights(tmp_path_factory):
    """Every kind of group in every dtype."""
    rng = np.random.default_rng(7)
    shapes = ((1, 128), (7, 384), (300, 256))
    tensors = {f"{d}.{r}x{c}.weight": any_groups(rng, r, c, d) for d in MLX for r, c in shapes}
    path = tmp_path_factory.mktemp("any") / "in.safetensors"
    save_file(tensors, path)
    return path, tensors


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """What is quantized in Parquet and what is not: shapes of all kinds, a partial last group, several blocks, no values at all."""
    rng = np.random.default_rng(8)
    tensors = {
        "a.matrix": gauss(rng, 33, 256),
        "b.conv": gauss(rng, 8, 3, 5, 5, dtype=np.float32),
        "c.partial": gauss(rng, 10, 100, dtype=np.float16),
        "k.thin": gauss(rng, 5, 1, dtype=np.float32),
        "e.blocks": gauss(rng, 4200, 1030),
        "f.double": gauss(rng, 3, 70).astype(np.float64),
        "k.bias": gauss(rng, 300),
        "k.scalar": np.array(2.5, np.float32),
        "k.ids": np.arange(-4, 68).reshape(8, 9),
        "k.bytes": rng.integers(0, 255, 5_000_000, np.uint8),
        "k.flags": np.array([[True, False]]),
        "k.empty": np.zeros((0, 64), np.float16),
    }
    path = tmp_path_factory.mktemp("mixed") / "in.safetensors"
    save_file(tensors, path)
    return path, tensors


@pytest.fixture(scope="module")
def gaussian(tmp_path_factory):
    rng = np.random.default_rng(10)
    tensors = {"layers.0.weight": gauss(rng, 2048, 1536), "layers.1.weight": gauss(rng, 512, 2048), "norm.weight": gauss(rng, 64)}
    path = tmp_path_factory.mktemp("gauss") / "in.safetensors"
    save_file(tensors, path)
    return path, tensors


class TestMlx:
    @pytest.mark.parametrize("group", GROUPS)
    def test_rtn_is_mlx_to_the_bit_and_so_is_dequantize(self, run, tmp_path, any_weights, group):
        path, tensors = any_weights
        for bits in WIDTHS:
            out = tmp_path / f"{bits}"
            options = ["--format", "mlx", "--method", "rtn", "--bits", bits, "--group-size", group, "--min-accuracy", 0]
            quantize(run, path, out, *options)
            done(run("dequantize", out, tmp_path / f"{bits}.safetensors"))
            found, restored = mx.load(str(out / "model.safetensors")), mx.load(str(tmp_path / f"{bits}.safetensors"))
            assert len(found) == 3 * len(tensors) and restored.keys() == tensors.keys()
            for name, array in tensors.items():
                expected = mx.quantize(to_mx(array), group, bits)
                for part, array_of_mlx in zip(("weight", "scales", "biases"), expected):
                    ours = found[name.replace("weight", part)]
                    assert ours.shape == array_of_mlx.shape and ours.dtype == array_of_mlx.dtype
                    assert raw(ours) == raw(array_of_mlx), (name, part, bits)
                values = mx.dequantize(*expected, group, bits)
                assert restored[name].dtype == values.dtype and raw(restored[name]) == raw(values), (name, bits)

    @pytest.mark.parametrize("method", ["search", "hqq"])
    def test_other_methods_store_what_mlx_dequantizes(self, run, tmp_path, any_weights, method):
        path, tensors = any_weights
        for bits in WIDTHS:
            out = tmp_path / f"{bits}"
            quantize(run, path, out, "--format", "mlx", "--method", method, "--bits", bits, "--group-size", 64, "--min-accuracy", 0)
            done(run("dequantize", out, tmp_path / f"{bits}.safetensors"))
            found, restored = mx.load(str(out / "model.safetensors")), mx.load(str(tmp_path / f"{bits}.safetensors"))
            for name in tensors:
                parts = [found[name.replace("weight", part)] for part in ("weight", "scales", "biases")]
                assert raw(restored[name]) == raw(mx.dequantize(*parts, 64, bits)), (name, bits)

    @pytest.mark.parametrize("dtype", MLX)
    def test_a_directory_that_mlx_made(self, run, tmp_path, any_weights, dtype):
        """With layers of several widths, as mlx_lm saves them."""
        _, tensors = any_weights
        weight = to_mx(tensors[f"{dtype}.300x256.weight"])
        section, expected = {"group_size": 64, "bits": 4, "mode": "affine"}, {}
        saved = {"norm.weight": to_mx(tensors[f"{dtype}.1x128.weight"][0])}
        for bits in WIDTHS:
            for group in GROUPS:
                layer = f"layers.{bits}.{group}"
                parts = mx.quantize(weight, group, bits)
                saved |= {f"{layer}.{name}": part for name, part in zip(("weight", "scales", "biases"), parts)}
                section[layer] = {"group_size": group, "bits": bits}
                expected[f"{layer}.weight"] = mx.dequantize(*parts, group, bits)
        made = tmp_path / "made"
        made.mkdir()
        mx.save_safetensors(str(made / "model.safetensors"), saved, metadata={"format": "mlx"})
        (made / "config.json").write_text(json.dumps({"model_type": "x", "quantization": section, "quantization_config": section}))
        (made / "tokenizer.json").write_text("{}")
        done(run("dequantize", made, tmp_path / "out"))
        restored = mx.load(str(tmp_path / "out/model.safetensors"))
        assert restored.keys() == expected.keys() | {"norm.weight"}
        assert raw(restored["norm.weight"]) == raw(saved["norm.weight"])
        for name, values in expected.items():
            assert raw(restored[name]) == raw(values), name
        assert listing(tmp_path / "out") == ["config.json", "model.safetensors", "tokenizer.json"]
        config = json.loads((tmp_path / "out/config.json").read_text())
        assert "quantization" not in config and "quantization_config" not in config and config["model_type"] == "x"
        original = tmp_path / "original.safetensors"
        mx.save_safetensors(str(original), {"norm.weight": saved["norm.weight"]} | dict.fromkeys(expected, weight))
        report = json.loads(done(run("validate", original, made, "--json")).stdout)
        assert {layer["name"]: (layer["bits"], layer["group_size"]) for layer in report["layers"]} == {
            f"layers.{bits}.{group}.weight": (bits, group) for bits in WIDTHS for group in GROUPS
        }

    def test_the_directory(self, run, tmp_path, tiny):
        report = quantize(run, tiny, tmp_path / "out", "--format", "mlx", "--group-size", 64)
        before, after = listing(tiny), listing(tmp_path / "out")
        assert after == sorted({*before, "model.safetensors.index.json"})
        for name in after:
            if name not in ("config.json", "model.safetensors", "model.safetensors.index.json"):
                assert (tmp_path / "out" / name).read_bytes() == (tiny / name).read_bytes()
        source, config = (json.loads((folder / "config.json").read_text()) for folder in (tiny, tmp_path / "out"))
        section = {"group_size": 64, "bits": 4, "mode": "affine"}
        assert config == source | {"quantization": section, "quantization_config": section}

        arrays, metadata = mx.load(str(tmp_path / "out/model.safetensors"), return_metadata=True)
        assert metadata == {"format": "mlx"}
        index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
        assert index["weight_map"] == dict.fromkeys(arrays, "model.safetensors")
        assert index["metadata"]["total_size"] == sum(array.nbytes for array in arrays.values())
        assert index["metadata"]["total_parameters"] == 230_080
        original = read_safetensors(tiny / "model.safetensors")
        assert {layer["name"] for layer in report["layers"]} == {name for name, array in original.items() if array.ndim == 2}
        for name, array in original.items():
            if array.ndim == 1:
                assert raw(arrays[name]) == array.tobytes()
        assert run("verify", tmp_path / "out").returncode == 0

    def test_layers_of_other_widths_are_in_the_config(self, run, tmp_path, tiny):
        settings = tmp_path / "q.yaml"
        widths = "layer_bit_widths:\n  '*.v_proj': 8\n  model.embed_tokens: 6\n  '*.0.mlp.up_proj.weight': 16\n"
        settings.write_text(f"format: mlx\ngroup_size: 32\n{widths}")
        report = quantize(run, tiny, tmp_path / "out", "--config", settings)
        section = json.loads((tmp_path / "out/config.json").read_text())["quantization"]
        expected = {f"model.layers.{i}.self_attn.v_proj": {"group_size": 32, "bits": 8, "mode": "affine"} for i in range(4)}
        expected["model.embed_tokens"] = {"group_size": 32, "bits": 6, "mode": "affine"}
        assert section == {"group_size": 32, "bits": 4, "mode": "affine"} | expected
        assert "model.layers.0.mlp.up_proj.weight" not in {layer["name"] for layer in report["layers"]}
        arrays = mx.load(str(tmp_path / "out/model.safetensors"))
        assert raw(arrays["model.layers.0.mlp.up_proj.weight"]) == read_safetensors(tiny / "model.safetensors")[
            "model.layers.0.mlp.up_proj.weight"
        ].tobytes()
        done(run("dequantize", tmp_path / "out", tmp_path / "restored.safetensors"))
        restored = mx.load(str(tmp_path / "restored.safetensors"))
        for layer in report["layers"]:
            base = layer["name"].removesuffix(".weight")
            assert layer["bits"] == section.get(base, section)["bits"], base
            parts = [arrays[f"{base}.{part}"] for part in ("weight", "scales", "biases")]
            assert raw(restored[layer["name"]]) == raw(mx.dequantize(*parts, 32, layer["bits"])), base

    def test_mixed_recipe(self, run, tmp_path, make_model):
        model = make_model("--preset", "tiny", "--set", "num_hidden_layers=8", "--set", "tie_word_embeddings=false")
        options = ["--format", "mlx", "--group-size", 32, "--recipe", "mixed_4_6", "--validate"]
        report = quantize(run, model, tmp_path / "out", *options)
        high = {f"model.layers.{i}.{kind}.weight" for i in (0, 3, 6, 7) for kind in ("self_attn.v_proj", "mlp.down_proj")}
        assert {layer["name"] for layer in report["layers"] if layer["bits"] == 6} == high | {"lm_head.weight"}
        assert {layer["bits"] for layer in report["layers"]} == {4, 6}
        section = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
        assert section["bits"] == 4
        assert {name for name in section if isinstance(section[name], dict)} == {
            name.removesuffix(".weight") for name in high | {"lm_head.weight"}
        }

    def test_of_shards_comes_the_same_as_of_one_file(self, run, tmp_path, tiny, sharded):
        for model, out in ((tiny, "one"), (sharded, "many")):
            quantize(run, model, tmp_path / out, "--format", "mlx", "--group-size", 64)
        assert (tmp_path / "one/model.safetensors").read_bytes() == (tmp_path / "many/model.safetensors").read_bytes()


class TestParquet:
    @pytest.mark.parametrize(
        "options", ["--bits 4 --group-size 64", "--bits 3 --group-size 256 --method rtn", "--bits 5 --group-size 32 --method hqq"]
    )
    def test_pyarrow_and_numpy_read_what_dequantize_writes(self, run, tmp_path, mixed, options):
        path, tensors = mixed
        report = quantize(run, path, tmp_path / "out", "--min-accuracy", 0, *options.split())
        assert listing(tmp_path / "out") == ["metadata.json", "model-00001-of-00001.parquet"]
        found = read_parquet(tmp_path / "out")
        done(run("dequantize", tmp_path / "out", tmp_path / "f32.safetensors", "--dtype", "f32"))
        done(run("dequantize", tmp_path / "out", tmp_path / "own.safetensors"))
        f32, own = read_safetensors(tmp_path / "f32.safetensors"), read_safetensors(tmp_path / "own.safetensors")
        assert found.keys() == f32.keys() == own.keys() == tensors.keys()
        quantized = {layer["name"] for layer in report["layers"]}
        assert quantized == {name for name in tensors if name[0] < "k"}
        for name, array in tensors.items():
            assert own[name].shape == found[name].shape == array.shape and own[name].dtype == array.dtype, name
            if name in quantized:
                assert f32[name].dtype == np.float32 and f32[name].tobytes() == found[name].tobytes(), name
                assert own[name].tobytes() == found[name].astype(array.dtype).tobytes(), name
                assert figures(array, found[name])[0] > 0.9, name
            else:
                assert found[name].tobytes() == f32[name].tobytes() == own[name].tobytes() == array.tobytes(), name

    def test_duckdb_reads_the_same(self, run, tmp_path, mixed):
        path, tensors = mixed
        quantize(run, path, tmp_path / "out", "--bits", 3, "--group-size", 64, "--min-accuracy", 0)
        query = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/out/*.parquet') ORDER BY layer_name, block")
        rows = [dict(zip(query.columns, row)) for row in query.fetchall()]
        expected = read_parquet(tmp_path / "out")
        found = join_blocks(rows)
        assert found.keys() == expected.keys() == tensors.keys()
        for name in tensors:
            assert found[name].tobytes() == expected[name].tobytes(), name
        blocks = [row for row in rows if row["layer_name"] == "e.blocks"]
        assert [(row["row_offset"], row["row_count"], row["block_count"]) for row in blocks] == [(0, 4072, 2), (4072, 128, 2)]
        sums = duckdb.sql(f"SELECT sum(num_params), count(DISTINCT layer_name) FROM read_parquet('{tmp_path}/out/*.parquet')")
        assert sums.fetchall() == [(sum(array.size for array in tensors.values()), len(tensors))]

    def test_metadata(self, run, tmp_path, tiny):
        report = quantize(run, tiny, tmp_path / "out", "--profile", "edge", "--bits", 3, "--keep", "*embed*")
        metadata = json.loads((tmp_path / "out/metadata.json").read_text())
        assert metadata["format"] == "parquet_v2_extended" and metadata["version"] == 2 and metadata["modality"] == "text"
        config = metadata["config"]
        assert config["deployment_profile"] == "edge" and config["bit_width"] == 3 and config["group_size"] == 256
        assert config["min_accuracy"] == 0.65 and config["sensitive_layer_names"] == ["*embed*"]
        assert metadata["source"] == [{"name": "model.safetensors", "size": (tiny / "model.safetensors").stat().st_size}]
        assert (metadata["tensor_count"], metadata["quantized_tensors"], metadata["parameter_count"]) == (46, 28, 230_080)
        (part,) = metadata["parts"]
        data = (tmp_path / "out" / part["file"]).read_bytes()
        assert part["bytes"] == len(data) == report["bytes"] == metadata["bytes"]
        assert part["sha256"] == hashlib.sha256(data).hexdigest()
        companions = [name for name in listing(tiny) if name != "model.safetensors"]
        assert listing(tmp_path / "out") == sorted([*companions, "metadata.json", "model-00001-of-00001.parquet"])
        for name in companions:
            assert (tmp_path / "out" / name).read_bytes() == (tiny / name).read_bytes()
        table = pq.read_table(tmp_path / "out" / part["file"])
        assert set(table["modality"].to_pylist()) == {"text"} and set(table["is_diffusion_model"].to_pylist()) == {False}

    def test_a_modality_that_is_given_wins(self, run, tmp_path, tiny):
        assert quantize(run, tiny, tmp_path / "out", "--modality", "image")["modality"] == "image"
        table = pq.read_table(tmp_path / "out/model-00001-of-00001.parquet")
        assert set(table["modality"].to_pylist()) == {"image"} and set(table["is_diffusion_model"].to_pylist()) == {True}

    @pytest.mark.skipif(not FULL, reason="writes 600 MB")
    def test_parts(self, run, tmp_path):
        rng = np.random.default_rng(9)
        tensors = {f"layers.{i}.bias": rng.integers(0, 2**16, 20_000_000, np.uint16).view(BF16) for i in range(14)}
        tensors |= {f"layers.{i}.weight": gauss(rng, 1000, 4096) for i in range(14)}
        save_file(tensors, tmp_path / "in.safetensors")
        quantize(run, tmp_path / "in.safetensors", tmp_path / "out")
        parts = [f"model-0000{i}-of-00003.parquet" for i in (1, 2, 3)]
        assert listing(tmp_path / "out") == ["metadata.json", *parts]
        assert all((tmp_path / "out" / part).stat().st_size < 1.01 * 2**28 for part in parts)
        found = read_parquet(tmp_path / "out")
        done(run("dequantize", tmp_path / "out", tmp_path / "restored.safetensors", "--dtype", "f32"))
        restored = read_safetensors(tmp_path / "restored.safetensors")
        for name in tensors:
            assert found[name].tobytes() == restored[name].tobytes()


class TestFigures:
    @pytest.mark.parametrize("format", ["parquet", "mlx"])
    def test_size_and_quality_are_those_of_the_files(self, run, tmp_path, gaussian, format):
        path, tensors = gaussian
        weights = sum(array.size for array in tensors.values() if array.ndim == 2)
        sizes = {}
        for bits, most in ((2, 0.325), (3, 0.168), (4, 0.083), (8, 0.0054)):
            out = tmp_path / f"{bits}"
            report = quantize(run, path, out, "--bits", bits, "--group-size", 64, "--format", format, "--min-accuracy", 0.5)
            assert KEYS <= report.keys() and all(LAYER_KEYS <= layer.keys() for layer in report["layers"])
            assert report["bit_width"] == bits and report["passed"] is True and report["quantization_time_s"] > 0
            assert [(layer["name"], layer["bits"], layer["group_size"]) for layer in report["layers"]] == [
                ("layers.0.weight", bits, 64), ("layers.1.weight", bits, 64)]  # fmt: skip
            assert all(layer["relative_rmse"] <= most for layer in report["layers"])

            files = [file for file in out.iterdir() if file.suffix in (".parquet", ".safetensors")]
            sizes[bits] = sum(file.stat().st_size for file in files)
            assert sizes[bits] * 8 / weights <= (bits + 0.5) * 1.01
            assert report["compression_ratio"] == path.stat().st_size / sizes[bits]
            assert report["model_size_mb"] == sizes[bits] / 1e6 and report["bits_per_weight"] == bits + 0.5
            assert sum(layer["bytes"] for layer in report["layers"]) == weights * (bits + 0.5) / 8

            restored = read_parquet(out) if format == "parquet" else {l["name"]: read_mlx(out, l, BF16) for l in report["layers"]}
            for layer in report["layers"]:
                cosine, error = figures(tensors[layer["name"]], restored[layer["name"]])
                assert layer["relative_rmse"] == pytest.approx(error, rel=1e-4)
                assert layer["cosine_similarity"] == pytest.approx(cosine, abs=1e-6)
                difference = restored[layer["name"]] - tensors[layer["name"]].astype(np.float32)
                assert layer["max_error"] == pytest.approx(np.abs(difference).max(), rel=1e-6)
            for name in ("cosine_similarity", "relative_rmse"):
                mean = sum(tensors[layer["name"]].size * layer[name] for layer in report["layers"]) / weights
                assert report[name] == pytest.approx(mean, rel=1e-12)
        assert sizes[2] < sizes[3] < sizes[4] < sizes[8] and sizes[8] > 3 * sizes[2]

    @pytest.mark.parametrize("format", ["parquet", "mlx"])
    def test_three_ways_to_measure_agree_to_the_last_digit(self, run, tmp_path, gaussian, format):
        path, _ = gaussian
        options = ["--bits", 3, "--group-size", 128, "--format", format]
        written = quantize(run, path, tmp_path / "out", *options)
        files = contents(tmp_path / "out")
        read_back = quantize(run, path, tmp_path / "out", *options, "--validate", "--threads", 1)
        assert contents(tmp_path / "out") == files
        validated = json.loads(done(run("validate", path, tmp_path / "out", "--json", "--min-accuracy", 0.85)).stdout)
        assert KEYS <= validated.keys() and all(LAYER_KEYS <= layer.keys() for layer in validated["layers"])
        assert written["validated"] is False and read_back["validated"] is True
        assert {layer["method"] for layer in read_back["layers"]} == {"auto"}
        for report in (written, read_back, validated):
            for layer in report["layers"]:
                del layer["method"]  # which the files do not tell
        for other in (read_back, validated):
            for key in (*KEYS - {"quantization_time_s"}, "source_bytes", "bytes", "max_error", "sqnr_db", "files"):
                assert other[key] == written[key], key

    def test_search_is_never_worse_than_the_others(self, run, tmp_path):
        rng = np.random.default_rng(11)
        outliers = rng.standard_normal((512, 1024)) * np.where(rng.random(1024) < 0.01, 8, 1)
        tensors = {"gauss": rng.standard_normal((512, 1024)), "t5": rng.standard_t(5, (512, 1024)), "outliers": outliers}
        tensors = {name: (array * 0.02).astype(BF16) for name, array in tensors.items()}
        save_file(tensors, tmp_path / "in.safetensors")
        for format in ("parquet", "mlx"):
            for bits in WIDTHS:
                errors = {}
                for method in ("search", "rtn", "hqq"):
                    options = ["--method", method, "--bits", bits, "--group-size", 64, "--format", format, "--min-accuracy", 0]
                    report = quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options)
                    errors[method] = {layer["name"]: layer["relative_rmse"] for layer in report["layers"]}
                for name in tensors:
                    assert errors["search"][name] <= min(errors["rtn"][name], errors["hqq"][name]), (format, bits, name, errors)

    def test_validate_says_when_it_is_not_good_enough(self, run, tmp_path, gaussian):
        path, _ = gaussian
        quantize(run, path, tmp_path / "out", "--bits", 2, "--min-accuracy", 0)
        done(run("validate", path, tmp_path / "out"))
        done(run("validate", path, tmp_path / "out", "--min-accuracy", 0.9))
        result = run("validate", path, tmp_path / "out", "--min-accuracy", 0.99, "--json")
        assert result.returncode == 1 and json.loads(result.stdout)["passed"] is False
        text = run("validate", path, tmp_path / "out", "--min-accuracy", 0.99)
        assert text.returncode == 1 and "failed" in text.stdout and "layers.0.weight" in text.stdout
