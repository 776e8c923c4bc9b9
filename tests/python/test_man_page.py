"""The man page says what --help says, of every command and option."""

import re

import pytest
from pages import REPO

MANUAL = (REPO / "docs/man/ballast.1").read_text()
COMMANDS = re.findall(r"^\.Ss (\S+)$", MANUAL, re.MULTILINE)


def plain(text):
    return " ".join(text.replace("\\-", "-").replace("\\&", "").split())


def section(command):
    return MANUAL.split(f".Ss {command}\n")[1].split("\n.Ss ")[0].split("\n.Sh ")[0]


def described(text):
    """The options of a help text and what it says of each."""
    lines = text.split("\nOptions:\n")[1].split("\n\n")[0]
    for item in re.findall(r"^  (\S.*\n(?: {20,}.*\n?)*)", lines + "\n", re.MULTILINE):
        names, _, description = item.partition("  ")
        if description.strip():
            yield re.findall(r"--([a-z0-9-]+)", names), plain(description)


def test_it_has_every_command(run):
    assert re.findall(r"^  ([a-z]+) ", run("--help").stdout.split("Commands:\n")[1], re.MULTILINE)[: len(COMMANDS)] == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_it_describes_options_as_help_does(run, command):
    items = {name: plain(text) for names, text in re.findall(r"^((?:\.It .*\n)+)((?:[^.].*\n?)+)", section(command), re.MULTILINE)
             for name in re.findall(r"Fl -([a-z0-9-]+)", names)}  # fmt: skip
    for names, description in described(run(command, "--help").stdout):
        for name in set(names) - {"help"}:
            assert items[name].startswith(f"{description.rstrip('.')}."), name


@pytest.mark.parametrize("command", COMMANDS)
def test_it_has_the_usage_and_the_notes_of_help(run, command):
    text = run(command, "--help").stdout
    first, *rest = text.split("\n\n")
    notes = [part for part in rest if not part.startswith(("Usage:", "Arguments:", "Options:", "Examples:"))]
    for part in (f"{first}.", *notes):
        assert plain(part) in plain(re.sub(r"^\.Pp$", "", section(command), flags=re.MULTILINE))
    arguments = re.findall(r"[A-Z]+", text.split("[OPTIONS]")[1].splitlines()[0])
    synopsis = MANUAL.split(f"\n.Cm {command}\n")[1].split(".Nm")[0]
    assert command == "completion" or all(f"Ar {name}" in synopsis for name in arguments)
