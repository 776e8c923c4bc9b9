"""MLX JSON written by Python's json module, compared with NumPy."""

import json
import os
import subprocess
from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = 1_000 if os.environ.get("BALLAST_FULL") == "1" else 200

DTYPES = {
    "float32": ("F32", np.float32), "float16": ("F16", np.float16), "bfloat16": ("BF16", ml_dtypes.bfloat16),
    "float64": ("F64", np.float64), "int8": ("I8", np.int8), "int16": ("I16", np.int16), "int32": ("I32", np.int32),
    "int64": ("I64", np.int64), "uint8": ("U8", np.uint8), "uint16": ("U16", np.uint16), "uint32": ("U32", np.uint32),
    "uint64": ("U64", np.uint64), "bool": ("BOOL", np.bool_),
}  # fmt: skip
CANONICAL_NAN = {"float32": 0x7FC00000, "float16": 0x7E00, "bfloat16": 0x7FC0, "float64": 0x7FF8 << 48}
CODES = {"float32": 0, "int32": 1, "float16": 2, "bfloat16": 3, "uint32": 4}


def is_nan(array: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return np.isnan(array.astype(np.float64))


def as_list(array: np.ndarray) -> list:
    """What json.dumps can write: floats as Python floats, with NaN and infinities among them."""
    flat = array.reshape(-1)
    return (flat.astype(np.float64) if array.dtype.kind in "fV" else flat).tolist()


def read(probe, path, document: dict, **layout) -> dict:
    path.write_text(json.dumps(document, **layout), encoding="utf-8")
    return probe(f"open strict {path}")


@st.composite
def arrays(draw) -> tuple[str, np.ndarray]:
    name = draw(st.sampled_from(list(DTYPES)))
    dtype = np.dtype(DTYPES[name][1])
    shape = draw(st.lists(st.integers(0, 6), max_size=3) | st.just([40_000]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    content = rng.integers(0, 2 if dtype == bool else 256, prod(shape) * dtype.itemsize, np.uint8)
    array = content.view(dtype).reshape(shape)
    if dtype.kind in "fV":  # Python has only one NaN
        codes = array.view(f"u{dtype.itemsize}")
        codes[is_nan(array)] = CANONICAL_NAN[name]
    return name, array


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    tensors=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), arrays(), max_size=3),
    layout=st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}]),
    fields=st.permutations(["shape", "dtype", "data", "other"]),
    coded=st.booleans(),
)
def test_documents_of_the_json_module_are_read_bit_for_bit(probe, tmp_path_factory, tensors, layout, fields, coded):
    path = tmp_path_factory.getbasetemp() / "drawn.mlx"
    weights = {}
    for name, (dtype, array) in tensors.items():
        entry = {
            "shape": list(array.shape),
            "dtype": CODES.get(dtype, dtype) if coded else dtype,
            "data": as_list(array),
            "other": {"nested": [None, 1e5, "é"]},
        }
        weights[name] = {field: entry[field] for field in fields}
    answer = read(probe, path, {"version": "1.0", "metadata": {"k": "v"}, "weights": weights, "after": [float("nan")]}, **layout)
    assert answer["ok"], answer
    assert answer["metadata"] == {"k": "v"}
    assert [tuple(tensor) for tensor in answer["tensors"]] == [
        (name, DTYPES[dtype][0], list(array.shape), array.tobytes().hex()) for name, (dtype, array) in tensors.items()
    ]


