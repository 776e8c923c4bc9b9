"""Quantize a model from SafeTensors to Parquet with 2 to 8 bits per weight, and print what that costs.

    python examples/quantize_from_safetensors.py --input model.safetensors --output model_int2/ --bit-width 2 --validate

Exit codes: 0 success, 1 below the minimum accuracy, 2 wrong usage, 3 bad input, 4 output not written, 130 interrupted.
"""

import argparse
import sys

import ballast
from ballast.arrow_quant_v2 import ArrowQuantV2, DiffusionQuantConfig, SafeTensorsLoader


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", required=True, help="a SafeTensors file, an index of shards or a model directory")
    parser.add_argument("--output", required=True, help="the directory to write")
    parser.add_argument("--bit-width", type=int, metavar="N", help="2, 3, 4, 5, 6 or 8 (default: from the profile)")
    parser.add_argument("--profile", choices=["edge", "local", "cloud"], default="local", help="settings for 2, 4 or 8 bits")
    parser.add_argument("--modality", choices=["text", "code", "image", "audio"], help="default: from the model")
    parser.add_argument("--validate", action="store_true", help="read the files back and measure them")
    return parser.parse_args(arguments)


def show_progress(done, total, message):
    if total and sys.stderr.isatty():
        print(f"\r\033[K{100 * done // total:3d} %  {message}", end="\r", file=sys.stderr, flush=True)


def quantize(options):
    config = DiffusionQuantConfig.from_profile(options.profile, bit_width=options.bit_width, modality=options.modality)
    with SafeTensorsLoader(options.input) as loader:
        print(loader.summary())
    result = ArrowQuantV2(mode="diffusion").quantize_from_safetensors(
        safetensors_path=options.input,
        output_path=options.output,
        config=config,
        progress_callback=show_progress,
        validate=options.validate,
    )
    for warning in result["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    report(result)
    return 1 if options.validate and not result["passed"] else 0


def report(result):
    how = "measured on the files" if result["validated"] else "measured while writing"
    print()
    print(f"{result['output_path']}: {len(result['layers'])} quantized, {result['unquantized']} unquantized, {result['quantization_time_s']:.2f} s")
    print(f"Compression: {result['compression_ratio']:.2f}x, {result['model_size_mb']:,.2f} MB, {result['bits_per_weight']:.2f} bits per weight")
    print(f"Accuracy: cosine {result['cosine_similarity']:.5f}, relative RMSE {result['relative_rmse']:.5f} ({how})")
    for layer in sorted(result["layers"], key=lambda layer: layer["cosine_similarity"])[:5]:
        bits = str(layer["bits"]) if layer["bits"] == layer["planned_bits"] else f"{layer['planned_bits']}→{layer['bits']}"
        print(f"  {layer['name']}: {bits} bits, cosine {layer['cosine_similarity']:.5f}")
    if len(result["layers"]) > 5:
        print(f"  … and {len(result['layers']) - 5} better ones")


def main(arguments=None):
    options = parse(arguments)
    try:
        return quantize(options)
    except KeyboardInterrupt:
        return 130
    except ballast.BallastError as error:
        print(f"quantize_from_safetensors: {error}", file=sys.stderr)
        if isinstance(error, ballast.ArgumentError):
            return 2
        if isinstance(error, ballast.BelowMinimumError):
            return 1
        return 4 if isinstance(error, ballast.WriteError) else 3


if __name__ == "__main__":
    sys.exit(main())
