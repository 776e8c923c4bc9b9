"""The command line as its users meet it: output, errors, exit codes."""

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import one_error_line
from processes import wait_for_bytes
from safetensors.numpy import save_file
from safetensors_bytes import prefix

REPO = Path(__file__).resolve().parents[2]



def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


class TestInspect:
    def test_json_has_the_fields_of_the_contract(self, run, sharded):
        result = run("inspect", sharded, "--json")
        assert result.returncode == 0 and result.stderr == ""
        document = json.loads(result.stdout)
        assert document["path"] == str(sharded)
        assert document["format"] == "safetensors"
        assert [Path(f["path"]).name for f in document["files"]] == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
        assert document["tensor_count"] == 46
        assert document["parameter_count"] == 230_080
        assert document["data_bytes"] == 460_160
        assert document["dtypes"] == {"BF16": {"tensors": 46, "parameters": 230_080, "bytes": 460_160}}
        assert document["metadata"] == {"format": "pt"}
        assert document["modality"] == "text"
        assert document["config"]["num_hidden_layers"] == 4
        assert "tensors" not in document

    def test_json_lists_tensors_where_they_are(self, run, tiny):
        document = json.loads(run("inspect", tiny, "--json", "--tensors", "--filter", "model.norm.*").stdout)
        (only,) = document["tensors"]
        assert only["name"] == "model.norm.weight" and only["dtype"] == "BF16" and only["shape"] == [64]
        assert only["file"] == str(tiny / "model.safetensors")
        begin, end = only["data_offsets"]
        assert end - begin == 128

    def test_tree_collapses_layers(self, run, tiny):
        text = run("inspect", tiny).stdout
        assert "46 tensors, 230,080 parameters, 460 kB in 1 file" in text
        assert re.search(r"layers\.\{0…3\} +44 ", text)
        assert re.search(r"down_proj\.weight +BF16 +\[64, 192\] +4 ", text)

    def test_tensors_come_in_natural_order(self, run, tmp_path):
        names = [f"layers.{i}.w" for i in (10, 9, 1, 2)]
        save_file({name: np.zeros(i + 1, np.float32) for i, name in enumerate(names)}, tmp_path / "m.safetensors")
        lines = run("inspect", tmp_path / "m.safetensors", "--tensors").stdout.splitlines()
        assert [line.split()[0] for line in lines if line.startswith("layers")] == [
            "layers.1.w", "layers.2.w", "layers.9.w", "layers.10.w"]  # fmt: skip

    def test_stats_are_those_of_numpy(self, run, tmp_path):
        values = np.random.default_rng(1).normal(3, 2, (300, 70)).astype(np.float32)
        values[0, :5] = [np.nan, np.inf, -np.inf, 0, 0]
        save_file({"w": values}, tmp_path / "m.safetensors")
        (entry,) = json.loads(run("inspect", tmp_path / "m.safetensors", "--stats", "--json").stdout)["tensors"]
        stats, finite = entry["stats"], values[np.isfinite(values)].astype(np.float64)
        assert (stats["count"], stats["zeros"], stats["nan"], stats["inf"]) == (21_000, 2, 1, 2)
        assert stats["min"] == finite.min() and stats["max"] == finite.max()
        assert stats["mean"] == pytest.approx(finite.mean(), rel=1e-12)
        assert stats["std"] == pytest.approx(finite.std(), rel=1e-12)
        assert stats["l2_norm"] == pytest.approx(np.linalg.norm(finite), rel=1e-12)
        assert stats["histogram"] == np.histogram(finite, 16)[0].tolist()

    def test_stats_draw_a_histogram(self, run, tiny):
        text = run("inspect", tiny, "--stats", "--filter", "*embed*").stdout
        assert re.search("embed_tokens.weight .* [▁▂▃▄▅▆▇█]{6,}", text)

    @pytest.mark.parametrize("name", ["a\x1b[31mred", 'quo"te', "new\nline", "nul\x00byte", "bidi\u202etxt", "back\\slash", "\x9bm"])
    def test_hostile_names_are_escaped(self, run, tmp_path, name):
        path = tmp_path / "m.safetensors"
        path.write_bytes(prefix({name: tensor("U8", [1], 0, 1)}) + b"x")
        for arguments in ((), ("--tensors",), ("--stats",)):
            text = run("inspect", path, *arguments).stdout
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
            assert sum("U8" in line or "…" in line for line in text.splitlines()) >= 1
        assert json.loads(run("inspect", path, "--tensors", "--json").stdout)["tensors"][0]["name"] == name

    def test_json_is_plain_ascii(self, run, tmp_path):
        path = tmp_path / "m.safetensors"
        path.write_bytes(prefix({"\x9b31m\u202e": tensor("U8", [1], 0, 1)}) + b"x")
        result = run("inspect", path, "--tensors", "--json")
        assert result.stdout.isascii() and "\x7f" not in result.stdout

    def test_names_cannot_fake_a_group(self, run, tmp_path):
        path = tmp_path / "m.safetensors"
        names = ["l.0.a", "l.0.b", "l.1.a:F32[1]|b"]
        path.write_bytes(prefix({n: tensor("F32", [1], 4 * i, 4 * i + 4) for i, n in enumerate(names)}) + bytes(12))
        assert "{" not in run("inspect", path).stdout

    def test_duplicates_open_on_request(self, run, tmp_path):
        path = tmp_path / "m.safetensors"
        entry = json.dumps(tensor("U8", [1], 0, 1))
        path.write_bytes(prefix(f'{{"a":{entry},"a":{entry}}}') + b"x")
        assert "duplicate tensor 'a'" in one_error_line(run("inspect", path), 3)
        assert run("inspect", path, "--reference").returncode == 0

    def test_stray_single_file_is_warned_about(self, run, sharded, tiny):
        stray = sharded / "model.safetensors"
        stray.write_bytes((tiny / "model.safetensors").read_bytes())
        try:
            result = run("inspect", sharded)
            assert result.returncode == 0
            assert result.stderr == f"warning: {stray} is ignored because model.safetensors.index.json is used\n"
        finally:
            stray.unlink()

    def test_deep_and_many_names_do_not_harm(self, run, tmp_path):
        path = tmp_path / "m.safetensors"
        entries = {".".join(["a"] * 20_000): tensor("U8", [0], 0, 0)}
        entries |= {f"t{i}x": tensor("U8", [0], 0, 0) for i in range(5_000)}
        path.write_bytes(prefix(entries))
        result = run("inspect", path)
        assert result.returncode == 0
        assert "more" in result.stdout and len(result.stdout.splitlines()) < 400


