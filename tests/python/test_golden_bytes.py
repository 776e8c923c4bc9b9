"""Outputs stay the same, byte for byte: the SHA-256 of every file that the program writes, against tests/golden/bytes.json.

A case is a line for the shell, which runs in an empty folder beside the models of golden_models.py; all that is in the folder
afterwards counts. To record what a program writes, after a change of the bytes that is meant:

    .venv/bin/python tests/python/test_golden_bytes.py --record build/release/ballast

Parquet's bytes also depend on the version of Ballast, which they name, and on that of Arrow: with another Arrow than the one
recorded, cases that leave Parquet are skipped.
"""

import argparse
import hashlib
import importlib.metadata
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from golden_models import write_models

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "bytes.json"
FORMATS = ("parquet", "mlx")
BITS = (2, 3, 4, 5, 6, 8)
GROUPS = {"parquet": (32, 64, 128, 256), "mlx": (32, 64, 128)}
WIDE_FLOATS = ("f64", "f32", "f16", "bf16")
DTYPES = "f8_e4m3 f8_e5m2 f8_e8m0 f8_e4m3fnuz f8_e5m2fnuz f4 bool u8 i8 u16 i16 u32 i32 u64 i64".split() + [*WIDE_FLOATS]

# Files of settings, by the name that cases have for them.
SETTINGS = {
    "widths": 'layer_bit_widths:\n  "*.down_proj": 8\n  "*.v_proj": 6\n  model.layers.0.mlp.up_proj: 2\n  "*.3.*": 16\n'
    "bit_width: 3\n",
    "sensitive": "skip_sensitive_layers: true\nsensitive_layer_names: ['*.o_proj']\n"
    "sensitive_layer_patterns: ['layers\\.[01]\\.self_attn\\.[qk]_proj']\ngroup_size: 64\nmethod: hqq\n",
    "time": "enable_time_aware: true\nnum_time_groups: 4\ncalibration_samples: 7\nmin_accuracy: 0\n",
    "spatial": "enable_spatial: true\nenable_time_aware: false\nmin_accuracy: 0.5\n",
    "both": "enable_spatial: true\nenable_time_aware: true\nnum_time_groups: 6\nmin_accuracy: 0\n",
    "fixed": 'layer_bit_widths: {large: 3, "*.2.*": 6}\nsensitive_layer_names: [embed]\n',
}


def cases():
    """Lines by the name of the case."""
    quantized = quantize_cases() | runtime_cases() | calibration_cases() | size_cases()
    return convert_cases() | edit_cases() | quantized | dequantize_cases()


def quantize(model, *options, out="out"):
    line = " ".join(["ballast quantize", model, out, "--no-sync", *map(str, options)])
    return line if "--method" in line or "method:" in SETTINGS.get(Path(line.split("--config ")[-1]).stem, "") else f"{line} --method search"


def convert_cases():
    convert = "ballast convert ../dtypes.safetensors"
    convertible = "--exclude 'f6?' --exclude c64"
    timed = quantize(
        "../calibrated.safetensors", "--format mlx --group-size 64 --config ../both.yaml --calibration ../timed.safetensors"
    )
    found = {}
    for dtype in DTYPES:
        odd = "--exclude scalar" if dtype == "f4" else ""  # half a byte
        found[f"all to {dtype}"] = f"{convert} out.safetensors {convertible} {odd} --dtype '*={dtype}' --allow-loss"
        found[f"its kind to {dtype}"] = f"{convert} out.safetensors {odd} --dtype {dtype} --allow-loss"
    found |= {
        "a copy": f"{convert} out.safetensors",
        "a directory": f"{convert} out --dtype f16",
        "shards": f"{convert} out --max-shard-size 300kB",
        "shards to shards": "ballast convert ../language out --max-shard-size 1MiB --dtype f16 --dtype '*norm*=f32'",
        "shards to a file": "ballast convert ../language out.safetensors",
        "selection": "ballast convert ../language out --include '*.layers.[0-5].*' --exclude '*.mlp.*' --rename '*q_proj*=*q*'"
        " --rename '*norm.weight=*n' --metadata a=b=c --metadata format --metadata 'ü=\"\n\"'",
        "over itself": "cp -r ../language model; echo x >model/notes.txt; ballast convert model model --dtype f32",
        "over a file": "cp ../dtypes.safetensors m.safetensors; ballast convert m.safetensors m.safetensors --dtype f64",
        "little memory": f"{convert} out.safetensors --dtype bf16 --memory-limit 16",
        "json": f"{convert} out.mlx {convertible} --exclude 'f8_*' --exclude f4 --exclude large;"
        " ballast convert out.mlx back.safetensors",
        "json directory": "ballast convert ../language out --format mlx-json --include '*.0.*' --dtype f32;"
        " ballast convert out back",
        "json by hand": "ballast convert ../numbers.mlx out.safetensors; ballast convert ../numbers.mlx out.mlx --metadata l=w",
        "json to f16": "ballast convert ../numbers.mlx out --dtype f16 --allow-loss",
        "quantized": "ballast convert ../affine out --max-shard-size 40kB",
        "quantized with side files": f"{timed}; ballast convert out again",
    }
    return {f"convert: {name}": line for name, line in found.items()}


