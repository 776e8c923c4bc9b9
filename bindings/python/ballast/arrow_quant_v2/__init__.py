"""The classes of ArrowQuant V2, implemented with Ballast. Code written for it runs after a change of its imports.

>>> quantizer = ArrowQuantV2(mode="diffusion")
>>> result = quantizer.quantize_from_safetensors(path, out / "aqv2", bit_width=2)
>>> result["bit_width"], len(result["layers"])
(2, 1)
"""

from ballast.arrow_quant_v2._adapter import SafeTensorsAdapter
from ballast.arrow_quant_v2._config import DiffusionQuantConfig
from ballast.arrow_quant_v2._quantizer import ArrowQuantV2
from ballast.arrow_quant_v2.python.safetensors_loader import SafeTensorsLoader

__all__ = ["ArrowQuantV2", "DiffusionQuantConfig", "SafeTensorsAdapter", "SafeTensorsLoader"]

for _name in ("ArrowQuantV2", "DiffusionQuantConfig", "SafeTensorsAdapter"):
    globals()[_name].__module__ = "ballast.arrow_quant_v2"
del _name
