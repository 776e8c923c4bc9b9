"""quantize run after run: the same bytes whatever the threads, and after any number of runs that were killed on the way."""

import json
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
from processes import count_calls, kill_when_noted, peak_memory, signal_at, spread, wait_for_bytes
from quantized_files import contents, done, gauss, listing, quantize
from safetensors.numpy import save_file
from safetensors_bytes import data_start, prefix

FORMATS = ("parquet", "mlx")


def write_zeros(path, tensors):
    """A file of zeros that takes no space."""
    header, end = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    with open(path, "wb") as file:
        start = file.write(prefix(header))
        file.truncate(start + end)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("runs") / "in"
    folder.mkdir()
    tensors = {f"layers.{i}.weight": gauss(rng, 768, 1024) for i in range(6)}
    tensors |= {"large.weight": gauss(rng, 5000, 1024), "layers.0.norm.weight": gauss(rng, 1024)}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "x"}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize("format", FORMATS)
class TestSameBytes:
    def test_threads_and_memory_do_not_change_them(self, run, model, tmp_path, format):
        reports, outputs = [], []
        for options in (["--threads", 1], ["--threads", 2], ["--threads", 8], ["--threads", 8, "--memory-limit", 64], ["--resume"]):
            reports.append(quantize(run, model, tmp_path / "out", "--format", format, "--bits", 3, *options))
            outputs.append(contents(tmp_path / "out"))
            shutil.rmtree(tmp_path / "out")
        assert all(output == outputs[0] for output in outputs)
        for report in reports:
            assert report["layers"] == reports[0]["layers"]

    def test_killed_at_any_moment_and_taken_up_again(self, build_dir, run, model, tmp_path, format):
        quantize(run, model, tmp_path / "whole", "--format", format)
        expected = contents(tmp_path / "whole")
        out = tmp_path / "out"
        command = [build_dir / "ballast", "quantize", model, out, "--format", format, "--resume"]
        last = count_calls([*command[:3], tmp_path / "counted", *command[4:], "--threads", "1"], "pwrite64")
        shutil.rmtree(tmp_path / "counted")
        for threads in (1, 2):
            for number in spread(last, 10):
                code = signal_at([*command, "--threads", threads], "pwrite64", number)
                assert threads == 2 or code == -signal.SIGKILL
                if out.exists():
                    assert contents(out) == expected
                    shutil.rmtree(out)
                elif number % 2:
                    done(run(*command[1:]))
                    assert contents(out) == expected
                    shutil.rmtree(out)
        done(run(*command[1:]))
        assert contents(out) == expected
        assert listing(tmp_path) == ["out", "whole"]

    @pytest.mark.parametrize("before", ["nothing", "a model", "a folder"])
    def test_killed_while_it_is_put_in_place(self, build_dir, run, tiny, tmp_path, format, before):
        options = ["--format", format, "--group-size", 64]
        quantize(run, tiny, tmp_path / "whole", *options)
        expected = contents(tmp_path / "whole")
        out, killed = tmp_path / "out", 0
        if before == "a folder":
            expected["README.md"] = b"x"
        for call in ("linkat:1", "linkat:4", "rename:1", "renameat2:1", "unlink:1", "rmdir:1", "unlinkat:2", "fsync:7", "fsync:8"):
            if before == "a model":
                quantize(run, tiny, out, *options, "--bits", 8)
            if before == "a folder":
                out.mkdir()
                (out / "README.md").write_text("x")
            name, number = call.split(":")
            force = ["--force"] if before == "a folder" else []
            command = [build_dir / "ballast", "quantize", tiny, out, *options, *force, "--resume"]
            killed += signal_at(command, name, number) == -signal.SIGKILL
            done(run(*command[1:]))
            assert listing(tmp_path) == ["out", "whole"], call
            assert contents(out) == expected, call
            shutil.rmtree(out)
        assert killed >= 4

    def test_killed_without_resume_the_old_directory_stays(self, build_dir, run, model, tmp_path, format):
        out = tmp_path / "out"
        quantize(run, model, out, "--format", format, "--bits", 8)
        old = contents(out)
        command = [build_dir / "ballast", "quantize", model, out, "--format", format, "--bits", "4"]
        last = count_calls([*command[:3], tmp_path / "new", *command[4:], "--threads", "1"], "pwrite64")
        states = (old, contents(tmp_path / "new"))
        shutil.rmtree(tmp_path / "new")
        for number in spread(last, 8):
            assert signal_at([*command, "--threads", "1"], "pwrite64", number) == -signal.SIGKILL
            assert contents(out) in states
            # Nothing has a name before the last moment; what is left then goes with the next run.
            assert all(re.fullmatch(r"out|\.ballast-\w{16}-out", name) for name in listing(tmp_path))
        done(run(*command[1:]))
        assert contents(out) == states[1] and listing(tmp_path) == ["out"]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ctrl_c(self, build_dir, run, tmp_path, format, number):
        write_zeros(tmp_path / "in.safetensors", {f"{i}.weight": ("F32", [2**14, 2**12], 2**28) for i in range(16)})
        for options, left in (([], []), (["--resume"], ["out.incomplete"])):
            command = [build_dir / "ballast", "quantize", tmp_path / "in.safetensors", tmp_path / "out", "--format", format, "--method", "search", *options]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                wait_for_bytes(process, "rchar", 64 << 20)
                process.send_signal(number)
                out, err = process.communicate()
            assert process.returncode == 130 and out == "", err
            assert listing(tmp_path) == ["in.safetensors", *left]


