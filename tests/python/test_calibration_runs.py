"""quantize with statistics, run after run: the same bytes whatever the threads, and after runs that broke off; and what is refused
of statistics and of the files that come of them, each in one line with the right exit code and nothing left behind."""

import hashlib
import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calibrated_models import FORMATS, Recorder, changing, column_scales, load, record, settings, time_parameters
from conftest import one_error_line
from processes import count_calls, kill_when_noted, signal_at, spread
from quantized_files import BF16, contents, done, gauss, listing, quantize, refused
from safetensors.numpy import save_file
from safetensors_bytes import prefix

TIMESTEPS = range(0, 1000, 100)


def uneven(rng, rows, columns):
    return (gauss(rng, rows, columns, dtype=np.float32) * np.exp(rng.standard_normal(columns))).astype(BF16)


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """With Hessians of two layers; and one of two blocks, of which the columns are scaled."""
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("runs")
    weights = {f"blocks.{i}.weight": gauss(rng, 512, 768) for i in range(3)} | {"large.weight": uneven(rng, 4200, 1024)}
    save_file(weights | {"norm.weight": gauss(rng, 768)}, folder / "in.safetensors")
    with_hessian, without = Recorder(hessian=True), Recorder()
    for name, weight in weights.items():
        recorder, draw = with_hessian if name < "blocks.2" else without, changing(rng, weight.shape[1])
        for t in TIMESTEPS:
            recorder.add(name, draw(64, t), t)
    tensors = {}
    for recorder in (with_hessian, without):
        recorder.save(folder / "s.safetensors")
        metadata, some = load(folder / "s.safetensors")
        tensors |= some
    save_file(tensors, folder / "s.safetensors", metadata)
    options = settings(folder / "q.yaml", enable_time_aware=True, num_time_groups=6, enable_spatial=True, min_accuracy=0)
    return SimpleNamespace(path=folder / "in.safetensors", options=[*options, "--calibration", folder / "s.safetensors"])


@pytest.fixture(scope="module")
def long_model(tmp_path_factory):
    """A layer with a Hessian, 320 MiB that are kept and take no space, and another layer: most of a run lies between the two."""
    rng = np.random.default_rng(2)
    folder = tmp_path_factory.mktemp("long")
    layers = {name: gauss(rng, 64, 2048) for name in ("a.weight", "z.weight")}
    header, end = {}, 0
    for name in ("a.weight", *(f"{i}.bias" for i in range(5)), "z.weight"):
        dtype, shape, size = ("BF16", [64, 2048], 2**18) if name in layers else ("U8", [2**26], 2**26)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    with open(folder / "in.safetensors", "wb") as file:
        start = file.write(prefix(header))
        for name, weight in layers.items():
            file.seek(start + header[name]["data_offsets"][0])
            file.write(weight.tobytes())
    inputs = {}
    for name in layers:
        draw = changing(rng, 2048)
        inputs |= {(name, t): draw(256, t) for t in TIMESTEPS}
    statistics = record(folder / "s.safetensors", inputs, hessian=True)
    options = settings(folder / "q.yaml", enable_time_aware=True, num_time_groups=4)
    return SimpleNamespace(path=folder / "in.safetensors", options=[*options, "--calibration", statistics])