def edit_cases():
    copy = "cp ../dtypes.safetensors m.safetensors; ballast metadata m.safetensors"
    extract = "ballast extract ../dtypes.safetensors"
    names = [*DTYPES, "c64", "none_f16", "none_i8", "scalar"]
    slices = {"f64": "::-3,5:50:7", "f32": "1:30:4,::-1,1:", "f16": "-7:,::2", "bf16": "5:5", "f4": "3:20:5,2:8"}
    slices |= {"i64": "::7", "large": "10:1000:3,:"}
    return {
        "metadata: in place": f"{copy} --set note=short",
        "metadata: rewritten": f"{copy} --set 'long={'x' * 300}' --set 'ü=\n' --unset format",
        "metadata: taken away": f"{copy} --unset format --unset note",
        "metadata: added": "cp ../mixed/model.safetensors m.safetensors; ballast metadata m.safetensors --set a=b",
        "extract: dtypes": "; ".join(f"{extract} {name} -o {name}.npy" for name in names),
        "extract: slices": "; ".join(f"{extract} {name} --slice={slice} >{name}.npy" for name, slice in slices.items()),
        "extract: shards": "ballast extract ../language lm_head.weight -o head.npy; ballast extract ../numbers.mlx b >b.npy",
    }


def quantize_cases():
    found = {}
    for format in FORMATS:
        some = {}
        group = 64 if format == "mlx" else 128
        for method in ("rtn", "search", "hqq"):
            for bits in BITS:
                options = f"--format {format} --method {method} --bits {bits} --min-accuracy 0"
                lines = [quantize("../mixed", options, "--group-size", group)]
                if format == "parquet":
                    lines.append(quantize("../ragged.safetensors", options, "--group-size 64", out="ragged"))
                some[f"{method}, {bits} bits"] = "; ".join(lines)
            for size in GROUPS[format]:
                options = f"--format {format} --method {method} --group-size {size}"
                some[f"{method}, groups of {size}"] = quantize("../language", options)
        for recipe in ("mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"):
            some[recipe] = quantize("../language", f"--format {format} --recipe {recipe} --group-size 64 --method rtn")
        for profile in ("edge", "local", "cloud"):
            size = "--group-size 128" if format == "mlx" else ""
            some[f"profile {profile}"] = quantize("../language", f"--format {format} --profile {profile}", size)
        for modality in ("text", "code", "image", "audio"):
            some[modality] = quantize("../diffusion", f"--format {format} --modality {modality} --group-size 32 --method rtn")
        for name in ("widths", "sensitive"):
            some[f"settings: {name}"] = quantize("../language", f"--format {format} --config ../{name}.yaml")
        settings = "BALLAST_SENSITIVE_LAYER_NAMES='*embed*,*head' BALLAST_LAYER_BIT_WIDTHS='*.down_proj=5' BALLAST_BIT_WIDTH=6"
        some |= {
            "environment": f"{settings} {quantize('../language', f'--format {format} --method rtn')}",
            "modality of the model": quantize("../diffusion", f"--format {format} --group-size 32"),
            "keep": quantize("../mixed", f"--format {format} --keep large --keep '*half*' --validate"),
            "more bits": quantize("../language", f"--format {format} --bits 2 --group-size 64 --min-accuracy 0.98"),
            "many more bits": quantize("../language", f"--format {format} --bits 3 --min-accuracy 0.9995"),
            "fail fast": quantize("../language", f"--format {format} --bits 6 --fail-fast --min-accuracy 0.9"),
            "small tensors": quantize("../many.safetensors", f"--format {format} --group-size 64"),
            "nothing": quantize("../language", f"--format {format} --keep '*'"),
            "from json": f"ballast convert ../language in.mlx --include '*.[01].*'; {quantize('in.mlx', f'--format {format}')}",
            "over another": f"{quantize('../language', f'--format {format} --bits 8 --method rtn')}; echo x >out/notes.txt; "
            + quantize("../diffusion", f"--format {'mlx' if format == 'parquet' else 'parquet'} --group-size 32 --method rtn --force"),
        }
        found |= {f"quantize: {format}, {name}": line for name, line in some.items()}
    return found


