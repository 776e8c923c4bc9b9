"""ballast.evaluate, ballast.calibrate and calibration_tokens, with token ids and with text."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import ballast
import numpy as np
import pytest
from ballast._tokenizer import ids_of_text
from conftest import one_error_line
from range_server import RangeServer
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

IDS = np.random.default_rng(1).integers(0, 256, (4, 32), dtype=np.int32)
TEXT = "the quick brown fox jumps over the lazy dog and runs away from the quick red fox\n" * 4


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("--preset", "tiny", "--set", "vocab_size=256", "--values", "outliers", "--dtype", "f32")


def write_tokenizer(folder, template="<s> $A </s>"):
    """A tokenizer of words, with a post-processor that adds special tokens."""
    words = ["<unk>", "<s>", "</s>", *sorted(set(TEXT.split()))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.enable_truncation(8)
    tokenizer.save(str(folder / "tokenizer.json"))
    return [words.index(word) for word in TEXT.split()]


@pytest.fixture
def with_text(model, tmp_path):
    """A model with a tokenizer, a text, and its token ids."""
    folder = shutil.copytree(model, tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT)
    return folder, tmp_path / "text.txt", [1, *write_tokenizer(folder)]


class TestEvaluate:
    def test_report_has_what_the_program_prints(self, model, run, tmp_path):
        np.save(tmp_path / "ids.npy", IDS)
        quantized = tmp_path / "q"
        ballast.quantize(model, quantized, bits=4, format="mlx", group_size=64, sync=False)
        report = ballast.evaluate(quantized, tokens=IDS, against=model)
        printed = json.loads(run("evaluate", quantized, "--tokens", tmp_path / "ids.npy", "--against", model, "--json").stdout)
        found = asdict(report)
        against = found.pop("against")
        assert {name: found[name] for name in found if name != "warnings"} == {name: printed[name] for name in found if name != "warnings"}
        assert against["perplexity"] == printed["original_perplexity"] and against["layer_errors"] == printed["layer_errors"]
        assert len(against["kl"]) == report.tokens == 4 * 31 and np.mean(against["kl"]) == pytest.approx(printed["kl_mean"])
        assert repr(report).startswith("EvaluateReport(perplexity ") and "top-1 agreement" in repr(report)
        assert "<table>" in report._repr_html_()

    def test_files_and_arrays_are_the_same_tokens(self, model, tmp_path):
        np.save(tmp_path / "ids.npy", IDS)
        ballast.save({"ids": IDS}, tmp_path / "ids.safetensors")
        expected = ballast.evaluate(model, tokens=IDS)
        for tokens in (tmp_path / "ids.npy", str(tmp_path / "ids.safetensors"), IDS.tolist(), IDS.astype(np.uint64), IDS.astype(">i8"), np.asfortranarray(IDS)):
            assert ballast.evaluate(model, tokens=tokens) == expected

    def test_one_dimension_is_cut_into_windows(self, model):
        report = ballast.evaluate(model, tokens=range(100), length=30)
        assert (report.windows, report.length, report.tokens, report.unused_tokens) == (3, 30, 87, 10)

    def test_open_models_are_taken(self, model, tmp_path):
        ballast.quantize(model, tmp_path / "q", bits=4, format="mlx", group_size=64, sync=False)
        with ballast.open(model) as original, ballast.open(tmp_path / "q", decode=True) as small:
            assert ballast.evaluate(original, tokens=IDS).perplexity == ballast.evaluate(model, tokens=IDS).perplexity
            assert ballast.evaluate(small, tokens=IDS, against=original).against.kl_mean > 0

    def test_open_model_with_stored_codes_is_refused(self, model, tmp_path):
        ballast.quantize(model, tmp_path / "q", bits=4, format="mlx", group_size=64, sync=False)
        with ballast.open(tmp_path / "q") as stored, pytest.raises(ballast.UnsupportedError, match="is already quantized"):
            ballast.evaluate(stored, tokens=IDS)

    def test_progress_and_cancellation(self, model):
        seen = []
        ballast.evaluate(model, tokens=IDS, progress=lambda *call: seen.append(call))
        assert seen[-1][0] == seen[-1][1] and [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
        with pytest.raises(ballast.CancelledError):
            ballast.evaluate(model, tokens=IDS, progress=lambda *call: False)

    def test_runs_in_event_loops(self, model):
        assert asyncio.run(ballast.evaluate_async(model, tokens=IDS)) == ballast.evaluate(model, tokens=IDS)

    def test_interrupt_ends_the_work(self, model, tmp_path):
        """Sent by the progress callback, so that the work has begun."""
        code = f"""
