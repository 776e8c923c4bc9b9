"""What is done to whole models from Python: progress, stopping, event loops, Arrow tables, settings."""

import asyncio
import concurrent.futures
import copy
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import redirect_stderr
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import ballast
import mlx.core as mx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ballast._arrow import tensors_of_arrow
from processes import wait_for_bytes
from quantized_files import figures, gauss, read_parquet, read_safetensors
from safetensors.numpy import save_file

PACKAGE = str(Path(ballast.__file__).parents[1])
SMALL = {"bit_width": 4, "group_size": 32, "sync": False}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(9)
    return {f"layers.{i}.weight": gauss(rng, 64, 64) for i in range(8)} | {"norm": gauss(rng, 64, dtype=np.float32)}


@pytest.fixture(scope="module")
def path(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("work") / "model.safetensors"
    save_file(arrays, path, {"modality": "text"})
    return path


@pytest.fixture(scope="module")
def quantized(path, tmp_path_factory):
    directory = tmp_path_factory.mktemp("work") / "q"
    ballast.quantize(path, directory, **SMALL)
    return directory


@pytest.fixture(scope="module")
def mlx(path, tmp_path_factory):
    directory = tmp_path_factory.mktemp("work") / "mlx"
    ballast.quantize(path, directory, format="mlx", **SMALL)
    return directory


def rows(directory):
    return sorted(
        (row for file in directory.glob("*.parquet") for row in pq.read_table(file).to_pylist()),
        key=lambda row: (row["layer_name"], row["block"]),
    )


WORK = {
    "load": lambda path, quantized, out, **options: ballast.open(path).load(**options),
    "save": lambda path, quantized, out, **options: ballast.save(ballast.open(path), out, sync=False, **options),
    "convert": lambda path, quantized, out, **options: ballast.convert(path, out, dtype="f32", sync=False, **options),
    "quantize": lambda path, quantized, out, **options: ballast.quantize(path, out, **SMALL, **options),
    "dequantize": lambda path, quantized, out, **options: ballast.dequantize(quantized, out, sync=False, **options),
    "validate": lambda path, quantized, out, **options: ballast.validate(path, quantized, **options),
    "verify": lambda path, quantized, out, **options: ballast.verify(path, values=True, **options),
    "verify quantized": lambda path, quantized, out, **options: ballast.verify(quantized, **options),
}


@pytest.fixture(params=WORK)
def work(request, path, quantized, tmp_path):
    return lambda **options: WORK[request.param](path, quantized, tmp_path / "out", **options)


class TestProgress:
    def test_bytes_grow_and_names_are_told(self, work):
        calls = []
        work(progress=lambda *call: calls.append(call))
        assert {tuple(map(type, call)) for call in calls} == {(int, int, str)}
        done = [done for done, _, _ in calls]
        assert done == sorted(done) and done[-1] > 0 and all(done <= total for done, total, _ in calls)

    def test_all_is_done_at_the_end(self, work):
        calls = []
        work(progress=lambda *call: calls.append(call))
        done, total, _ = calls[-1]
        assert done == total

    @pytest.mark.parametrize("options", [{"values": True}, {"sha256": True}, {"values": True, "sha256": True}])
    def test_verify_ends_at_its_total(self, tmp_path, options):
        arrays = {"a": np.ones(5, np.float32), "b": np.ones((3, 2))}
        ballast.save(arrays, tmp_path / "shards", max_shard_size=1, sync=False)
        calls = []
        ballast.verify(tmp_path / "shards", progress=lambda *call: calls.append(call), **options)
        assert calls[-1][0] == calls[-1][1] > 0

    def test_false_stops_at_every_call(self, work, tmp_path):
        calls = []
        work(progress=lambda *call: calls.append(call))
        for last in range(len(calls)):
            for path in tmp_path.iterdir():
                subprocess.run(["rm", "-r", path], check=True)
            seen = iter(range(last))
            with pytest.raises(ballast.CancelledError):
                work(progress=lambda *call: next(seen, None) is not None)
            assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_exceptions_stop_and_go_on(self, work, tmp_path, kind):
        def fail(done, total, what):
            raise kind(f"at {done}")

        with pytest.raises(kind, match=r"at \d+") as caught:
            work(progress=fail)
        assert any(entry.name == "fail" for entry in caught.traceback)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("answer", [None, True, 0, "", []])
    def test_nothing_but_false_stops(self, path, tmp_path, answer):
        ballast.quantize(path, tmp_path / "out", progress=lambda *_: answer, **SMALL)

    def test_false_of_numpy_stops_too(self, path, tmp_path):
        with pytest.raises(ballast.CancelledError):
            ballast.quantize(path, tmp_path / "out", progress=lambda *_: np.False_, **SMALL)
        ballast.quantize(path, tmp_path / "out", progress=lambda *_: np.True_, **SMALL)

    def test_true_draws_a_bar(self, path, tmp_path):
        with redirect_stderr(io.StringIO()) as drawn:
            ballast.quantize(path, tmp_path / "out", progress=True, **SMALL)
        assert "quantizing:" in drawn.getvalue()

    def test_a_bar_without_tqdm_is_an_import_error(self, path, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
        with pytest.raises(ImportError, match="progress=True needs tqdm: pip install tqdm"):
            ballast.quantize(path, tmp_path / "out", progress=True, **SMALL)

    @pytest.mark.parametrize("progress", [3, "yes", object()])
    def test_what_cannot_be_called_is_refused(self, work, progress):
        with pytest.raises(TypeError, match="progress must be a function, True or None"):
            work(progress=progress)


    def test_what_would_have_to_be_awaited_is_refused(self, work, tmp_path):
        async def later(*call):
            pass

        class Later:
            async def __call__(self, *call):
                pass

        for progress in (later, partial(later, 1), Later()):
            with pytest.raises(TypeError, match="progress must be a plain function, not an async one"):
                work(progress=progress)
        assert list(tmp_path.iterdir()) == []


class TestCtrlC:
    def interrupt(self, program, *arguments, ready=lambda process: None):
        """Run a program, interrupt it when it has printed a line and is ready, and return what else it printed."""
        program = textwrap.dedent(program)
        command = [sys.executable, "-c", program, *arguments]
        with subprocess.Popen(command, env={"PYTHONPATH": PACKAGE}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline()
            ready(process)
            process.send_signal(signal.SIGINT)
            printed, error = process.communicate()
        assert process.returncode == -signal.SIGINT and error.rstrip().endswith("KeyboardInterrupt"), error
        return printed

    def test_stops_work_that_is_watched(self, path, tmp_path):
        program = """
            import signal, sys, threading
            import ballast

            interrupted = threading.Event()

            def interrupt(number, frame):
                interrupted.set()
                raise KeyboardInterrupt

            def wait_for_the_signal(done, total, what):
                print(what, flush=True)
                interrupted.wait()

            signal.signal(signal.SIGINT, interrupt)
            ballast.quantize(sys.argv[1], sys.argv[2], bit_width=4, progress=wait_for_the_signal)
            print("done")
        """
        assert "done" not in self.interrupt(program, path, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    def test_stops_work_that_is_not_watched(self, tmp_path):
        rng = np.random.default_rng(0)
        one = gauss(rng, 512, 2048)
        large = tmp_path / "m.safetensors"
        save_file({f"layers.{i}.weight": one for i in range(64)}, large)
        program = """
            import sys
            import ballast

            print("begins", flush=True)
            ballast.quantize(sys.argv[1], sys.argv[2], bit_width=4, num_threads=1)
            print("done")
        """
        try:
            in_the_middle = partial(wait_for_bytes, kind="rchar", count=64 << 20)
            assert self.interrupt(program, large, tmp_path / "out", ready=in_the_middle) == ""
        finally:
            large.unlink()
        assert list(tmp_path.iterdir()) == []

    def test_stops_saving(self, tmp_path):
        program = """
            import sys
            import ballast, numpy as np

            one = np.linspace(0, 1, 1 << 20, dtype=np.float32)
            print("begins", flush=True)
            ballast.save({str(i): one for i in range(32)}, sys.argv[1], sync=False)
            print("done")
        """
        in_the_middle = partial(wait_for_bytes, kind="wchar", count=8 << 20)
        assert self.interrupt(program, tmp_path / "out.mlx", ready=in_the_middle) == ""
        assert list(tmp_path.iterdir()) == []


class TestAsync:
    def test_the_loop_goes_on_meanwhile(self, path, tmp_path):
        async def main():
            tick = threading.Event()

            def wait_for_the_loop(*_):
                assert tick.wait(60)
                tick.clear()

            work = asyncio.ensure_future(ballast.quantize_async(path, tmp_path / "out", progress=wait_for_the_loop, **SMALL))
            while not work.done():
                tick.set()
                await asyncio.sleep(0.001)
            return await work

        assert asyncio.run(main()) == ballast.quantize(path, tmp_path / "out", **SMALL)

    def test_all_have_the_results_of_the_others(self, path, quantized, tmp_path):
        async def main():
            return await asyncio.gather(
                ballast.convert_async(path, tmp_path / "a.safetensors", dtype="f32", sync=False),
                ballast.dequantize_async(quantized, tmp_path / "b.safetensors", sync=False),
                ballast.validate_async(path, quantized),
                ballast.verify_async(path, values=True),
                ballast.save_async(ballast.open(path), tmp_path / "c.safetensors", sync=False),
            )

        converted, dequantized, validated, verified, saved = asyncio.run(main())
        assert saved is None and ballast.open(tmp_path / "c.safetensors").keys() == ballast.open(path).keys()
        assert converted.converted == 8 and dequantized.tensors == 9
        assert validated == ballast.validate(path, quantized) and verified == ballast.verify(path, values=True)

    def test_cancelling_the_task_stops_the_work(self, path, tmp_path):
        calls = []
        cancelled = threading.Event()

        def wait_for_the_cancellation(*call):
            calls.append(call)
            assert cancelled.wait(60)

        async def main():
            work = asyncio.ensure_future(ballast.quantize_async(path, tmp_path / "out", progress=wait_for_the_cancellation, **SMALL))
            while not calls:
                await asyncio.sleep(0.001)
            work.cancel()
            asyncio.get_running_loop().call_later(0.01, cancelled.set)
            with pytest.raises(asyncio.CancelledError):
                await work
            seen = len(calls)
            await asyncio.sleep(0.1)
            assert len(calls) == seen  # it is over when the task is

        asyncio.run(main())
        assert list(tmp_path.iterdir()) == []

    def test_work_that_waits_for_a_thread_is_dropped_at_once(self, path, tmp_path):
        free = threading.Event()

        async def main():
            loop = asyncio.get_running_loop()
            loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
            busy = loop.run_in_executor(None, free.wait, 60)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ballast.quantize_async(path, tmp_path / "out", **SMALL), 0.05)
            assert not busy.done()
            free.set()
            await busy

        asyncio.run(main())
        assert list(tmp_path.iterdir()) == []

    def test_timeouts_are_those_of_asyncio(self, path, tmp_path):
        late = threading.Event()

        async def main():
            asyncio.get_running_loop().call_later(0.06, late.set)
            slow = ballast.convert_async(path, tmp_path / "out", dtype="f32", progress=lambda *_: late.wait(60), sync=False)
            await asyncio.wait_for(slow, 0.05)

        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(main())
        assert list(tmp_path.iterdir()) == []

    def test_errors_and_false_come_through(self, path, tmp_path):
        with pytest.raises(FileNotFoundError):
            asyncio.run(ballast.quantize_async(tmp_path / "none", tmp_path / "out"))
        with pytest.raises(ballast.CancelledError):
            asyncio.run(ballast.quantize_async(path, tmp_path / "out", progress=lambda *_: False, **SMALL))


class TestArrow:
    @pytest.fixture
    def columns(self):
        line = np.linspace(-1, 1, 256, dtype=np.float32)
        return {"layer_name": ["a", "b"], "weights": [line, line * 2], "shape": [[8, 32], [4, 2, 32]]}

    def quantize(self, table, directory):
        return ballast.quantize(table, directory, min_accuracy=0, **SMALL)

    def test_tables_come_to_what_arrays_come_to(self, columns, tmp_path):
        table = pa.table(columns)
        expected = {"a": columns["weights"][0].reshape(8, 32), "b": columns["weights"][1].reshape(4, 2, 32)}
        self.quantize(expected, tmp_path / "arrays")
        chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 1)])
        assert chunked.column("weights").num_chunks == 2
        sources = {"table": table, "batch": table.to_batches()[0], "stream": table.to_reader(), "chunked": chunked}
        for kind in (pa.large_list(pa.float32()), pa.list_(pa.float32(), 256)):
            sources[str(kind)] = table.set_column(1, "weights", pa.array(columns["weights"], kind))
        for i, source in enumerate(sources.values()):
            report = self.quantize(source, tmp_path / str(i))
            assert [layer.shape for layer in report.layers] == [(8, 32), (4, 2, 32)]
            assert rows(tmp_path / str(i)) == rows(tmp_path / "arrays")

    def test_nothing_is_copied(self, columns):
        table = pa.table(columns)
        values = table.column("weights").chunk(0).values.buffers()[1]
        for i, (_, dtype, _, data) in enumerate(tensors_of_arrow(table)):
            assert dtype == "F32" and data.__array_interface__["data"][0] == values.address + 1024 * i

    def test_without_shapes_they_are_vectors(self, columns, tmp_path):
        report = self.quantize(pa.table(columns).drop_columns(["shape"]), tmp_path / "out")
        assert report.unquantized == 2 and report.layers == []
        assert [warning for warning in report.warnings if warning.startswith("nothing was quantized: every tensor has fewer than two dimensions")]

    def test_models_become_tables_and_tables_models(self, path, arrays, quantized, tmp_path):
        with ballast.open(path) as model:
            table = ballast.to_arrow(model)
            shared = table.column("weights").chunk(table.column("layer_name").to_pylist().index("norm")).values
            assert shared.buffers()[1].address == model["norm"].numpy().ctypes.data
        assert table.equals(ballast.to_arrow(arrays).take([list(arrays).index(name) for name in table.column("layer_name").to_pylist()]))
        assert table.equals(ballast.to_arrow(path))
        for row in table.to_pylist():
            expected = arrays[row["layer_name"]]
            assert row["shape"] == list(expected.shape) and row["weights"] == expected.astype(np.float32).ravel().tolist()
        figures = [asdict(layer) | {"dtype": None} for layer in self.quantize(table, tmp_path / "out").layers]
        assert figures == [asdict(layer) | {"dtype": None} for layer in self.quantize(path, tmp_path / "of-path").layers]

    def test_every_shape_becomes_a_row(self):
        arrays = {"none": np.zeros((0, 3), np.float32), "scalar": np.float32(2), "nan": np.array([np.nan, 1], np.float16)}
        rows = {name: (dtype, shape, len(data)) for name, dtype, shape, data in tensors_of_arrow(ballast.to_arrow(arrays))}
        assert rows == {"none": ("F32", (0, 3), 0), "scalar": ("F32", (), 4), "nan": ("F32", (2,), 8)}
        assert ballast.to_arrow({}).num_rows == 0
        with pytest.raises(ballast.UnsupportedError, match="cannot be represented as F32"):
            ballast.to_arrow({"a": np.array([2**24 + 1])})

    @pytest.mark.parametrize(
        "change, kind, message",
        [({"layer_name": ["a", None]}, TypeError, "layer_name must have strings, not None"), ({"layer_name": [1, 2]}, TypeError, "layer_name must have strings, not 1"),
         ({"weights": [[0.5] * 256, None]}, ValueError, "layer 'b': the weights contain nulls"),
         ({"weights": [[0.5] * 256, [0.5] * 255 + [None]]}, ValueError, "layer 'b': the weights contain nulls"),
         ({"weights": [0.5, 0.5]}, TypeError, "lists of numbers, not double"), ({"weights": [["x"], ["y"]]}, TypeError, "list<.*string>"),
         ({"weights": [[True], [False]]}, TypeError, "list<.*bool>"),
         ({"shape": [[8, 32], [8, 33]]}, ValueError, r"layer 'b': shape \[8, 33\] does not match 256 weights"),
         ({"shape": [[-8, -32], [8, 32]]}, ValueError, r"layer 'a': shape \[-8, -32\] does not match 256 weights"),
         ({"shape": [[8, 32], [None, 32]]}, TypeError, "the shape must have integers"), ({"shape": [[8.5, 32], [8, 32]]}, TypeError, "the shape must have integers"),
         ({"layer_name": ["a", "a"]}, ballast.BallastError, "duplicate tensor name 'a'")],
    )  # fmt: skip
    def test_what_is_wrong_is_told(self, columns, tmp_path, change, kind, message):
        with pytest.raises(kind, match=message):
            self.quantize(pa.table(columns | change), tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    def test_columns_must_be_there(self, columns, tmp_path):
        with pytest.raises(ValueError, match="no column 'weights'"):
            self.quantize(pa.table({"layer_name": ["a"]}), tmp_path / "out")


class TestQuantizing:
    def test_figures_are_those_of_the_files(self, path, arrays, tmp_path):
        report = ballast.quantize(path, tmp_path / "out", **SMALL)
        restored = read_parquet(tmp_path / "out")
        assert len(report.layers) == 8 and report.unquantized == 1
        for layer in report.layers:
            cosine, rmse = figures(arrays[layer.name], restored[layer.name])
            assert layer.cosine_similarity == pytest.approx(cosine, abs=1e-9) and layer.relative_rmse == pytest.approx(rmse, rel=1e-6)
        assert report.bytes == sum(Path(file).stat().st_size for file in report.files) == report.model_size_mb * 1e6
        assert report.compression_ratio == pytest.approx(path.stat().st_size / report.bytes)

    def test_dicts_models_and_paths_come_to_the_same(self, path, arrays, quantized, tmp_path):
        with ballast.open(path) as model:
            for i, source in enumerate((arrays, model, dict(model), str(path))):
                ballast.quantize(source, tmp_path / str(i), modality="text", **SMALL)
                assert rows(tmp_path / str(i)) == rows(quantized)

    def test_settings_go_before_the_config(self, path, tmp_path):
        config = ballast.QuantizeConfig(bit_width=8, group_size=32)
        report = ballast.quantize(path, tmp_path / "out", config, bit_width=3, layer_bit_widths={"layers.1": 6}, sync=False)
        assert [layer.bits for layer in report.layers] == [3, 6, 3, 3, 3, 3, 3, 3]
        with pytest.raises(TypeError, match="unexpected keyword argument 'bitwidth'"):
            ballast.quantize(path, tmp_path / "out", bitwidth=3)

    def test_bits_is_a_name_of_bit_width(self, path, tmp_path):
        config = ballast.QuantizeConfig(bit_width=8, group_size=32)
        for settings in ({"bits": 3}, {"bits": 3, "bit_width": 3}, {"bits": 3, "bit_width": None}):
            report = ballast.quantize(path, tmp_path / "out", config, sync=False, **settings)
            assert {layer.bits for layer in report.layers} == {3}
        with pytest.raises(ballast.ArgumentError, match="bits is 3 and bit_width is 4; give one of them"):
            ballast.quantize(path, tmp_path / "out", bits=3, bit_width=4)
        with pytest.raises(ballast.ArgumentError, match="bits is 7, it must be 2, 3, 4, 5, 6 or 8"):
            ballast.quantize(path, tmp_path / "out", bits=7)

    def test_layers_that_are_not_good_enough_are_told(self, path, tmp_path):
        report = ballast.quantize(path, tmp_path / "out", min_accuracy=1, **SMALL)
        assert not report.passed
        names = "'layers.0.weight', 'layers.1.weight', 'layers.2.weight', ..."
        assert report.warnings == [f"8 of 8 layers are below min_accuracy 1 even with 8 bits: {names}"]
        assert ballast.quantize(path, tmp_path / "out", **SMALL).warnings == []

    def test_validates_and_dequantizes_what_is_on_the_disk(self, path, quantized, tmp_path):
        report = ballast.validate(path, quantized, min_accuracy=0.9)
        assert report.passed and not ballast.validate(path, quantized, min_accuracy=0.9999).passed
        ballast.dequantize(quantized, tmp_path / "m.safetensors", dtype="f32", sync=False)
        restored = read_parquet(quantized)
        for name, array in read_safetensors(tmp_path / "m.safetensors").items():
            np.testing.assert_array_equal(array, restored[name], strict=True)

    def test_weights_of_mlx_are_those_of_the_file(self, mlx, arrays):
        weights = ballast.load_quantized_weights(mlx)
        assert len(weights) == 8 and list(weights.others) == ["norm"]
        assert weights.others["norm"].tobytes() == arrays["norm"].tobytes()
        tensors, loaded = read_safetensors(mlx / "model.safetensors"), mx.load(str(mlx / "model.safetensors"))
        for name, weight in weights.items():
            assert (weight.bits, weight.group_size, weight.shape, weight.dtype) == (4, 32, (64, 64), "BF16")
            assert weight.scheme == "mlx" and weight.zero_points is None
            for part, array in (("weight", weight.packed), ("scales", weight.scales), ("biases", weight.biases)):
                np.testing.assert_array_equal(array, tensors[f"{name}.{part}"], strict=True)
            parts = [loaded[f"{name}.{part}"] for part in ("weight", "scales", "biases")]
            expected = mx.dequantize(*parts, group_size=32, bits=4).astype(mx.float32)
            np.testing.assert_array_equal(weights.dequantize(name), np.array(expected), strict=True)
        with pytest.raises(KeyError, match="no quantized weight 'layers.9' among 8"):
            weights["layers.9"]

    def test_weights_of_parquet_are_those_of_the_file(self, quantized, arrays):
        weights = ballast.load_quantized_weights(quantized)
        assert list(weights) == [f"layers.{i}.weight" for i in range(8)] and list(weights.others) == ["norm"]
        assert weights.others["norm"].tobytes() == arrays["norm"].tobytes()
        restored = read_parquet(quantized)
        stored = {row["layer_name"]: row for row in rows(quantized)}
        for name, weight in weights.items():
            assert (weight.scheme, weight.mode, weight.bits, weight.group_size) == ("parquet", "affine", 4, 32)
            assert (weight.shape, weight.dtype, weight.biases, weight.restore) == ((64, 64), "BF16", None, None)
            assert weight.packed.dtype == np.uint8 and weight.packed.shape == (64, 32)
            assert weight.scales.dtype == weight.zero_points.dtype == np.float32
            assert weight.scales.shape == weight.zero_points.shape == (64, 2)
            assert weight.packed.tobytes() == stored[name]["data"]
            assert weight.scales.ravel().tolist() == stored[name]["scales"]
            assert weight.zero_points.ravel().tolist() == stored[name]["zero_points"]
            codes = np.stack([weight.packed & 15, weight.packed >> 4], axis=2).reshape(64, 64).astype(np.float32)
            scales, zero_points = (np.repeat(part, 32, axis=1) for part in (weight.scales, weight.zero_points))
            np.testing.assert_array_equal(weights.dequantize(name), (codes - zero_points) * scales, strict=True)
            np.testing.assert_array_equal(weights.dequantize(name), restored[name], strict=True)

    def test_arrays_of_weights_outlive_them(self, mlx):
        scales = ballast.load_quantized_weights(mlx)["layers.0"].scales
        assert np.isfinite(scales.astype(np.float32)).all()


class TestConfig:
    def test_yaml_goes_there_and_back(self, tmp_path):
        config = ballast.QuantizeConfig(
            deployment_profile="cloud", bit_width=3, modality="image", min_accuracy=0.1, fail_fast=True, enable_spatial=False,
            sensitive_layer_names=["a.*", "b: c"], sensitive_layer_patterns=["^x\\d+$"], layer_bit_widths={"*.up": 8},
            target_model_size_mb=12.5,
        )  # fmt: skip
        (tmp_path / "c.yaml").write_text(config.to_yaml())
        assert ballast.QuantizeConfig.from_yaml(config.to_yaml()) == config == ballast.QuantizeConfig.from_yaml(tmp_path / "c.yaml")
        assert ballast.QuantizeConfig(**asdict(config)) == config
        assert replace(config, bit_width=6).bit_width == 6 and replace(config, bit_width=3) == config

    def test_stays_as_it_is(self):
        config = ballast.QuantizeConfig(layer_bit_widths={"up": 8}, sensitive_layer_names=["a"])
        for change in (
            lambda: config.layer_bit_widths.__setitem__("up", 2), lambda: config.layer_bit_widths.update(up=2), config.layer_bit_widths.clear,
            lambda: config.layer_bit_widths.pop("up"), lambda: config.layer_bit_widths.setdefault("down", 2),
        ):  # fmt: skip
            with pytest.raises(TypeError, match=r"QuantizeConfig is immutable; replace\(\) returns a config with other settings"):
                change()
        assert config.layer_bit_widths == {"up": 8} and config.sensitive_layer_names == ("a",)
        same = ballast.QuantizeConfig.from_yaml(config.to_yaml())
        assert {config: 1}[same] == 1 and hash(config) != hash(config.replace(layer_bit_widths={"up": 4}))
        for other in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):
            assert other == config and hash(other) == hash(config) and other.to_yaml() == config.to_yaml()
            assert other.replace(bit_width=3).layer_bit_widths == {"up": 8}
        assert json.loads(json.dumps(asdict(config)))["layer_bit_widths"] == {"up": 8}

    @pytest.mark.parametrize("content", [b"bit_width: [", b"bit_width: 9", b"bits: 4", b"- a", b"method: \xff"])
    def test_a_file_that_is_wrong_is_named(self, tmp_path, content):
        path = tmp_path / "c.yaml"
        path.write_bytes(content)
        for each in (path, str(path), os.fsencode(path)):
            with pytest.raises(ballast.ArgumentError, match="^" + re.escape(f"{path}: ")):
                ballast.QuantizeConfig.from_yaml(each)

    def test_files_may_have_paths_of_bytes(self, tmp_path):
        (tmp_path / "c.yaml").write_text("bit_width: 3")
        assert ballast.QuantizeConfig.from_yaml(os.fsencode(tmp_path / "c.yaml")).bit_width == 3
        with pytest.raises(FileNotFoundError, match="^none.yaml: cannot open: No such file or directory$"):
            ballast.QuantizeConfig.from_yaml("none.yaml")

    def test_replace_lets_another_profile_change_what_was_not_given(self):
        config = ballast.QuantizeConfig(group_size=32, modality="text")
        edge = config.replace(deployment_profile="edge")
        assert edge == ballast.QuantizeConfig(deployment_profile="edge", group_size=32, modality="text")
        assert edge.replace(deployment_profile="local") == config
        assert config.replace(group_size=None, modality=None) == ballast.QuantizeConfig()
        assert config.replace(bit_width=4).replace(deployment_profile="edge").bit_width == 4
        assert config.replace(bit_width=np.int64(3), fail_fast=np.True_).fail_fast is True
        if sys.version_info >= (3, 13):
            assert copy.replace(config, deployment_profile="edge") == edge
        with pytest.raises(ballast.ArgumentError, match="unknown setting 'bits'"):
            config.replace(bits=3)

    def test_arguments_go_before_the_environment(self, monkeypatch):
        monkeypatch.setenv("BALLAST_BIT_WIDTH", "5")
        monkeypatch.setenv("BALLAST_GROUP_SIZE", "32")
        config = ballast.QuantizeConfig.from_environment(group_size=64)
        assert (config.bit_width, config.group_size) == (5, 64)
        assert ballast.QuantizeConfig().bit_width == 4

    @pytest.mark.parametrize(
        "settings, message",
        [({"bit_width": 7}, "bit_width is 7"), ({"group_size": 0}, "group_size"), ({"method": "best"}, "method"), ({"min_accuracy": 2}, "min_accuracy"),
         ({"modality": "smell"}, "modality"), ({"sensitive_layer_patterns": ["("]}, "sensitive_layer_patterns"),
         ({"layer_bit_widths": {"a": 1}}, "layer_bit_widths"), ({"deployment_profile": "moon"}, "deployment_profile"),
         ({"num_time_groups": 0}, "num_time_groups"), ({"fail_fast": "perhaps"}, "fail_fast")],
    )  # fmt: skip
    def test_every_field_is_checked(self, settings, message):
        with pytest.raises(ballast.ArgumentError, match=message):
            ballast.QuantizeConfig(**settings)

    def test_unknown_fields_are_errors(self, tmp_path):
        with pytest.raises(TypeError, match="bits"):
            ballast.QuantizeConfig(bits=4)
        with pytest.raises(ballast.ArgumentError, match="bits"):
            ballast.QuantizeConfig.from_yaml("bits: 4\n")
        with pytest.raises(FileNotFoundError):
            ballast.QuantizeConfig.from_yaml(tmp_path / "none.yaml")


