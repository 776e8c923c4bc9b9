"""Tables fit the terminal, or 80 columns, and stay aligned, whatever the names of the tensors."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import unicodedata

import numpy as np
import pytest
from safetensors.numpy import save_file

GEMMA = [
    *(f"language_model.model.layers.{i}.self_attn.{p}_proj.weight" for i in range(12) for p in "qkvo"),
    *(f"language_model.model.layers.{i}.mlp.{p}_proj.weight" for i in range(12) for p in ("gate", "up", "down")),
    *(f"vision_tower.vision_model.encoder.layers.{i}.self_attn.{p}_proj.weight" for i in range(11) for p in ("q", "k", "v", "out")),
    "vision_tower.vision_model.embeddings.patch_embedding.weight",
]
KOHYA = [
    f"lora_unet_{block}_attentions_{i}_transformer_blocks_0_{layer}.lora_{part}.weight"
    for block in ("down_blocks_0", "down_blocks_1", "up_blocks_2")
    for i in range(2)
    for layer in ("attn1_to_q", "attn1_to_out_0", "ff_net_0_proj")
    for part in ("down", "up")
]
WIDE = [
    "模型.层.0.注意力.查询投影.权重",
    "模型.层.10.注意力.查询投影.权重",
    "モデル.エンコーダー.とても長い名前のレイヤー.アテンション.クエリ.重み",
    "한국어.레이어.가중치",
    "e\u0301clair.cafe\u0301.weight",
    "สวัสดี.น้ำ.weight",
    "हिन्दी.परत.weight",
    "rocket.🚀.grin.😀.weight",
    "full.ＷＩＤＴＨ.weight",
    "plain.weight",
]
NAMES = {"gemma": GEMMA, "kohya": KOHYA, "wide": WIDE}
# By their titles; all other columns are aligned to the left.
RIGHT = {"tensors", "size", "parameters", "min", "max", "mean", "std", "zeros", "NaN", "Inf", "bits", "group", "cosine", "rel RMSE",
         "SQNR", "max error", "output", "values differ", "of", "max |a − b|"}  # fmt: skip


def width(text):
    """Not the program's way: from Python's own tables."""
    marks = sum(unicodedata.category(c) in ("Mn", "Me") for c in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(c) in ("W", "F") for c in text)


def grid(line):
    """What stands at each column: a wide character, and a blank that it covers."""
    cells = []
    for c in line:
        if width(c) == 0:
            cells[-1] += c
        else:
            cells += [c] + ["\0"] * (width(c) - 1)
    return cells


def check_alignment(lines):
    """The lines of a table: titles first."""
    for title in re.finditer(r"\S+(?: \S+)*", lines[0]):
        begin, end = width(lines[0][: title.start()]), width(lines[0][: title.end()])
        for line in lines[1:]:
            row = grid(line)
            row += [" "] * (end + 2 - len(row))
            if title[0] in RIGHT:
                assert row[end : end + 2] == [" ", " "], (title[0], line)
                assert row[end - 1] != " " or row[begin:end] == [" "] * (end - begin), (title[0], line)
            elif begin > 2:
                assert row[begin - 2 : begin] == [" ", " "], (title[0], line)


def check(text, columns):
    lines = text.splitlines()
    assert max(map(width, lines)) <= columns, text
    tables = 0
    for start, line in enumerate(lines):
        if not re.search(r"  (tensors|size|max \|a − b\||histogram|data_offsets|method)$", line):
            continue
        stop = start + 1
        while stop < len(lines) and lines[stop] and not lines[stop].lstrip().startswith("…"):
            stop += 1
        check_alignment(lines[start:stop])
        tables += 1
    assert tables > 0, text


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of each kind of names, and one that differs from it."""
    folder = tmp_path_factory.mktemp("models")
    random = np.random.default_rng(5)
    for kind, names in NAMES.items():
        tensors = {name: random.normal(0, 0.02, (64, 64)).astype(np.float16) for name in names}
        tensors[names[-1]] = tensors[names[-1]].reshape(64, 4, 4, 4)
        save_file(tensors, folder / f"{kind}.safetensors", {"训练参数": "值" * 500, "k" * 90: "v"})
        changed = {name: values + np.float16(0.5) for name, values in tensors.items()}
        changed[names[0]] = changed[names[0]].astype(np.float32)
        changed["new." + names[1]] = changed.pop(names[1])
        save_file(changed, folder / f"{kind}2.safetensors")
    return folder


@pytest.fixture
def shown(build_dir, models):
    """shown(columns, arguments…) -> what a terminal of so many columns shows, without its colors."""

    def shown(columns, *arguments, **environment):
        primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        command = [build_dir.resolve() / "ballast", *map(str, arguments)]
        written = b""
        with subprocess.Popen(command, stdout=secondary, stderr=subprocess.PIPE, cwd=models, env={"TERM": "xterm"} | environment) as process:
            os.close(secondary)
            while True:
                try:
                    chunk = os.read(primary, 65536)
                except OSError:  # the far end has closed
                    break
                if not chunk:
                    break
                written += chunk
            complaint = process.stderr.read()
        os.close(primary)
        assert process.returncode in (0, 1), complaint
        return re.sub(r"\x1b\[\d*m|\r", "", written.decode())

    return shown


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("kind", NAMES)
class TestTerminal:
    @pytest.mark.parametrize("options", [(), ("--tensors",), ("--stats",)])
    def test_inspect(self, shown, kind, columns, options):
        check(shown(columns, "inspect", f"{kind}.safetensors", *options), columns)

    def test_diff(self, shown, kind, columns):
        check(shown(columns, "diff", f"{kind}.safetensors", f"{kind}2.safetensors"), columns)


