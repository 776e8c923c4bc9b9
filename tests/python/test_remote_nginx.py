"""Against nginx, a common server."""

import json

import numpy
import pytest
from nginx_server import nginx

import ballast


@pytest.fixture(scope="module")
def served(sharded):
    with nginx(sharded) as url:
        yield url


def test_a_model_directory(run, served, sharded, tmp_path):
    assert run("diff", served, sharded).returncode == 0
    told = json.loads(run("inspect", served, "--json").stdout)
    assert told["tensor_count"] == json.loads(run("inspect", sharded, "--json").stdout)["tensor_count"]
    result = run("download", served, tmp_path / "out", "--json")
    assert result.returncode == 0, result.stderr
    for file in sharded.iterdir():  # HTTP cannot list files: shards are found through the index
        assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()
    again = json.loads(run("download", served, tmp_path / "out", "--json").stdout)
    assert all(file["was_there"] for file in again["files"]) and again["fetched_bytes"] == 0


def test_loads_and_slices(served, sharded):
    local, remote = ballast.open(sharded), ballast.open(served)
    loaded = remote.load()
    for name in local:
        numpy.testing.assert_array_equal(loaded[name].view("u1"), local[name].numpy().view("u1"))
        if local[name].ndim == 2:
            numpy.testing.assert_array_equal(remote[name][1::3, ::2].view("u1"), numpy.ascontiguousarray(local[name].numpy()[1::3, ::2]).view("u1"))
