"""The README: one page, whose C++ sample is part of an example that the install test builds and runs."""

from pages import REPO
from sessions import blocks

README = (REPO / "README.md").read_text()


def test_it_is_one_page():
    assert len(README.splitlines()) <= 150


def test_cpp_sample_is_part_of_an_example():
    (sample,) = blocks(README, "cpp")
    assert sample in (REPO / "examples/inspect_model.cc").read_text()
