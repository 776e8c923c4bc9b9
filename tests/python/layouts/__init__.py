"""Every known way to store quantized weights: an encoder, a decoder in numpy, and the config of a model.

LAYOUTS["awq4"].make(rng, rows, columns) returns the tensors of one weight of random codes and its values in F32.
"""

from .base import DTYPE_NAMES, DTYPES, Config, Layout, Stored, Tensors, read, read_all, write
from .bitsandbytes import BITSANDBYTES_LAYOUTS
from .comfyui import COMFYUI_LAYOUTS
from .compressed_tensors import CT_LAYOUTS
from .fp8 import FP8_LAYOUTS
from .gptq import GPTQ_LAYOUTS
from .mlx import MLX_LAYOUTS
from .modelopt import MODELOPT_LAYOUTS
from .mxfp4 import MXFP4_LAYOUTS

_ALL = [*CT_LAYOUTS, *FP8_LAYOUTS, *MODELOPT_LAYOUTS, *GPTQ_LAYOUTS, *BITSANDBYTES_LAYOUTS, *MXFP4_LAYOUTS, *COMFYUI_LAYOUTS, *MLX_LAYOUTS]
LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in _ALL}
assert len(LAYOUTS) == len(_ALL)

__all__ = ["DTYPES", "DTYPE_NAMES", "LAYOUTS", "Config", "Layout", "Stored", "Tensors", "read", "read_all", "write"]
