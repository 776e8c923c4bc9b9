"""The names of ArrowQuant V2 over Ballast, so that code written for it runs after a change of its imports.

>>> quantizer = ArrowQuantV2(mode="diffusion")
>>> result = quantizer.quantize_from_safetensors(path, out / "aqv2", bit_width=2)
>>> result["bit_width"], len(result["layers"])
(2, 1)
"""

from ballast.arrow_quant_v2.adapter import SafeTensorsAdapter
from ballast.arrow_quant_v2.config import DiffusionQuantConfig
from ballast.arrow_quant_v2.python.safetensors_loader import SafeTensorsLoader
from ballast.arrow_quant_v2.quantizer import ArrowQuantV2

__all__ = ["ArrowQuantV2", "DiffusionQuantConfig", "SafeTensorsAdapter", "SafeTensorsLoader"]