class TestErrors:
    def test_missing_file(self, run, tmp_path):
        message = one_error_line(run("inspect", tmp_path / "no.safetensors"), 3)
        assert message == f"{tmp_path}/no.safetensors: cannot open: No such file or directory"

    def test_empty_directory_names_what_it_looked_for(self, run, tmp_path):
        message = one_error_line(run("inspect", tmp_path), 3)
        for name in ("model.safetensors.index.json", "model.safetensors", "weights.safetensors", "weights.mlx"):
            assert name in message

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"abc", "file of 3 bytes is too small for a SafeTensors header (at least 8 bytes)"),
            (b"PK\x03\x04\x00\x00\x08\x08" + b"\0" * 20, "looks like a ZIP archive"),
            (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
            (b"<!DOCTYPE html><html></html>", "HTML page"),
            (prefix({"w": tensor("F32", [2], 0, 8)}) + b"\0" * 6, "(2 missing)"),
        ],
    )
    def test_bad_file_gets_one_line(self, run, tmp_path, content, expected):
        path = tmp_path / "bad.safetensors"
        path.write_bytes(content)
        message = one_error_line(run("inspect", path), 3)
        assert message.startswith(f"{path}: ") and expected in message
        verified = run("verify", path)
        assert verified.returncode == 1 and expected in verified.stdout and verified.stderr == ""

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("frobnicate",), "unknown command 'frobnicate'; see ballast --help"),
            (("--nope",), "unknown option '--nope'; see ballast --help"),
            (("inspect", "a", "--nope"), "unknown option '--nope'; see ballast inspect --help"),
            (("inspect", "a", "b"), "unexpected argument 'b'; see ballast inspect --help"),
            ((), "a command is required; see ballast --help"),
            (("inspect",), "PATH is required; see ballast inspect --help"),
            (("inspect", ""), "PATH is empty; see ballast inspect --help"),
            (("inspect", "a", "--json=1"), "--json takes no value; see ballast inspect --help"),
            (("inspect", "a", "--filter"), "--filter needs a value; see ballast inspect --help"),
            (("inspect", "a", "--filter", "b", "--filter", "c"), "--filter is given more than once; see ballast inspect --help"),
            (("verify", "a", "--threads", "0"), "--threads is '0', it must be a number from 1 to 1024; see ballast verify --help"),
            (("verify", "a", "--threads", "1.5"), "--threads is '1.5', it must be a number from 1 to 1024; see ballast verify --help"),
            (("convert", "a", "b", "--format", "x"), "--format is 'x', it must be safetensors or mlx-json; see ballast convert --help"),
            (("validate", "a", "b", "--min-accuracy", "nan"), "--min-accuracy is 'nan', it must be from 0 to 1; see ballast validate --help"),
            (("quantize", "a"), "OUT is required; see ballast quantize --help"),
            (("quantize", "a", "b", "--input", "c"), "IN is given more than once; see ballast quantize --help"),
            (("completion", "fish"), "SHELL is 'fish', it must be bash or zsh; see ballast completion --help"),
        ],
    )
    def test_wrong_usage_names_the_argument(self, run, arguments, expected):
        assert one_error_line(run(*arguments), 2) == expected

    @pytest.mark.parametrize(
        "arguments",
        [(), ("frobnicate",), ("inspect",), ("inspect", "a", "b"), ("inspect", "a", "--nope"), ("verify", "a", "--threads", "0"), ("completion", "fish")],
    )  # fmt: skip
    def test_wrong_usage_is_2(self, run, arguments):
        assert "--help" in one_error_line(run(*arguments), 2)

    def test_full_disk_is_4(self, build_dir, tiny):
        with open("/dev/full", "w") as full:
            command = [build_dir / "ballast", "inspect", tiny, "--json", "--tensors"]
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert result.returncode == 4 and result.stderr.count("\n") == 1

    def test_errors_survive_a_closed_standard_error(self, build_dir, tmp_path):
        with open("/dev/full", "w") as full:
            result = subprocess.run([build_dir / "ballast", "inspect", tmp_path / "no"], stderr=full, stdout=subprocess.PIPE)
        assert result.returncode == 3 and result.stdout == b""

    def test_header_limit_can_be_raised(self, run, tmp_path):
        path = tmp_path / "m.safetensors"
        path.write_bytes(prefix(b"{}" + b" " * 1_000_000))
        assert "exceeds the limit of 1000000" in one_error_line(run("inspect", path, "--max-header-mb", "1"), 3)
        assert run("inspect", path, "--max-header-mb", "2").returncode == 0


