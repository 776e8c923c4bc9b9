"""convert, diff, extract and metadata: the bytes they write against the real safetensors, numpy and ml_dtypes; and what happens
when something goes wrong half way."""

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from conftest import one_error_line
from processes import count_calls, peak_memory, signal_at, spread, wait_for_bytes
from safetensors import deserialize, safe_open
from safetensors.numpy import save_file
from safetensors_bytes import prefix
from safetensors_drafts import random_draft, write

RNG = np.random.default_rng(20240607)
NOBODY = 65534
NUMPY = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64,
    "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_, "C64": np.complex64,
}  # fmt: skip
NUMPY = {code: np.dtype(dtype) for code, dtype in NUMPY.items()}


def arrays():
    """One tensor of every dtype that the package takes from numpy, specials included."""
    np.seterr(over="ignore")
    floats = np.array([0, -0.0, 1, -1.5, 65504, 1e30, -1e-40, np.inf, -np.inf, np.nan, 3.14159, 448], dtype=np.float32)
    return {
        "f64": floats.astype(np.float64).reshape(3, 4),
        "f32": floats.reshape(2, 2, 3),
        "f16": floats.astype(np.float16),
        "bf16": floats.astype(ml_dtypes.bfloat16),
        "e4m3": floats.astype(ml_dtypes.float8_e4m3fn),
        "e5m2": floats.astype(ml_dtypes.float8_e5m2),
        "i64": np.array([-(2**63), 2**63 - 1, 0, 5]),
        "i32": np.arange(-3, 4, dtype=np.int32),
        "i16": np.arange(-3, 4, dtype=np.int16),
        "i8": np.arange(-3, 4, dtype=np.int8),
        "u64": np.array([2**64 - 1], dtype=np.uint64),
        "u32": np.arange(7, dtype=np.uint32),
        "u16": np.arange(7, dtype=np.uint16),
        "u8": np.arange(7, dtype=np.uint8),
        "bool": np.array([True, False]),
        "c64": np.array([1 + 2j, -3j], dtype=np.complex64),
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 3), dtype=np.float16),
        "ключ \"'\\ \n": np.array([1], np.float32),
    }


