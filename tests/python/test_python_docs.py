"""What the Python package says of itself, run: its docstrings, its types, docs/python.md and the README's sample."""

import dataclasses
import doctest
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ballast
import ballast.arrow_quant_v2
import ballast.calibration
import ballast.safetensors
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
    tests = [test for module in modules() for test in finder.find(module, module.__name__)]
    for public in (ballast, ballast.arrow_quant_v2, ballast.safetensors):
        for name in public.__all__:
            member = getattr(public, name)
            if isinstance(member, type):  # whose module is said to be the public one, so that the finder misses its methods
                tests += finder.find(member, f"{public.__name__}.{name}", module=False, globs=dict(vars(public)))
    found = {test.name: test for test in tests if test.examples}
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
from typing import Any, Literal

import ballast
import numpy as np
from ballast.arrow_quant_v2 import DiffusionQuantConfig
from ballast.safetensors import safe_open
from ballast.safetensors.numpy import safe_open as of_numpy
from typing_extensions import assert_type

Array = np.ndarray[Any, np.dtype[Any]]

with ballast.open(b"x.safetensors") as model:
    for row in model["a"]:
        assert_type(row, Any)
    assert_type(len(model["a"]), int)
    assert_type(model.load()["a"], Array)
    assert_type(model.load(framework="numpy")["a"], Array)
    model.load(framework="tf")  # type: ignore[call-overload]
ballast.verify(b"x.safetensors")
ballast.save({}, b"x.safetensors", max_shard_size="5GB")
ballast.save({}, b"x.safetensors", max_shard_size=5e9)  # type: ignore[arg-type]

ballast.quantize("x", "y", bits=4, group_size=64, layer_bit_widths={"a": 8}, modality=None)
ballast.quantize("x", "y", bit_width="4")  # type: ignore[arg-type]
ballast.quantize("x", "y", method="best")  # type: ignore[arg-type]
ballast.quantize("x", "y", bitwidth=4)  # type: ignore[call-arg]
ballast.evaluate("x", tokens=[[1, 2], [3, 4]], against=model)
ballast.evaluate("x", tokens=7)  # type: ignore[arg-type]
assert_type(ballast.QuantizeConfig(bit_width=4).replace(bit_width=None), ballast.QuantizeConfig)
ballast.QuantizeConfig.from_environment(bits=4)  # type: ignore[call-arg]
DiffusionQuantConfig.from_profile("edge", bit_width="2")  # type: ignore[arg-type]


async def use() -> None:
    assert_type(await ballast.quantize_async("x", "y", bits=4), ballast.QuantizeReport)
    await ballast.quantize_async("x", "y", bits="4")  # type: ignore[arg-type]
    assert_type(await ballast.evaluate_async("x", tokens=[1, 2]), ballast.EvaluateReport)
    assert_type(await ballast.calibrate_async("x", "y", tokens=np.zeros((2, 2), int)), ballast.CalibrateReport)
    assert_type(await ballast.save_async({}, "x"), None)
    assert_type(await ballast.edit_metadata_async("x"), Literal["unchanged", "in place", "rewritten"])


with safe_open("x.safetensors", "np") as file:
    assert_type(file, safe_open)
"""


def test_package_is_clean_under_strict_types(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", REPO / "pyproject.toml", "--cache-dir", tmp_path]
    result = subprocess.run([*command, PACKAGE / "ballast", tmp_path / "use.py"], capture_output=True, text=True, cwd=REPO)
    assert result.returncode == 0, result.stdout + result.stderr


PUBLIC = {
    "ballast", "ballast.__main__", "ballast.arrow_quant_v2", "ballast.arrow_quant_v2.python",
    "ballast.arrow_quant_v2.python.safetensors_loader", "ballast.calibration", "ballast.safetensors", "ballast.safetensors.flax",
    "ballast.safetensors.mlx", "ballast.safetensors.numpy", "ballast.safetensors.torch",
}  # fmt: skip


def test_other_modules_are_private():
    names = {".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for path in PACKAGE.rglob("*.py")}
    assert {name for name in names if not name.rpartition(".")[2].startswith("_") or name.endswith("__main__")} == PUBLIC


@pytest.mark.parametrize("module", [ballast, ballast.arrow_quant_v2, ballast.calibration, ballast.safetensors])
def test_public_names_are_said_to_be_where_they_are_imported_from(module):
    for name in module.__all__:
        member = getattr(module, name)
        if isinstance(member, type) or callable(member):
            assert member.__module__.startswith(module.__name__) and "._" not in member.__module__, name


def test_settings_are_those_of_the_config():
    names = [field.name for field in dataclasses.fields(ballast.QuantizeConfig)]
    assert list(ballast.QuantizeSettings.__annotations__) == names


def test_exceptions_are_the_built_in_ones_that_the_guide_says():
    rows = re.findall(r"^\| `(\w+Error)` \| (?:`(\w+)`)? *\|", (REPO / "docs/python.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {name for name in ballast.__all__ if name.endswith("Error")} - {"BallastError"}
    for name, builtin in rows:
        _, *bases = getattr(ballast, name).__bases__
        assert [base.__name__ for base in bases] == [builtin] * bool(builtin)


def run_all(samples, names):
    for sample in samples:
        exec(compile(sample, "<sample>", "exec"), names)


def test_samples_of_the_guide_run(make_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_sample_model(tmp_path / "model.safetensors")
    shutil.copytree(make_model("--preset", "tiny"), tmp_path / "qwen3")
    (tmp_path / "book.txt").write_text("It was a bright cold day in April. " * 40)
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