class TestConverting:
    def test_options(self, path, arrays, tmp_path):
        report = ballast.convert(
            path, tmp_path / "m.safetensors", dtype="f16", dtype_rules={"*.1.*": np.float32}, exclude=["*.7.*"],
            rename={"norm": "final"}, metadata={"made": "here"}, sync=False,
        )  # fmt: skip
        with ballast.open(tmp_path / "m.safetensors") as model:
            assert report.tensors == len(model) == 8 and model.metadata == {"made": "here"}
            assert {model[f"layers.{i}.weight"].dtype for i in (0, 2, 3, 4, 5, 6)} == {"F16"}
            np.testing.assert_array_equal(model["layers.1.weight"], arrays["layers.1.weight"].astype(np.float32), strict=True)
            np.testing.assert_array_equal(model["final"], arrays["norm"].astype(np.float16), strict=True)

    def test_mlx_json_and_back_is_the_same(self, path, tmp_path):
        ballast.convert(path, tmp_path / "weights.mlx", sync=False)
        with ballast.open(tmp_path / "weights.mlx") as there, ballast.open(path) as here:
            assert there.format == "mlx-json"
            assert {name: tensor.numpy().tobytes() for name, tensor in there.items()} == {
                name: tensor.numpy().tobytes() for name, tensor in here.items()
            }