@pytest.mark.parametrize("format", FORMATS)
class TestSameBytes:
    def test_threads_do_not_change_them(self, run, model, tmp_path, format):
        for target in ([], ["--target-size-mb", 3]):
            reports, outputs = [], []
            for threads in (1, 2, 8):
                options = [*model.options, "--format", format, *target, "--threads", threads]
                reports.append(quantize(run, model.path, tmp_path / "out", *options))
                outputs.append(contents(tmp_path / "out"))
            assert outputs[0] == outputs[1] == outputs[2]
            assert reports[0]["layers"] == reports[1]["layers"] == reports[2]["layers"]
        assert [layer["method"] for layer in reports[0]["layers"]] == ["gptq"] * 2 + ["weighted search"] * 2
        assert {layer["name"] for layer in reports[0]["layers"] if layer["equalized"]} >= {"large.weight"}
        assert len(time_parameters(tmp_path / "out")[0]) == 5 and column_scales(tmp_path / "out")

    def test_broken_off_at_any_moment_and_taken_up_again(self, build_dir, run, model, tmp_path, format):
        options = [*model.options, "--format", format, "--threads", "2"]
        quantize(run, model.path, tmp_path / "whole", *options)
        expected = contents(tmp_path / "whole")
        out = tmp_path / "out"
        command = [build_dir / "ballast", "quantize", model.path, out, *options, "--resume"]
        last = count_calls([*command[:3], tmp_path / "counted", *command[4:]], "pread64")
        shutil.rmtree(tmp_path / "counted")
        for i, number in enumerate(spread(last // 2, 6)):
            # An interrupted run notes what it has done.
            signal_at(command, "pread64", number, ("KILL", "INT")[i % 2])
            if out.exists():
                assert contents(out) == expected
                shutil.rmtree(out)
        done(run(*command[1:]))
        assert contents(out) == expected
        assert listing(tmp_path) == ["out", "whole"]

    def break_off(self, build_dir, model, out, *options):
        command = [build_dir / "ballast", "quantize", model.path, out, *model.options, "--resume", "--threads", "1", *options]
        journal = out.with_name("out.incomplete") / "journal"
        kill_when_noted(command, journal)

    def test_layers_that_were_done_are_kept(self, build_dir, run, long_model, tmp_path, format):
        self.break_off(build_dir, long_model, tmp_path / "out", "--format", format)
        report = quantize(run, long_model.path, tmp_path / "out", *long_model.options, "--format", format, "--resume")
        # Of the layer that was done before, only the weights are known.
        assert [layer["output_error"] is None for layer in report["layers"]] == [True, False]
        whole = quantize(run, long_model.path, tmp_path / "whole", *long_model.options, "--format", format)
        assert digests(tmp_path / "out") == digests(tmp_path / "whole")
        assert [layer["relative_rmse"] for layer in report["layers"]] == [layer["relative_rmse"] for layer in whole["layers"]]

    def test_another_memory_limit_is_other_work(self, build_dir, run, long_model, tmp_path, format):
        options = [*long_model.options, "--format", format]
        self.break_off(build_dir, long_model, tmp_path / "out", "--format", format)
        quantize(run, long_model.path, tmp_path / "out", *options, "--resume", "--memory-limit", 32)
        report = quantize(run, long_model.path, tmp_path / "whole", *options, "--memory-limit", 32)
        assert {layer["method"] for layer in report["layers"]} == {"weighted search"}
        assert digests(tmp_path / "out") == digests(tmp_path / "whole")

    def test_other_statistics_are_other_work(self, run, tmp_path, format):
        rng = np.random.default_rng(3)
        save_file({"a.weight": gauss(rng, 64, 128)}, tmp_path / "in.safetensors")
        options = ["--format", format, "--calibration", tmp_path / "s.safetensors", "--resume"]
        reports = []
        for _ in range(2):
            inputs = rng.standard_normal((64, 128)) * np.exp(rng.standard_normal(128))
            record(tmp_path / "s.safetensors", {("a.weight", None): inputs})
            quantize(run, tmp_path / "in.safetensors", tmp_path / "out", *options)
            reports.append(contents(tmp_path / "out"))
            os.utime(tmp_path / "s.safetensors", (1, 1))
        assert reports[0] != reports[1]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Two layers with everything that statistics can tell, and a directory of either format that was made with them."""
    rng = np.random.default_rng(4)
    folder = tmp_path_factory.mktemp("small")
    weights = {"a.weight": uneven(rng, 64, 128), "b.weight": uneven(rng, 96, 192)}
    save_file(weights | {"norm.weight": gauss(rng, 64)}, folder / "in.safetensors")
    inputs = {}
    for name, weight in weights.items():
        draw = changing(rng, weight.shape[1])
        inputs |= {(name, t): draw(64, t) for t in range(0, 1000, 250)}
    return SimpleNamespace(
        path=folder / "in.safetensors",
        plain=record(folder / "plain.safetensors", inputs),
        hessian=record(folder / "hessian.safetensors", inputs, hessian=True),
        options=settings(folder / "q.yaml", enable_time_aware=True, num_time_groups=4, enable_spatial=True, group_size=64),
    )


def put(name, place, value):
    return lambda metadata, tensors: tensors[name].__setitem__(place, value)


def replace(name, change):
    return lambda metadata, tensors: tensors.__setitem__(name, np.ascontiguousarray(change(tensors[name])))


def rename(old, new):
    def change(metadata, tensors):
        for name in [name for name in tensors if name.startswith(old)]:
            tensors[name.replace(old, new)] = tensors.pop(name)

    return change


def drop(name):
    return lambda metadata, tensors: tensors.pop(name)


def describe(**metadata):
    return lambda old, tensors: old.update(metadata)


def fewer_columns(metadata, tensors):
    for name in ("b.weight.x_mean", "b.weight.x_sqmean"):
        tensors[name] = tensors[name][:, :100].copy()


DAMAGED_STATISTICS = {
    "NaN": (put("b.weight.x_mean", (2, 5), np.nan), ["'b.weight.x_mean'", "nan in column 5 at timestep 500"]),
    "infinite": (put("b.weight.x_sqmean", (2, 5), np.inf), ["'b.weight.x_sqmean'", "inf in column 5"]),
    "negative square": (put("b.weight.x_sqmean", (1, 3), -1), ["'b.weight.x_sqmean'", "-1 in column 3 at timestep 250"]),
    "mean above its square": (put("b.weight.x_mean", (1, 3), 1e4), ["'b.weight.x_sqmean'", "below the square of the mean, 100000000"]),
    "negative count": (put("b.weight.count", 1, -1), ["'b.weight.count'", "-1 at timestep 250"]),
    "no counts": (put("b.weight.count", slice(None), 0), ["'b.weight.count'", "0 at all of 4 timesteps"]),
    "range": (put("b.weight.x_min", 1, 1e4), ["'b.weight.x_min'", "10000 at timestep 250, above x_max"]),
    "columns": (fewer_columns, ["'b.weight' with 100 columns", "it has 192"]),
    "shape": (replace("b.weight.x_sqmean", lambda x: x[:, :-1]), ["'b.weight.x_sqmean'", "shape [4, 191], expected [4, 192]"]),
    "dtype": (replace("b.weight.x_mean", lambda x: x.astype(np.float64)), ["'b.weight.x_mean'", "dtype is F64; statistics must be F32"]),
    "half of a weight": (rename("b.weight.x_mean", "c.weight.x_mean"), ["'b.weight.x_mean' is missing"]),
    "another model": (rename("b.weight", "layers.7.weight"), ["'layers.7.weight'", "does not have"]),
    "another tensor": (rename("b.weight.count", "b.weight.median"), ["'b.weight.median'", "the name must be <weight>.x_mean"]),
    "another format": (describe(format="mlx"), ["not activation statistics: the metadata has format 'mlx', expected 'timecalib.v1'"]),
    "timesteps": (describe(timesteps="[1, 2, 3]"), ["'a.weight.x_mean'", "shape is [4, 128], expected [3, columns]"]),
    "timestep twice": (describe(timesteps="[1, 2, 2, 3]"), ["'timesteps'", "2 is given twice"]),
    "no number": (describe(timesteps='[1, 2, "x", 3]'), ["'timesteps'", "entry 2 is 'x'"]),
}  # fmt: skip

DAMAGED_HESSIANS = {
    "NaN": (put("b.weight.hessian", (7, 9), np.nan), ["'b.weight.hessian'", "nan in row 7, column 9"]),
    "not symmetric": (put("b.weight.hessian", (7, 9), 0.25), ["'b.weight'", "not symmetric", "0.25 in row 7, column 9"]),
    "negative": (put("b.weight.hessian", (7, 7), -1), ["'b.weight.hessian'", "-1 in row 7, column 7"]),
    "indefinite": (replace("b.weight.hessian", lambda h: 1.4 * np.eye(192, dtype=h.dtype) - 0.4), ["'b.weight'", "not positive"]),
    "too large": (put("b.weight.hessian", ([7, 9], [9, 7]), 1e6), ["'b.weight'", "1000000 in row 9, column 7", "more than the diagonal"]),
    "zeros": (put("b.weight.hessian", slice(None), 0), ["'b.weight'", "all 192 values on the diagonal are 0"]),
    "shape": (replace("b.weight.hessian", lambda h: h[:, :100]), ["'b.weight.hessian'", "shape [192, 100], expected [192, 192]"]),
}


@pytest.mark.parametrize("format", FORMATS)
class TestStatisticsThatAreRefused:
    def check(self, run, small, tmp_path, format, path, *expected):
        before = listing(tmp_path)
        result = run("quantize", small.path, tmp_path / "out", *small.options, "--format", format, "--calibration", path)
        refused(result, 3, path, *expected)
        assert result.stderr.count(str(path)) == 1
        assert listing(tmp_path) == before

    @pytest.mark.parametrize("kind, damage", [("plain", each) for each in DAMAGED_STATISTICS] + [("hessian", each) for each in DAMAGED_HESSIANS])
    def test_damage(self, run, small, tmp_path, format, kind, damage):
        metadata, tensors = load(getattr(small, kind))
        change, expected = (DAMAGED_STATISTICS if kind == "plain" else DAMAGED_HESSIANS)[damage]
        change(metadata, tensors)
        save_file(tensors, tmp_path / "s.safetensors", metadata)
        self.check(run, small, tmp_path, format, tmp_path / "s.safetensors", *expected)

    def test_files(self, run, small, tmp_path, format):
        path = tmp_path / "s.safetensors"
        whole = small.plain.read_bytes()
        for data, expected in (
            (b"", "0 bytes"),
            (whole[:100], "ends past the end of the file"),
            (whole[:-1], "truncated"),
            (whole + b"x", "1 trailing"),
            (b"no statistics at all" * 9, "header of"),
            (small.path.read_bytes(), "not activation statistics: the metadata has no format, expected 'timecalib.v1'"),
        ):
            path.write_bytes(data)
            self.check(run, small, tmp_path, format, path, expected)
        save_file({}, path, {"format": "timecalib.v1"})
        self.check(run, small, tmp_path, format, path, "contains no statistics")
        path.unlink()
        self.check(run, small, tmp_path, format, path, "No such file")
        path.mkdir()
        self.check(run, small, tmp_path, format, path, "no weights")

    def test_what_was_there_stays(self, run, small, tmp_path, format):
        options = [*small.options, "--format", format, "--calibration"]
        quantize(run, small.path, tmp_path / "out", *options, small.hessian)
        before = contents(tmp_path / "out")
        metadata, tensors = load(small.hessian)
        tensors["b.weight.hessian"][7, 9] = 0.25
        save_file(tensors, tmp_path / "s.safetensors", metadata)
        refused(run("quantize", small.path, tmp_path / "out", *options, tmp_path / "s.safetensors"), 3, "not symmetric")
        assert contents(tmp_path / "out") == before and listing(tmp_path) == ["out", "s.safetensors"]

    def test_no_name(self, run, small, tmp_path, format):
        result = run("quantize", small.path, tmp_path / "out", *small.options, "--format", format, "--calibration", "")
        assert result.returncode == 2 and listing(tmp_path) == []


DAMAGED_SCALES = {
    "NaN": (lambda scales: scales.__setitem__(3, np.nan), "the scale of column 3 is nan"),
    "zero": (lambda scales: scales.__setitem__(3, 0), "the scale of column 3 is 0"),
    "negative": (lambda scales: scales.__setitem__(3, -2), "the scale of column 3 is -2"),
    "infinite": (lambda scales: scales.__setitem__(3, np.inf), "the scale of column 3 is inf"),
    "no power of two": (lambda scales: scales.__setitem__(3, 3), "the scale of column 3 is 3, it must be a power of two from 2^-12 to 2^12"),
    "huge": (lambda scales: scales.__setitem__(3, 2.0**100), "the scale of column 3 is 1.2676506e+30"),
}


class TestFilesThatAreRefused:
    @pytest.fixture
    def made(self, run, small, tmp_path):
        """make(format) -> a directory, of which layer a has scaled columns."""

        def make(format):
            options = [*small.options, "--format", format, "--calibration", small.plain]
            report = quantize(run, small.path, tmp_path / "made", *options)
            assert report["layers"][0]["equalized"] and report["calibration"]["time_groups"] == 4
            return tmp_path / "made"

        return make

    def check(self, run, small, made, *expected, commands=("dequantize", "validate")):
        before = listing(made.parent)
        for command in commands:
            paths = [made, made.parent / "restored.safetensors"] if command == "dequantize" else [small.path, made]
            message = one_error_line(run(command, *paths), 3)
            for part in expected:
                assert str(part) in message, message
        assert listing(made.parent) == before

    @pytest.mark.parametrize("damage", DAMAGED_SCALES)
    def test_scales_of_columns(self, run, small, made, damage):
        folder = made("mlx")
        path, name = folder / "equalization.safetensors", "a.equalization_scales"
        metadata, tensors = load(path)
        change, expected = DAMAGED_SCALES[damage]
        change(tensors[name])
        save_file(tensors, path, metadata)
        self.check(run, small, folder, path, f"'{name}'", expected)

    def test_other_scales_of_columns(self, run, small, made):
        folder = made("mlx")
        path, name = folder / "equalization.safetensors", "a.equalization_scales"
        metadata, tensors = load(path)
        for change, *expected in (
            ({name: tensors[name][:-1].copy()}, f"'{name}'", "F32 [127], expected F32 [128]"),
            ({name: tensors[name][None]}, f"'{name}'", "F32 [1, 128], expected F32 [128]"),
            ({name: tensors[name].astype(np.float16)}, f"'{name}'", "F16 [128], expected F32 [128]"),
            ({"z.equalization_scales": tensors[name]}, "'z.equalization_scales'", "its layer is missing"),
            ({"a.column_scales": tensors[name]}, "'a.column_scales'", "its layer is missing"),
        ):
            save_file(tensors | change, path, metadata)
            self.check(run, small, folder, path, *expected)
        data = path.read_bytes()
        path.write_bytes(data[:-4])
        self.check(run, small, folder, path, "truncated")

    def test_scales_of_columns_that_are_missing(self, run, small, made):
        folder = made("mlx")
        (folder / "equalization.safetensors").unlink()
        self.check(run, small, folder, "equalization.safetensors")

    @pytest.mark.parametrize("file", ["equalization.safetensors", "timeaware.safetensors"])
    def test_files_of_another_format(self, run, small, made, file):
        folder = made("mlx")
        metadata, tensors = load(folder / file)
        save_file(tensors, folder / file, metadata | {"format": "else"})
        self.check(run, small, folder, f"{file}: the format is not ", commands=["validate"])
        result = run("verify", folder)
        assert result.returncode == 1 and f"{file}: the format is not " in result.stdout

    def test_convert_takes_them_along_or_refuses(self, run, small, made):
        folder = made("mlx")
        out = folder.parent / "converted"
        assert run("convert", folder, out).returncode == 0 and run("verify", out).returncode == 0
        before = contents(out)
        for options in (["--rename", "a.*=z.*"], ["--exclude", "a.*"], ["--include", "b.*"]):
            message = one_error_line(run("convert", folder, out, *options), 3)
            assert "cannot be left out or renamed, because timeaware.safetensors refers to them" in message
        (folder / "equalization.safetensors").unlink()
        assert "missing, but config.json refers to it" in one_error_line(run("convert", folder, out), 3)
        assert contents(out) == before

    def rewrite(self, folder, column, change):
        """Writes the JSON of the first layer anew with pyarrow, and the sum that metadata.json has of the part."""
        (part,) = folder.glob("*.parquet")
        table = pq.read_table(part)
        texts = table[column].to_pylist()
        row = table["layer_name"].to_pylist().index("a.weight")
        texts[row] = change(texts[row])
        index = table.schema.get_field_index(column)
        pq.write_table(table.set_column(index, table.schema.field(index), pa.array(texts, pa.string())), part)
        metadata = json.loads((folder / "metadata.json").read_text())
        data = part.read_bytes()
        metadata["parts"][0] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (folder / "metadata.json").write_text(json.dumps(metadata))
        return part

    @pytest.mark.parametrize("change, expected", [
        (lambda text: text.replace("[", "[0, ", 1), "has scales for 129 columns, the tensor has 128"),
        (lambda text: json.dumps({"equalization_scales": [0.0] * 128}), "the scale of column 0 is 0"),
        (lambda text: json.dumps({"equalization_scales": [-1] * 128}), "the scale of column 0 is -1"),
        (lambda text: json.dumps({"equalization_scales": [None] * 128}), "item 0 of equalization_scales is not a finite number"),
        (lambda text: json.dumps({"equalization_scales": [1e39] * 128}), "item 0 of equalization_scales is not a finite number"),
        (lambda text: json.dumps({"scales": [1] * 128}), "no list equalization_scales"),
        (lambda text: text[:-1], "JSON"),
    ])  # fmt: skip
    def test_scales_of_columns_in_parquet(self, run, small, made, change, expected):
        folder = made("parquet")
        part = self.rewrite(folder, "spatial_quant_json", change)
        self.check(run, small, folder, part, "'a.weight': spatial_quant_json", expected)

    @pytest.mark.parametrize("name, change", [
        ("b.time_bias", put("b.time_bias", (1, 2), np.nan)),
        ("b.time_bias", replace("b.time_bias", lambda bias: bias[:, :-1])),
        ("b.time_bias", replace("b.time_bias", np.transpose)),
        ("b.act_scale", put("b.act_scale", 1, 0)),
        ("z.time_bias", rename("b.time_bias", "z.time_bias")),
        ("'b.weight': no act_zero", drop("b.act_zero")),
        ("'b.weight': no act_scale", drop("b.act_scale")),
        ("'b.weight': no time_bias", drop("b.time_bias")),
        ("boundaries", describe(boundaries="[3, 2, 1]")),
    ])  # fmt: skip
    def test_what_goes_by_timestep(self, run, small, made, name, change):
        folder = made("mlx")
        path = folder / "timeaware.safetensors"
        metadata, tensors = load(path)
        change(metadata, tensors)
        save_file(tensors, path, metadata)
        self.check(run, small, folder, path, name, commands=["validate"])

    def test_what_goes_by_timestep_is_missing(self, run, small, made):
        folder = made("mlx")
        assert json.loads((folder / "config.json").read_text())["time_aware_file"] == "timeaware.safetensors"
        (folder / "timeaware.safetensors").unlink()
        expected = "timeaware.safetensors: missing, but config.json refers to it"
        self.check(run, small, folder, expected, commands=["validate"])
        assert expected in run("verify", folder).stdout and expected in run("inspect", folder).stderr
        # Weights do not need it, and a run that is taken up makes it again.
        assert run("dequantize", folder, folder.parent / "restored.safetensors").returncode == 0
        quantize(run, small.path, folder, *small.options, "--format", "mlx", "--calibration", small.plain, "--resume")
        assert (folder / "timeaware.safetensors").exists()

    def test_verify_looks_into_it(self, run, small, made):
        folder = made("mlx")
        assert run("verify", folder).returncode == 0
        metadata, tensors = load(folder / "timeaware.safetensors")
        tensors["b.time_bias"][1, 2] = np.nan
        save_file(tensors, folder / "timeaware.safetensors", metadata)
        result = run("verify", folder)
        assert result.returncode == 1 and "'b.time_bias'" in result.stdout

    def test_verify_reads_parquet(self, run, small, made):
        folder = made("parquet")
        result = run("verify", folder)
        assert result.returncode == 0 and "sha256" in result.stdout
        part = self.rewrite(folder, "time_aware_quant_json", lambda text: text[:-1])
        result = run("verify", folder)
        assert result.returncode == 1 and "'a.weight': time_aware_quant_json" in result.stdout
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.write_bytes(data)
        result = run("verify", folder)
        assert result.returncode == 1 and "SHA-256 is" in result.stdout
        part.write_bytes(data[:-1])
        assert run("verify", folder).returncode == 1

    def test_boundaries_that_contradict_each_other(self, run, small, made):
        folder = made("parquet")
        path = folder / "metadata.json"
        text = path.read_text()
        metadata = json.loads(text)
        path.write_text(json.dumps(metadata | {"time_boundaries": [7]}))
        self.check(run, small, folder, "boundaries [", "metadata.json has [7]", commands=["validate"])

    @pytest.mark.parametrize("change", [
        lambda text: text.replace('"act_zero"', '"zero"'),
        lambda text: text.replace('"act_scale"', '"scale"'),
        lambda text: text.replace("[[", "[[0, ", 1),
        lambda text: text.replace("[[", "[[], [", 1),
        lambda text: text.replace('"boundaries": [', '"boundaries": [1e9, '),
        lambda text: text[:-1],
    ])  # fmt: skip
    def test_what_goes_by_timestep_in_parquet(self, run, small, made, change):
        folder = made("parquet")
        part = self.rewrite(folder, "time_aware_quant_json", change)
        self.check(run, small, folder, part, "'a.weight': time_aware_quant_json", commands=["validate"])
