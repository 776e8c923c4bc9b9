"""docs/migrating-from-safetensors.md: its samples run, and what it names exists."""

import re

import ballast
import ballast.safetensors.numpy
from pages import REPO
from python_samples import write_sample_model
from sessions import blocks

PAGE = (REPO / "docs/migrating-from-safetensors.md").read_text()


def test_samples_run_and_print_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_sample_model(tmp_path / "model.safetensors")
    names = {}
    for sample in blocks(PAGE, "python"):
        exec(compile(sample, "<sample>", "exec"), names)
    (shown,) = blocks(PAGE, "text")
    assert capsys.readouterr().out.splitlines()[-1] == shown.rstrip("\n")


def test_calls_exist():
    called = set(re.findall(r"`ballast\.(\w+)\(", PAGE))
    assert called and called <= set(ballast.__all__)
    assert ballast.safetensors.__version__.startswith("0.8")
