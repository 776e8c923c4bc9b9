"""Provokes the messages of docs/troubleshooting.md, one after the other, in the order of the page."""

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from hub_server import Hub
from pages import CREDENTIALS, REPO
from safetensors.numpy import save_file
from safetensors_bytes import length_bytes, prefix

MAKE_MODEL = REPO / "tools/make_model"


class Troubles:
    """A folder with a small model, `tiny`, and what goes wrong in it."""

    def __init__(self, folder: Path, build_dir: Path):
        self.folder = folder
        self.program = (build_dir / "ballast").resolve()
        self.environment = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}
        self.environment |= {"HF_HOME": str(folder / "hub"), "NO_COLOR": "1"}
        subprocess.run([MAKE_MODEL, folder / "tiny"], check=True, stdout=subprocess.DEVNULL)

    def said(self, *arguments, **environment) -> str:
        """What a command prints besides its result, without the words of progress."""
        command = [self.program, *map(str, arguments)]
        result = subprocess.run(command, cwd=self.folder, env=self.environment | environment, capture_output=True, text=True)
        return (result.stderr or result.stdout).replace(f"{self.folder}/", "")

    def file(self, name: str, content: bytes) -> str:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(content)
        return name

    def header(self, name: str, header: dict | str, data: int = 0) -> str:
        return self.file(name, prefix(header) + bytes(data))

    def arrays(self, name: str, **arrays) -> str:
        (self.folder / name).parent.mkdir(exist_ok=True)
        save_file({key.replace("__", "."): value for key, value in arrays.items()}, self.folder / name)
        return name

    def copy(self, name: str) -> Path:
        shutil.copytree(self.folder / "tiny", self.folder / name)
        return self.folder / name


def entry(dtype="F32", shape=(2, 2), begin=0, end=16):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def truncated(t):
    t.file("broken.safetensors", (t.folder / "tiny/model.safetensors").read_bytes()[:-100])
    return t.said("inspect", "broken.safetensors")


def too_small(t):
    return t.said("inspect", t.file("empty.safetensors", b""))


def header_past_the_end(t):
    return t.said("inspect", t.file("model.safetensors", length_bytes(5000) + b"{}"))


def git_lfs_pointer(t):
    text = b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 1192135096\n"
    return t.said("inspect", t.file("pointer.safetensors", text))


def web_page(t):
    return t.said("inspect", t.file("page.safetensors", b"<!DOCTYPE html><html><body>Sign in</body></html>"))


def pickle(t):
    return t.said("inspect", t.file("pytorch_model.bin", b"PK\x03\x04\0\0\b\b" + bytes(100)))


def gguf(t):
    return t.said("inspect", t.file("model.gguf", b"GGUF\x03\0\0\0" + bytes(100)))


def header_too_large(t):
    return t.said("inspect", t.header("long.safetensors", json.dumps({"a": entry()}) + " " * 2_000_000, 16), "--max-header-mb", 1)


def bad_json(t):
    return t.said("inspect", t.header("bad.safetensors", '{"a": {"dtype": "F32", "shape": [2, 2]}}', 16))


def unknown_dtype(t):
    return t.said("inspect", t.header("new.safetensors", {"a": entry("F12")}, 16))


def duplicate_name(t):
    text = f'{{"a": {json.dumps(entry())}, "a": {json.dumps(entry(begin=16, end=32))}}}'
    return t.said("inspect", t.header("twice.safetensors", text, 32))


def overlap(t):
    return t.said("inspect", t.header("overlap.safetensors", {"a": entry(), "b": entry(begin=8, end=24)}, 24))


def wrong_size(t):
    return t.said("inspect", t.header("size.safetensors", {"a": entry(shape=(2, 3))}, 16))


def missing_file(t):
    return t.said("inspect", "nowhere.safetensors")


def empty_folder(t):
    (t.folder / "empty").mkdir()
    return t.said("inspect", "empty")


def missing_shard(t):
    subprocess.run([MAKE_MODEL, t.folder / "shards", "--shards", "3"], check=True, stdout=subprocess.DEVNULL)
    (t.folder / "shards/model-00002-of-00003.safetensors").unlink()
    return t.said("inspect", "shards")


def missing_shard_without_index(t):
    (t.folder / "shards/model.safetensors.index.json").unlink()
    return t.said("inspect", "shards")


def stray_file(t):
    subprocess.run([MAKE_MODEL, t.folder / "both", "--shards", "2"], check=True, stdout=subprocess.DEVNULL)
    shutil.copy(t.folder / "tiny/model.safetensors", t.folder / "both/model.safetensors")
    return t.said("inspect", "both").splitlines()[0] + "\n"


