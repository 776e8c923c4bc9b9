"""The README's samples, run as printed."""

from pathlib import Path

from sessions import blocks, replay

REPO = Path(__file__).resolve().parents[2]
README = (REPO / "README.md").read_text()


def test_console_session_prints_what_the_readme_shows(build_dir, tmp_path):
    (tmp_path / "tools").symlink_to(REPO / "tools")
    (session,) = blocks(README, "console")
    steps = 0
    for step in replay(session, tmp_path, build_dir):
        assert step.printed == step.expected, step.command
        steps += 1
    assert steps > 3


def test_cpp_sample_is_the_example_that_the_install_test_builds():
    (sample,) = blocks(README, "cpp")
    assert sample == (REPO / "examples/inspect_model.cc").read_text()
