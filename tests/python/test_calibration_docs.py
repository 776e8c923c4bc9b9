"""The example of docs/calibration.md, run as printed."""

import re
from pathlib import Path

import pytest
from sessions import blocks, replay

REPO = Path(__file__).resolve().parents[2]
DOC = (REPO / "docs/calibration.md").read_text()
FRACTION = re.compile(r"\d*\.\d+")


def write_scripts(folder):
    for code in blocks(DOC, "python"):
        name = re.match(r"# (\S+\.py)\n", code)[1]
        (folder / name).write_text(code)


def assert_alike(printed, expected):
    """The same words and whole numbers; figures depend on how NumPy and MLX add up."""
    assert FRACTION.sub("#", printed) == FRACTION.sub("#", expected)
    assert list(map(float, FRACTION.findall(printed))) == pytest.approx(list(map(float, FRACTION.findall(expected))), rel=0.02)


def measured(printed):
    return {name: (float(up), float(down)) for name, up, down in re.findall(r"^(\S+) +up (\S+) +down (\S+)$", printed, re.MULTILINE)}


def test_example_prints_what_the_document_shows(build_dir, tmp_path):
    write_scripts(tmp_path)
    (session,) = blocks(DOC, "console")
    steps = list(replay(session, tmp_path, build_dir))
    for step in steps:
        assert_alike(step.printed, step.expected)
    table = re.findall(r"^\| `([\w-]+)` \| .* \| (\.\d+) \| (\.\d+) \|$", DOC, re.MULTILINE)
    assert {name: (float(up), float(down)) for name, up, down in table} == measured(steps[-1].expected)
    assert len(table) == 7


@pytest.mark.parametrize("statistics, recorded, told", [("hessian", 200, ".0951"), ("hessian", 800, ".0904"), ("squares", 50, ".103")])
def test_figures_for_few_inputs(build_dir, tmp_path, statistics, recorded, told):
    write_scripts(tmp_path)
    toy = tmp_path / "toy.py"
    toy.write_text(toy.read_text().replace("seed=1, images=64", f"seed=1, images={recorded // 50}"))
    session = (
        "$ python toy.py\n"
        f"$ ballast quantize toy out --format mlx --group-size 64 --calibration {statistics}.safetensors > out.txt\n"
        "$ python measure.py out\n"
    )
    *_, last = replay(session, tmp_path, build_dir)
    up, _ = measured(last.printed)["out"]
    assert told in DOC
    assert up == pytest.approx(float(told), rel=0.02)
