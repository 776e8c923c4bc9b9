"""Pages whose console sessions are run as printed, each from top to bottom in one folder.

The folder has the tools, and a hub serves `hf://org/tiny`, the model that `tools/make_model tiny` makes.

    .venv/bin/python tests/python/pages.py [PAGE …]    rewrites what the commands print, in these pages or in all
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from hub_server import Hub
from sessions import Step, blocks, replay

REPO = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/cookbook.md", "docs/quantization.md")
TROUBLESHOOTING = "docs/troubleshooting.md"
CREDENTIALS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH", "HF_HUB_CACHE")


class Page:
    """A folder to run sessions in, and a hub that can be told not to respond."""

    def __init__(self, folder: Path, hub: Hub):
        self.folder, self.hub = folder, hub
        self.environment = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}
        self.environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hub/home")}

    def interrupt(self, start: Callable[[], subprocess.Popen]) -> None:
        """Starts a program that reads from the hub, and presses Ctrl-C while it waits for data and has begun to write."""
        waiting, over = threading.Event(), threading.Event()

        def stall(handler, body, asked):
            if not any(self.folder.glob("*.incomplete")):
                return False
            waiting.set()
            over.wait(60)
            self.hub.cdn.cut(handler)
            return True

        self.hub.cdn.fault = stall
        process = start()
        assert waiting.wait(60), "the program did not read from the hub"
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        self.hub.cdn.fault = None
        over.set()


@contextlib.contextmanager
def prepared(folder: Path) -> Iterator[Page]:
    (folder / "tools").symlink_to(REPO / "tools")
    subprocess.run([REPO / "tools/make_model", folder / "hub/tiny"], check=True, stdout=subprocess.DEVNULL)
    files = {file.name: file.read_bytes() for file in (folder / "hub/tiny").iterdir()}
    with Hub("org/tiny", files, large=["model.safetensors"]) as hub:
        yield Page(folder, hub)


def run_page(page: str, folder: Path, build_dir: Path) -> Iterator[tuple[str, list[Step]]]:
    """The console sessions of a page, each with its steps."""
    with prepared(folder) as setting:
        for session in blocks((REPO / page).read_text(), "console"):
            yield session, list(replay(session, folder, build_dir, setting.environment, setting.interrupt))


def update(page: str, folder: Path) -> None:
    text = (REPO / page).read_text()
    if page == TROUBLESHOOTING:
        from troubles import provoke

        messages = [f"```text\n{said}```" for _, said in provoke(folder, REPO / "build/release")]
        text = re.sub(r"^```text\n.*?^```$", lambda _: messages.pop(0), text, flags=re.MULTILINE | re.DOTALL)
    for session, steps in run_page(page, folder, REPO / "build/release"):
        text = text.replace(session, "".join(f"$ {step.command}\n{step.printed}" for step in steps))
    (REPO / page).write_text(text)


def main(pages: list[str]) -> None:
    for page in pages or (*PAGES, TROUBLESHOOTING):
        with tempfile.TemporaryDirectory() as folder:
            update(page, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
