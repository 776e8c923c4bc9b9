"""Small checkpoints of every published kind: KINDS["mixtral"].make(folder) writes one and returns its weights."""

from .base import DEQUANTIZE, QUANTIZE, VALIDATE, Kind, Made
from .diffusion import DIFFUSION, VARIANT
from .language import LANGUAGE
from .mixtures import MIXTURES
from .others import OTHERS
from .quantized import CAST, QUANTIZED

PLAIN_KINDS: dict[str, Kind] = {kind.name: kind for kind in [*LANGUAGE, *MIXTURES, *OTHERS, *DIFFUSION, *CAST]}
QUANTIZED_KINDS: dict[str, Kind] = {kind.name: kind for kind in QUANTIZED}
KINDS = PLAIN_KINDS | QUANTIZED_KINDS
assert len(PLAIN_KINDS) == len(LANGUAGE) + len(MIXTURES) + len(OTHERS) + len(DIFFUSION) + len(CAST)

__all__ = ["DEQUANTIZE", "KINDS", "PLAIN_KINDS", "QUANTIZE", "QUANTIZED_KINDS", "VALIDATE", "VARIANT", "Kind", "Made"]