class TestVerify:
    def test_whole_model_is_ok(self, run, sharded):
        result = run("verify", sharded, "--values", "--sha256")
        assert result.returncode == 0 and result.stderr == ""
        assert result.stdout.splitlines()[0].startswith(f"{sharded}: ok")
        checksums = subprocess.run(["sha256sum", *sorted(sharded.glob("*.safetensors"))], capture_output=True, text=True)
        assert result.stdout.endswith(checksums.stdout)

    def test_json(self, run, tiny):
        document = json.loads(run("verify", tiny, "--json").stdout)
        assert document["ok"] is True and document["defects"] == []
        assert [check["name"] for check in document["checks"]] == ["header", "config", "architecture"]

    def test_missing_path_is_3(self, run, tmp_path):
        one_error_line(run("verify", tmp_path / "no"), 3)

    def test_every_defect_is_listed(self, run, make_model):
        model = make_model("--preset", "tiny", "--shards", "3")
        (model / "model-00002-of-00003.safetensors").unlink()
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"vocab_size": 7}))
        result = run("verify", model, "--json")
        assert result.returncode == 1
        defects = json.loads(result.stdout)["defects"]
        assert any("model-00002-of-00003.safetensors' is missing" in d["message"] for d in defects)
        assert any("has shape [512, 64], the config implies [7, 64]" in d["message"] for d in defects)

    def test_values(self, run, tmp_path):
        path = tmp_path / "m.safetensors"
        weights = {"nan": np.array([[1, np.nan]], np.float32), "zero": np.zeros((4, 4), np.float16), "bias": np.zeros(4, np.float32)}
        save_file(weights, path)
        assert run("verify", path).returncode == 0
        result = run("verify", path, "--values", "--json")
        assert result.returncode == 1
        messages = [d["message"] for d in json.loads(result.stdout)["defects"]]
        assert messages == [f"{path}: tensor 'nan': 1 of 2 values are NaN", f"{path}: tensor 'zero': all 16 values are 0"]