def wrong_architecture(t):
    config = t.copy("wrong") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"intermediate_size": 256}))
    return next(line.strip() + "\n" for line in t.said("verify", "wrong").splitlines() if "down_proj" in line)


def tensor_not_found(t):
    return t.said("extract", "tiny", "model.layers.0.mlp.up_proj.weigth", "-o", "a.npy")


def too_many_slices(t):
    return t.said("extract", "tiny", "model.norm.weight", "--slice", "0:4,0:4", "-o", "a.npy")


def pattern_without_match(t):
    return t.said("convert", "tiny", "out", "--include", "*lm_head*")


def unknown_option_dtype(t):
    return t.said("convert", "tiny", "out", "--dtype", "bf17")


def integers_do_not_fit(t):
    t.arrays("ids.safetensors", ids=np.arange(100_000, dtype=np.int64))
    return t.said("convert", "ids.safetensors", "small.safetensors", "--dtype", "i16")


def names_collide(t):
    return t.said("convert", "tiny", "out", "--rename", "model.layers.*.mlp.up_proj.weight=up")


def output_is_a_uri(t):
    return t.said("convert", "tiny", "s3://bucket/out")


def output_is_not_empty(t):
    t.file("busy/notes.txt", b"mine")
    return t.said("convert", "tiny", "busy", "--dtype", "f16")


def output_is_something_else(t):
    return t.said("extract", "tiny", "model.norm.weight", "-o", "tiny/model.safetensors")


def output_is_cached(t):
    return t.said("metadata", "models--org--tiny/snapshots/c0ffee/model.safetensors", "--set", "license=mit")


def unrelated_files(t):
    for name in ("two/first.safetensors", "two/second.safetensors"):
        t.arrays(name, w=np.ones(2, np.float32))
    return t.said("inspect", "two")


def shard_alone(t):
    t.arrays("model-00002-of-00003.safetensors", w=np.ones(2, np.float32))
    return t.said("verify", "model-00002-of-00003.safetensors").splitlines(keepends=True)[0]


def folder_of_the_cache(t):
    (t.folder / "models--org--tiny/blobs").mkdir(parents=True)
    (t.folder / "models--org--tiny/snapshots").mkdir()
    shutil.copytree(t.folder / "tiny", t.folder / "models--org--tiny/snapshots/c0ffee")
    return t.said("inspect", "models--org--tiny")


def adapter(t):
    t.arrays("lora/adapter_model.safetensors", q__lora_A__weight=np.ones((8, 64), np.float32))
    return t.said("quantize", "lora", "out")


def no_such_folder(t):
    return t.said("convert", "tiny", "results/tiny.safetensors")