import os, signal, threading
import ballast, numpy as np
sent = threading.Event()
def interrupt(done, total, name):
    if not sent.is_set():
        sent.set()
        os.kill(os.getpid(), signal.SIGINT)
try:
    ballast.evaluate({str(model)!r}, tokens=np.zeros((2000, 64), int), progress=interrupt)
except KeyboardInterrupt:
    print("interrupted")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "interrupted\n", done.stderr

    @pytest.mark.parametrize(
        "tokens, kind, message",
        [(None, ballast.ArgumentError, "give tokens or text, one of them is needed"),
         ([[1, 2], [3]], ballast.ArgumentError, "tokens has rows of different lengths"),
         ([1.5, 2], TypeError, "tokens must be a path or an array of integers, not float64"),
         ({1: 2}, TypeError, "tokens must be a path or an array of integers, not dict"),
         ([True, False], TypeError, "not bool"),
         ([1, -2], ballast.ArgumentError, "tokens has -2, which is not a token id"),
         ([1, 2**32], ballast.ArgumentError, "tokens has 4294967296, which is not a token id"),
         ([], ballast.CorruptError, "<tokens>: 0 tokens; at least 2 are needed"),
         ([[[1, 2]]], ballast.UnsupportedError, r"<tokens>: shape \[1, 1, 2\]; token ids have one or two dimensions"),
         ([1, 256], ballast.CorruptError, "<tokens>: token 1 is 256, but the model has a vocabulary of 256"),
         ("no.npy", ballast.MissingError, "no.npy"),
         (7, TypeError, "tokens must be a path or an array of integers, not int")],
    )  # fmt: skip
    def test_wrong_tokens(self, model, tokens, kind, message):
        with pytest.raises(kind, match=message):
            ballast.evaluate(model, tokens=tokens)

    def test_wrong_models(self, model, tmp_path):
        with pytest.raises(TypeError, match="model must be a path or an open model, not dict"):
            ballast.evaluate({}, tokens=IDS)
        with pytest.raises(TypeError, match="against must be a path or an open model, not int"):
            ballast.evaluate(model, tokens=IDS, against=3)
        with ballast.open(model) as opened, pytest.raises(ballast.ArgumentError, match="variant is 'fp16', but the model is already open"):
            ballast.evaluate(opened, tokens=IDS, variant="fp16")


class TestCalibrate:
    def test_statistics_are_those_of_the_program(self, model, run, tmp_path):
        np.save(tmp_path / "ids.npy", IDS)
        report = ballast.calibrate(model, tmp_path / "a.safetensors", tokens=IDS, hessian=True)
        assert run("calibrate", model, "-o", tmp_path / "b.safetensors", "--tokens", tmp_path / "ids.npy", "--hessian").returncode == 0
        assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
        assert report.bytes == (tmp_path / "a.safetensors").stat().st_size and report.windows == 4 and report.resumed_layers == 0
        assert repr(report).startswith(f"CalibrateReport('{tmp_path / 'a.safetensors'}', 28 weights, 128 tokens, ")

    def test_samples_are_spread(self, model, tmp_path):
        report = ballast.calibrate(model, tmp_path / "a.safetensors", tokens=IDS, samples=2)
        ballast.calibrate(model, tmp_path / "b.safetensors", tokens=IDS[::2])
        assert report.windows == 2
        assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()

    def test_quantize_takes_them(self, model, tmp_path):
        ballast.calibrate(model, tmp_path / "s.safetensors", tokens=IDS)
        report = ballast.quantize(model, tmp_path / "q", bits=3, format="mlx", group_size=64, calibration=tmp_path / "s.safetensors", sync=False)
        assert report.calibration.covered == 28


