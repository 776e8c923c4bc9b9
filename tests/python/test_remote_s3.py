"""s3:// URIs: signatures compared with botocore, objects served by moto."""

import datetime
import json
import logging
import os
import random
import string
from unittest import mock
from urllib.parse import quote

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.credentials
import numpy
import pytest
import safetensors.numpy
from conftest import one_error_line
from moto.server import ThreadedMotoServer
from range_server import RangeServer

import ballast


def signed_by_botocore(url, key, secret, region, token, now):
    class Clock(datetime.datetime):
        @classmethod
        def utcnow(cls):
            return datetime.datetime.utcfromtimestamp(now)

        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.fromtimestamp(now, tz)

    request = botocore.awsrequest.AWSRequest("GET", url)
    credentials = botocore.credentials.Credentials(key, secret, token or None)
    stamp = datetime.datetime.fromtimestamp(now, datetime.timezone.utc)
    with mock.patch("botocore.auth.get_current_datetime", lambda *_, **__: stamp.replace(tzinfo=None), create=True), mock.patch(
        "botocore.auth.datetime", mock.Mock(datetime=Clock), create=True
    ):
        botocore.auth.S3SigV4Auth(credentials, "s3", region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def test_signatures_match_botocore(probe):
    generator = random.Random(5)
    odd = string.ascii_letters + string.digits + " +&=?#%@!$'()*,;:[]~é漢/"
    for i in range(300):
        key = "".join(generator.choices(odd, k=generator.randint(1, 30))).strip("/")
        url = f"https://bucket.s3.eu-west-1.amazonaws.com/{quote(key, safe='/~-._')}"
        if i % 3 == 0:
            url += f"?list-type=2&prefix={quote(key, safe='~-._')}&encoding-type=url"
        token = "tok/en+=" if i % 2 else ""
        now = 1_700_000_000 + generator.randint(0, 10**8)
        answer = probe(f"sign {url} {now} AKIDEXAMPLE wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY eu-west-1 {token}")
        ours = dict(header.split(": ", 1) for header in answer["headers"])
        theirs = signed_by_botocore(url, "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-west-1", token, now)
        assert ours["x-amz-date"] == theirs["x-amz-date"]
        assert ours["Authorization"] == theirs["authorization"], url


@pytest.fixture(scope="module")
def s3():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(s3, monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-key")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3)
    monkeypatch.setenv("HOME", str(tmp_path))
    resource = boto3.resource("s3", endpoint_url=s3, region_name="us-east-1")
    client = resource.meta.client
    client.create_bucket(Bucket="models")
    yield client
    resource.Bucket("models").objects.all().delete()
    client.delete_bucket(Bucket="models")


def put(client, folder, files):
    for name, body in files.items():
        client.put_object(Bucket="models", Key=f"{folder}/{name}", Body=body)


def test_folders_and_files(run, bucket, sharded, tmp_path):
    put(bucket, "a folder/tiny+1", {file.name: file.read_bytes() for file in sharded.iterdir()} | {"deep/er/x.txt": b"x"})
    uri = "s3://models/a folder/tiny+1"
    told = json.loads(run("inspect", uri, "--json").stdout)
    assert told["tensor_count"] == json.loads(run("inspect", sharded, "--json").stdout)["tensor_count"]
    assert run("diff", uri, sharded).returncode == 0
    assert run("diff", uri + "/", sharded).returncode == 0
    result = run("download", uri, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    for file in sharded.iterdir():
        assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()
    assert (tmp_path / "out/deep/er/x.txt").read_bytes() == b"x"


def test_lists_of_several_pages(run, bucket, tmp_path):
    model = safetensors.numpy.save({"a": numpy.arange(4, dtype=numpy.float32)})
    put(bucket, "many", {f"notes-{i:04}.txt": b"n" for i in range(1100)} | {"weights.safetensors": model})
    numpy.testing.assert_array_equal(ballast.open("s3://models/many")["a"][...], numpy.arange(4, dtype=numpy.float32))


def test_names_with_special_characters_are_signed(bucket):
    for name in ("a b", "a+b", "a%20b", "ä/漢", "q?x=1&y", "a=b", "semi;colon", "at@", "star*(1)'!", "tilde~-_."):
        model = {"a": numpy.frombuffer(name.encode(), numpy.uint8)}
        bucket.put_object(Bucket="models", Key=f"{name}/m.safetensors", Body=safetensors.numpy.save(model))
        numpy.testing.assert_array_equal(ballast.open(f"s3://models/{name}/m.safetensors")["a"][...], model["a"])


def test_dots_in_keys_are_ordinary_characters(run, bucket):
    model = safetensors.numpy.save({"a": numpy.zeros(3)})
    bucket.put_object(Bucket="models", Key="a/m.safetensors", Body=model)
    for key in ("x/../a/m.safetensors", "./a/m.safetensors", "../models/a/m.safetensors"):
        assert run("inspect", f"s3://models/{key}").returncode == 3


def test_checksums(run, bucket, tmp_path):
    body = os.urandom(300_000)
    bucket.put_object(Bucket="models", Key="sums/a b.bin", Body=body, ChecksumAlgorithm="SHA256")
    bucket.put_object(Bucket="models", Key="sums/plain.bin", Body=body)
    told = json.loads(run("download", "s3://models/sums", tmp_path, "--json").stdout)
    assert {os.path.basename(file["path"]): file["checked"] for file in told["files"]} == {"a b.bin": "sha256", "plain.bin": None}
    assert (tmp_path / "a b.bin").read_bytes() == body


REGION = "eu-north-1"
AWAY = {
    "a header": (301, b"", {"x-amz-bucket-region": REGION}),
    "a document": (400, f"<Error><Code>AuthorizationHeaderMalformed</Code><Region>{REGION}</Region></Error>".encode(), {}),
}


@pytest.mark.parametrize("how", AWAY)
def test_buckets_of_another_region(run, bucket, monkeypatch, tmp_path, how):
    body = safetensors.numpy.save({"a": numpy.zeros(3)})
    listed = (
        "<ListBucketResult><EncodingType>url</EncodingType>"
        "<Contents><Key>dir/my+model.safetensors</Key><Size>9</Size></Contents></ListBucketResult>"
    )
    with RangeServer({"/models/dir/my model.safetensors": body, "/models/": listed.encode()}) as server:

        def check(handler, content, asked):
            if f"/{REGION}/s3/" in handler.headers["Authorization"]:
                return False
            server.reply(handler, *AWAY[how])
            return True

        server.fault = check
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        for uri in ("s3://models/dir", "s3://models/dir/my model.safetensors"):
            server.forget()
            result = run("inspect", uri)
            assert result.returncode == 0, result.stderr
            asked = [headers["Authorization"] for _, path, headers in server.requests if "metadata.json" not in path]
            assert sum(f"/{REGION}/s3/" not in each for each in asked) == 1  # the region is remembered
        assert run("download", "s3://models/dir", tmp_path).returncode == 0
        assert (tmp_path / "my model.safetensors").read_bytes() == body


def test_missing_buckets_and_files(run, bucket):
    bucket.put_object(Bucket="models", Key="x/readme.txt", Body=b"x")
    assert "404" in one_error_line(run("inspect", "s3://models/nope.safetensors"), 3)
    assert "404" in one_error_line(run("inspect", "s3://no-such-bucket/dir"), 3)
    assert "no weights" in one_error_line(run("inspect", "s3://models/x"), 3)
    assert "has no bucket" in one_error_line(run("inspect", "s3://"), 2)


def test_profiles_and_secrets(run, bucket, tmp_path, monkeypatch):
    bucket.put_object(Bucket="models", Key="m.safetensors", Body=safetensors.numpy.save({"a": numpy.zeros(3)}))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text("[other]\naws_access_key_id = wrong\n\n[work]\naws_access_key_id=testing\naws_secret_access_key = very-secret-key\n")
    endpoint = bucket.meta.endpoint_url
    (folder / "config").write_text(f"[profile work]\nregion = eu-central-1\nendpoint_url = {endpoint}\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    result = run("inspect", "s3://models/m.safetensors")
    assert result.returncode == 0, result.stderr
    assert "very-secret-key" not in result.stdout + result.stderr
    monkeypatch.setenv("AWS_PROFILE", "other")
    (folder / "config").write_text(f"[profile other]\nendpoint_url = {endpoint}\n[profile work]\n")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")  # takes precedence over a profile
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-key")
    assert run("inspect", "s3://models/m.safetensors").returncode == 0
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "AWS_PROFILE is 'nobody'" in one_error_line(run("inspect", "s3://models/m.safetensors"), 2)
