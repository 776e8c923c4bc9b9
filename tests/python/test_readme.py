"""The README's samples, run as printed."""

import subprocess
from pathlib import Path

from hub_server import Hub
from sessions import blocks, replay

REPO = Path(__file__).resolve().parents[2]
README = (REPO / "README.md").read_text()


def test_console_session_prints_what_the_readme_shows(build_dir, tmp_path):
    (tmp_path / "tools").symlink_to(REPO / "tools")
    session, _ = blocks(README, "console")
    steps = 0
    for step in replay(session, tmp_path, build_dir):
        assert step.printed == step.expected, step.command
        steps += 1
    assert steps > 3


def test_session_with_a_server(build_dir, tmp_path, monkeypatch):
    subprocess.run([REPO / "tools/make_model", "tiny"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    files = {file.name: file.read_bytes() for file in (tmp_path / "tiny").iterdir()}
    _, session = blocks(README, "console")
    with Hub("org/tiny", files, large=["model.safetensors"]) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH", "HF_HUB_CACHE"):
            monkeypatch.delenv(name, raising=False)
        for step in replay(session, tmp_path, build_dir):
            assert step.printed == step.expected, step.command
    assert {file.name: file.read_bytes() for file in (tmp_path / "copy").iterdir()} == files


def test_cpp_sample_is_the_example_that_the_install_test_builds():
    (sample,) = blocks(README, "cpp")
    assert sample == (REPO / "examples/inspect_model.cc").read_text()
