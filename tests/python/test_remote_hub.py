"""hf:// URIs and the cache, compared with huggingface_hub."""

import json
import os
from pathlib import Path

import huggingface_hub
import numpy
import pytest
from conftest import one_error_line
from hub_server import Hub
from quantized_files import done, refused

import ballast


@pytest.fixture
def hub(sharded, tmp_path, monkeypatch):
    files = {file.name: file.read_bytes() for file in sharded.iterdir()} | {"assets/deep/notes.txt": b"notes", "empty.txt": b""}
    with Hub("org/model", files, large=[name for name in files if name.endswith(".safetensors")]) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        yield hub


def hub_download(hub, cache, name, **options):
    return huggingface_hub.hf_hub_download("org/model", name, endpoint=hub.url, cache_dir=cache, **options)


def test_headers_only(run, hub, sharded):
    result = run("inspect", "hf://org/model", "--json")
    assert result.returncode == 0, result.stderr
    told, expected = json.loads(result.stdout), json.loads(run("inspect", sharded, "--json").stdout)
    for member in ("tensor_count", "parameter_count", "dtypes", "config"):
        assert told[member] == expected[member]
    assert hub.cdn.sent <= 3 * 100_000
    resolved = [path for _, path, _ in hub.front.requests if "/resolve/" in path]
    assert resolved and all(f"/resolve/{hub.commit}/" in path for path in resolved)


def test_values_are_the_same(run, hub, sharded):
    assert run("diff", "hf://org/model@main", sharded).returncode == 0
    shard = next(name for name in hub.large)
    assert run("verify", f"hf://org/model/{shard}", "--values").returncode == 0
    assert run("verify", f"hf://org/model@refs/pr/1/{shard}").returncode == 0
    assert run("verify", f"hf://org/model@{hub.commit}").returncode == 0


def test_tokens_are_sent_only_to_the_hub(run, hub, monkeypatch):
    hub.token = "hf_secret"
    line = one_error_line(run("inspect", "hf://org/model"), 3)
    assert "401" in line and "Access to this model is restricted." in line and "HF_TOKEN" in line
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    result = run("verify", "hf://org/model", "--values")
    assert result.returncode == 0, result.stderr
    assert hub.cdn.requests and all("Authorization" not in headers for _, _, headers in hub.cdn.requests)
    assert "hf_secret" not in result.stdout + result.stderr
    monkeypatch.delenv("HF_TOKEN")
    home = Path(os.environ["HF_HOME"])
    home.mkdir()
    (home / "token").write_text("hf_secret\n")
    assert run("inspect", "hf://org/model").returncode == 0


def test_missing_repositories_revisions_and_files(run, hub):
    assert "404" in one_error_line(run("inspect", "hf://org/other"), 3)
    assert "Invalid rev id" in one_error_line(run("inspect", "hf://org/model@nope"), 3)
    assert "404" in one_error_line(run("inspect", "hf://org/model/nope.safetensors"), 3)
    for uri in ("hf://org", "hf://", "hf://a b/c", "hf://org/model/../x", "hf://org/model@../x"):
        assert "hf://org/repo[@revision][/file]" in one_error_line(run("inspect", uri), 2)


def test_files_cached_by_huggingface_hub_are_used(run, hub, sharded, tmp_path):
    shard = sorted(hub.large)[0]
    cached = hub_download(hub, tmp_path / "cache", shard)
    hub.cdn.forget()
    assert run("verify", f"hf://org/model/{shard}", "--values").returncode == 0
    assert hub.cdn.requests == []
    opened = ballast.open(f"hf://org/model/{shard}")
    name = next(iter(opened))
    numpy.testing.assert_array_equal(opened[name].numpy().view("u1"), ballast.open(cached)[name].numpy().view("u1"))


