"""A replacement for the package `safetensors`: the same names, results and errors, implemented with Ballast.

>>> import ballast.safetensors as safetensors
>>> with safetensors.safe_open(path, framework="np") as file:
...     file.get_slice("embed.weight")[:2].shape
(2, 32)

The modules `numpy`, `torch`, `flax` and `mlx` must be imported by name and need their framework.
"""

from ballast.safetensors._errors import SafetensorError
from ballast.safetensors._open import _safe_open_handle, deserialize, safe_open
from ballast.safetensors._write import TensorSpec, serialize, serialize_file

#: The version of `safetensors` that this replaces.
__version__: str = "0.8.0"

__all__ = [
    "SafetensorError", "TensorSpec", "__version__", "_safe_open_handle", "deserialize", "safe_open", "serialize",
    "serialize_file",
]  # fmt: skip

for _name in __all__:
    if _name != "__version__":
        globals()[_name].__module__ = "ballast.safetensors"
del _name
