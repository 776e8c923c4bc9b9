"""What the package `safetensors` has, done by Ballast: the same names, results and errors.

>>> import ballast.safetensors as safetensors
>>> with safetensors.safe_open(path, framework="np") as file:
...     file.get_slice("embed.weight")[:2].shape
(2, 32)

The modules `numpy`, `torch`, `flax` and `mlx` are imported by their names, and need their framework.
"""

from ballast.safetensors._errors import SafetensorError
from ballast.safetensors._open import _safe_open_handle, deserialize, safe_open
from ballast.safetensors._write import TensorSpec, serialize, serialize_file

#: The version of `safetensors` that this stands in for.
__version__: str = "0.8.0"

__all__ = [
    "SafetensorError", "TensorSpec", "__version__", "_safe_open_handle", "deserialize", "safe_open", "serialize",
    "serialize_file",
]  # fmt: skip
