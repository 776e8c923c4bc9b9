"""A small model whose names and shapes the samples of the Python package speak of."""


import ballast
import ml_dtypes
import numpy as np
from safetensors_bytes import prefix


def write_sample_model(path):
    """embed.weight and then bias, in this order, which no writer would give them."""
    rng = np.random.default_rng(1)
    embed = rng.normal(0, 0.02, (64, 32)).astype(ml_dtypes.bfloat16)
    bias = rng.normal(0, 0.02, 64).astype(np.float32)
    header = {
        "embed.weight": {"dtype": "BF16", "shape": [64, 32], "data_offsets": [0, 4096]},
        "bias": {"dtype": "F32", "shape": [64], "data_offsets": [4096, 4352]},
    }
    path.write_bytes(prefix(header, align=True) + embed.tobytes() + bias.tobytes())
    return path


def sample_names(folder):
    """What docstrings take for granted."""
    out = folder / "out"
    out.mkdir()
    path = write_sample_model(folder / "model.safetensors")
    for name, format in (("quantized", "parquet"), ("mlx", "mlx")):
        ballast.quantize(path, folder / name, bit_width=4, group_size=32, format=format, sync=False)
    return {
        "np": np,
        "ballast": ballast,
        "QuantizeConfig": ballast.QuantizeConfig,
        "path": path,
        "model": ballast.open(path),
        "out": out,
        "quantized": folder / "quantized",
        "mlx": folder / "mlx",
    }
