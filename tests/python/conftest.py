import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def build_dir() -> Path:
    return Path(os.environ.get("BALLAST_BUILD_DIR", ROOT / "build" / "release"))


@pytest.fixture(scope="session")
def probe(build_dir):
    """probe(request) -> the answer of tests/probe.cc, which says what requests there are."""
    with subprocess.Popen(
        [build_dir / "tests" / "probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:

        def ask(request: str) -> dict:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, f"the probe ended on: {request}"
            return json.loads(answer)

        yield ask
