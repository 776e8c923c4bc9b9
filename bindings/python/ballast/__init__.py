"""Opens, checks, converts, quantizes and streams model weights.

>>> model = ballast.open(path)
>>> model["embed.weight"].shape
(64, 32)
"""

from ballast import _core
from ballast.config import QuantizeConfig
from ballast.errors import (
    ArgumentError,
    BallastError,
    BelowMinimumError,
    CancelledError,
    CorruptError,
    MissingError,
    ReadError,
    TensorNotFoundError,
    UnsupportedError,
    WriteError,
)
from ballast.model import Model, Tensor, from_bytes, open
from ballast.remote import DownloadedFile, DownloadReport, download, download_async
from ballast.weights import QuantizedWeight, QuantizedWeights, load_quantized_weights
from ballast.work import (
    CalibrationReport,
    ConvertReport,
    LayerReport,
    QuantizeReport,
    VerifyReport,
    convert,
    convert_async,
    dequantize,
    dequantize_async,
    inspect,
    quantize,
    quantize_async,
    save,
    save_async,
    serialize,
    to_arrow,
    validate,
    validate_async,
    verify,
    verify_async,
)

__version__: str = _core.__version__

__all__ = [
    "ArgumentError", "BallastError", "BelowMinimumError", "CalibrationReport", "CancelledError", "ConvertReport", "CorruptError",
    "DownloadReport", "DownloadedFile",
    "LayerReport", "MissingError", "Model", "QuantizeConfig", "QuantizeReport", "QuantizedWeight", "QuantizedWeights", "ReadError",
    "Tensor", "TensorNotFoundError", "UnsupportedError", "VerifyReport", "WriteError", "convert", "convert_async", "dequantize",
    "dequantize_async", "download", "download_async", "from_bytes", "inspect", "load_quantized_weights", "open", "quantize", "quantize_async", "save",
    "save_async", "serialize", "to_arrow", "validate", "validate_async", "verify", "verify_async",
]  # fmt: skip
