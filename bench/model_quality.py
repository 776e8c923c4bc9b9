#!/usr/bin/env python3
"""How quantization changes the predictions of SmolLM2-135M: perplexity, KL divergence and top-1 agreement by bits and method.

Linear layers in groups of 64 in the MLX format; the embedding stays as it is. The windows that are scored and those for
calibration alternate in one text. Needs numpy, gguf, safetensors and tokenizers, and on the first run pip and apt-get.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import smollm2

ROOT = Path(__file__).resolve().parents[1]
METHODS = {
    "rtn": ["--method", "rtn"],
    "search": ["--method", "search"],
    "auto": [],
    "weighted": ["--calibration", "squares.safetensors"],
    "gptq": ["--calibration", "hessians.safetensors"],
    "sequential": ["--calibration-tokens", "calibration.npy"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/ballast", type=Path)
    parser.add_argument("--cache", default=ROOT / "build/smollm2", type=Path, help="folder for downloads")
    parser.add_argument("--windows", type=int, default=64, help="of 512 tokens to score, evenly spread (default: 64)")
    parser.add_argument("--calibration-windows", type=int, default=64, help="of 512 tokens to calibrate with (default: 64)")
    parser.add_argument("--bits", type=int, nargs="+", default=[2, 3, 4, 6, 8])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    program, cache = options.program.resolve(), options.cache.resolve()

    with tempfile.TemporaryDirectory(prefix="ballast-") as temporary:
        folder = Path(temporary)
        model = folder / "original"
        smollm2.make_model(model, cache)
        smollm2.save_tokens(model, smollm2.english(cache), folder, options.windows, options.calibration_windows)

        def run(*arguments):
            done = subprocess.run([program, *map(str, arguments), "--json"], cwd=folder, stdout=subprocess.PIPE, text=True)
            if done.returncode != 0:
                sys.exit(f"ballast {shlex.join(map(str, arguments))} exited with {done.returncode}")
            return json.loads(done.stdout)

        for name, more in (("squares", []), ("hessians", ["--hessian"])):
            if {"squares": "weighted", "hessians": "gptq"}[name] in options.methods:
                run("calibrate", model, "-o", f"{name}.safetensors", "--tokens", "calibration.npy", *more)
        print(shlex.join(["bench/model_quality.py", *sys.argv[1:]]))
        print(f"SmolLM2-135M, {options.windows} windows of 512 tokens to score, {options.calibration_windows} to calibrate\n")
        print(f"{'bits':>4}  {'bpw':>4}  {'method':<10}  {'perplexity':>10}  {'KL':>6}  {'of rtn':>6}  {'top-1':>6}", flush=True)
        for bits in options.bits:
            rtn = None
            for method in options.methods:
                shutil.rmtree(folder / "small", ignore_errors=True)
                settings = ["--format", "mlx", "--group-size", 64, "--bits", bits, "--keep", "*embed*", "--min-accuracy", 0]
                made = run("quantize", model, "small", *settings, *METHODS[method])
                found = run("evaluate", "small", "--tokens", "scoring.npy", "--against", model)
                rtn = found["kl_mean"] if method == "rtn" else rtn
                ratio = f"{found['kl_mean'] / rtn:.3f}" if rtn else ""
                print(
                    f"{bits:4}  {made['bits_per_weight']:4.2f}  {method:<10}  {found['perplexity']:10.2f}  {found['kl_mean']:6.4f}  "
                    f"{ratio:>6}  {found['top1_agreement']:6.1%}",
                    flush=True,
                )
        print(f"\noriginal: perplexity {found['original_perplexity']:.2f}")


if __name__ == "__main__":
    main()
