"""Open, check, convert, quantize and stream model weights.

>>> model = ballast.open(path)
>>> model["embed.weight"].shape
(64, 32)
"""

from ballast import _core
from ballast._config import QuantizeConfig, QuantizeSettings
from ballast._convert import convert, convert_async, dequantize, dequantize_async
from ballast._diff import DiffReport, TensorDifference, diff, diff_async
from ballast._download import DownloadedFile, DownloadReport, download, download_async
from ballast._errors import (
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
from ballast._evaluate import calibrate, calibrate_async, evaluate, evaluate_async
from ballast._inspect import Component, components, inspect
from ballast._metadata import edit_metadata, edit_metadata_async
from ballast._model import Model, from_bytes, open
from ballast._quantize import quantize, quantize_async, validate, validate_async
from ballast._quantized_weights import QuantizedWeight, QuantizedWeights, load_quantized_weights
from ballast._reports import (
    AgainstReport,
    CalibrateReport,
    CalibrationReport,
    ComponentReport,
    ConvertReport,
    EvaluateReport,
    LayerReport,
    QuantizeReport,
    SizeFitReport,
    VerifyReport,
)
from ballast._save import save, save_async, serialize
from ballast._tensor import Tensor
from ballast._to_arrow import to_arrow
from ballast._verify import verify, verify_async

__version__: str = _core.__version__

__all__ = [
    "AgainstReport", "ArgumentError", "BallastError", "BelowMinimumError", "CalibrateReport", "CalibrationReport",
    "CancelledError", "Component", "ComponentReport", "ConvertReport", "CorruptError", "DiffReport", "DownloadReport",
    "DownloadedFile", "EvaluateReport", "LayerReport", "MissingError", "Model", "QuantizeConfig", "QuantizeReport",
    "QuantizeSettings", "QuantizedWeight", "QuantizedWeights", "ReadError", "SizeFitReport", "Tensor", "TensorDifference",
    "TensorNotFoundError", "UnsupportedError", "VerifyReport", "WriteError", "calibrate", "calibrate_async", "components",
    "convert", "convert_async", "dequantize", "dequantize_async", "diff", "diff_async", "download", "download_async",
    "edit_metadata", "edit_metadata_async", "evaluate", "evaluate_async", "from_bytes", "inspect", "load_quantized_weights",
    "open", "quantize", "quantize_async", "save", "save_async", "serialize", "to_arrow", "validate", "validate_async",
    "verify", "verify_async",
]  # fmt: skip

for _name in __all__:
    globals()[_name].__module__ = "ballast"  # in messages and pickles, whatever module it is defined in
del _name
