"""docs/troubleshooting.md: every message on the page is one that the program prints."""

import pytest
from pages import REPO, TROUBLESHOOTING
from sessions import blocks
from troubles import TROUBLES, provoke

SHOWN = blocks((REPO / TROUBLESHOOTING).read_text(), "text")


@pytest.fixture(scope="module")
def said(build_dir, tmp_path_factory):
    return dict(provoke(tmp_path_factory.mktemp("troubles"), build_dir))


def test_the_page_has_a_message_for_each_trouble():
    assert len(SHOWN) == len(TROUBLES) >= 25


@pytest.mark.parametrize("trouble, shown", list(zip(TROUBLES, SHOWN)), ids=lambda value: getattr(value, "__name__", ""))
def test_the_program_prints_what_the_page_shows(said, trouble, shown):
    assert said[trouble.__name__] == shown
