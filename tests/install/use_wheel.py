"""Uses the installed Python package and its program, stage by stage: each adds to the machine what the one before misses."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import ballast

PROGRAM = str(Path(sys.executable).with_name("ballast"))


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode == code, f"ballast {arguments}: {done.returncode}, {done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def make_model():
    values = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    ballast.save({"a.weight": values}, "model.safetensors")
    return values


def quantize(format):
    values = make_model()
    report = ballast.quantize("model.safetensors", "small", format=format, group_size=64)
    assert report.passed and ballast.verify("small").ok
    assert ballast.dequantize("small", "again.safetensors").tensors == 1
    assert np.abs(ballast.open("again.safetensors")["a.weight"].numpy() - values).max() < 0.5

    run("quantize", "model.safetensors", "program", "--format", format, "--group-size", "64")
    assert "program: ok" in run("verify", "program")
    run("diff", "small", "program")


def bare():
    assert run("--version").strip().endswith(ballast.__version__)
    assert subprocess.run([sys.executable, "-m", "ballast", "--version"], capture_output=True, text=True, check=True).stdout == run("--version")
    quantize("mlx")
    expected = "pip install 'pyarrow=="
    assert expected in run("quantize", "model.safetensors", "no", "--format", "parquet", code=3)
    try:
        ballast.quantize("model.safetensors", "no", format="parquet")
        raise AssertionError("Parquet was written without Arrow")
    except ballast.UnsupportedError as error:
        assert expected in str(error), error
    expected = "cannot load libcurl: libcurl.so.4: cannot open shared object file: No such file or directory; install libcurl"
    assert expected in run("inspect", "https://127.0.0.1:9/model.safetensors", code=3)
    try:
        ballast.open("https://127.0.0.1:9/model.safetensors")
        raise AssertionError("a URI was opened without libcurl")
    except ballast.BallastError as error:
        assert expected in str(error) and "libcurl4" in str(error), error


def parquet():
    quantize("parquet")


def libcurl():
    from range_server import RangeServer

    make_model()
    with RangeServer({"/model.safetensors": Path("model.safetensors").read_bytes()}) as server:
        uri = f"{server.url}/model.safetensors"
        assert ballast.open(uri)["a.weight"].shape == (64, 128)
        assert "a.weight" in run("inspect", uri)


STAGES = {"bare": bare, "parquet": parquet, "libcurl": libcurl}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        STAGES[sys.argv[1]]()
    print(f"{sys.argv[1]}: ok")
