"""Models on servers: correct bytes or one clear error, without unnecessary requests or bytes."""

import json
import mmap
import os
import ssl
import subprocess
import threading
import time
from pathlib import Path

import numpy
import pytest
import safetensors.numpy
from conftest import one_error_line
from processes import peak_memory, wait_for_bytes
from range_server import RangeServer, etag_of
from safetensors_bytes import data_start, prefix

import ballast
import ballast.safetensors.numpy


@pytest.fixture
def model():
    generator = numpy.random.default_rng(7)
    return {
        "embed.weight": generator.standard_normal((512, 256), dtype=numpy.float32),
        "layers.0.weight": generator.standard_normal((640, 1024), dtype=numpy.float32),
        "layers.1.weight": generator.standard_normal((640, 1024), dtype=numpy.float32),
        "norm.weight": numpy.ones(256, numpy.float32),
    }


@pytest.fixture
def content(model):
    return safetensors.numpy.save(model, {"format": "pt"})


@pytest.fixture
def server(content):
    with RangeServer({"/model.safetensors": content}) as server:
        yield server


@pytest.fixture
def uri(server):
    return f"{server.url}/model.safetensors"


@pytest.fixture
def quick(monkeypatch):
    """Make stalls time out after a second."""
    monkeypatch.setenv("BALLAST_HTTP_TIMEOUT", "1")


def same(opened, model):
    assert sorted(opened) == sorted(model)
    for name, array in model.items():
        numpy.testing.assert_array_equal(opened[name][...], array)


def failing(server, times, answer):
    """Inject a fault into the first `times` requests after the file is open."""
    left = [times]

    def fault(handler, body, asked):
        if asked and asked[0] == 0 and asked[1] <= 100_000 or not left[0]:
            return False
        left[0] -= 1
        return answer(handler, body, asked) is not False

    server.fault = fault


def test_every_command_accepts_a_uri(run, uri, content, model, tmp_path):
    local = tmp_path / "model.safetensors"
    local.write_bytes(content)
    told = json.loads(run("inspect", uri, "--json", "--tensors").stdout)
    expected = json.loads(run("inspect", local, "--json", "--tensors").stdout)
    assert told.pop("path") == uri and expected.pop("path") == str(local)
    for one in (told, expected):
        for part in one["files"] + one["tensors"]:
            part.pop("path", part.pop("file", None))
    assert told == expected
    assert run("verify", uri, "--values", "--sha256").returncode == 0
    assert run("diff", uri, local).returncode == 0
    assert run("convert", uri, tmp_path / "out.safetensors", "--dtype", "bf16").returncode == 0
    assert run("convert", local, tmp_path / "out2.safetensors", "--dtype", "bf16").returncode == 0
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "out2.safetensors").read_bytes()
    assert run("extract", uri, "norm.weight", "-o", tmp_path / "norm.npy").returncode == 0
    numpy.testing.assert_array_equal(numpy.load(tmp_path / "norm.npy"), model["norm.weight"])
    for source, out in ((uri, "q"), (local, "q2")):
        result = run("quantize", source, tmp_path / out, "--bits", "4", "--method", "rtn", "--format", "mlx", "--min-accuracy", "0")
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "q/model.safetensors").read_bytes() == (tmp_path / "q2/model.safetensors").read_bytes()
    assert run("validate", uri, tmp_path / "q").returncode == 0
    assert run("metadata", uri).returncode == 0


def test_python_accepts_a_uri(uri, model):
    opened = ballast.open(uri)
    same(opened, model)
    for name, array in opened.load().items():
        numpy.testing.assert_array_equal(array, model[name])
    numpy.testing.assert_array_equal(opened["layers.0.weight"][3:600:7, 10:20], model["layers.0.weight"][3:600:7, 10:20])


def test_nothing_is_written_to_a_server(run, uri, tmp_path):
    for arguments in (["convert", uri, uri], ["quantize", uri, "s3://bucket/x"], ["metadata", uri, "--set", "a=b"]):
        assert "cannot write to a URI" in one_error_line(run(*arguments, cwd=tmp_path), 2)
    assert os.listdir(tmp_path) == []


