"""The README's samples, run as printed."""

import os
import re
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
README = (REPO / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_console_session_prints_what_the_readme_shows(build_dir, tmp_path):
    environment = os.environ | {"PATH": f"{build_dir.resolve()}:{os.environ['PATH']}"}
    (tmp_path / "tools").symlink_to(REPO / "tools")
    (session,) = blocks("console")
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    assert len(steps) > 3
    for command, expected in steps:
        result = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        printed = re.sub(r"  \(\d+\.\d s\)$", "", result.stdout, flags=re.MULTILINE)  # what took more than a second says so
        assert printed == expected, command


def test_cpp_sample_is_the_example_that_the_install_test_builds():
    (sample,) = blocks("cpp")
    assert sample == (REPO / "examples/inspect_model.cc").read_text()