class TestQuantize:
    OPTIONS = {"bits": 3, "format": "mlx", "group_size": 64, "sync": False}

    def test_tokens_calibrate(self, model, run, tmp_path):
        np.save(tmp_path / "ids.npy", IDS)
        report = ballast.quantize(model, tmp_path / "a", calibration_tokens=IDS, **self.OPTIONS)
        assert report.calibration.covered == 28
        command = ["quantize", model, tmp_path / "b", "--bits", 3, "--format", "mlx", "--group-size", 64]
        assert run(*command, "--calibration-tokens", tmp_path / "ids.npy").returncode == 0
        first, second = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
        assert all(np.array_equal(first[name], second[name]) for name in first)

    def test_text_calibrates(self, with_text, tmp_path):
        folder, text, ids = with_text
        ballast.quantize(folder, tmp_path / "a", calibration_text=text, **self.OPTIONS)
        ballast.quantize(folder, tmp_path / "b", calibration_tokens=ids, **self.OPTIONS)
        assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()

    @pytest.mark.parametrize("given", [{"calibration_text": "t"}, {"calibration": "s"}])
    def test_only_one_calibration(self, model, tmp_path, given):
        with pytest.raises(ballast.ArgumentError, match="calibration.*calibration_t"):
            ballast.quantize(model, tmp_path / "q", calibration_tokens=IDS, **given)


class TestText:
    def test_text_is_its_ids(self, with_text):
        folder, text, ids = with_text
        assert ballast.evaluate(folder, text=text, length=16) == ballast.evaluate(folder, tokens=ids, length=16)
        assert list(ids_of_text(folder / "model.safetensors", str(text))) == ids
        with ballast.open(folder) as opened:
            assert ballast.evaluate(opened, text=text, length=16) == ballast.evaluate(folder, tokens=ids, length=16)

    @pytest.mark.parametrize("template", ["$A", "$A </s>", None])
    def test_only_a_leading_special_token_is_added(self, with_text, template):
        folder, text, _ = with_text
        ids = write_tokenizer(folder, template)
        assert ballast.evaluate(folder, text=text, length=16) == ballast.evaluate(folder, tokens=ids, length=16)

    def test_tokenizer_of_a_remote_model(self, with_text):
        folder, text, ids = with_text
        with RangeServer({f"/m/{path.name}": path.read_bytes() for path in folder.iterdir()}) as server:
            uri = f"{server.url}/m/model.safetensors"
            assert list(ids_of_text(uri, text)) == ids
            with pytest.raises(ballast.UnsupportedError, match="tokenizer.json cannot be found beside a URI with a query"):
                ids_of_text(uri + "?token=secret", text)

    def test_model_without_a_tokenizer(self, with_text):
        (with_text[0] / "tokenizer.json").unlink()
        with pytest.raises(ballast.MissingError, match="tokenizer.json: no such file; text needs the model's tokenizer"):
            ballast.evaluate(with_text[0], text=with_text[1])

    def test_tokenizer_that_cannot_be_read(self, with_text):
        folder, text, _ = with_text
        (folder / "tokenizer.json").write_text("{}")
        with pytest.raises(ballast.UnsupportedError, match="tokenizer.json: tokenizers cannot read it: "):
            ballast.evaluate(folder, text=text)

    def test_without_tokenizers(self, with_text, monkeypatch):
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(ImportError, match=r"text needs the package tokenizers; install it: pip install 'ballast\[text\]'"):
            ballast.evaluate(with_text[0], text=with_text[1])

    def test_wrong_texts(self, with_text, tmp_path):
        folder, text, _ = with_text
        text.write_bytes(b"the fox \xff")
        with pytest.raises(ballast.CorruptError, match="text.txt: byte 8 is not UTF-8"):
            ballast.evaluate(folder, text=text)
        with pytest.raises(ballast.MissingError, match="none.txt: no such file"):
            ballast.evaluate(folder, text=tmp_path / "none.txt")
        with pytest.raises(ballast.ArgumentError, match="give tokens or text, not both"):
            ballast.evaluate(folder, text=text, tokens=IDS)
        with pytest.raises(ballast.ArgumentError, match="the model is in memory"):
            ballast.evaluate(ballast.from_bytes(ballast.serialize({"a": IDS})), text=text)