class TestChecking:
    def test_verify_names_what_is_wrong(self, tmp_path):
        save_file({"a": np.array([1.0, np.nan], np.float32)}, tmp_path / "m.safetensors")
        assert ballast.verify(tmp_path / "m.safetensors")
        report = ballast.verify(tmp_path / "m.safetensors", values=True, sha256=True)
        ((check, message),) = report.defects
        assert not report and check == "values" and "'a'" in message
        assert re.fullmatch(r"[0-9a-f]{64}", *report.sha256.values())

    def test_verify_knows_the_sums_of_quantized_files(self, run, quantized, tmp_path):
        report = ballast.verify(quantized, sha256=True, values=True)
        assert report and report.checks == ["quantization", "sha256"] and "quantized in Parquet" in report.skipped[0]
        files = sorted(quantized.glob("*.parquet"))
        assert report.sha256 == {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        assert ballast.verify(quantized).sha256 == {}
        printed = json.loads(run("verify", quantized, "--sha256", "--json").stdout)
        assert {file["path"]: file["sha256"] for file in printed["files"]} == report.sha256

        shutil.copytree(quantized, tmp_path / "q")
        metadata = tmp_path / "q/metadata.json"
        metadata.write_text(metadata.read_text().replace(report.sha256[str(files[0])], "0" * 64))
        damaged = ballast.verify(tmp_path / "q", sha256=True)
        assert [check for check, _ in damaged.defects] == ["sha256"] and list(damaged.sha256.values()) == list(report.sha256.values())

    def test_verify_checks_the_widths_of_mlx(self, run, mlx, tmp_path):
        assert ballast.verify(mlx).checks == [check["name"] for check in json.loads(run("verify", mlx, "--json").stdout)["checks"]]
        assert "quantization" in ballast.verify(mlx).checks

    @pytest.mark.parametrize("kind", ["file", "directory", "shards", "parquet", "mlx", "mlx of a directory", "parquet of a directory", "broken mlx"])
    def test_inspect_is_what_the_program_prints(self, run, path, quantized, mlx, tiny, sharded, tmp_path, kind):
        model = {"file": path, "directory": tiny, "shards": sharded, "parquet": quantized, "mlx": mlx}.get(kind, tmp_path / "q")
        if model == tmp_path / "q":
            ballast.quantize(tiny, model, format="parquet" if "parquet" in kind else "mlx", **SMALL)
        if kind == "broken mlx":
            config = json.loads((model / "config.json").read_text())
            config["quantization"]["bits"] = 7
            (model / "config.json").write_text(json.dumps(config))
        printed = json.loads(run("inspect", model, "--json", "--tensors").stdout)
        found = json.loads(json.dumps(ballast.inspect(model)))
        for key in ("weights", "tensors"):
            found[key].sort(key=lambda tensor: [int(part) if part.isdigit() else part for part in tensor["name"].split(".")])
        found["modality"] = found["modality"] or "unknown"
        assert found == printed
        assert list(found) == list(printed)

    def test_the_package_is_the_program_too(self, path, tmp_path):
        def program(*arguments):
            command = [sys.executable, "-m", "ballast", *arguments]
            return subprocess.run(command, env={"PYTHONPATH": PACKAGE}, capture_output=True, text=True)

        assert json.loads(program("inspect", path, "--json").stdout)["modality"] == "text"
        missing = program("inspect", tmp_path / "none")
        assert missing.returncode == 3 and missing.stderr.startswith("ballast: ")


def test_a_program_that_is_not_there_is_one_line(tmp_path):
    shutil.copy(Path(PACKAGE) / "_ballast_command.py", tmp_path)
    command = [sys.executable, "-c", "import _ballast_command; _ballast_command.main()"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (127, f"ballast: {tmp_path}/ballast/bin/ballast: No such file or directory\n")


def test_the_command_starts_the_program_without_importing_the_package():
    script = "import sys, _ballast_command; print({'ballast', 'numpy'} & set(sys.modules)); _ballast_command.main()"
    environment = {"PYTHONPATH": PACKAGE, "PYTHONUNBUFFERED": "1"}
    result = subprocess.run([sys.executable, "-c", script, "--version"], env=environment, capture_output=True, text=True)
    assert result.stdout == f"set()\nballast {ballast.__version__}\n"


def test_what_is_quantized_is_a_directory(run, path, tmp_path):
    with pytest.raises(ballast.ArgumentError, match="a quantized model is a directory; give a name without .safetensors"):
        ballast.quantize(path, tmp_path / "x.safetensors", **SMALL)
    assert run("quantize", path, tmp_path / "x.safetensors").returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_the_program_tells_of_nothing_quantized(run, tmp_path):
    ballast.save({"a": np.ones(64, np.float32)}, tmp_path / "m.safetensors")
    result = run("quantize", tmp_path / "m.safetensors", tmp_path / "q")
    assert result.returncode == 0 and "nothing was quantized" in result.stderr


def test_weights_tell_what_they_are(mlx):
    assert repr(ballast.load_quantized_weights(mlx)) == "QuantizedWeights(8 quantized, 1 others)"


def test_settings_go_before_those_of_a_config(tmp_path):
    weights = {"a.weight": np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)}

    def layer(config, **settings):
        (found,) = ballast.quantize(weights, tmp_path / "out", config, min_accuracy=0, **settings).layers
        return found.bits, found.group_size

    assert layer(ballast.QuantizeConfig(), deployment_profile="edge", group_size=32) == (2, 32)
    assert layer(ballast.QuantizeConfig(bit_width=3, group_size=32), deployment_profile="edge") == (3, 32)
    assert layer(ballast.QuantizeConfig(deployment_profile="edge", group_size=64)) == (2, 64)
    assert layer(ballast.QuantizeConfig.from_yaml("bit_width: 5\ngroup_size: 32\n"), bit_width=6) == (6, 32)


def test_progress_knows_how_much_there_is(tmp_path):
    totals = []
    weights = {f"{i}.weight": np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32) for i in range(3)}
    ballast.quantize(weights, tmp_path / "out", group_size=32, progress=lambda done, total, what: totals.append(total))
    assert totals and min(totals) > 0


def test_packed_values_are_numbers_only_when_asked_for():
    import ml_dtypes

    values = np.array([[1, 2], [3, 4]], np.float32).astype(ml_dtypes.float4_e2m1fn)
    tensor = ballast.from_bytes(ballast.serialize({"a": values}))["a"]
    assert tensor.dtype == "F4" and tensor.shape == (2, 2) and tensor.to("f32").tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ballast.UnsupportedError, match="bytes of F4"):
        np.asarray(tensor, np.float32)
