import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The package of the build that is tested, also for programs that tests run.
PACKAGE = Path(os.environ.get("BALLAST_BUILD_DIR", ROOT / "build" / "release")).resolve() / "python"
sys.path.insert(0, str(PACKAGE))
os.environ["PYTHONPATH"] = str(PACKAGE)

# The background jobs of a shell ignore Ctrl-C, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# PyTorch needs NumPy 1, so that its tests run in an environment of their own, .venv-torch.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_torch_*.py"]
# The packages that load quantized models have one, too, with scripts/test --full.
if not importlib.util.find_spec("compressed_tensors"):
    collect_ignore_glob.append("test_oracle_*.py")


@pytest.fixture(scope="session")
def build_dir() -> Path:
    return Path(os.environ.get("BALLAST_BUILD_DIR", ROOT / "build" / "release"))


@pytest.fixture(scope="session")
def probe(build_dir):
    """probe(request) -> the response of tests/probe.cc, which lists the requests."""
    with subprocess.Popen(
        [build_dir / "tests" / "probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:

        def ask(request: str) -> dict:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            response = process.stdout.readline()
            assert response, f"the probe ended on: {request}"
            return json.loads(response)

        yield ask


@pytest.fixture
def run(build_dir):
    def run(*arguments, **options):
        command = [str(build_dir / "ballast"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)

    return run


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    def make_model(*arguments):
        folder = tmp_path_factory.mktemp("model") / "m"
        subprocess.run([ROOT / "tools/make_model", folder, *arguments], check=True, capture_output=True)
        return folder

    return make_model


@pytest.fixture(scope="session")
def tiny(make_model):
    return make_model("--preset", "tiny")


@pytest.fixture(scope="session")
def sharded(make_model):
    return make_model("--preset", "tiny", "--shards", "3")


@pytest.fixture
def public_path():
    """A folder that other users may enter. pytest closes its own to them, whenever another pytest starts."""
    with tempfile.TemporaryDirectory(prefix="ballast-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def one_error_line(result, code):
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("ballast: ")
    assert result.stderr.endswith("\n") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("ballast: ").rstrip("\n")
