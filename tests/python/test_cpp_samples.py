"""C++ samples of the README and docs/cpp.md, which are parts of the examples that the install test builds and runs."""

import pytest
from pages import REPO
from sessions import blocks

EXAMPLES = "\n".join(path.read_text() for path in sorted(REPO.glob("examples/*.cc")))


@pytest.mark.parametrize("page", ["README.md", "docs/cpp.md"])
def test_cpp_samples_are_parts_of_the_examples(page):
    samples = blocks((REPO / page).read_text(), "cpp")
    assert samples
    for sample in samples:
        assert sample in EXAMPLES


def test_readme_is_one_page():
    assert len((REPO / "README.md").read_text().splitlines()) <= 150