class TestResume:
    def test_finished_output_is_left_alone(self, run, model, tmp_path):
        for format in FORMATS:
            out = tmp_path / format
            first = quantize(run, model, out, "--format", format, "--resume")
            before = {file.name: (file.stat().st_ino, file.stat().st_mtime_ns, file.read_bytes()) for file in out.iterdir()}
            again = quantize(run, model, out, "--format", format, "--resume", "--threads", 1)
            text = done(run("quantize", model, out, "--format", format, "--resume")).stdout
            assert "already up to date" in text
            assert {file.name: (file.stat().st_ino, file.stat().st_mtime_ns, file.read_bytes()) for file in out.iterdir()} == before
            for layer in first["layers"] + again["layers"]:
                del layer["method"]  # which the files do not tell
            for key in first.keys() - {"quantization_time_s", "validated"}:
                assert again[key] == first[key], key
        assert listing(tmp_path) == sorted(FORMATS)

    def test_finished_output_that_was_damaged_is_made_again(self, run, tiny, tmp_path):
        for format in FORMATS:
            out, options = tmp_path / format, ["--format", format, "--group-size", 64, "--resume"]
            quantize(run, tiny, out, *options)
            before = contents(out)
            (weights,) = [name for name in before if name.endswith((".parquet", ".safetensors"))]
            for damage in (lambda file: os.truncate(file, 1000), os.unlink):
                damage(out / weights)
                quantize(run, tiny, out, *options)
                assert contents(out) == before
        assert listing(tmp_path) == sorted(FORMATS)

    def test_other_settings_or_another_source_are_other_work(self, run, model, tmp_path):
        source = tmp_path / "in.safetensors"
        shutil.copy(model / "model.safetensors", source)
        for format in FORMATS:
            out, options = tmp_path / format, ["--format", format, "--resume"]
            four = quantize(run, source, out, *options)
            eight = quantize(run, source, out, *options, "--bits", 8)
            assert {layer["bits"] for layer in eight["layers"]} == {8} and eight["bytes"] > four["bytes"]
            other = bytearray(source.read_bytes())
            other[-100_000:] = bytes(100_000)
            source.write_bytes(other)
            os.utime(source, (1, 1))
            changed = quantize(run, source, out, *options, "--bits", 8)
            assert changed["layers"] != eight["layers"]
            shutil.copy(model / "model.safetensors", source)

    def test_a_finished_part_is_not_made_again(self, build_dir, run, tmp_path):
        tensors = {f"{i}.bias": ("U8", [2**26], 2**26) for i in range(5)}
        write_zeros(tmp_path / "in.safetensors", tensors | {"z.weight": ("F32", [2**14, 2**12], 2**28)})
        out, part = tmp_path / "out", "model-00001-of-00002.parquet"
        self.break_off(build_dir, tmp_path, ["--format", "parquet"])
        first = (tmp_path / "out.incomplete" / part).stat()
        quantize(run, tmp_path / "in.safetensors", out, "--resume")
        assert ((out / part).stat().st_ino, (out / part).stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
        quantize(run, tmp_path / "in.safetensors", tmp_path / "whole")
        assert contents(out) == contents(tmp_path / "whole")
        assert listing(tmp_path) == ["in.safetensors", "out", "whole"]

    def test_finished_bytes_are_not_written_again(self, build_dir, run, tmp_path):
        tensors = {f"{i}.bias": ("U8", [2**26], 2**26) for i in range(5)}
        write_zeros(tmp_path / "in.safetensors", tensors | {"z.weight": ("F32", [2**14, 2**12], 2**28)})
        self.break_off(build_dir, tmp_path, ["--format", "mlx"])
        shard = tmp_path / "out.incomplete/model.safetensors"
        with open(shard, "r+b") as file:
            start = data_start(file.read(8))
            header = json.loads(file.read(start - 8))
            marked = start + header["0.bias"]["data_offsets"][0]
            file.seek(marked)
            file.write(b"x")
        quantize(run, tmp_path / "in.safetensors", tmp_path / "out", "--format", "mlx", "--resume")
        with open(tmp_path / "out/model.safetensors", "r+b") as file:
            file.seek(marked)
            assert file.read(1) == b"x"
            file.seek(marked)
            file.write(b"\0")
        quantize(run, tmp_path / "in.safetensors", tmp_path / "whole", "--format", "mlx")
        assert contents(tmp_path / "out") == contents(tmp_path / "whole")

    @staticmethod
    def break_off(build_dir, tmp_path, options):
        command = [build_dir / "ballast", "quantize", tmp_path / "in.safetensors", tmp_path / "out", "--resume", *options]
        journal = tmp_path / "out.incomplete/journal"
        kill_when_noted(command, journal)


@pytest.mark.parametrize("format", FORMATS)
def test_memory_stays_within_the_limit(build_dir, tmp_path, format):
    write_zeros(tmp_path / "in.safetensors", {f"{i}.weight": ("BF16", [2**15, 2**12], 2**28) for i in range(4)})
    command = [build_dir / "ballast", "quantize", tmp_path / "in.safetensors", tmp_path / "out", "--format", format, "--method", "rtn"]
    peak = peak_memory([*command, "--no-sync"])
    assert 2**20 < peak < 384 * 2**20, peak
