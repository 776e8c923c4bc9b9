"""Wrong arguments of every public function: the exceptions are Python's own, and their texts are for people."""

import asyncio
import inspect
import shutil
from types import SimpleNamespace

import ballast
import ml_dtypes
import numpy as np
import pytest
from ballast.arrow_quant_v2 import ArrowQuantV2, DiffusionQuantConfig, SafeTensorsAdapter, SafeTensorsLoader
from range_server import RangeServer

WRONG = [
    None, True, 3, -1, 2**31, 2**64, 1.5, float("nan"), "x", "", "\ud800", "a\0b", b"x", b"\xff", [], [1], ["\ud800"], (), {}, {1: 2},
    {"\ud800": "x"}, {"x": "\ud800"}, {"x": np.float32}, object(), object, np.zeros(2), np.True_, np.int64(-1), slice(3), lambda: None,
]  # fmt: skip
SETTINGS = list(inspect.signature(ballast.QuantizeConfig).parameters)
WEIGHTS = {"up.weight": np.ones((4, 128), np.float32)}
NAMED = {"name": "up.weight"}
WRONG_TYPES = [
    ("sync", "sync must be True or False, not str"),
    ("threads", "threads must be an integer, not str"),
    ("set", "set must be a mapping, not str"),
]

# Functions, and arguments that work.
CALLS = {
    "open": lambda at: (ballast.open, {"path": at.path}),
    "from_bytes": lambda at: (ballast.from_bytes, {"data": at.path.read_bytes()}),
    "save": lambda at: (ballast.save, {"tensors": WEIGHTS, "path": "a.safetensors", "sync": False}),
    "serialize": lambda at: (ballast.serialize, {"tensors": WEIGHTS}),
    "to_arrow": lambda at: (ballast.to_arrow, {"source": at.path}),
    "convert": lambda at: (ballast.convert, {"source": WEIGHTS, "path": "a.safetensors", "sync": False}),
    "quantize": lambda at: (ballast.quantize, {"source": WEIGHTS, "directory": "q", "sync": False}),
    "evaluate": lambda at: (ballast.evaluate, {"model": at.language, "tokens": [1, 2, 3]}),
    "calibrate": lambda at: (ballast.calibrate, {"model": at.language, "out": "s.safetensors", "tokens": [1, 2, 3], "sync": False}),
    "dequantize": lambda at: (ballast.dequantize, {"quantized": at.parquet, "path": "a.safetensors", "sync": False}),
    "validate": lambda at: (ballast.validate, {"original": at.path, "quantized": at.parquet}),
    "verify": lambda at: (ballast.verify, {"path": at.path}),
    "diff": lambda at: (ballast.diff, {"a": at.path, "b": WEIGHTS}),
    "edit_metadata": lambda at: (ballast.edit_metadata, {"path": at.edited, "set": {"a": "b"}}),
    "download": lambda at: (ballast.download, {"uri": at.uri, "folder": "d", "sync": False}),
    "components": lambda at: (ballast.components, {"path": at.path}),
    "inspect": lambda at: (ballast.inspect, {"path": at.path}),
    "load_quantized_weights": lambda at: (ballast.load_quantized_weights, {"directory": at.mlx}),
    "QuantizeConfig": lambda at: (ballast.QuantizeConfig, {}),
    "QuantizeConfig.from_yaml": lambda at: (ballast.QuantizeConfig.from_yaml, {"source": "bit_width: 4\n"}),
    "QuantizeConfig.from_environment": lambda at: (ballast.QuantizeConfig.from_environment, {}),
    "QuantizeConfig.replace": lambda at: (ballast.QuantizeConfig().replace, {}),
    "Model.get": lambda at: (lambda name, default=None: at.model.get(name, default), NAMED),
    "Model.__getitem__": lambda at: (at.model.__getitem__, NAMED),
    "Model.__contains__": lambda at: (at.model.__contains__, NAMED),
    "Model.load": lambda at: (at.model.load, {}),
    "Tensor.numpy": lambda at: (at.model["up.weight"].numpy, {}),
    "Tensor.to": lambda at: (at.model["up.weight"].to, {"dtype": "f32"}),
    "Tensor.__getitem__": lambda at: (at.model["up.weight"].__getitem__, {"index": 0}),
    "QuantizedWeights.__getitem__": lambda at: (at.weights.__getitem__, {"name": "up"}),
    "QuantizedWeights.dequantize": lambda at: (at.weights.dequantize, {"name": "up"}),
    "SafeTensorsLoader": lambda at: (SafeTensorsLoader, {"path": at.path}),
    "SafeTensorsLoader.get_tensor": lambda at: (SafeTensorsLoader(at.path).get_tensor, NAMED),
    "SafeTensorsAdapter.get_tensor_2d": lambda at: (SafeTensorsAdapter(at.path).get_tensor_2d, NAMED),
    "DiffusionQuantConfig.from_profile": lambda at: (DiffusionQuantConfig.from_profile, {"profile": "edge"}),
    "DiffusionQuantConfig.to_yaml": lambda at: (DiffusionQuantConfig().to_yaml, {}),
    "ArrowQuantV2": lambda at: (ArrowQuantV2, {}),
    "ArrowQuantV2.quantize_from_safetensors": lambda at: (
        ArrowQuantV2().quantize_from_safetensors, {"safetensors_path": at.path, "output_path": "q", "sync": False}),
    "ArrowQuantV2.validate_quality": lambda at: (ArrowQuantV2().validate_quality, {"original": at.path, "quantized": at.parquet}),
}  # fmt: skip


