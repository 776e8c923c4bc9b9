"""What models and reports look like in a terminal and in a notebook, and comparing and editing models."""

import json
import pickle
from html.parser import HTMLParser

import ballast
import numpy as np
import pytest
from quantized_files import gauss

VOID = {"br"}


class Page(HTMLParser):
    """The text of a page whose tags must match. Collects the rows of tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag in {"div", "p", "b", "br", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}, tag
        assert all(name == "style" and value.startswith("text-align:") for name, value in attributes)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(4)
    return {f"layers.{i}.weight": gauss(rng, 64, 64) for i in range(25)} | {"norm": gauss(rng, 64, dtype=np.float32)}


@pytest.fixture(scope="module")
def path(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "model.safetensors"
    ballast.save(arrays, path, sync=False)
    return path


@pytest.fixture(scope="module")
def quantized(path, tmp_path_factory):
    directory = tmp_path_factory.mktemp("reports") / "q"
    return directory, ballast.quantize(path, directory, bits=4, group_size=32, format="mlx", sync=False)


class TestTerminal:
    def test_each_is_one_line(self, path, quantized, tmp_path):
        directory, report = quantized
        weights = ballast.load_quantized_weights(directory)
        converted = ballast.convert(path, tmp_path / "m.safetensors", dtype="f32", sync=False)
        with ballast.open(path) as model:
            assert repr(model) == f"Model({str(path)!r}, 26 tensors, 102,464 parameters)"
            assert repr(model["norm"]) == "Tensor('norm', F32, [64])"
        assert repr(weights) == "QuantizedWeights(25 quantized, 1 others)"
        assert repr(weights["layers.3"]) == "QuantizedWeight('layers.3', mlx, 4 bits, group_size 32, BF16 [64, 64])"
        cosine = f"{report.cosine_similarity:.5f}"
        ratio = f"{report.compression_ratio:.2f}"
        assert repr(report) == f"QuantizeReport(25 quantized, 1 unquantized, 5.00 bits per weight, {ratio}x smaller, cosine {cosine}, passed)"
        layer = report.layers[0]
        assert repr(layer) == f"LayerReport('layers.0.weight', 4 bits, group_size 32, cosine {layer.cosine_similarity:.5f})"
        assert repr(converted) == "ConvertReport(26 tensors, 25 converted, 409.86 kB in 1 file)"
        assert repr(ballast.verify(path)) == f"VerifyReport(ok, 26 tensors, {path.stat().st_size / 1000:.2f} kB)"

    def test_failures_are_told(self, path, tmp_path):
        report = ballast.quantize(path, tmp_path / "q", bits=2, min_accuracy=1, sync=False)
        assert repr(report).endswith("below the minimum accuracy)")
        (tmp_path / "cut.safetensors").write_bytes(path.read_bytes()[:-4])
        assert repr(ballast.verify(tmp_path / "cut.safetensors")).startswith("VerifyReport(1 defect, ")

    def test_reports_survive_pickling(self, quantized, path):
        _, report = quantized
        again = pickle.loads(pickle.dumps(report))
        assert again == report and type(again).__module__ == "ballast" and again.layers[0] == report.layers[0]
        assert b"ballast._" not in pickle.dumps([report, ballast.verify(path), ballast.QuantizeConfig])


class TestNotebook:
    def test_models_are_tables_of_tensors(self, path):
        with ballast.open(path) as model:
            page = Page(model._repr_html_())
            assert page.rows[0] == ["tensor", "dtype", "shape", "size"]
            assert page.rows[1:3] == [[name, model[name].dtype, str(list(model[name].shape)), size] for name, size in
                                      zip(model, ("256 B" if model[name].dtype == "F32" else "8.19 kB" for name in model))][:2]  # fmt: skip
            assert len(page.rows) == 21 and "… and 6 more" in page.text
            assert str(path) in page.text and "safetensors · 26 tensors · 102,464 parameters · " in page.text
        assert Page(model._repr_html_()).text == "Modelclosed"

    def test_quantization_is_a_table_of_the_worst_layers(self, quantized):
        _, report = quantized
        page = Page(report._repr_html_())
        worst = min(report.layers, key=lambda layer: layer.cosine_similarity)
        assert page.rows[0][0] == "worst first" and page.rows[1][0] == worst.name and page.rows[1][3] == f"{worst.cosine_similarity:.5f}"
        assert "… and 5 more" in page.text and "25 quantized · 1 unquantized" in page.text

    def test_everything_is_escaped(self, tmp_path):
        name = '<script>alert("1")</script>&amp;'
        path = tmp_path / "<b>m.safetensors"
        ballast.save({name: np.array([1, np.nan], np.float32)}, path, metadata={"<i>": "a"}, sync=False)
        other = {name: np.array([1, 2], np.float32), "<i>": np.ones(1)}
        for each in (ballast.open(path), ballast.verify(path, values=True), ballast.diff(path, other),
                     ballast.convert(path, tmp_path / "<u>.safetensors", sync=False)):  # fmt: skip
            text = each._repr_html_()
            assert "<script" not in text and "<i>" not in text and "<u>" not in text and "<b>m" not in text
            Page(text)
        assert Page(ballast.open(path)._repr_html_()).rows[1][0] == name

    def test_others_are_pages_too(self, path, quantized, tmp_path):
        directory, _ = quantized
        cut = tmp_path / "cut.safetensors"
        cut.write_bytes(path.read_bytes()[:-4])
        verified = ballast.verify(cut, sha256=True)
        assert Page(verified._repr_html_()).rows[1] == list(verified.defects[0])
        assert Page(ballast.load_quantized_weights(directory)._repr_html_()).rows[1] == ["layers.0", "mlx", "4", "32", "BF16", "[64, 64]"]
        report = ballast.DownloadReport("d", [ballast.DownloadedFile("d/m", 5, False, "sha256"), ballast.DownloadedFile("d/n", 5, True, None)], 5)
        assert repr(report) == "DownloadReport('d', 2 files, 5 B fetched)"
        assert Page(report._repr_html_()).rows[1:] == [["d/m", "5 B", "sha256", "fetched"], ["d/n", "5 B", "size only", "already complete"]]


class TestDiff:
    def test_equal_models(self, path, arrays, tmp_path):
        ballast.save(arrays, tmp_path / "shards", max_shard_size="50kB", metadata={"a": "b"}, sync=False)
        with ballast.open(path) as model:
            for other in (path, str(path), model, arrays, tmp_path / "shards"):
                report = ballast.diff(path, other)
                assert report.equal and report.same == 26 and report.changed == report.only_in_a == report.only_in_b == []
        assert report.metadata == ["a"] and repr(report) == "DiffReport(equal, 26 tensors the same)"

    def test_is_what_the_program_prints(self, run, path, arrays, tmp_path):
        changed = {name: array for name, array in arrays.items() if name != "norm"} | {"new": np.ones(3)}
        changed["layers.0.weight"] = arrays["layers.0.weight"].astype(np.float32)
        changed["layers.1.weight"] = arrays["layers.1.weight"].T
        changed["layers.2.weight"] = arrays["layers.2.weight"].reshape(32, 128)
        other = tmp_path / "other.safetensors"
        ballast.save(changed, other, sync=False)
        report = ballast.diff(path, other)
        printed = json.loads(run("diff", path, other, "--json").stdout)
        assert (report.equal, report.same, report.only_in_a, report.only_in_b) == (False, 22, ["norm"], ["new"])
        assert [printed[key] for key in ("equal", "same", "only_in_a", "only_in_b")] == [False, 22, ["norm"], ["new"]]
        for found, told in zip(report.changed, printed["changed"], strict=True):
            assert (found.name, list(found.dtype), [list(shape) for shape in found.shape]) == (told["name"], told["dtype"], told["shape"])
            for key in ("different_values", "values", "first_difference", "max_difference"):
                assert getattr(found, key) == told.get(key)
        assert repr(report) == "DiffReport(different, 22 tensors the same, 3 changed, 1 only in a, 1 only in b)"
        assert Page(report._repr_html_()).rows[1][:4] == ["layers.0.weight", "BF16 → F32", "[64, 64]", "equal"]

    def test_quantized_models_are_decoded(self, path, quantized):
        report = ballast.diff(path, quantized[0])
        assert report.same == 1 and len(report.changed) == 25 and not report.only_in_b
        assert all(0 < tensor.max_difference < 1 for tensor in report.changed)

    def test_what_cannot_be_decoded_is_compared_as_stored(self, tmp_path):
        names = {"codes": (4, 8, 1), "codebooks": (1, 16, 1, 8), "scales": (4, 1)}
        ballast.save({f"up.{name}": np.ones(shape, np.int16) for name, shape in names.items()}, tmp_path / "aqlm", sync=False)
        (tmp_path / "aqlm/config.json").write_text('{"quantization_config": {"quant_method": "aqlm"}}')
        report = ballast.diff(tmp_path / "aqlm", tmp_path / "aqlm")
        assert report.equal and report.same == 3
        assert len(report.warnings) == 2 and report.warnings[0].endswith("; the stored tensors are compared")


class TestMetadata:
    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "m.safetensors"
        ballast.save({"a": np.arange(4)}, path, metadata={"one": "1", "two": "2"}, sync=False)
        return path

    def metadata(self, path):
        with ballast.open(path) as model:
            assert model["a"].numpy().tolist() == [0, 1, 2, 3]
            return model.metadata

    def test_is_set_and_unset(self, file):
        assert ballast.edit_metadata(file, set={"one": "x"}) == "in place"
        assert self.metadata(file) == {"one": "x", "two": "2"}
        assert ballast.edit_metadata(file, set={"long": "x" * 5000}, unset=["one", "two"]) == "rewritten"
        assert self.metadata(file) == {"long": "x" * 5000}
        assert ballast.edit_metadata(file, set={"long": "x" * 5000}) == "unchanged"
        assert ballast.edit_metadata(file) == "unchanged"

    def test_mistakes_change_nothing(self, file):
        before = file.read_bytes()
        for work, kind, message in (
            (lambda: ballast.edit_metadata(file, unset=["three"]), ballast.BallastError, "three"),
            (lambda: ballast.edit_metadata(file, set={"a": 1}), TypeError, "set must be a str, not int"),
            (lambda: ballast.edit_metadata(file, set=["a"]), TypeError, "set must be a mapping, not list"),
            (lambda: ballast.edit_metadata(file, unset="one"), TypeError, "unset must be a sequence of str, not str"),
            (lambda: ballast.edit_metadata(file, set={"a": "\ud800"}), ballast.ArgumentError, "set is .*, which is not valid UTF-8"),
        ):
            with pytest.raises(kind, match=message):
                work()
        assert file.read_bytes() == before


@pytest.mark.parametrize(
    "size, count",
    [("3000", 3000), ("3kB", 3000), ("3 KB", 3000), ("1.5 kB", 1500), (".5MB", 500_000), ("5GB", 5 * 10**9), ("2GiB", 2 * 2**30), ("1KiB", 1024),
     ("1TB", 10**12), ("3m", 3_000_000), ("7B", 7), (np.int64(9), 9), (0, 0)],
)  # fmt: skip
def test_sizes_are_understood_as_on_the_command_line(size, count):
    from ballast._arguments import checked

    assert checked(max_shard_size=size, memory_limit=size) == {"max_shard_size": count, "memory_limit": count}