@pytest.fixture
def command():
    def command(*arguments, **options):
        return subprocess.run([sys.executable, "-m", "ballast", *map(str, arguments)], capture_output=True, text=True, **options)

    return command


class TestCommand:
    def test_text_is_tokenized(self, with_text, command, run, tmp_path):
        folder, text, ids = with_text
        np.save(tmp_path / "ids.npy", np.array(ids))
        expected = run("evaluate", folder, "--tokens", tmp_path / "ids.npy", "--length", 16)
        assert expected.returncode == 0 and "note: the last 5 tokens" in expected.stderr
        for arguments in (["--text", text], [f"--text={text}"]):
            done = command("evaluate", "--length", 16, *arguments, folder)
            assert (done.returncode, done.stdout, done.stderr) == (0, expected.stdout, expected.stderr)

    def test_other_commands(self, with_text, command, tmp_path):
        folder, text, _ = with_text
        assert command("calibrate", folder, "--text", text, "-o", tmp_path / "s.safetensors").returncode == 0
        done = command("quantize", "--calibration-text", text, "--bits", 4, "--input", folder, "--output", tmp_path / "q")
        assert done.returncode == 0, done.stderr
        assert ballast.verify(tmp_path / "q").ok

    def test_tokenizer_of_another_model(self, with_text, command):
        folder, text, _ = with_text
        content = json.loads((folder / "tokenizer.json").read_text())
        content["model"]["vocab"] = {word: 7000 + number for word, number in content["model"]["vocab"].items()}
        (folder / "tokenizer.json").write_text(json.dumps(content))
        line = one_error_line(command("evaluate", folder, "--text", text), 3)
        assert "text.txt: token 1 is 70" in line and "/dev/fd" not in line and "it was tokenized for another model" in line

    def test_nothing_stays_in_the_temporary_folder(self, with_text, command, tmp_path):
        (tmp_path / "tmp").mkdir()
        done = command("evaluate", with_text[0], "--text", with_text[1], env=os.environ | {"TMPDIR": str(tmp_path / "tmp")})
        assert done.returncode == 0 and list((tmp_path / "tmp").iterdir()) == []

    def test_signals_end_the_program(self, with_text, tmp_path):
        """The ids are in a file without a name, and the program is the process that the shell has started."""
        folder, text, _ = with_text
        text.write_text(TEXT * 2000)
        ends = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([sys.executable, "-m", "ballast", "evaluate", folder, "--text", text], stdout=-1, stderr=-1) as process:
                while Path(f"/proc/{process.pid}/comm").read_text() != "ballast\n":
                    assert process.poll() is None
                process.send_signal(number)
                process.communicate()
                ends[number] = process.returncode
        assert set(ends.values()) <= {130, -signal.SIGTERM, 143, -signal.SIGINT}, ends

    @pytest.mark.parametrize(
        "arguments, code, message",
        [(["--text", "none.txt"], 3, "none.txt: no such file"),
         (["--text", "empty.txt"], 3, "empty.txt: 1 tokens; at least 2 are needed"),
         (["--text"], 2, "--text"),
         (["--text", "text.txt", "--tokens", "ids.npy"], 2, "--tokens"),
         (["--text", "text.txt", "--no-such-option"], 2, "--no-such-option")],
    )  # fmt: skip
    def test_errors_are_those_of_the_program(self, with_text, command, tmp_path, arguments, code, message):
        (tmp_path / "empty.txt").touch()
        done = command("evaluate", with_text[0], *arguments, cwd=tmp_path)
        assert message in one_error_line(done, code)

    def test_without_tokenizers(self, with_text, command, tmp_path):
        (tmp_path / "tokenizers.py").write_text("raise ImportError")
        path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
        done = command("evaluate", with_text[0], "--text", with_text[1], env=os.environ | {"PYTHONPATH": path})
        assert "pip install 'ballast[text]'" in one_error_line(done, 2)