def runtime_cases():
    """What vLLM, SGLang and transformers load."""
    types = {f"{bits} bits": f"--bits {bits} --group-size 64" for bits in range(2, 9)}
    types |= {"zero points": "--asymmetric", "3-bit zero points": "--asymmetric --bits 3 --group-size 32", "rows": "--strategy channel"}
    types |= {f"fp8, {strategy}": f"--type fp8 --strategy {strategy}" for strategy in ("tensor", "channel", "block")}
    types |= {type: f"--type {type}" for type in ("mxfp4", "mxfp8", "nvfp4")}
    found = {}
    for method in ("rtn", "search"):
        options = f"--method {method} --min-accuracy 0"
        some = {f"compressed-tensors, {name}": f"--format compressed-tensors {type}" for name, type in types.items()}
        some["hf-fp8"] = "--format hf-fp8"
        found |= {f"quantize: {name}, {method}": quantize("../language", type, options) for name, type in some.items()}
    return found


def calibration_cases():
    found = {}
    for format in FORMATS:

        def calibrated(statistics, *options, model="../calibrated.safetensors", group=64):
            statistics = f"--calibration ../{statistics}.safetensors"
            return quantize(model, f"--format {format} --group-size {group}", statistics, *options)

        some = {f"squares, {bits} bits": calibrated("squares", f"--min-accuracy 0 --bits {bits}") for bits in BITS}
        some |= {f"hessians, {bits} bits": calibrated("hessians", f"--min-accuracy 0 --bits {bits}") for bits in BITS}
        for method in ("rtn", "search", "hqq"):
            some[f"{method}, everything"] = calibrated("all", f"--method {method} --config ../both.yaml")
            some[f"{method}, text"] = calibrated("timed", f"--method {method} --modality text")
            some[f"{method}, image"] = calibrated("counted", f"--method {method} --modality image --bits 3")
        for group in GROUPS[format]:
            some[f"groups of {group}"] = calibrated("all", "--config ../both.yaml --bits 3", group=group)
        for statistics, name in itertools.product(("counted", "timed", "hessians"), ("time", "spatial", "both")):
            some[f"{statistics}, {name}"] = calibrated(statistics, f"--config ../{name}.yaml")
        some |= {
            "counted": calibrated("counted"),
            "timed": calibrated("timed"),
            "profile edge": calibrated("all", "--modality code --profile edge"),
            "many groups": calibrated("timed", "--modality text --profile cloud"),
            "diffusion": calibrated("diffusion_timed", "--bits 3", model="../diffusion"),
            "more bits": calibrated("all", "--config ../spatial.yaml --min-accuracy 0.99 --bits 2"),
            "little memory": calibrated("hessians", "--memory-limit 64"),
        }
        for bits in (2, 4):
            some[f"several blocks, {bits} bits"] = calibrated("wide_all", f"--bits {bits}", model="../wide.safetensors")
        if format == "mlx":
            some["experts"] = calibrated("experts_all", "--config ../both.yaml", model="../experts.safetensors")
        else:
            some["several files"] = calibrated("long_timed", "--modality text", model="../long.safetensors")
        found |= {f"calibration: {format}, {name}": line for name, line in some.items()}
    return found


