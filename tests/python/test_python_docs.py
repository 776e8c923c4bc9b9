"""What the Python package says of itself, run: its docstrings, its types, docs/python.md and the README's sample."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import ballast
import pytest
from python_samples import sample_names, write_sample_model
from sessions import blocks

REPO = Path(__file__).resolve().parents[2]
PACKAGE = REPO / "bindings/python"


def modules():
    """All but those for packages that are not installed."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        try:
            yield importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "ballast":
                raise


def docstring_examples():
    finder = doctest.DocTestFinder()
    found = {test.name: test for module in modules() for test in finder.find(module, module.__name__) if test.examples}
    return [pytest.param(test, id=name) for name, test in found.items()]


@pytest.mark.parametrize("example", docstring_examples())
def test_docstring_is_true(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example.globs = example.globs | sample_names(tmp_path)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    said = []
    doctest.DocTestRunner(optionflags=options).run(example, out=said.append)
    assert not said, "".join(said)


USE = """
from typing import Any

import ballast
from ballast.safetensors import safe_open
from ballast.safetensors.numpy import safe_open as of_numpy
from typing_extensions import assert_type

with ballast.open(b"x.safetensors") as model:
    for row in model["a"]:
        assert_type(row, Any)
    assert_type(len(model["a"]), int)
ballast.verify(b"x.safetensors")
ballast.save({}, b"x.safetensors")

with safe_open("x.safetensors", "np") as file:
    assert_type(file, safe_open)
"""


def test_package_is_clean_under_strict_types(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", REPO / "pyproject.toml", "--cache-dir", tmp_path]
    result = subprocess.run([*command, PACKAGE / "ballast", tmp_path / "use.py"], capture_output=True, text=True, cwd=REPO)
    assert result.returncode == 0, result.stdout + result.stderr


def test_exceptions_are_the_built_in_ones_that_the_guide_says():
    rows = re.findall(r"^\| `(\w+Error)` \| (?:`(\w+)`)? *\|", (REPO / "docs/python.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {name for name in ballast.__all__ if name.endswith("Error")} - {"BallastError"}
    for name, builtin in rows:
        _, *bases = getattr(ballast, name).__bases__
        assert [base.__name__ for base in bases] == [builtin] * bool(builtin)


def run_all(samples, names):
    for sample in samples:
        exec(compile(sample, "<sample>", "exec"), names)


def test_samples_of_the_guide_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_sample_model(tmp_path / "model.safetensors")
    samples = blocks((REPO / "docs/python.md").read_text(), "python")
    assert len(samples) > 5
    run_all(samples, {"__name__": "__main__"})


def test_sample_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_sample_model(tmp_path / "model.safetensors")
    (sample,) = blocks((REPO / "README.md").read_text(), "python")
    assert len(sample.splitlines()) == 5
    run_all([sample], {})
    assert "(64, 32)" in capsys.readouterr().out
    assert (tmp_path / "model-4bit").is_dir()
