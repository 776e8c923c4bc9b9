"""Console sessions of the README and the guides, run as printed, and the links between pages."""

import re

import pytest
from pages import PAGES, REPO, run_page

MARKDOWN = sorted(path.relative_to(REPO) for path in [*REPO.glob("*.md"), *REPO.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES)
def test_sessions_print_what_the_page_shows(page, build_dir, tmp_path):
    for _, steps in run_page(page, tmp_path, build_dir):
        assert steps
        for step in steps:
            assert step.printed == step.expected, step.command


def anchors(text):
    """What the headings of a page are called in links, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", MARKDOWN, ids=str)
def test_links_lead_to_files_and_headings(page):
    text = (REPO / page).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (REPO / page).parent / path if path else REPO / page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file.read_text()), target


def test_flows_name_files_and_functions_that_exist():
    text = (REPO / "docs/flows.md").read_text()
    lines = [line for block in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) for line in block.splitlines()]
    assert len(lines) > 100
    for line in lines:
        files, names = re.fullmatch(r" *(\S+\.cc(?:, \S+\.cc)*) {2,}(.*)", line).groups()
        code = "".join((REPO / file).read_text() for file in files.split(", "))
        for name in re.split(r"[:;] ", names)[0].split(", "):
            if re.fullmatch(r"[\w:]+", name):
                assert name.rpartition("::")[2] in code, line