def size_cases():
    found = {}
    for format in FORMATS:
        options = f"--format {format} --group-size 64 --target-size-mb"
        statistics = "--calibration ../timed.safetensors"
        some = {f"language, {size} MB": quantize("../language", options, size) for size in (1.2, 3)}
        some |= {
            "mixed": quantize("../mixed", options, 3, "--method rtn"),
            "fixed bits": quantize("../calibrated.safetensors", options, 2.3, "--config ../fixed.yaml"),
            "statistics": quantize("../calibrated.safetensors", options, 2, statistics),
            "time groups": quantize("../calibrated.safetensors", options, 2.4, statistics, "--modality text"),
            "columns": quantize("../calibrated.safetensors", options, 2.2, statistics, "--config ../spatial.yaml"),
            "hessians": quantize("../calibrated.safetensors", options, 2.6, "--calibration ../hessians.safetensors"),
        }
        found |= {f"size: {format}, {name}": line for name, line in some.items()}
    return found


def dequantize_cases():
    found = {}
    for format in FORMATS:
        some = {}
        made = quantize("../mixed", f"--format {format} --method rtn --group-size 128 --bits 5", out="q")
        for dtype in WIDE_FLOATS:
            some[dtype] = f"{made}; ballast dequantize q out.safetensors --dtype {dtype}"
        some["as before"] = f"{made}; ballast dequantize q out"
        some["shards"] = f"{made}; ballast dequantize q out --dtype f16 --max-shard-size 2MB"
        if format == "parquet":
            made = quantize("../ragged.safetensors", "--method rtn --bits 3 --group-size 32", out="q")
            some["ragged"] = "; ".join([made, *(f"ballast dequantize q {dtype} --dtype {dtype}" for dtype in WIDE_FLOATS)])
        options = f"--format {format} --group-size 64 --calibration ../all.safetensors --config ../both.yaml --bits 3"
        made = quantize("../calibrated.safetensors", options, out="q")
        some |= {f"columns to {dtype}": f"{made}; ballast dequantize q out --dtype {dtype}" for dtype in ("f32", "bf16")}
        made = quantize("../language", f"--format {format} --recipe mixed_3_6 --method rtn --group-size 64", out="q")
        some["language"] = f"{made}; ballast dequantize q out; ballast dequantize q out.mlx"
        found |= {f"dequantize: {format}, {name}": f"{line}; rm -r q" for name, line in some.items()}
    for model in ("affine", "mxfp4", "mxfp8", "nvfp4"):
        for dtype in WIDE_FLOATS:
            found[f"dequantize: {model} to {dtype}"] = f"ballast dequantize ../{model} out --dtype {dtype}"
        found[f"dequantize: {model}"] = f"ballast dequantize ../{model} out.safetensors"
    return found


CASES = cases()
# Those that are run again with one thread, and with two.
AGAIN = (
    "convert: all to bf16",
    "convert: json",
    "convert: shards to shards",
    "quantize: parquet, search, 3 bits",
    "quantize: mlx, hqq, 5 bits",
    "quantize: mlx, more bits",
    "quantize: compressed-tensors, 3-bit zero points, search",
    "quantize: compressed-tensors, nvfp4, search",
    "calibration: parquet, search, everything",
    "calibration: mlx, search, everything",
    "calibration: mlx, several blocks, 4 bits",
    "size: parquet, columns",
    "size: mlx, hessians",
    "dequantize: parquet, bf16",
    "dequantize: affine to f32",
)
# Those that are broken off by a signal, at which call of the system.
BROKEN_OFF = {
    "convert: shards to shards": ("pwrite64", "INT", 11),
    "convert: its kind to f64": ("pwrite64", "INT", 5),
    "quantize: mlx, search, 4 bits": ("pwrite64", "INT", 12),
    "quantize: mlx, hqq, groups of 64": ("pwrite64", "INT", 100),
    "calibration: mlx, search, everything": ("pwrite64", "INT", 40),
    "size: mlx, statistics": ("pwrite64", "INT", 20),
    "calibration: parquet, several files": ("fdatasync", "KILL", 1),
}