def test_huggingface_hub_finds_our_downloads(run, hub, tmp_path, monkeypatch):
    result = run("download", "hf://org/model", "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert {file["checked"] for file in told["files"]} == {"sha256", "git"}
    hub.front.forget()
    hub.cdn.forget()
    for name, body in hub.files.items():
        path = huggingface_hub.try_to_load_from_cache("org/model", name, cache_dir=tmp_path / "cache")
        assert isinstance(path, str) and Path(path).read_bytes() == body
        assert hub_download(hub, tmp_path / "cache", name, local_files_only=True) == path
    snapshot = huggingface_hub.snapshot_download("org/model", endpoint=hub.url, cache_dir=tmp_path / "cache")
    assert snapshot == told["path"]
    assert hub.cdn.requests == []  # everything was cached
    info = huggingface_hub.scan_cache_dir(tmp_path / "cache")
    assert not info.warnings and len(info.repos) == 1
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.front.forget()
    assert run("verify", "hf://org/model", "--values").returncode == 0
    assert hub.front.requests == []


def test_offline_without_a_cache(run, hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE" in one_error_line(run("inspect", "hf://org/model"), 3)
    assert "HF_HUB_OFFLINE" in one_error_line(run("inspect", f"hf://org/model@{hub.commit}/model.safetensors"), 3)
    assert hub.front.requests == []


def test_downloads_use_the_cache(run, hub, tmp_path, monkeypatch):
    assert run("download", "hf://org/model").returncode == 0
    hub.cdn.forget()
    told = json.loads(run("download", "hf://org/model", tmp_path / "a", "--json").stdout)
    assert hub.cdn.requests == [] and told["fetched_bytes"] == 0
    assert {file["checked"] for file in told["files"]} == {"sha256", "git"}
    hub.front.forget()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for folder in ([], [tmp_path / "b"]):
        result = run("download", "hf://org/model", *folder)
        assert result.returncode == 0, result.stderr
    for folder in ("a", "b"):
        for name, body in hub.files.items():
            assert (tmp_path / folder / name).read_bytes() == body
    assert hub.front.requests == [] and hub.cdn.requests == []


def test_files_with_any_suffix(run, hub, tmp_path):
    hub.files["README.md"] = b"# A model"
    assert run("download", "hf://org/model/README.md", tmp_path).returncode == 0
    assert (tmp_path / "README.md").read_bytes() == b"# A model"
    assert "no files" in one_error_line(run("download", "hf://org/model/nothing", tmp_path), 3)


def test_quantized_models_are_pinned(run, sharded, hub, tmp_path):
    assert run("quantize", sharded, tmp_path / "q", "--bits", "4").returncode == 0
    hub.files = {file.name: file.read_bytes() for file in (tmp_path / "q").iterdir()}
    hub.large = [name for name in hub.files if name.endswith(".parquet")]
    hub.cdn.files = {f"/cdn/{name}": hub.files[name] for name in hub.large}
    assert run("dequantize", "hf://org/model", tmp_path / "d").returncode == 0
    resolved = [path for _, path, _ in hub.front.requests if "/resolve/" in path]
    assert resolved and all(f"/resolve/{hub.commit}/" in path for path in resolved)


@pytest.mark.parametrize(
    "entries, expected",
    [
        ([[]] * 2000, "more than 1000 pages"),
        ([[{"type": "file", "path": "a" * 5000, "size": 1, "oid": "0" * 40}]], "longer than 1024 bytes"),
        ([[{"type": "file", "path": "a", "size": 1, "oid": "0" * 40}] * 2], "contains 'a' twice"),
        ([[{"type": "file", "path": "a.json.ballast-incomplete", "size": 1, "oid": "0" * 40}]], "--exclude"),
        ([[{"type": "file", "path": "../a", "size": 1, "oid": "0" * 40}]], "the file list has an invalid entry"),
        ([[{"type": "file", "path": "a", "size": -1, "oid": "0" * 40}]], "no size for 'a'"),
    ],
)
def test_invalid_file_lists_are_refused(run, hub, tmp_path, monkeypatch, entries, expected):
    """From a hostile server."""

    def reply(handler, path, query):
        at = int(query.rpartition("cursor=")[2]) if "cursor=" in query else 0
        link = {"Link": f'<{hub.url}{path}?cursor={at + 1}>; rel="next"'} if at + 1 < len(entries) else {}
        hub.reply_json(handler, entries[at], link)

    monkeypatch.setattr(hub, "reply_tree", reply)
    assert expected in one_error_line(run("download", "hf://org/model", tmp_path / "out"), 3)


def test_an_unreachable_hub_falls_back_to_the_cache(run, hub, tmp_path):
    assert run("download", "hf://org/model").returncode == 0
    hub.front.__exit__()
    shard = sorted(hub.large)[0]
    try:
        assert run("verify", f"hf://org/model/{shard}", "--values").returncode == 0
        for uri in ("hf://org/model", f"hf://org/model@{hub.commit}"):
            assert run("inspect", uri).returncode == 0
        for folder in ([], [tmp_path / "out"]):
            result = run("download", "hf://org/model", *folder)
            assert result.returncode == 0, result.stderr
        assert (tmp_path / "out" / shard).read_bytes() == hub.files[shard]
    finally:
        hub.front = type(hub.cdn)()
        hub.front.__enter__()


def test_download_to_a_folder(run, hub, tmp_path):
    hub.page = 2  # the list has several pages
    result = run("download", "hf://org/model", tmp_path / "out", "--json")
    assert result.returncode == 0, result.stderr
    for name, body in hub.files.items():
        assert (tmp_path / "out" / name).read_bytes() == body
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == set(hub.files)
    hub.cdn.forget()
    again = json.loads(run("download", "hf://org/model", tmp_path / "out", "--json").stdout)
    assert all(file["was_there"] for file in again["files"])
    assert hub.cdn.sent < 400_000
    assert run("download", "hf://org/model", tmp_path / "json", "--include", "*.json").returncode == 0
    assert all(name.endswith(".json") for name in os.listdir(tmp_path / "json"))
    assert run("download", "hf://org/model/config.json", tmp_path / "one").returncode == 0
    assert os.listdir(tmp_path / "one") == ["config.json"]


def test_a_folder_with_other_files_needs_force(run, hub, tmp_path):
    def download(*options):
        return run("download", "hf://org/model", tmp_path / "out", *options)

    for part in ("*.json", "*.safetensors"):  # the other half of the model is no obstacle
        done(download("--include", part))
    name = "config.json"
    (tmp_path / "out" / f"{name}.ballast-incomplete").write_bytes(b"x")
    done(download("--include", "*.json"))
    (tmp_path / "out/.cache").mkdir()
    (tmp_path / "out/.cache/mark").write_bytes(b"x")
    done(download())
    (tmp_path / "out/old.safetensors").write_bytes(b"old")
    (tmp_path / "out" / name).unlink()
    refused(download(), 4, tmp_path / "out", "'old.safetensors' would stay beside the model", "(--force)")
    assert not (tmp_path / "out" / name).exists()
    done(download("--force"))
    assert (tmp_path / "out" / name).exists() and (tmp_path / "out/old.safetensors").read_bytes() == b"old"
    with pytest.raises(ballast.BallastError, match="old.safetensors.*force"):
        ballast.download("hf://org/model", tmp_path / "out")
    ballast.download("hf://org/model", tmp_path / "out", force=True)


def test_damaged_downloads_are_detected(run, hub, tmp_path):
    shard = sorted(hub.large)[0]
    hub.cdn.files[f"/cdn/{shard}"] = hub.files[shard][:-1] + b"\xff"
    line = one_error_line(run("download", "hf://org/model", tmp_path / "out"), 3)
    assert shard in line and "sha256" in line
    assert not (tmp_path / "out" / shard).exists()
