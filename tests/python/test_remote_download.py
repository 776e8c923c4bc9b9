"""Downloads: complete files under their final names or nothing, whatever goes wrong."""

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import numpy
import pytest
import safetensors.numpy
from conftest import one_error_line
from processes import kill_when_noted, wait_for_bytes
from range_server import RangeServer, etag_of

CONTENT = safetensors.numpy.save({"a": numpy.random.default_rng(7).standard_normal((640, 1024), dtype=numpy.float32)})


@pytest.fixture
def server():
    with RangeServer({"/model.safetensors": CONTENT}) as server:
        yield server


@pytest.fixture
def uri(server):
    return f"{server.url}/model.safetensors"


@pytest.fixture
def big(build_dir, server, tmp_path):
    """A large file, the command that downloads it, and the target folder."""

    class Big:
        content = numpy.random.default_rng(3).bytes(32 << 20)
        folder = tmp_path / "out"
        command = [str(build_dir / "ballast"), "download", f"{server.url}/big.bin", str(folder), "--json"]
        journal = folder / "big.bin.ballast-incomplete.journal"

        def finish(self, expected=content):
            done = subprocess.run(self.command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert os.listdir(self.folder) == ["big.bin"]
            assert (self.folder / "big.bin").read_bytes() == expected
            return json.loads(done.stdout)

    server.files["/big.bin"] = Big.content
    etag_of(Big.content)
    return Big()


def test_a_file(run, uri, tmp_path):
    result = run("download", uri, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]
    assert (tmp_path / "out/model.safetensors").read_bytes() == CONTENT


def test_checksums_are_verified(run, server, uri, tmp_path):
    sums = [hashlib.sha256(CONTENT).hexdigest(), "0" * 64]

    def with_sum(handler, body, asked):
        wanted = handler.headers.get("If-Match")
        if wanted and wanted != f'"{sums[0]}"':
            server.reply(handler, 412, b"")
        else:
            server.reply_part(handler, body, asked, f'"{sums[0]}"')
        return True

    server.fault = with_sum
    told = json.loads(run("download", uri, tmp_path / "a", "--json").stdout)
    assert [file["checked"] for file in told["files"]] == ["sha256"] and told["fetched_bytes"] > 0
    again = json.loads(run("download", uri, tmp_path / "a", "--json").stdout)
    assert [file["was_there"] for file in again["files"]] == [True] and again["fetched_bytes"] == 0
    sums.reverse()
    line = one_error_line(run("download", uri, tmp_path / "b"), 3)
    assert "0" * 64 in line and hashlib.sha256(CONTENT).hexdigest() in line
    assert not (tmp_path / "b/model.safetensors").exists()


RIGHT = base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()
WRONG = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "header, right, wrong",
    [
        ("Digest", f"SHA-256={RIGHT}", f"sha-256={WRONG}"),
        ("Digest", f"md5=abc, sha-256={RIGHT}", f"SHA-256={WRONG}"),
        ("Repr-Digest", f"sha-512=:x:, sha-256=:{RIGHT}:", f"sha-256=:{WRONG}:"),
        ("x-amz-checksum-sha256", RIGHT, WRONG),
        ("x-amz-checksum-sha256", f"{WRONG}-3", None),  # a checksum of checksums of parts
    ],
)
def test_checksums_in_headers(run, server, uri, tmp_path, header, right, wrong):
    said = [right]

    def with_header(handler, body, asked):
        part = f"bytes {asked[0]}-{asked[1] - 1}/{len(body)}"
        server.reply(handler, 206, body[slice(*asked)], {"Content-Range": part, "ETag": '"x"', header: said[0]})
        return True

    server.fault = with_header
    told = json.loads(run("download", uri, tmp_path / "a", "--json").stdout)
    assert told["files"][0]["checked"] == ("sha256" if wrong else None)
    if wrong:
        said[0] = wrong
        assert "the sha256 checksum of the download is" in one_error_line(run("download", uri, tmp_path / "b"), 3)


