"""Pages whose console sessions are run as printed, each from top to bottom in one folder.

The folder has the tools, and a hub serves `hf://org/tiny`, the model that `tools/make_model tiny` makes.

    .venv/bin/python tests/python/pages.py [PAGE …]    rewrites what the commands print, in these pages or in all
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hub_server import Hub
from sessions import Step, blocks, replay

REPO = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/quantization.md")
CREDENTIALS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH", "HF_HUB_CACHE")


@contextlib.contextmanager
def page_folder(folder: Path) -> Iterator[dict[str, str]]:
    """Prepares a folder, and gives the environment to run sessions in."""
    (folder / "tools").symlink_to(REPO / "tools")
    subprocess.run([REPO / "tools/make_model", folder / "hub/tiny"], check=True, stdout=subprocess.DEVNULL)
    files = {file.name: file.read_bytes() for file in (folder / "hub/tiny").iterdir()}
    with Hub("org/tiny", files, large=["model.safetensors"]) as hub:
        environment = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}
        yield environment | {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hub/home")}


def run_page(page: str, folder: Path, build_dir: Path) -> Iterator[tuple[str, list[Step]]]:
    """The console sessions of a page, each with its steps."""
    with page_folder(folder) as environment:
        for session in blocks((REPO / page).read_text(), "console"):
            yield session, list(replay(session, folder, build_dir, environment))


def update(page: str, folder: Path) -> None:
    text = (REPO / page).read_text()
    for session, steps in run_page(page, folder, REPO / "build/release"):
        text = text.replace(session, "".join(f"$ {step.command}\n{step.printed}" for step in steps))
    (REPO / page).write_text(text)


def main(pages: list[str]) -> None:
    import tempfile

    for page in pages or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            update(re.sub(r"^\./", "", page), Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