def write_inputs(root):
    write_models(root)
    for name, text in SETTINGS.items():
        (root / f"{name}.yaml").write_text(text)
    return root


def hashes(folder):
    """Of all files in it, by their path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with open(path, "rb") as file:
                found[str(path.relative_to(folder))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def shell(program, folder, line, more="", under=""):
    """Runs a line in which `ballast` is the program, with more options, or under another program."""
    script = f'ballast() {{ {under} "$PROGRAM" "$@" {more}; }}\n{line}'
    settings = {name: value for name, value in os.environ.items() if not name.startswith("BALLAST_")}
    settings |= {"PROGRAM": str(program), "LC_ALL": "C.UTF-8"}
    return subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=settings, capture_output=True, text=True)


def make(program, root, line, **options):
    """What a line makes, in a folder of the same name for all."""
    folder = root / "case"
    folder.mkdir()
    try:
        result = shell(program, folder, line, **options)
        assert result.returncode == 0, f"{line}\n{result.stderr}"
        return hashes(folder)
    finally:
        shutil.rmtree(folder)


def check_same(found, expected, line="inputs"):
    """Fails with a line for each file that is not as it was."""
    how = {name: "differs" for name in found if found[name] != expected.get(name)}
    how |= {name: "is new" for name in found.keys() - expected.keys()}
    how |= {name: "is missing" for name in expected.keys() - found.keys()}
    if how:
        pytest.fail("\n".join([line, *(f"{name} {how[name]}" for name in sorted(how))]), pytrace=False)


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_inputs(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def program(build_dir):
    return (build_dir / "ballast").resolve()


@pytest.fixture
def expected(golden, request):
    """What is recorded of the case that the test is about."""
    files = golden["cases"][request.getfixturevalue("name")]
    if any(name.endswith(".parquet") for name in files) and importlib.metadata.version("pyarrow") != golden["arrow"]:
        pytest.skip(f"recorded with Arrow {golden['arrow']}")
    return files


def test_every_case_is_recorded(golden):
    assert golden["cases"].keys() == CASES.keys()


def test_inputs_are_the_same(golden, root):
    check_same(hashes(root), golden["inputs"])


@pytest.mark.parametrize("name", CASES)
def test_output_is_the_same(program, root, expected, name):
    check_same(make(program, root, CASES[name]), expected, CASES[name])


@pytest.mark.parametrize("more", ["--threads 1", "--threads 2"])
@pytest.mark.parametrize("name", AGAIN)
def test_threads_do_not_change_it(program, root, expected, name, more):
    check_same(make(program, root, CASES[name], more=more), expected, f"{CASES[name]}, with {more}")


@pytest.mark.parametrize("name", BROKEN_OFF)
def test_broken_off_and_taken_up_again_it_is_the_same(program, root, expected, name):
    call, signal, number = BROKEN_OFF[name]
    strace = f"strace -f -o /dev/null -e trace={call} -e inject={call}:signal={signal}:when={number}"
    folder = root / "case"
    folder.mkdir()
    try:
        result = shell(program, folder, CASES[name], more="--threads 1 --resume", under=strace)
        assert result.returncode == {"INT": 130, "KILL": 137}[signal], f"not broken off: {result.stderr}"
        (journal,) = [*folder.glob("*.incomplete/journal"), *folder.glob("*.incomplete.journal")]
        assert journal.stat().st_size > 64  # something beside its key
        assert not list(folder.glob("*.safetensors")) and not (folder / "out").exists()
        result = shell(program, folder, CASES[name], more="--resume")
        assert result.returncode == 0, result.stderr
        check_same(hashes(folder), expected, CASES[name])
    finally:
        shutil.rmtree(folder)


def record(program):
    with tempfile.TemporaryDirectory() as folder:
        root = write_inputs(Path(folder))
        found = {"arrow": importlib.metadata.version("pyarrow"), "inputs": hashes(root)}
        found["cases"] = {name: make(program, root, line) for name, line in CASES.items()}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(found['cases'])} cases, {sum(map(len, found['cases'].values()))} files")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Records the bytes of every output.")
    parser.add_argument("--record", metavar="PROGRAM", type=Path, required=True)
    record(parser.parse_args().record.resolve())