@pytest.fixture(scope="module")
def at(tmp_path_factory, make_model):
    folder = tmp_path_factory.mktemp("arguments")
    path, parquet, mlx = folder / "m.safetensors", folder / "parquet", folder / "mlx"
    ballast.save(WEIGHTS, path, sync=False)
    ballast.quantize(path, parquet, sync=False)
    ballast.quantize(path, mlx, format="mlx", sync=False)
    weights = ballast.load_quantized_weights(mlx)
    with RangeServer({"/m.safetensors": path.read_bytes()}) as server:
        uri = f"{server.url}/m.safetensors"
        yield SimpleNamespace(edited=shutil.copy(path, folder / "edited.safetensors"), path=path, parquet=parquet, mlx=mlx, model=ballast.open(path), language=make_model("--preset", "tiny"), weights=weights, uri=uri)


def try_all(function, given):
    parameters = inspect.signature(function).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    if len(names) < len(parameters):
        names += SETTINGS + ["no_such_setting", "\ud800"]
    for name in names:
        for value in WRONG:
            try:
                function(**(given | {name: value}))
            except (TypeError, ValueError, OSError, LookupError, ballast.BallastError) as error:
                text = str(error)
                assert text and not any(word in text for word in ("incompatible function arguments", "nanobind", "_core", "std::")), (
                    f"{name}={value!r}: {text}"
                )


def test_every_public_function_is_tried():
    functions = {name for name in ballast.__all__ if inspect.isroutine(getattr(ballast, name)) and not name.endswith("_async")}
    assert functions <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_told_in_plain_words(at, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[name](at)
    function(**given)
    try_all(function, given)


@pytest.mark.parametrize("name", [name for name in ballast.__all__ if name.endswith("_async")])
def test_those_of_event_loops_say_the_same(at, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    function, given = CALLS[name.removesuffix("_async")](at)
    wrong, message = next(each for each in WRONG_TYPES if each[0] in inspect.signature(function).parameters)
    with pytest.raises(TypeError, match=message):
        asyncio.run(getattr(ballast, name)(**(given | {wrong: "yes"})))


@pytest.mark.parametrize(
    "work, kind, message",
    [(lambda: ballast.save(WEIGHTS, "d", max_shard_size=-1), ValueError, "max_shard_size is -1, it must be from 0 to"),
     (lambda: ballast.save(WEIGHTS, "d", max_shard_size="many"), ValueError, "max_shard_size is 'many', which is not a size; write it like '300MB', '5GB' or '2GiB'"),
     (lambda: ballast.save(WEIGHTS, "d", max_shard_size=1e9), TypeError, "max_shard_size must be a number of bytes or a size such as '5GB', not float"),
     (lambda: ballast.convert(WEIGHTS, "d", memory_limit="0GB"), ValueError, "memory_limit is '0GB', which is not a size"),
     (lambda: ballast.open("m", max_header_bytes="5 XB"), ValueError, "max_header_bytes is '5 XB', which is not a size"),
     (lambda: ballast.save(WEIGHTS, "d", sync=1), TypeError, "sync must be True or False, not int"),
     (lambda: ballast.convert(WEIGHTS, "a", include="*"), TypeError, "include must be a sequence of str, not str"),
     (lambda: ballast.serialize({"__metadata__": np.ones(1)}), ballast.ArgumentError, "a tensor cannot be named '__metadata__'"),
     (lambda: ballast.save({"__metadata__": np.ones(1)}, "a.safetensors"), ballast.ArgumentError, "a tensor cannot be named '__metadata__'"),
     (lambda: ballast.serialize({"a": np.zeros(3, ml_dtypes.float4_e2m1fn)}), ballast.ArgumentError, "'a': 3 values of 4 bits do not fill whole bytes"),
     (lambda: ballast.convert(WEIGHTS | {"b": np.ones(1)}, "a.safetensors", rename={"b": "up.weight"}), ballast.ArgumentError, "would both be named 'up.weight'"),
     (lambda: ballast.save({"a": np.ma.masked_equal([1, 2], 2)}, "a.safetensors"), TypeError, r"'a' is a masked array.*\.filled\(\)"),
     (lambda: ballast.serialize({"a": np.ma.array([1])}), TypeError, r"'a' is a masked array.*\.filled\(\)"),
     (lambda: ballast.quantize(WEIGHTS, "q", bitwidth=4), TypeError, r"quantize\(\) got an unexpected keyword argument 'bitwidth'"),
     (lambda: ballast.convert(WEIGHTS, "a", rename={"a": 1}), TypeError, "rename must be a str, not int"),
     (lambda: ballast.convert(WEIGHTS, "a", dtype_rules=["f16"]), TypeError, "dtype_rules must be a mapping, not list"),
     (lambda: ballast.validate(WEIGHTS, "q", min_accuracy="0.5"), TypeError, "min_accuracy must be a number, not str"),
     (lambda: ballast.verify("m", threads=1025), ValueError, "threads is 1025, it must be from 0 to 1024"),
     (lambda: ballast.QuantizeConfig(sensitive_layer_names=["\ud800"]), ValueError, r"sensitive_layer_names is '\\ud800', which is not valid UTF-8"),
     (lambda: ballast.QuantizeConfig.from_yaml("method: \ud800\n"), ValueError, "which is not valid UTF-8")],
)  # fmt: skip
def test_texts(tmp_path, monkeypatch, work, kind, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message):
        work()
    assert list(tmp_path.iterdir()) == []