def test_inspect_sends_one_request(run, server, uri):
    assert run("inspect", uri).returncode == 0
    assert len(server.requests) == 1
    assert server.sent <= 100_000


def test_one_tensor_costs_its_bytes(server, uri, model):
    opened = ballast.open(uri)
    server.forget()
    numpy.testing.assert_array_equal(opened["layers.1.weight"][...], model["layers.1.weight"])
    assert server.sent <= 1.05 * model["layers.1.weight"].nbytes
    server.forget()
    rows = opened["layers.0.weight"][100:200]
    numpy.testing.assert_array_equal(rows, model["layers.0.weight"][100:200])
    assert server.sent == rows.nbytes and len(server.requests) == 1


def test_strided_slices_discard_at_most_half(server, uri, model):
    opened = ballast.open(uri)
    for index in (numpy.s_[::2], numpy.s_[:, :600], numpy.s_[1:500:2, :]):
        server.forget()
        part = opened["layers.0.weight"][index]
        numpy.testing.assert_array_equal(part, model["layers.0.weight"][index])
        assert server.sent <= 2 * part.nbytes
        assert len(server.requests) <= 8


@pytest.fixture
def two_gibibytes(server, tmp_path):
    """A sparse file of 2 GiB on the server."""
    path = tmp_path / "large.safetensors"
    rows, columns = 65_536, 4_096
    names = [f"layers.{i}.weight" for i in range(4)]
    nbytes = rows * columns * 2
    spans = {name: [i * nbytes, (i + 1) * nbytes] for i, name in enumerate(names)}
    header = {name: {"dtype": "BF16", "shape": [rows, columns], "data_offsets": span} for name, span in spans.items()}
    with open(path, "wb") as file:
        start = file.write(prefix(header))
        file.truncate(start + 4 * nbytes)
        file.seek(start + 2 * nbytes + 1000 * columns * 2)
        file.write(bytes(range(256)) * 32)
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # stays mapped until the last thread has sent it
    server.etags["/large.safetensors"] = '"2gib"'
    server.files["/large.safetensors"] = content
    yield f"{server.url}/large.safetensors"
    server.files.clear()


def test_parts_of_a_large_file_cost_their_bytes(run, server, two_gibibytes, tmp_path):
    """Including a tensor that is a quarter of the file."""
    assert run("inspect", two_gibibytes).returncode == 0
    assert len(server.requests) == 1 and server.sent <= 100_000
    opened = ballast.open(two_gibibytes)
    assert opened.file_size > 2 << 30
    server.forget()
    row = opened["layers.2.weight"][1000]
    assert row.tobytes() == bytes(range(256)) * 32
    assert (len(server.requests), server.sent) == (1, row.nbytes)
    server.forget()
    rows = opened["layers.2.weight"][1000:3000]
    assert (len(server.requests), server.sent) == (2, rows.nbytes)
    server.forget()
    every_other = opened["layers.2.weight"][:1000:2]
    assert server.sent <= 2 * every_other.nbytes and len(server.requests) == 1
    server.forget()
    tensor = opened["layers.1.weight"][...]
    assert (len(server.requests), server.sent) == (tensor.nbytes >> 23, tensor.nbytes)


def test_pipelines_do_not_buffer_the_whole_file(build_dir, two_gibibytes, tmp_path):
    peak = peak_memory([build_dir / "ballast", "convert", two_gibibytes, tmp_path / "out.safetensors", "--exclude", "*.[013].*"])
    assert peak < 200 << 20  # it reads 512 MiB


def test_shards_are_opened_in_parallel(server, sharded):
    together = threading.Barrier(len(list(sharded.glob("*.safetensors"))), timeout=120)
    for file in sharded.iterdir():
        server.files[f"/dir/{file.name}"] = file.read_bytes()

    def wait(handler, body, asked):
        if handler.path.endswith(".safetensors"):
            together.wait()
        return False

    server.fault = wait
    assert len(ballast.open(f"{server.url}/dir/model.safetensors.index.json")) == len(ballast.open(sharded))
    assert not together.broken