class TestTerminal:
    def test_no_colour_outside_a_terminal(self, run, tiny):
        assert "\x1b" not in run("inspect", tiny).stdout

    @pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
    def test_colour_on_a_terminal(self, build_dir, tiny, environment, coloured):
        primary, secondary = pty.openpty()
        command = [build_dir / "ballast", "verify", tiny]
        with subprocess.Popen(command, stdout=secondary, stderr=secondary, env={"TERM": "xterm"} | environment) as process:
            os.close(secondary)
            shown = b""
            while True:
                try:
                    chunk = os.read(primary, 4096)
                except OSError:  # the far end has closed
                    break
                if not chunk:
                    break
                shown += chunk
        os.close(primary)
        assert process.returncode == 0
        assert (b"\x1b[" in shown) == coloured

    def test_interrupt_exits_130(self, build_dir, tmp_path):
        path = tmp_path / "big.safetensors"
        size = 8 << 30
        with open(path, "wb") as file:
            start = file.write(prefix({"w": tensor("F32", [size // 4], 0, size)}))
            file.truncate(start + size)  # sparse
        with subprocess.Popen([build_dir / "ballast", "inspect", path, "--stats"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_for_bytes(process, "rchar", 64 << 20)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate()
        assert process.returncode == 130 and out == b""


COMMANDS = ["inspect", "verify", "convert", "quantize", "dequantize", "validate", "diff", "extract", "metadata", "download", "completion"]


class TestHelp:
    def test_help_has_examples(self, run):
        for arguments in (["--help"], ["inspect", "--help"], ["verify", "--help"], ["completion", "--help"]):
            result = run(*arguments)
            assert result.returncode == 0 and "Examples:" in result.stdout and result.stderr == ""

    @pytest.mark.parametrize("command", COMMANDS)
    def test_help_fits_80_columns(self, run, command):
        text = run(command, "--help").stdout
        assert max(map(len, text.splitlines())) <= 80
        assert f"\nUsage: ballast {command} [OPTIONS] " in text

    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_option_with_a_value_has_a_placeholder(self, run, command):
        options = run(command, "--help").stdout.split("Options:\n")[1].split("\n\n")[0]
        bare = {match for match in re.findall(r"^  (?:-o,)?--([a-z0-9-]+)(?= {2,}|$)", options, re.MULTILINE)}
        assert not bare & {"input", "output", "format", "dtype", "threads", "slice", "filter", "include", "config", "calibration"}

    def test_version(self, run):
        assert re.fullmatch(r"ballast \d+\.\d+\.\d+\n", run("--version").stdout)

    @pytest.mark.parametrize("command", ["inspect", "verify", "convert", "quantize", "dequantize", "validate"])
    def test_man_page_and_completions_know_every_option(self, run, command):
        options = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", run(command, "--help").stdout.split("Examples:")[0]))
        assert len(options) > 3
        manual = (REPO / "docs/man/ballast.1").read_text().replace("\\-", "-")
        section = manual.split(f".Ss {command}")[1].split(".Ss ")[0]
        for option in options - {"help"}:
            assert f".It Fl -{option}" in section, option
        for shell in ("bash", "zsh"):
            script = run("completion", shell).stdout
            for option in options:
                assert f"--{option}" in script

    def test_man_page_is_clean(self):
        result = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", REPO / "docs/man/ballast.1"], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout

    def test_bash_completes_commands_options_and_files(self, run, tmp_path):
        script = run("completion", "bash").stdout
        (tmp_path / "model.safetensors").touch()

        def complete(*words):
            line = " ".join(f"'{word}'" for word in words)
            check = f"{script}\ncd '{tmp_path}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _ballast 2>/dev/null; echo \"${{COMPREPLY[*]}}\""
            return subprocess.run(["bash", "-c", check], capture_output=True, text=True).stdout.split()

        assert complete("ballast", "ins") == ["inspect"]
        assert complete("ballast", "verify", "--va") == ["--values", "--variant"]
        assert complete("ballast", "quantize", "a", "b", "--format", "") == ["parquet", "mlx", "compressed-tensors", "hf-fp8"]
        assert complete("ballast", "quantize", "a", "b", "--method", "h") == ["hqq"]
        assert complete("ballast", "quantize", "--profile", "") == ["edge", "local", "cloud"]
        assert complete("ballast", "convert", "--dtype", "bf") == ["bf16"]
        assert complete("ballast", "dequantize", "--dtype", "f") == ["f64", "f32", "f16"]
        assert complete("ballast", "inspect", "mod") == ["model.safetensors"]

    def test_zsh_completes_values(self, run):
        script = run("completion", "zsh").stdout
        for option, values in (("format", "parquet mlx compressed-tensors hf-fp8"), ("method", "auto search rtn hqq"), ("profile", "edge local cloud"), ("format", "safetensors mlx-json")):
            assert re.search(rf"'--{option}\[.*\]:[A-Z]+:\({values}\)'", script), option
        assert re.search(r"'--dtype\[.*\]:DTYPE:\(f64 f32 f16 bf16", script)
