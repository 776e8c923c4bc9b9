"""Samples in documents, and console sessions run as printed."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

INTERRUPTED = "^C\n"  # what a terminal shows where the reader presses Ctrl-C


class Step(NamedTuple):
    command: str
    printed: str
    expected: str  # as the document has it


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)


def replay(
    session: str,
    folder: Path,
    build_dir: Path,
    environment: dict[str, str] | None = None,
    interrupt: Callable[[Callable[[], subprocess.Popen]], None] | None = None,
) -> Iterator[Step]:
    """Runs the commands of a session in a folder, one after the other. `interrupt` runs those that print ^C."""
    programs = (build_dir.resolve(), Path(sys.executable).parent)
    environment = (environment or dict(os.environ)) | {"PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]])}
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE):
        options = {"shell": True, "cwd": folder, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        if expected == INTERRUPTED:
            interrupt(lambda: subprocess.Popen(f"exec {command}", start_new_session=True, **options))
            yield Step(command, INTERRUPTED, expected)
            continue
        result = subprocess.run(command, **options)
        printed = re.sub(r"  \(\d+\.\d s\)$", "", result.stdout, flags=re.MULTILINE)  # what took more than a second says so
        yield Step(command, printed, expected)