def test_quantize_does_not_take_many_requests(run, server, tmp_path):
    weights = {f"layers.{i}.weight": numpy.random.default_rng(i).standard_normal((1024, 512), dtype=numpy.float32) for i in range(4)}
    server.files["/model.safetensors"] = safetensors.numpy.save(weights)
    (tmp_path / "model.safetensors").write_bytes(server.files["/model.safetensors"])
    server.files["/settings.yaml"] = b"bit_width: 3\nmin_accuracy: 0.5\n"
    for source, out in ((server.url, "a"), (tmp_path, "b")):
        result = run("quantize", f"{source}/model.safetensors", tmp_path / out, "--config", f"{server.url}/settings.yaml", "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["bit_width"] == 3
        assert len(server.gets("/model.safetensors")) <= 8 * 4 + 10  # first some rows of each tensor, twice, then everything in blocks
    names = sorted(os.listdir(tmp_path / "a"))
    assert names == sorted(os.listdir(tmp_path / "b"))
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    line = one_error_line(run("quantize", tmp_path / "model.safetensors", tmp_path / "c", "--config", f"{server.url}/none.yaml"), 2)
    assert line.startswith(f"--config {server.url}/none.yaml: the server returned 404")
    assert ballast.QuantizeConfig.from_yaml(f"{server.url}/settings.yaml").bit_width == 3


def test_quantize_resumes_after_a_kill(build_dir, run, server, tmp_path):
    weights = {f"layers.{i}.weight": numpy.random.default_rng(i).standard_normal((2048, 1024), dtype=numpy.float32) for i in range(6)}
    server.files["/model.safetensors"] = content = safetensors.numpy.save(weights)
    (tmp_path / "model.safetensors").write_bytes(content)
    arguments = ["--bits", "4", "--method", "rtn", "--format", "mlx", "--min-accuracy", "0", "--resume", "--threads", "1"]
    command = [str(build_dir / "ballast"), "quantize", f"{server.url}/model.safetensors", str(tmp_path / "out"), *arguments]
    late = threading.Event()

    def stop(handler, body, asked):
        if asked[0] < len(body) // 2:
            return False
        late.set()
        time.sleep(30)
        return True

    server.fault = stop
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert late.wait(60)
    wait_for_bytes(process, "wchar", 1 << 20)
    process.kill()
    process.wait()
    server.fault = None
    server.forget()
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert run("quantize", tmp_path / "model.safetensors", tmp_path / "local", *arguments).returncode == 0
    assert (tmp_path / "out/model.safetensors").read_bytes() == (tmp_path / "local/model.safetensors").read_bytes()
    server.files["/model.safetensors"] = content[:-4] + b"\0\0\0\0"
    server.forget()
    assert subprocess.run(command, capture_output=True).returncode == 0  # another file: starts over
    assert server.sent > len(content) // 2


def test_long_headers_take_a_second_request(server):
    tensors = {f"model.layers.{i}.a.rather.long.name.weight": numpy.full(4, i, numpy.float32) for i in range(3000)}
    server.files["/many.safetensors"] = content = safetensors.numpy.save(tensors)
    opened = ballast.open(f"{server.url}/many.safetensors")
    assert len(server.requests) == 2
    assert server.sent <= data_start(content)
    same(opened, tensors)


def test_many_small_tensors_do_not_take_many_requests(server):
    tensors = {f"t{i}": numpy.full(64, i, numpy.float32) for i in range(10_000)}
    server.files["/many.safetensors"] = safetensors.numpy.save(tensors)
    server.delay = 0.02
    loaded = ballast.open(f"{server.url}/many.safetensors").load()
    assert all((loaded[name] == array).all() for name, array in tensors.items())
    assert len(server.requests) <= 4


def test_folders_over_http(run, server, sharded, tmp_path):
    for file in sharded.iterdir():
        server.files[f"/dir/{file.name}"] = file.read_bytes()
    result = run("inspect", f"{server.url}/dir/?key=secret", "--json")
    assert result.returncode == 0, result.stderr
    assert "secret" not in result.stdout + result.stderr
    told = json.loads(result.stdout)
    expected = json.loads(run("inspect", sharded, "--json").stdout)
    for member in ("tensor_count", "parameter_count", "dtypes", "config", "modality"):
        assert told[member] == expected[member]
    assert all("key=secret" in path for _, path, _ in server.requests)
    result = run("convert", f"{server.url}/dir", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert run("diff", tmp_path / "out", sharded).returncode == 0
    assert (tmp_path / "out/config.json").exists()
    assert one_error_line(run("inspect", f"{server.url}/nowhere/"), 3).startswith(f"{server.url}/nowhere/: no weights")


def test_without_range_requests_only_small_files_are_read(run, server, uri, tmp_path):
    server.fault = lambda handler, body, _: server.reply(handler, 200, body, {"ETag": etag_of(body)}) or True
    assert run("verify", uri, "--values").returncode == 0
    large = bytearray(safetensors.numpy.save({"a": numpy.zeros(101_000_000, numpy.uint8)}))
    server.files["/large.safetensors"] = bytes(large)
    line = one_error_line(run("extract", f"{server.url}/large.safetensors", "a", "-o", tmp_path / "x.npy"), 3)
    assert "the server does not support range requests" in line


# Faults


def test_lost_connections_are_resumed(server, uri, model):
    def cut(handler, body, asked):
        begin, end = asked
        server.begin_part(handler, body, asked)
        handler.wfile.write(body[begin : min(begin + 1_000_000, end)])
        server.cut(handler)

    failing(server, 1000, cut)
    for name, array in ballast.open(uri).load().items():
        numpy.testing.assert_array_equal(array, model[name])


def test_busy_responses_are_retried(server, uri, model):
    times = []

    def busy(handler, body, asked):
        times.append(time.monotonic())
        server.reply(handler, 503, b"busy", {"Retry-After": "1"})

    failing(server, 1, busy)
    before = time.monotonic()
    numpy.testing.assert_array_equal(ballast.open(uri)["layers.0.weight"][...], model["layers.0.weight"])
    assert len(times) == 1 and time.monotonic() - before >= 1


def test_gives_up_on_a_server_that_stays_busy(run, server, uri, tmp_path):
    failing(server, 10**6, lambda handler, body, asked: server.reply(handler, 503, b"", {"Retry-After": "600"}))
    line = one_error_line(run("extract", uri, "layers.0.weight", "-o", tmp_path / "x.npy"), 3)
    assert uri in line and "the server returned 503 Service Unavailable" in line and "'600'" in line


WRONG_RESPONSES = {
    "the whole file": (
        lambda s, h, body, asked: s.reply(h, 200, body, {"ETag": etag_of(body)}),
        "the server sent the whole file",
    ),
    "another range": (
        lambda s, h, body, asked: s.reply_part(h, body, (asked[0] + 1, asked[1]), None),
        "but the server sent Content-Range 'bytes ",
    ),
    "no Content-Range": (
        lambda s, h, body, asked: s.reply(h, 206, body[asked[0] : asked[1]], {"ETag": etag_of(body)}),
        "but the server sent Content-Range ''",
    ),
    "another file": (
        lambda s, h, body, asked: s.reply_part(h, body, asked, '"other"'),
        "the file changed on the server: it was",
    ),
    "another length": (
        lambda s, h, body, asked: s.reply(
            h, 206, body[asked[0] : asked[1]], {"Content-Range": f"bytes {asked[0]}-{asked[1] - 1}/{len(body) + 1}", "ETag": etag_of(body)}
        ),
        "the file changed on the server: it was",
    ),
    "a compressed body": (
        lambda s, h, body, asked: s.reply(
            h, 206, body[asked[0] : asked[1]], {"Content-Range": f"bytes {asked[0]}-{asked[1] - 1}/{len(body)}", "Content-Encoding": "gzip"}
        ),
        "the server sent Content-Encoding 'gzip'",
    ),
    "precondition failed": (lambda s, h, body, asked: s.reply(h, 412, b""), "the file changed on the server after it was opened"),
    "forbidden": (lambda s, h, body, asked: s.reply(h, 403, b""), "the server returned 403 Forbidden"),
    "gone": (lambda s, h, body, asked: s.reply(h, 404, b""), "the server returned 404 Not Found"),
}


@pytest.mark.parametrize("what", WRONG_RESPONSES)
def test_wrong_responses_are_refused(run, server, uri, what, tmp_path):
    answer, expected = WRONG_RESPONSES[what]
    failing(server, 10**6, lambda handler, body, asked: answer(server, handler, body, asked))
    line = one_error_line(run("extract", uri, "layers.0.weight", "-o", tmp_path / "x.npy"), 3)
    assert uri in line and "layers.0.weight" in line and expected in line
    assert os.listdir(tmp_path) == []


def test_a_changed_file_is_an_error(server, uri, content):
    opened = ballast.open(uri)
    server.files["/model.safetensors"] = content[:-4] + b"\0\0\0\1"
    with pytest.raises(ballast.ReadError, match="changed on the server"):
        opened["layers.0.weight"][...]


def test_a_missing_etag_counts_as_a_change(server, uri, content):
    """The server stops sending its ETag."""
    opened = ballast.open(uri)

    def without(handler, body, asked):
        server.reply(handler, 206, body[slice(*asked)], {"Content-Range": f"bytes {asked[0]}-{asked[1] - 1}/{len(body)}"})
        return True

    server.fault = without
    with pytest.raises(ballast.ReadError, match="changed on the server"):
        opened["layers.0.weight"][...]


def test_short_bodies_are_requested_again(server, uri, model):
    def short(handler, body, asked):
        begin, end = asked
        server.reply_part(handler, body, (begin, begin + max(1, (end - begin) // 2)), None)

    failing(server, 3, short)
    numpy.testing.assert_array_equal(ballast.open(uri)["layers.0.weight"][...], model["layers.0.weight"])


def test_gives_up_on_a_server_that_stalls(run, server, uri, quick):
    def drip(handler, body, asked):
        server.begin_part(handler, body, asked)
        for at in range(asked[0], asked[0] + 100):
            handler.wfile.write(body[at : at + 1])
            handler.wfile.flush()
            time.sleep(0.1)

    server.fault = lambda handler, body, asked: drip(handler, body, asked) is None
    line = one_error_line(run("inspect", uri), 3)
    assert "stalled" in line or "no response" in line


def test_refused_connections_and_unknown_hosts(run):
    with RangeServer() as gone:
        pass
    assert f"{gone.url}/m.safetensors: " in one_error_line(run("inspect", f"{gone.url}/m.safetensors"), 3)
    line = one_error_line(run("inspect", "http://no-such-host.invalid/m.safetensors"), 3)
    assert "no-such-host.invalid" in line
    assert "unsupported URI scheme ftp://" in one_error_line(run("inspect", "ftp://host/m.safetensors"), 3)


# Hostile servers


def test_endless_headers_are_refused(run, server, uri):
    def flood(handler, *_):
        handler.wfile.write(b"HTTP/1.1 206 Partial Content\r\n")
        try:
            while True:
                handler.wfile.write(b"X-More: " + b"a" * 1000 + b"\r\n")
        except OSError:
            handler.close_connection = True
        return True

    server.fault = flood
    assert "headers" in one_error_line(run("inspect", uri), 3)

    def line(handler, *_):
        try:
            handler.wfile.write(b"HTTP/1.1 206 Partial Content\r\nX-More: ")
            while True:
                handler.wfile.write(b"a" * 65536)
        except OSError:
            handler.close_connection = True
        return True

    server.fault = line
    one_error_line(run("inspect", uri), 3)


def test_gives_up_if_the_first_response_always_breaks_off(run, server, uri):
    def cut(handler, body, asked):
        server.begin_part(handler, body, asked)
        handler.wfile.write(body[: (asked[1] - asked[0]) // 2])
        server.cut(handler)
        return True

    server.fault = cut
    assert "attempts)" in one_error_line(run("inspect", uri), 3)
    assert len(server.requests) == 5


def test_a_failed_request_does_not_mean_that_a_file_is_missing(run, server, sharded):
    for file in sharded.iterdir():
        server.files[f"/dir/{file.name}"] = file.read_bytes()
    server.files["/dir/config.json"] = b"{}"

    def broken(handler, body, asked):
        if not handler.path.endswith("config.json"):
            return False
        server.reply(handler, 400, b"")
        return True

    server.fault = broken
    line = one_error_line(run("inspect", f"{server.url}/dir/model.safetensors.index.json"), 3)
    assert "/dir/config.json: the server returned 400" in line


def test_servers_that_return_403_for_missing_files(run, server, sharded):
    """As S3 does for users who may not list the bucket."""
    for file in sharded.iterdir():
        if file.name != "config.json":
            server.files[f"/dir/{file.name}"] = file.read_bytes()
    server.no_file = 403
    for path in ("", "model.safetensors.index.json"):
        result = run("inspect", f"{server.url}/dir/{path}", "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["config"] is None
    assert "the server returned 403 Forbidden" in one_error_line(run("inspect", f"{server.url}/nowhere/"), 3)


def test_redirects_are_limited(run, server, uri):
    server.fault = lambda handler, *_: server.reply(handler, 302, b"", {"Location": "/model.safetensors"}) or True
    assert "redirected more than 10 times" in one_error_line(run("inspect", uri), 3)
    server.fault = lambda handler, *_: server.reply(handler, 302, b"", {"Location": "file:///etc/passwd"}) or True
    one_error_line(run("inspect", uri), 3)


def test_more_bytes_than_requested_are_refused(run, server, uri):
    def more(handler, body, asked):
        server.begin_part(handler, body, asked, {"Connection": "close"})
        try:
            while True:
                handler.wfile.write(body)
        except OSError:
            handler.close_connection = True
        return True

    server.fault = more
    assert "more" in one_error_line(run("inspect", uri), 3)


# Credentials


def test_credentials_are_not_sent_to_other_hosts(run, server, uri, content):
    with RangeServer({"/cdn": content}) as other:
        server.fault = lambda handler, *_: server.reply(handler, 302, b"", {"Location": f"{other.url}/cdn?sig=abc"}) or True
        with_password = uri.replace("http://", "http://user:se%40cret@")
        result = run("verify", with_password, "--values")
        assert result.returncode == 0, result.stderr
        assert "cret" not in result.stdout + result.stderr
        assert {headers.get("Authorization") for _, _, headers in server.requests} == {"Basic dXNlcjpzZUBjcmV0"}
        assert all("Authorization" not in headers for _, _, headers in other.requests)
        server.forget()
        opened = ballast.open(with_password)
        assert all(opened[name][...].size for name in opened)
        assert len(server.requests) == 1  # the redirect is remembered


def test_credentials_are_sent_after_a_redirect_within_a_host(run, server, uri, content, model, tmp_path):
    """Many concurrent requests are redirected to another path of the same host."""
    server.files["/moved/model.safetensors"] = server.files["/big/model.safetensors"] = content

    def guard(handler, body, asked):
        if "Authorization" not in handler.headers:
            server.reply(handler, 401, b"")
        elif handler.path == "/model.safetensors":
            server.reply(handler, 302, b"", {"Location": "/moved/model.safetensors"})
        else:
            return False
        return True

    server.fault = guard
    with_password = uri.replace("http://", "http://user:pass@")
    same(ballast.open(with_password), model)
    result = run("download", with_password, tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "model.safetensors").read_bytes() == content
    assert all("Authorization" in headers for _, _, headers in server.requests)


def secretive(uri):
    return uri.replace("http://", "http://user:hunter2@") + "?sig=SECRETSIG"


def test_secrets_are_never_printed(run, server, uri, content, tmp_path):
    local = tmp_path / "model.safetensors"
    local.write_bytes(content)
    assert run("quantize", local, tmp_path / "q", "--bits", "4").returncode == 0
    for file in (tmp_path / "q").iterdir():
        server.files[f"/q/{file.name}"] = file.read_bytes()
    secret, quantized, missing = secretive(uri), secretive(f"{server.url}/q/"), secretive(f"{server.url}/none.safetensors")
    said = []
    for arguments in (
        ["validate", secret, quantized], ["validate", secret, quantized, "--json"], ["inspect", quantized], ["inspect", quantized, "--json"],
        ["verify", quantized], ["dequantize", quantized, tmp_path / "d"], ["quantize", secret, tmp_path / "q2", "--json"],
        ["inspect", missing], ["convert", missing, tmp_path / "c"], ["validate", secret, missing], ["diff", secret, missing],
        ["quantize", secret, tmp_path / "q3", "--config", missing], ["inspect", missing.replace("http:", "HTTP:")],
        ["inspect", "ftp://user:hunter2@host/x"], ["inspect", "s3://KEY:hunter2@bucket/x"], ["inspect", "http://us:hunter2/x@127.0.0.1/m.safetensors"],
        ["download", missing, tmp_path / "e"], ["download", secret, tmp_path / "e", "--json"],
    ):  # fmt: skip
        result = run(*arguments)
        said.append(result.stdout + result.stderr)
    said += [str(ballast.validate(secret, quantized)), str(ballast.inspect(quantized)), str(ballast.inspect(secret))]
    for call in (
        lambda: ballast.QuantizeConfig.from_yaml(missing), lambda: ballast.safetensors.safe_open(missing, "np"),
        lambda: ballast.safetensors.numpy.save_file({}, secret), lambda: ballast.open(Path(secret)),
    ):  # fmt: skip
        with pytest.raises((ballast.BallastError, OSError, ValueError)) as caught:
            call()
        said.append(str(caught.value))
    said += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in said if "hunter2" in text or "SECRETSIG" in text]


def test_the_drop_in_accepts_uris(uri, model):
    loaded = ballast.safetensors.numpy.load_file(uri)
    assert sorted(loaded) == sorted(model)
    with ballast.safetensors.safe_open(uri, "np") as file:
        numpy.testing.assert_array_equal(file.get_slice("layers.0.weight")[2:5], model["layers.0.weight"][2:5])


def test_proxies(run, server, uri, monkeypatch):
    """The server is its own proxy."""
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    assert run("inspect", "http://models.invalid/model.safetensors").returncode == 0
    assert server.requests[0][1] == "http://models.invalid/model.safetensors"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    one_error_line(run("inspect", uri), 3)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert run("inspect", uri).returncode == 0


def test_expired_signed_urls_are_requested_again(server, uri, content, model):
    with RangeServer({"/cdn": content}) as other:
        signature = [0]

        def redirect(handler, *_):
            signature[0] += 1
            server.reply(handler, 302, b"", {"Location": f"{other.url}/cdn?sig={signature[0]}"})
            return True

        def expired(handler, body, asked):
            if f"sig={signature[0]}" in handler.path:
                return False
            other.reply(handler, 403, b"expired")
            return True

        server.fault, other.fault = redirect, expired
        opened = ballast.open(uri)
        signature[0] += 1
        numpy.testing.assert_array_equal(opened["layers.0.weight"][...], model["layers.0.weight"])


def test_certificates_are_checked(run, content, tmp_path, monkeypatch):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        cwd=tmp_path, check=True, capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = RangeServer({"/model.safetensors": content})
    server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
    with server:
        uri = f"https://localhost:{server.port}/model.safetensors"
        assert "certificate" in one_error_line(run("inspect", uri), 3)
        monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "cert.pem"))
        assert run("inspect", uri).returncode == 0
        wrong_name = uri.replace("localhost", "127.0.0.1")
        assert "127.0.0.1" in one_error_line(run("inspect", wrong_name), 3)