@pytest.mark.parametrize(("name", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_every_16_bit_value_is_read_from_its_decimal(probe, tmp_path, name, dtype):
    codes = np.arange(1 << 16, dtype=np.uint16)
    array = codes[~is_nan(codes.view(dtype))].view(dtype)
    document = {"weights": {"t": {"shape": [array.size], "dtype": name, "data": as_list(array)}}}
    answer = read(probe, tmp_path / "w.mlx", document)
    assert answer["tensors"][0][3] == array.tobytes().hex()


def test_doubles_are_rounded_to_float16_as_numpy_does(probe, tmp_path):
    rng = np.random.default_rng(7)
    doubles = np.concatenate([rng.uniform(-65500, 65500, 5_000), rng.uniform(-1, 1, 5_000) * 2.0 ** rng.integers(-27, 0, 5_000)])
    document = {"weights": {"t": {"shape": [doubles.size], "dtype": "float16", "data": doubles.tolist()}}}
    answer = read(probe, tmp_path / "w.mlx", document)
    assert answer["tensors"][0][3] == doubles.astype(np.float16).tobytes().hex()


def test_slices_of_long_tensors_match_numpy(probe, tmp_path):
    array = np.random.default_rng(1).standard_normal((300, 500)).astype(np.float32)
    document = {"weights": {"t": {"shape": [300, 500], "dtype": "float32", "data": as_list(array)}}}
    (tmp_path / "w.mlx").write_text(json.dumps(document))
    for text, part in [("10:290:7,3:499:11", array[10:290:7, 3:499:11]), ("-1:", array[-1:]), (":,250:251", array[:, 250:251])]:
        answer = probe(f"slice {tmp_path / 'w.mlx'} t {text}")
        assert answer["ok"], answer
        assert answer["bytes"] == np.ascontiguousarray(part).tobytes().hex()


@pytest.mark.parametrize("name", list(DTYPES))
def test_written_values_are_the_same_to_python(probe, name):
    dtype = np.dtype(DTYPES[name][1])
    content = np.random.default_rng(3).integers(0, 2 if dtype == bool else 256, 20_000 * dtype.itemsize, np.uint8)
    array = np.arange(1 << 16, dtype=np.uint16).view(dtype) if dtype.itemsize == 2 else content.view(dtype)
    text = probe(f"format {DTYPES[name][0]} {array.tobytes().hex()}")["text"]
    entries = json.loads(f"[{text}]")
    if dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            finite = np.isfinite(array.astype(np.float64))
        assert [isinstance(entry, str) for entry in entries] == (~finite).tolist()
        codes = array.view(f"u{dtype.itemsize}")
        named = [i for i, entry in enumerate(entries) if isinstance(entry, str) and entry.startswith("nan:")]
        assert [int(entries[i][4:], 16) for i in named] == codes[named].tolist()
        for i in named:
            entries[i] = "NaN"
        entries = [float(entry) for entry in entries]
        read_back = np.array(entries, np.float64).astype(dtype).view(codes.dtype)
        read_back[is_nan(array)] = CANONICAL_NAN[name]
        read_back[named] = codes[named]
        assert (read_back == codes).all()
    else:
        assert (np.array(entries, dtype) == array).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text('{}[]",:0123456789.-+eE \n\\untrfalseNIy', max_size=12), st.integers(0, 10_000))
def test_ignored_text_is_accepted_only_if_python_accepts_it(probe, tmp_path_factory, noise, place):
    path = tmp_path_factory.getbasetemp() / "noise.mlx"
    base = '{"x": [1, {"y": "z\\u00e9"}, -2.5e3, true, null], "weights": {}}'
    place %= len(base)
    text = base[:place] + noise + base[place + len(noise) % 3 :]
    path.write_text(text, encoding="utf-8")
    answer = probe(f"open strict {path}")
    try:
        json.loads(text)
    except ValueError:
        assert not answer["ok"], text
        assert answer["code"] in ("corrupt", "unsupported")
    else:
        if not answer["ok"]:  # valid JSON, but not a document
            assert answer["code"] == "corrupt"


def test_inspect_reports_the_format(build_dir, tmp_path):
    path = tmp_path / "weights.mlx"
    path.write_text('{"weights": {"t": {"shape": [2], "dtype": "float32", "data": [1, 2]}}}')
    found = json.loads(
        subprocess.run([build_dir / "ballast", "inspect", "--json", "--tensors", tmp_path], check=True, capture_output=True).stdout
    )
    assert found["format"] == "mlx-json"
    assert found["files"] == [{"path": str(path), "size": path.stat().st_size, "data_start": 0}]
    assert found["data_bytes"] == 8
    assert found["tensors"][0]["data_offsets"] == [0, 8]