def test_free_space_is_checked_first(run, server, tmp_path):
    server.files["/x.safetensors"] = b"x" * 1000

    def huge(size):
        def fault(handler, body, asked):
            server.reply(handler, 206, body[:1], {"Content-Range": f"bytes 0-0/{size}", "ETag": '"x"'})
            return True

        return fault

    server.fault = huge(10**15)
    line = one_error_line(run("download", f"{server.url}/x.safetensors", tmp_path), 4)
    assert str(10**15) in line and "are free" in line
    server.fault = huge(1 << 63)  # the total overflows 64 bits
    server.files |= {"/dir/model.safetensors": b"x", "/dir/weights.safetensors": b"y", "/dir/tokenizer.model": b"z"}
    assert "does not fit in 64 bits" in one_error_line(run("download", f"{server.url}/dir/", tmp_path), 3)
    assert os.listdir(tmp_path) == []


def test_an_invalid_index_is_refused(run, server, tmp_path):
    server.files["/dir/model.safetensors.index.json"] = json.dumps({"weight_map": {"a": "../x.safetensors"}}).encode()
    assert "is outside the model directory" in one_error_line(run("download", f"{server.url}/dir/", tmp_path / "out"), 3)


def test_without_range_requests_memory_is_bounded(run, server, tmp_path):
    for name in ("model", "weights"):
        server.files[f"/dir/{name}.safetensors"] = CONTENT
    server.fault = lambda handler, body, _: server.reply(handler, 200, body, {"ETag": etag_of(body)}) or True
    result = run("download", f"{server.url}/dir/", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out/weights.safetensors").read_bytes() == CONTENT


def test_without_range_requests_downloads_start_over(big, server):
    def slow(handler, body, _):
        handler.send_response(200)
        handler.send_header("ETag", etag_of(body))
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: 8 << 20])
        time.sleep(30)
        return True

    server.fault = slow
    kill_when_noted(big.command, big.journal)
    server.fault = lambda handler, body, _: server.reply(handler, 200, body, {"ETag": etag_of(body)}) or True
    big.finish()


def test_fifty_kills(big, server):
    """Each run is killed when the server gets a request, a later one each time, and must not lose what it had."""
    for kills in range(50):
        left, killed = threading.Semaphore(kills % 12), threading.Event()

        def kill(*_):
            if left.acquire(blocking=False):
                return False
            process.kill()
            killed.set()
            return True

        server.fault = kill
        process = subprocess.Popen(big.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if process.wait(60) == 0:
            assert not killed.is_set() and (big.folder / "big.bin").read_bytes() == big.content
            shutil.rmtree(big.folder)
    server.fault = None
    big.finish()


def test_a_slow_download_makes_progress(big, server):
    """The received bytes of incomplete parts are not fetched again."""
    waiting = threading.Semaphore(0)

    def slow(handler, body, asked):
        if not asked[0]:
            return False
        server.begin_part(handler, body, asked)
        handler.wfile.write(body[asked[0] : asked[0] + (2 << 20)])
        handler.wfile.flush()
        waiting.release()
        time.sleep(30)
        return True

    server.fault = slow
    process = subprocess.Popen(big.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(7):  # all parts except the first
        assert waiting.acquire(timeout=120)
    wait_for_bytes(process, "wchar", 8 << 20)  # the journal is written, too
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    server.fault = None
    assert big.finish()["fetched_bytes"] <= len(big.content) - 7 * (1 << 20)


def stop_after(server, count):
    """Serve this many requests, then none."""
    left = threading.Semaphore(count)

    def stop(*_):
        if left.acquire(blocking=False):
            return False
        time.sleep(30)
        return True

    server.fault = stop


def test_a_journal_without_its_file_is_ignored(big, server):
    stop_after(server, 4)
    kill_when_noted(big.command, big.journal)
    (big.folder / "big.bin.ballast-incomplete").unlink()
    server.fault = None
    big.finish()


def test_starts_over_if_the_file_has_changed(big, server):
    stop_after(server, 4)
    kill_when_noted(big.command, big.journal)
    server.fault = None
    server.files["/big.bin"] = other = numpy.random.default_rng(2).bytes(32 << 20)
    big.finish(other)