def another_run(t):
    (t.folder / "half.incomplete").mkdir()
    held = os.open(t.folder / "half.incomplete", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        return t.said("convert", "tiny", "half", "--dtype", "f16", "--resume")
    finally:
        os.close(held)


def output_is_a_file(t):
    return t.said("quantize", "tiny", "tiny-4bit.safetensors")


def groups_do_not_divide(t):
    t.arrays("odd.safetensors", w=np.ones((8, 100), np.float32))
    return t.said("quantize", "odd.safetensors", "out", "--format", "mlx", "--group-size", 64)


def group_size_of_the_format(t):
    return t.said("quantize", "tiny", "out", "--format", "mlx", "--profile", "edge")


def not_finite(t):
    values = np.ones((8, 64), np.float32)
    values[3, 5] = np.nan
    t.arrays("nan.safetensors", w=values)
    return t.said("quantize", "nan.safetensors", "out", "--format", "mlx", "--group-size", 64)


def quantized_by_others(t):
    t.arrays("aqlm/model.safetensors", a__codes=np.ones((8, 8, 1), np.int16), a__codebooks=np.ones((1, 256, 1, 8), np.float16))
    t.file("aqlm/config.json", json.dumps({"quantization_config": {"quant_method": "aqlm"}}).encode())
    return t.said("quantize", "aqlm", "out")


def quantized_already(t):
    t.said("quantize", "tiny", "tiny-4bit", "--format", "mlx", "--group-size", 64)
    return t.said("quantize", "tiny-4bit", "out", "--format", "mlx", "--group-size", 64)


def nothing_to_quantize(t):
    t.arrays("norms.safetensors", norm=np.ones(64, np.float32))
    return "".join(line + "\n" for line in t.said("quantize", "norms.safetensors", "norms").splitlines() if "warning" in line)


def below_the_minimum(t):
    return t.said("quantize", "tiny", "out", "--bits", 2, "--min-accuracy", 0.99, "--fail-fast", "--format", "mlx", "--group-size", 64)


def target_too_small(t):
    return t.said("quantize", "tiny", "out", "--target-size-mb", 0.01, "--format", "mlx", "--group-size", 64)


def unknown_setting(t):
    t.file("settings.yaml", b"format: mlx\nbits: 4\n")
    return t.said("quantize", "tiny", "out", "--config", "settings.yaml")


def bad_variable(t):
    return t.said("quantize", "tiny", "out", BALLAST_GROUP_SIZE="100")


def too_little_memory(t):
    t.arrays("wide.safetensors", w=np.ones((2, 1 << 20), np.float32))
    return t.said("quantize", "wide.safetensors", "out", "--memory-limit", 16)


def statistics_of_another_model(t):
    values = {"x_mean": np.zeros(64, np.float32), "x_sqmean": np.ones(64, np.float32)}
    save_file({f"blocks.0.weight.{key}": value for key, value in values.items()}, t.folder / "stats.safetensors", {"format": "timecalib.v1"})
    return t.said("quantize", "tiny", "out", "--calibration", "stats.safetensors")


def not_statistics(t):
    return t.said("quantize", "tiny", "out", "--calibration", "tiny/model.safetensors")


def not_quantized(t):
    return t.said("dequantize", "tiny", "out")


def part_is_damaged(t):
    t.said("quantize", "tiny", "parquet")
    part = t.folder / "parquet/model-00001-of-00001.parquet"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    return t.said("validate", "tiny", "parquet")


def without_parquet(t):
    (t.folder / "bin").mkdir()
    shutil.copy(t.program, t.folder / "bin/ballast")
    command = [t.folder / "bin/ballast", "quantize", "tiny", "out", "--format", "parquet"]
    said = subprocess.run(command, cwd=t.folder, env=t.environment, capture_output=True, text=True).stderr
    return said.replace(str(t.folder), "/usr")


def without_hub(t):
    return t.said("inspect", "hf://org/tiny", HF_ENDPOINT="http://127.0.0.1:9", BALLAST_HTTP_TIMEOUT="1")


def hub(t, repo, **options) -> str:
    files = {file.name: file.read_bytes() for file in (t.folder / "tiny").iterdir()}
    with Hub("org/tiny", files, large=["model.safetensors"], **options) as server:
        return t.said("inspect", repo, HF_ENDPOINT=server.url)


def no_such_repository(t):
    return hub(t, "hf://org/tinny")


def no_such_revision(t):
    return hub(t, "hf://org/tiny@v2")


def gated_repository(t):
    return hub(t, "hf://org/tiny", token="secret")


def offline(t):
    return t.said("inspect", "hf://org/tiny", HF_HUB_OFFLINE="1")


def wrong_uri(t):
    return t.said("inspect", "gs://bucket/model")


def unknown_option(t):
    return t.said("quantize", "tiny", "out", "--bit", 4)


TROUBLES: list[Callable[[Troubles], str]] = [
    truncated, too_small, header_past_the_end, git_lfs_pointer, web_page, pickle, gguf, header_too_large, bad_json, unknown_dtype,
    duplicate_name, overlap, wrong_size,
    missing_file, empty_folder, missing_shard, missing_shard_without_index, stray_file, unrelated_files, shard_alone, folder_of_the_cache, wrong_architecture,
    tensor_not_found, too_many_slices,
    pattern_without_match, unknown_option, unknown_option_dtype, integers_do_not_fit, names_collide,
    output_is_a_uri, output_is_a_file, output_is_not_empty, output_is_something_else, output_is_cached, no_such_folder, another_run,
    groups_do_not_divide, group_size_of_the_format, not_finite, quantized_by_others, quantized_already, not_quantized, adapter, nothing_to_quantize,
    below_the_minimum, target_too_small, unknown_setting, bad_variable, too_little_memory, statistics_of_another_model, not_statistics,
    part_is_damaged, without_parquet,
    without_hub, no_such_repository, no_such_revision, gated_repository, offline, wrong_uri,
]  # fmt: skip


def provoke(folder: Path, build_dir: Path) -> Iterator[tuple[str, str]]:
    """Each trouble by its name, and what the program says."""
    troubles = Troubles(folder, build_dir)
    for trouble in TROUBLES:
        said = re.sub(r"\b[0-9a-f]{64}\b", "…", trouble(troubles))  # depends on the version of Arrow
        yield trouble.__name__, re.sub(r"after \d+ ms", "after 0 ms", said)
