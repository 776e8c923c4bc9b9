"""What docs/quantization.md says, held against the program."""

import json
import os
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from conftest import one_error_line
from safetensors.numpy import save_file
from sessions import blocks

REPO = Path(__file__).resolve().parents[2]
DOC = (REPO / "docs/quantization.md").read_text()
PROFILES = ("local", "edge", "cloud")
UNRECORDED = ("type", "strategy", "asymmetric")  # unless they are set


def rows_of_table(first_column: str) -> list[list[str]]:
    """The cells of the table whose header begins with `first_column`."""
    (table,) = re.findall(rf"^\| {first_column} \|.*\n\|[-|]+\n((?:\|.*\n)+)", DOC, re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]


def reference() -> dict[str, dict[str, str]]:
    columns = ("option", "variable", *PROFILES, "meaning")
    return {row[0].strip("`"): dict(zip(columns, row[1:], strict=True)) for row in rows_of_table("setting")}


def quantize(run, *arguments, **options):
    result = run("quantize", *arguments, "--json", **options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class TestSettings:
    def test_every_setting_is_there_and_no_other(self, run, tiny, tmp_path):
        (tmp_path / "unknown.yaml").write_text("nothing_like_it_at_all: 1\n")
        message = one_error_line(run("quantize", tiny, tmp_path / "out", "--config", tmp_path / "unknown.yaml"), 2)
        assert list(reference()) == message.split("the settings are ")[1].split(", ")

    @pytest.mark.parametrize("profile", PROFILES)
    def test_defaults_are_those_of_the_profile(self, run, tiny, tmp_path, profile):
        quantize(run, tiny, tmp_path / "out", "--profile", profile)
        config = json.loads((tmp_path / "out/metadata.json").read_text())["config"]
        assert set(reference()) - set(config) == {"num_threads", "max_memory_limit_mb", *UNRECORDED}
        for setting, value in config.items():
            row = reference()[setting]
            told = row[profile] or row["local"]
            assert told == (f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"), setting

    def test_options_and_variables_are_those_of_the_program(self, run, tiny, tmp_path):
        usage = run("quantize", "--help").stdout
        for setting, row in reference().items():
            option, variable = row["option"].strip("`"), row["variable"].strip("`")
            assert option in usage
            assert variable == "BALLAST_" + setting.upper()
            result = run("quantize", tiny, tmp_path / "out", env=os.environ | {variable: "?("})
            message = one_error_line(result, 2)
            assert variable in message or setting in message

    def test_sample_is_accepted_and_means_what_it_says(self, run, tiny, tmp_path):
        (sample,) = blocks(DOC, "yaml")
        (tmp_path / "settings.yaml").write_text(sample)
        done = quantize(run, tiny, tmp_path / "out", "--config", tmp_path / "settings.yaml")
        assert (done["format"], done["bit_width"], done["group_size"]) == ("mlx", 4, 64)
        bits = {layer["name"].removesuffix(".weight"): layer["bits"] for layer in done["layers"]}
        assert "model.embed_tokens" not in bits
        assert "model.layers.0.self_attn.k_proj" not in bits and bits["model.layers.1.self_attn.k_proj"] == 4
        assert bits["model.layers.0.mlp.down_proj"] == 8 and bits["model.layers.0.self_attn.v_proj"] == 6


def test_diffusion_models_leave_unquantized_what_the_table_says(run, tmp_path):
    told = {"blocks.0.mlp.weight": "4 bits", "blocks.0.proj_out.weight": "4 bits"}
    roots = re.findall(r"`([^`]+)`", re.search(r"the prefixes of a whole pipeline: (.*?)\n\n", DOC, re.DOTALL)[1])
    for _, inside, begin, outcome in rows_of_table("layers"):
        told |= {f"a{part.upper()}.weight": outcome for part in re.findall(r"`([^`]+)`", inside)}
        told |= {f"{part}weight": outcome for part in re.findall(r"`([^`]+)`", begin)}
        told |= {f"{root}{part}weight": outcome for root in roots for part in re.findall(r"`([^`]+)`", begin)}
    assert len(told) == 49
    save_file({name: np.eye(64, dtype=np.float32) for name in told}, tmp_path / "m.safetensors")
    done = quantize(run, tmp_path / "m.safetensors", tmp_path / "out")
    bits = {layer["name"]: f"{layer['bits']} bits" for layer in done["layers"]}
    assert {name: bits.get(name, "unquantized") for name in told} == told


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    random = np.random.default_rng(11)
    shape = (256, 1024)
    normal, student = random.normal(0, 0.02, shape), 0.02 * random.standard_t(5, shape)
    outliers = random.normal(0, 0.02, shape)
    outliers[:, 17::100] *= 8
    path = tmp_path_factory.mktemp("weights") / "m.safetensors"
    named = {"normal": normal, "student": student, "outliers": outliers}
    save_file({name: values.astype(ml_dtypes.bfloat16) for name, values in named.items()}, path)
    return path


class TestMeasuredTable:
    # Other numbers of the same distributions, so the last digits differ.
    @pytest.mark.parametrize("method", ["rtn", "search"])
    def test_figures_of_types_are_what_the_program_measures(self, run, weights, tmp_path, method):
        rows = [row[2:] for row in rows_of_table("values") if row[1] == f"`{method}`"]
        told = dict(zip(("normal", "student", "outliers"), rows, strict=True))
        for column, type in enumerate(("mxfp4", "mxfp8", "nvfp4")):
            arguments = ("--type", type, "--method", method, "--format", "mlx", "--min-accuracy", 0)
            for layer in quantize(run, weights, tmp_path / "out", *arguments, "--no-sync")["layers"]:
                figure = float(told[layer["name"]][column].strip("*"))
                assert layer["relative_rmse"] == pytest.approx(figure, rel=0.02), (layer["name"], type)

    @pytest.mark.parametrize("method", ["rtn", "hqq", "search"])
    def test_figures_are_what_the_program_measures(self, run, weights, tmp_path, method):
        rows = [row[2:] for row in rows_of_table("weights") if row[1] == f"`{method}`"]
        told = dict(zip(("normal", "student", "outliers"), rows, strict=True))
        for column, bits in enumerate((2, 3, 4, 5, 6, 8)):
            arguments = ("--bits", bits, "--method", method, "--group-size", 64, "--format", "mlx", "--min-accuracy", 0)
            for layer in quantize(run, weights, tmp_path / "out", *arguments, "--no-sync")["layers"]:
                figure = float(told[layer["name"]][column].strip("*"))
                assert layer["relative_rmse"] == pytest.approx(figure, rel=0.025, abs=6e-5), (layer["name"], bits)
