"""The decoders of tests/python/layouts against weights that the packages themselves stored and decoded."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from layouts import DTYPES, LAYOUTS, read

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "layouts"


def cases():
    for path in sorted(FOLDER.glob("*.safetensors")):
        _, metadata = read(path)
        for case, said in json.loads(metadata["layouts"]).items():
            yield pytest.param(path, case, said, id=f"{path.stem}-{case}")


@pytest.mark.parametrize(("path", "case", "said"), list(cases()))
def test_values_of_the_package(path, case, said):
    every, _ = read(path)
    tensors = {name.removeprefix(case + "/"): tensor for name, tensor in every.items() if name.startswith(case + "/")}
    dense = tensors.pop("dense")
    layout = replace(LAYOUTS[said["layout"]], **{name: tuple(value) for name, value in said.get("change", {}).items()})
    found = layout.decode({name if name.startswith("_") else "." + name: tensor for name, tensor in tensors.items()})
    np.testing.assert_array_equal(found[: len(dense)], dense)  # of any zero; ModelOpt and bitsandbytes lose the sign of some


def test_the_files_say_how_they_were_made():
    assert {path.stem for path in FOLDER.glob("*.safetensors")} >= {
        "compressed_tensors",
        "bitsandbytes",
        "transformers",
        "modelopt",
        "mlx",
        "awq",
    }
    for path in FOLDER.glob("*.safetensors"):
        tensors, metadata = read(path)
        assert metadata["package"] and metadata["version"][0].isdigit() and metadata["torch"]
        assert {tensor.dtype for tensor in tensors.values()} <= set(DTYPES.values())
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < 300_000