# Those of Kohya are adapters, which are not quantized.
@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("kind", ["gemma", "wide"])
class TestTerminalOfQuantized:
    @pytest.mark.parametrize("format", ["mlx", "parquet"])
    def test_quantize_and_validate_and_inspect(self, shown, tmp_path, kind, columns, format):
        options = ("--format", format, "--group-size", 64, "--no-sync")
        check(shown(columns, "quantize", f"{kind}.safetensors", tmp_path / "plan", *options, "--dry-run").split("\n\n")[0], columns)
        check(shown(columns, "quantize", f"{kind}.safetensors", tmp_path / "out", *options, "--layers").split("\n\n")[1], columns)
        check(shown(columns, "validate", f"{kind}.safetensors", tmp_path / "out", "--layers").split("\n\n")[1], columns)
        check(shown(columns, "inspect", tmp_path / "out", "--tensors").split("\n\n")[1], columns)


class TestColumns:
    def test_wide_terminals_show_more(self, shown, tmp_path):
        def titles(columns, *arguments):
            text = shown(columns, *arguments)
            return re.split("  +", next(line for line in text.splitlines() if re.match("worst first|tensor ", line)))

        quantize = ("quantize", "gemma.safetensors", tmp_path / "out", "--format", "mlx", "--group-size", 64, "--no-sync")
        assert titles(80, *quantize) == ["worst first", "bits", "group", "cosine", "rel RMSE", "size"]
        everything = ["worst first", "bits", "group", "cosine", "rel RMSE", "SQNR", "max error", "size"]
        assert titles(140, *quantize) == everything
        stats = ("inspect", "gemma.safetensors", "--stats")
        assert titles(80, *stats) == ["tensor", "min", "max", "std", "histogram"]
        assert titles(160, *stats) == ["tensor", "min", "max", "mean", "std", "zeros", "NaN", "Inf", "histogram"]

    def test_names_are_whole_where_they_fit(self, shown):
        assert all(name in shown(160, "inspect", "kohya.safetensors", "--tensors") for name in KOHYA)

    def test_shortened_names_stay_distinct_and_keep_the_layer(self, shown, tmp_path):
        text = shown(80, "quantize", "gemma.safetensors", tmp_path / "out", "--format", "mlx", "--group-size", 64, "--no-sync", "--layers")
        labels = [line.split("  ")[0] for line in text.splitlines() if "…" in line]
        assert len(labels) == len(set(labels)) == len(GEMMA) - 1
        for i in (1, 10):
            assert any(re.fullmatch(rf"lang\w*….*\b{i}\.self_attn\.q_proj\.weight", label) for label in labels)

    def test_names_that_look_alike_show_where_they_differ(self, shown, models):
        norms = [f"language_model.model.layers.{i}.{p}_feedforward_layernorm.weight" for i in range(12) for p in ("pre", "post")]
        loras = [
            f"lora_unet_down_blocks_{i}_attentions_{j}_transformer_blocks_0_{layer}.lora_{part}.weight"
            for i in range(3)
            for j in range(2)
            for layer in ("attn1_to_q", "ff_net_0_proj")
            for part in ("down", "up")
        ]
        for names in (norms, loras):
            save_file({name: np.zeros(4, np.float32) for name in names}, models / "alike.safetensors")
            text = shown(80, "inspect", "alike.safetensors", "--tensors")
            labels = {line.split("  ")[0] for line in text.split("\n\n")[1].splitlines()[1:]}
            assert len(labels) == len(names), text

    def test_nan_is_shown_however_narrow_the_terminal(self, shown, models):
        values = np.random.default_rng(3).normal(0, 0.02, (64, 64)).astype(np.float32)
        values[0, :5] = np.nan
        save_file({name: values for name in GEMMA[:3]}, models / "nan.safetensors")
        titles, row = shown(66, "inspect", "nan.safetensors", "--stats").splitlines()[3:5]
        assert titles.split() == ["tensor", "min", "max", "std", "NaN"] and row.split()[-1] == "5"

    def test_deep_and_long_names(self, shown, models):
        names = [".".join(f"part{i}" for i in range(40)) + f".{leaf}" for leaf in "ab"]
        names += [".".join(["x", *(["y"] * depth), f"z{depth}"]) for depth in range(30)]
        names += ["很" * 3000, "long" * 5000]
        save_file({name: np.zeros((2,) * 8, np.int8) for name in names}, models / "deep.safetensors")
        for options in ((), ("--tensors",), ("--stats",)):
            check(shown(80, "inspect", "deep.safetensors", *options), 80)


class TestWidth:
    def test_80_outside_a_terminal(self, run, models):
        text = run("inspect", models / "kohya.safetensors", "--tensors", env=os.environ | {"COLUMNS": "200"}).stdout
        check(text.split("\n\n", 1)[1], 80)

    @pytest.mark.parametrize(("environment", "columns"), [({"COLUMNS": "100"}, 100), ({}, 80), ({"COLUMNS": "x"}, 80)])
    def test_terminal_that_does_not_know_its_size(self, shown, environment, columns):
        text = shown(0, "inspect", "kohya.safetensors", "--tensors", **environment)
        check(text, columns)
        assert max(map(width, text.splitlines())) == columns

    def test_json_does_not_depend_on_it(self, run, shown):
        printed = [json.loads(shown(columns, "inspect", "wide.safetensors", "--tensors", "--json")) for columns in (80, 140)]
        assert printed[0] == printed[1] and {t["name"] for t in printed[0]["tensors"]} == set(WIDE)

    def test_locale_does_not_matter(self, shown):
        arguments = ("inspect", "wide.safetensors", "--tensors")
        assert shown(80, *arguments, LC_ALL="C") == shown(80, *arguments, LC_ALL="C.UTF-8")