def shuffled(path, tensors, metadata=None):
    """A valid file that the reference would not have written: other order, odd spacing."""
    names = list(tensors)
    random.Random(5).shuffle(names)
    codes = {dtype: code for code, dtype in NUMPY.items()}
    header, data = {}, b""
    for name in names:
        raw = tensors[name].tobytes()
        header[name] = {
            "dtype": codes[tensors[name].dtype],
            "shape": tensors[name].shape,
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    if metadata:
        header["__metadata__"] = metadata
    path.write_bytes(prefix(json.dumps(header, indent=1)) + data)
    return path


def listing(folder):
    return sorted(p.name for p in folder.iterdir())


def done(result):
    assert result.returncode == 0, result.stderr
    return result


def read(path):
    """All tensors by the real package, whose numpy side does not know every dtype."""
    return {
        name: np.frombuffer(tensor["data"], NUMPY[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in deserialize(path.read_bytes())
    }


@pytest.fixture
def source(tmp_path):
    save_file(arrays(), tmp_path / "in.safetensors", metadata={"format": "pt"})
    return tmp_path / "in.safetensors"


class TestBytes:
    def test_files_of_the_reference_come_back_byte_for_byte(self, run, source, tmp_path):
        done(run("convert", source, tmp_path / "out.safetensors"))
        assert (tmp_path / "out.safetensors").read_bytes() == source.read_bytes()

    def test_any_other_layout_becomes_what_the_reference_writes(self, run, source, tmp_path):
        odd = shuffled(tmp_path / "odd.safetensors", arrays(), {"format": "pt"})
        done(run("convert", odd, tmp_path / "out.safetensors"))
        assert (tmp_path / "out.safetensors").read_bytes() == source.read_bytes()

    def test_the_real_package_reads_what_is_written(self, run, source, tmp_path):
        done(run("convert", source, tmp_path / "out.safetensors", "--dtype", "bf16", "--dtype", "i64=f64", "--allow-loss"))
        found = read(tmp_path / "out.safetensors")
        for name, array in arrays().items():
            expected = array
            if array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float8")):
                expected = array.astype(np.float32).astype(ml_dtypes.bfloat16)
            if name == "i64":
                expected = array.astype(np.float64)
            assert found[name].dtype == expected.dtype and found[name].shape == expected.shape, name
            assert found[name].tobytes() == expected.tobytes(), name

    def test_threads_do_not_change_the_bytes(self, run, tmp_path):
        tensors = {f"t{i}": RNG.standard_normal((257, 1 + 97 * i)).astype(np.float32) for i in range(40)}
        tensors["big"] = RNG.standard_normal((3000, 1001)).astype(np.float32)
        save_file(tensors, tmp_path / "in.safetensors")
        for target, options in (("o.safetensors", ["--dtype", "f16"]), ("o.safetensors", []), ("o.mlx", ["--include", "t*"])):
            outputs = set()
            for threads in (1, 2, 8):
                done(run("convert", tmp_path / "in.safetensors", tmp_path / target, "--threads", threads, *options))
                outputs.add((tmp_path / target).read_bytes())
            assert len(outputs) == 1

    def test_over_the_file_that_is_read(self, run, source):
        before = read(source)
        done(run("convert", source, source, "--dtype", "f64"))
        after = read(source)
        assert after["f32"].dtype == np.float64
        assert np.array_equal(after["f32"], before["f32"].astype(np.float64), equal_nan=True)

    def test_umask_is_respected_and_a_mode_is_kept(self, run, source, tmp_path):
        out = tmp_path / "out.safetensors"
        done(run("convert", source, out, umask=0o027))
        assert out.stat().st_mode & 0o777 == 0o640
        out.chmod(0o600)
        done(run("convert", source, out))
        assert out.stat().st_mode & 0o777 == 0o600


class TestSelection:
    def test_include_exclude_rename_and_metadata(self, run, tmp_path):
        tensors = {f"model.layers.{i}.{k}": np.full(4, i, np.float32) for i in range(3) for k in ("w", "b")}
        save_file(tensors, tmp_path / "in.safetensors", metadata={"keep": "k", "drop": "d", "change": "c"})
        out = tmp_path / "out.safetensors"
        done(run("convert", tmp_path / "in.safetensors", out, "--include", "*.layers.[01].*", "--exclude", "*.0.b",
                 "--rename", "model.layers.*=h.*", "--metadata", "change=x=y", "--metadata", "new=n", "--metadata", "drop"))  # fmt: skip
        with safe_open(out, "numpy") as file:
            assert sorted(file.keys()) == ["h.0.w", "h.1.b", "h.1.w"]
            assert file.metadata() == {"keep": "k", "change": "x=y", "new": "n"}
            assert file.get_tensor("h.1.b").tolist() == [1, 1, 1, 1]

    def test_patterns_choose_dtypes_and_the_last_wins(self, run, tmp_path):
        save_file({"a.norm": np.ones(3, np.float32), "a.w": np.ones(3, np.float32), "n": np.arange(3)}, tmp_path / "in.safetensors")
        out = tmp_path / "out.safetensors"
        done(run("convert", tmp_path / "in.safetensors", out, "--dtype", "bf16", "--dtype", "*norm=f16", "--dtype", "n=uint8"))
        assert {k: v.dtype.name for k, v in read(out).items()} == {"a.norm": "float16", "a.w": "bfloat16", "n": "uint8"}

    def test_a_pattern_without_a_match_is_wrong_usage(self, run, source, tmp_path):
        message = one_error_line(run("convert", source, tmp_path / "out.safetensors", "--include", "nope*"), 2)
        assert message == f"{source}: --include 'nope*' matches no tensor"
        assert listing(tmp_path) == ["in.safetensors"]

    def test_names_that_collide_are_refused_across_shards(self, run, source, tmp_path):
        options = ["--include", "f??", "--rename", "f32=z", "--rename", "f64=z", "--max-shard-size", "1B"]
        assert one_error_line(run("convert", source, tmp_path / "out", *options), 2).endswith("would both be named 'z'; use a '*' in the new name for each in the old")
        assert listing(tmp_path) == ["in.safetensors"]

    def test_more_shards_than_files_may_be_open(self, build_dir, tmp_path):
        save_file({f"t{i}": np.ones(1, np.float32) for i in range(300)}, tmp_path / "in.safetensors")
        limited = f"ulimit -Sn 100; exec {build_dir}/ballast convert {tmp_path}/in.safetensors {tmp_path}/out --max-shard-size 1B"
        result = subprocess.run(["bash", "-c", limited], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert len(listing(tmp_path / "out")) == 301

    def test_integers_that_do_not_fit_are_refused_or_reported(self, run, source, tmp_path):
        out = tmp_path / "out.safetensors"
        message = one_error_line(run("convert", source, out, "--dtype", "i64=i32"), 3)
        assert message == f"{source}: tensor 'i64': value 0 of 4 does not fit I32; set --allow-loss to convert anyway"
        assert not out.exists()
        result = done(run("convert", source, out, "--dtype", "i64=i32", "--allow-loss"))
        assert "tensor 'i64': 2 of 4 values do not fit I32, the first at index 0" in result.stderr
        assert read(out)["i64"].tolist() == [-(2**31), 2**31 - 1, 0, 5]

    def test_values_that_become_infinite_are_told(self, run, tmp_path):
        save_file({"t": np.array([1, 1e6, np.inf, -1e9], np.float32)}, tmp_path / "in.safetensors")
        result = done(run("convert", tmp_path / "in.safetensors", tmp_path / "out.safetensors", "--dtype", "f16"))
        assert "tensor 't': 2 of 4 values are out of range of F16 and became infinite or NaN" in result.stderr


class TestDirectories:
    def test_shards_are_no_larger_than_asked_and_come_back(self, run, tiny, tmp_path):
        done(run("convert", tiny, tmp_path / "out", "--max-shard-size", "100kB"))
        shards = sorted(tmp_path.glob("out/*.safetensors"))
        count = len(shards)
        assert count > 4
        assert [p.name for p in shards] == [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
        assert all(p.stat().st_size <= 100_000 for p in shards)
        index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
        assert index["metadata"]["total_size"] == 460_160
        for path in shards:
            with safe_open(path, "numpy") as file:
                assert file.metadata() == {"format": "pt"}
                assert {name for name, shard in index["weight_map"].items() if shard == path.name} == set(file.keys())
        assert run("verify", tmp_path / "out").returncode == 0
        done(run("convert", tmp_path / "out", tmp_path / "one.safetensors"))
        done(run("convert", tiny, tmp_path / "direct.safetensors"))
        assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "direct.safetensors").read_bytes()

    def test_companions_go_along_and_the_config_stays_true(self, run, tiny, tmp_path):
        model = tmp_path / "model"
        model.mkdir()
        for path in tiny.iterdir():
            (model / path.name).write_bytes(path.read_bytes())
        config = (model / "config.json").read_text()
        assert '"bfloat16"' in config
        (model / "tokenizer.json").write_text("{}")
        (model / "pytorch_model.bin").write_text("old weights")
        done(run("convert", model, tmp_path / "out", "--dtype", "f16"))
        assert listing(tmp_path / "out") == [name for name in listing(model) if name != "pytorch_model.bin"]
        assert (tmp_path / "out/tokenizer.json").read_text() == "{}"
        assert (tmp_path / "out/config.json").read_text() == config.replace('"bfloat16"', '"float16"')
        done(run("convert", model, tmp_path / "same"))
        assert (tmp_path / "same/config.json").read_text() == config

    def test_a_directory_can_replace_itself(self, run, tiny, tmp_path):
        out = tmp_path / "out"
        done(run("convert", tiny, out, "--max-shard-size", "200kB"))
        (out / "notes.txt").write_text("mine")
        done(run("convert", out, out, "--dtype", "f32"))
        assert listing(out) == sorted([*listing(tiny), "notes.txt"])
        assert listing(tmp_path) == ["out"]
        assert run("verify", out).returncode == 0

    def test_mlx_json_in_a_directory(self, run, tiny, tmp_path):
        done(run("convert", tiny, tmp_path / "out", "--format", "mlx-json"))
        assert listing(tmp_path / "out") == sorted({*listing(tiny), "weights.mlx"} - {"model.safetensors"})
        done(run("convert", tmp_path / "out", tmp_path / "back.safetensors"))
        assert run("diff", tiny, tmp_path / "back.safetensors").returncode == 0


class TestMlxJson:
    def test_every_bit_survives(self, run, tmp_path):
        codes = np.arange(65536, dtype=np.uint16)
        tensors = {
            "f16": codes.view(np.float16).reshape(256, 256),
            "bf16": codes.view(ml_dtypes.bfloat16),
            "f32": RNG.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32),
            "f32special": np.array([0, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC00001, 0xFFC00000], np.uint32).view(np.float32),
            "i32": RNG.integers(-(2**31), 2**31, 1000, dtype=np.int32),
            "u32": RNG.integers(0, 2**32, 1000, dtype=np.uint32),
            "empty": np.zeros((2, 0), np.float32),
            "one": np.array(7, np.float32),
        }  # fmt: skip
        source = tmp_path / "in.safetensors"
        save_file(tensors, source, metadata={"k": 'v"\n'})
        done(run("convert", source, tmp_path / "w.mlx"))
        document = json.loads((tmp_path / "w.mlx").read_text())
        assert list(document["weights"])[0] in tensors and document["weights"]["one"]["shape"] == []
        assert document["weights"]["f32special"]["data"][3:] == ["Infinity", "-Infinity", "NaN", "nan:7fc00001", "nan:ffc00000"]
        assert np.array_equal(np.array(document["weights"]["i32"]["data"]), tensors["i32"])
        done(run("convert", tmp_path / "w.mlx", tmp_path / "out.safetensors"))
        assert read(tmp_path / "out.safetensors").keys() == tensors.keys()
        assert (tmp_path / "out.safetensors").read_bytes() == source.read_bytes()

    def test_what_it_cannot_hold_is_refused(self, run, source, tmp_path):
        message = one_error_line(run("convert", source, tmp_path / "w.mlx"), 4)
        assert "C64" in message or "F8" in message
        assert listing(tmp_path) == ["in.safetensors"]

    def test_a_tensor_called_metadata_cannot_become_safetensors(self, run, tmp_path):
        (tmp_path / "w.mlx").write_text('{"weights":{"__metadata__":{"shape":[1],"dtype":"float32","data":[1]}}}')
        message = one_error_line(run("convert", tmp_path / "w.mlx", tmp_path / "out.safetensors"), 2)
        assert "a tensor cannot be named '__metadata__'" in message
        assert listing(tmp_path) == ["w.mlx"]


class TestRefusals:
    def test_names(self, run, source, tmp_path):
        out = tmp_path / "out.safetensors"
        assert "'__metadata__'" in one_error_line(run("convert", source, out, "--rename", "f32=__metadata__"), 2)
        assert "the name is not valid UTF-8" in one_error_line(run("convert", source, out, "--rename", os.fsdecode(b"f32=\xff")), 2)
        assert "would both be named 'f64'" in one_error_line(run("convert", source, out, "--rename", "f32=f64"), 2)
        assert listing(tmp_path) == ["in.safetensors"]

    def test_targets(self, run, source, tmp_path):
        (tmp_path / "file").write_text("")
        for target, expected in (
            ("none/out.safetensors", "No such file or directory"),
            ("none/out", "No such file or directory"),
            ("file", "is not a directory"),
            ("file/out.safetensors", "Not a directory"),
        ):
            assert expected in one_error_line(run("convert", source, tmp_path / target), 4)
        (tmp_path / "folder.safetensors").mkdir()
        assert "it is a directory" in one_error_line(run("convert", source, tmp_path / "folder.safetensors"), 4)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone who may not write")
    def test_permissions(self, run, source, public_path):
        source = Path(shutil.copy(source, public_path))
        source.chmod(0o644)
        out = public_path / "out.safetensors"
        assert "Permission denied" in one_error_line(run("convert", source, out, user=NOBODY), 4)
        assert "Permission denied" in one_error_line(run("convert", source, public_path / "out", user=NOBODY), 4)
        out.write_text("old")
        out.chmod(0o444)
        assert "Permission denied" in one_error_line(run("convert", source, out, user=NOBODY), 4)
        assert out.read_text() == "old"

    def test_disk_full(self, run, tmp_path, build_dir):
        disk = tmp_path / "disk"
        disk.mkdir()
        save_file({"t": np.ones(1_000_000, np.float32)}, tmp_path / "in.safetensors")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode == 0:
            try:
                for name in ("out.safetensors", "out.mlx", "out"):
                    message = one_error_line(run("convert", tmp_path / "in.safetensors", disk / name, "--dtype", "bf16"), 4)
                    assert "No space left on device" in message and name in message
                    assert listing(disk) == []
            finally:
                subprocess.run(["umount", disk], check=True)
        # A limit on the size of files fails in the same places, and needs no privilege.
        for name in ("out.safetensors", "out.mlx", "out"):
            limited = f"ulimit -f 500; exec {build_dir}/ballast convert {tmp_path}/in.safetensors {disk}/{name} --dtype bf16"
            message = one_error_line(subprocess.run(["bash", "-c", limited], capture_output=True, text=True), 4)
            assert "File too large" in message
            assert listing(disk) == []

    def test_usage(self, run, source, tmp_path):
        for options, expected in (
            (["--dtype", "f31"], "--dtype: unknown dtype 'f31'"),
            (["--max-shard-size", "5 apples"], "--max-shard-size: '5 apples' is not a size"),
            (["--max-shard-size", "1MB"], "--max-shard-size needs a directory as output"),
            (["--format", "mlx-json"], "the suffix means safetensors"),
            (["--rename", "x"], "expected FROM=TO"),
            (["--metadata", "nope"], "expected KEY=VALUE"),
        ):
            assert expected in one_error_line(run("convert", source, tmp_path / "out.safetensors", *options), 2)


class TestInterruptions:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ctrl_c_leaves_nothing(self, build_dir, tmp_path, number):
        with open(tmp_path / "in.safetensors", "wb") as file:
            start = file.write(prefix({"t": {"dtype": "F32", "shape": [2**29], "data_offsets": [0, 2**31]}}))
            file.truncate(start + 2**31)
        command = [build_dir / "ballast", "convert", tmp_path / "in.safetensors", tmp_path / "out.safetensors", "--dtype", "f64"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_for_bytes(process, "wchar", 16 << 20)
            process.send_signal(number)
            out, err = process.communicate()
        assert process.returncode == 130 and out == "", err
        assert listing(tmp_path) == ["in.safetensors"]

    def test_killed_at_any_moment_the_target_is_old_or_new(self, build_dir, tmp_path):
        old = {f"t{i}": np.full((64, 1024), i, np.float32) for i in range(24)}
        save_file(old, tmp_path / "in.safetensors")
        for target, options in (("out.safetensors", []), ("out", ["--max-shard-size", "1MB"])):
            command = [build_dir / "ballast", "convert", tmp_path / "in.safetensors", tmp_path / target, *options]
            subprocess.run(command, check=True, capture_output=True)
            last = {call: count_calls([*command, "--dtype", "f16"], call) for call in ("pwrite64", "fsync")}
            last |= {"renameat2": 1, "linkat": 1, "openat": 40}
            states = set()
            for i, (call, number) in enumerate((call, number) for call in last for number in spread(last[call], 20)):
                signal_at([*command, "--dtype", ("f32", "bf16", "f16")[i % 3]], call, number)
                states.add(self.whole_model(tmp_path / target))
            assert len(states) > 1  # some runs came through
            subprocess.run([*command, "--dtype", "f64"], check=True, capture_output=True)
            assert self.whole_model(tmp_path / target) == "float64"

    def test_a_killed_run_is_taken_up_again(self, run, build_dir, tmp_path):
        save_file({f"t{i}": RNG.standard_normal((1024, 4096)).astype(np.float32) for i in range(16)}, tmp_path / "in.safetensors")
        command = [build_dir / "ballast", "convert", tmp_path / "in.safetensors", tmp_path / "out", "--dtype", "bf16"]
        options = ["--max-shard-size", "40MB", "--resume"]
        for number in (3, 5, 7):
            assert signal_at([*command, *options, "--threads", "1"], "pwrite64", number) == -signal.SIGKILL
        done(run(*command[1:], *options))
        done(run(*command[1:3], tmp_path / "whole", *command[4:], *options[:2]))
        assert listing(tmp_path) == ["in.safetensors", "out", "whole"]
        assert listing(tmp_path / "out") == listing(tmp_path / "whole")
        for name in listing(tmp_path / "out"):
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

    @staticmethod
    def whole_model(target):
        """The one dtype of all 24 tensors, whose values must be right."""
        found = {}
        for path in [target] if target.is_file() else sorted(target.glob("*.safetensors")):
            found.update(read(path))
        assert len(found) == 24
        for i in range(24):
            assert (found[f"t{i}"].astype(np.float32) == i).all()
        (dtype,) = {array.dtype.name for array in found.values()}
        return dtype

    def test_memory_stays_within_the_limit(self, build_dir, tmp_path):
        size = 2**30
        header = {f"t{i}": {"dtype": "F32", "shape": [size // 16], "data_offsets": [i * size // 4, (i + 1) * size // 4]} for i in range(4)}
        with open(tmp_path / "in.safetensors", "wb") as file:
            start = file.write(prefix(header))
            file.truncate(start + size)
        command = [build_dir / "ballast", "convert", tmp_path / "in.safetensors", tmp_path / "out.safetensors", "--dtype", "bf16"]
        peak = peak_memory(command)
        assert 2**20 < peak < 384 * 2**20, peak


class TestDiff:
    def test_the_same_tensors_in_other_files_are_equal(self, run, tiny, sharded):
        result = done(run("diff", tiny, tiny))
        assert result.stdout == f"{tiny} and {tiny}: equal  (46 tensors)\n"

    def test_differences_have_figures(self, run, tmp_path):
        a = {"same": np.ones(3, np.float32), "gone": np.ones(1, np.int8), "v": np.zeros(5000, np.float32), "d": np.ones(2, np.float32),
             "s": np.ones((2, 3), np.float32), "zero": np.array([0.0], np.float32), "nan": np.array([np.nan], np.float32)}  # fmt: skip
        b = dict(a, d=np.float16([1, 2]), s=np.ones((3, 2), np.float32), new=np.ones(1, np.int8), zero=-a["zero"])
        b["v"] = a["v"].copy()
        b["v"][4321] = -0.25
        b["v"][4999] = 3
        del b["gone"]
        save_file(a, tmp_path / "a.safetensors", metadata={"k": "1"})
        save_file(b, tmp_path / "b.safetensors", metadata={"k": "2"})
        result = run("diff", tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--json")
        assert result.returncode == 1 and result.stderr == ""
        document = json.loads(result.stdout)
        assert document["equal"] is False and document["same"] == 2
        assert document["only_in_a"] == ["gone"] and document["only_in_b"] == ["new"] and document["metadata"] == ["k"]
        changed = {tensor["name"]: tensor for tensor in document["changed"]}
        assert changed["v"]["different_values"] == 2 and changed["v"]["first_difference"] == 4321 and changed["v"]["max_difference"] == 3
        assert changed["d"]["dtype"] == ["F32", "F16"] and changed["d"]["different_values"] == 1 and changed["d"]["max_difference"] == 1
        assert changed["s"]["shape"] == [[2, 3], [3, 2]] and "values" not in changed["s"]
        assert changed["zero"]["different_values"] == 1 and changed["zero"]["max_difference"] == 0
        text = run("diff", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
        assert text.returncode == 1
        assert re.search(r"^ +v +F32 +\[5000\] +2 +5,000 +3$", text.stdout, re.M), text.stdout
        assert re.search(r"^ +d +F32 → F16 +\[2\] +1 +2 +1$", text.stdout, re.M), text.stdout

    def test_missing_input(self, run, tiny, tmp_path):
        assert "No such file" in one_error_line(run("diff", tiny, tmp_path / "none.safetensors"), 3)


class TestExtract:
    def extract(self, build_dir, *arguments):
        result = subprocess.run([build_dir / "ballast", "extract", *arguments], capture_output=True)
        assert result.returncode == 0, result.stderr
        return np.load(io.BytesIO(result.stdout))

    def test_every_dtype(self, build_dir, source, tmp_path):
        for name, array in arrays().items():
            found = self.extract(build_dir, source, name)
            expected = array.astype(np.float32) if array.dtype.name.startswith(("bfloat", "float8")) else array
            assert found.dtype == expected.dtype and found.shape == expected.shape, name
            assert np.array_equal(found, expected, equal_nan=True), name

    @pytest.mark.parametrize("slices", ["0:10,:", "::-3", "5:5", ":,2:4", "-7:,::-1", "::2,1:2"])
    def test_slices_as_numpy_takes_them(self, build_dir, tmp_path, slices):
        array = RNG.standard_normal((1000, 7)).astype(np.float32)
        wide = RNG.standard_normal((300, 40_000)).astype(np.float16)  # more than a piece
        save_file({"t": array, "wide": wide}, tmp_path / "in.safetensors")
        index = eval(f"np.s_[{slices}]")
        assert np.array_equal(self.extract(build_dir, tmp_path / "in.safetensors", "t", "--slice", slices), array[index])
        assert np.array_equal(self.extract(build_dir, tmp_path / "in.safetensors", "wide", "--slice", slices), wide[index])

    def test_to_a_file(self, run, source, tmp_path):
        assert run("extract", source, "bf16", "-o", tmp_path / "t.npy").stderr == "note: NumPy has no BF16; values are written as F32\n"
        assert np.load(tmp_path / "t.npy").dtype == np.float32
        message = one_error_line(run("extract", source, "nope", "-o", tmp_path / "u.npy"), 3)
        assert message == f"{source}: no tensor 'nope' among {len(read(source))}"
        assert "--slice" in one_error_line(run("extract", source, "f32", "--slice", "a:b", "-o", tmp_path / "u.npy"), 2)
        assert listing(tmp_path) == ["in.safetensors", "t.npy"]

    def test_replaces_npy_files_only(self, run, source, tmp_path):
        for old in (b"", b"\x93NUMPY of another tensor"):
            (tmp_path / "t.npy").write_bytes(old)
            done(run("extract", source, "f32", "-o", tmp_path / "t.npy"))
        before = source.read_bytes()
        message = one_error_line(run("extract", source, "f32", "-o", source), 4)
        assert message == f"{source}: the file exists and is not a .npy file; choose another name, or replace it (--force)"
        (tmp_path / "short").write_bytes(b"\x93")
        assert "(--force)" in one_error_line(run("extract", source, "f32", "-o", tmp_path / "short"), 4)
        assert source.read_bytes() == before and (tmp_path / "short").read_bytes() == b"\x93"
        done(run("extract", source, "f32", "-o", tmp_path / "short", "--force"))
        assert np.array_equal(np.load(tmp_path / "short"), arrays()["f32"], equal_nan=True)


class TestMetadata:
    def test_shows_sets_and_unsets(self, run, source):
        data = {name: array.tobytes() for name, array in read(source).items()}
        assert run("metadata", source).stdout == "format = pt\n"
        result = done(run("metadata", source, "--set", "license=apache-2.0", "--set", "note=a\tb", "--unset", "format"))
        assert result.stdout == "license = apache-2.0\nnote = a\\tb\n"
        assert "replaced by a new file" in result.stderr
        inode = source.stat().st_ino
        result = done(run("metadata", source, "--set", "note=x", "--json"))
        assert json.loads(result.stdout)["metadata"] == {"license": "apache-2.0", "note": "x"}
        assert source.stat().st_ino == inode
        with safe_open(source, "numpy") as file:
            assert file.metadata() == {"license": "apache-2.0", "note": "x"}
        assert {name: array.tobytes() for name, array in read(source).items()} == data
        assert listing(source.parent) == ["in.safetensors"]

    def test_refusals(self, run, source, tiny):
        assert "no metadata key 'x' to unset" in one_error_line(run("metadata", source, "--unset", "x"), 2)
        assert "a .safetensors file only, one at a time" in one_error_line(run("metadata", tiny, "--set", "a=b"), 2)

    def test_any_valid_header_can_be_edited(self, run, tmp_path):
        """Odd spacing, escapes, metadata in any place: only the metadata changes, whichever way the file is written."""
        ways = set()
        for seed in range(150):
            rng = random.Random(f"edit/{seed}")
            draft = random_draft(rng)
            space = rng.choice([lambda: "", lambda: rng.choice(["", " ", "\n", "\t\r "])])
            text = write(rng, draft.header, space).encode() + b" " * rng.choice([0, 7, 500])
            path = tmp_path / "m.safetensors"
            path.write_bytes(prefix(text) + draft.data)
            before = deserialize(path.read_bytes())
            metadata = json.loads(run("metadata", path, "--json").stdout)["metadata"]
            edits = []
            for key in [key for key in metadata if "\0" not in key and rng.random() < 0.5]:
                edits += ["--unset", key]
                del metadata[key]
            for _ in range(rng.randint(0, 2)):
                key, value = rng.choice(["k", "é\n", "weight"]), rng.choice(["", "v", "x" * 300])
                edits += ["--set", f"{key}={value}"]
                metadata[key] = value
            if not edits:
                continue
            ways.add(done(run("metadata", path, *edits)).stderr.split(": ")[1].split("\n")[0])
            assert sorted(deserialize(path.read_bytes()), key=lambda t: t[0]) == sorted(before, key=lambda t: t[0]), seed
            with safe_open(path, "numpy") as file:
                assert (file.metadata() or {}) == metadata, seed
        assert ways >= {"changed in place", "replaced by a new file"}
