"""Reports of long operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ballast import _html
from ballast._text import counted, size_text


@dataclass(frozen=True, repr=False)
class LayerReport:
    """One quantized tensor, with metrics of its decoded weights against the original ones."""

    name: str
    dtype: str  #: original
    shape: tuple[int, ...]
    bits: int
    planned_bits: int  #: before bits were added to reach `min_accuracy`
    group_size: int
    parameters: int
    bytes: int
    method: str
    equalized: bool  #: whether columns were scaled
    cosine_similarity: float
    relative_rmse: float
    sqnr_db: float
    max_error: float
    output_error: float | None  #: None without calibration
    expected_error: float | None  #: with a target size, see SizeFitReport

    def __repr__(self) -> str:
        return f"LayerReport({self.name!r}, {self.bits} bits, group_size {self.group_size}, cosine {self.cosine_similarity:.5f})"


@dataclass(frozen=True)
class CalibrationReport:
    """How calibration statistics were used."""

    covered: int  #: quantized layers with statistics
    uncovered: list[str]  #: quantized layers without
    timesteps: int  #: timesteps used
    recorded_timesteps: int  #: timesteps in the file
    time_groups: int
    boundaries: list[float]  #: between the groups of timesteps


@dataclass(frozen=True)
class SizeFitReport:
    """What the bits that were chosen for a target size were expected to give.

    Errors are root mean squares over the quantized tensors: of the relative error of the outputs, or of the weights of tensors
    without statistics. Tensors count by their size, those with statistics by the square root of it.
    """

    expected_bytes: int  #: size of the weight files
    expected_error: float  #: of up to 256 rows of each tensor
    error: float | None  #: of what was written; None if an earlier run wrote some of it
    error_of: Literal["outputs", "weights"]  #: "outputs" if some tensors have statistics
    uniform_bits: int  #: the most bits that all tensors could have in this size; 0 if not even 2 fit
    uniform_bytes: int  #: what would be expected then
    uniform_error: float


@dataclass(frozen=True)
class ComponentReport:
    """What was done with a component of a pipeline."""

    name: str
    class_name: str
    action: Literal["converted", "quantized", "unquantized", "dequantized", "copied"]  #: "copied": it has no weights
    tensors: int
    bytes: int  #: of its weight files


@dataclass(frozen=True, repr=False)
class QuantizeReport:
    """The result of quantize() or validate(). All metrics are measured on the bytes in the files."""

    layers: list[LayerReport]
    unquantized: int  #: tensors left unquantized
    files: list[str]
    source_bytes: int
    bytes: int
    compression_ratio: float
    bits_per_weight: float  #: of the quantized tensors
    bits_per_weight_total: float  #: of all tensors
    cosine_similarity: float
    relative_rmse: float
    sqnr_db: float
    max_error: float
    modality: str | None
    calibration: CalibrationReport | None
    size_fit: SizeFitReport | None  #: with a target size
    passed: bool  #: whether every layer reaches `min_accuracy`
    up_to_date: bool  #: whether the output was already complete, so that nothing was written
    not_copied: list[str]  #: files of the model directory that are not in the output
    notes: list[str]
    warnings: list[str]
    left_out: list[str]  #: tensors of the model that are not in the output
    components: list[ComponentReport] = field(default_factory=list)  #: of a pipeline; its layers are named "unet/conv_in.weight"

    @property
    def model_size_mb(self) -> float:
        """The size of the written files in MB, 10^6 bytes."""
        return self.bytes / 1e6

    def _facts(self) -> list[str]:
        return [
            f"{len(self.layers):,} quantized",
            f"{self.unquantized:,} unquantized",
            f"{self.bits_per_weight:.2f} bits per weight",
            f"{self.compression_ratio:.2f}x smaller",
            f"cosine {self.cosine_similarity:.5f}",
            "passed" if self.passed else "below the minimum accuracy",
        ]

    def __repr__(self) -> str:
        return f"QuantizeReport({', '.join(self._facts())})"

    def _repr_html_(self) -> str:
        worst = sorted(self.layers, key=lambda layer: layer.cosine_similarity)
        rows = (
            (layer.name, layer.bits, layer.group_size, f"{layer.cosine_similarity:.5f}", f"{layer.relative_rmse:.5f}",
             f"{layer.sqnr_db:.1f} dB", layer.max_error, size_text(layer.bytes), layer.method)
            for layer in worst
        )  # fmt: skip
        columns = ("worst first", "bits", "group", "cosine", "rel RMSE", "SQNR", "max error", "size", "method")
        facts = [*self._facts(), f"{size_text(self.source_bytes)} to {size_text(self.bytes)}"]
        return _html.page("QuantizeReport", facts, _html.table(columns, rows, len(worst)), _html.notes("Warnings", self.warnings))


@dataclass(frozen=True, repr=False)
class ConvertReport:
    """The result of convert() or dequantize()."""

    files: list[str]
    tensors: int
    converted: int  #: tensors whose dtype changed
    data_bytes: int
    not_copied: list[str]  #: files of the model directory that are not in the output
    notes: list[str]
    warnings: list[str]
    components: list[ComponentReport] = field(default_factory=list)  #: of a pipeline

    def _facts(self) -> list[str]:
        written = f"{size_text(self.data_bytes)} in {counted(len(self.files), 'file')}"
        return [counted(self.tensors, "tensor"), f"{self.converted:,} converted", written]

    def __repr__(self) -> str:
        return f"ConvertReport({', '.join(self._facts())})"

    def _repr_html_(self) -> str:
        files = _html.table(("file",), ((file,) for file in self.files), len(self.files))
        return _html.page("ConvertReport", self._facts(), files, _html.notes("Warnings", self.warnings))


@dataclass(frozen=True, repr=False)
class VerifyReport:
    """The result of verify(). It is true if no defect was found."""

    ok: bool
    checks: list[str]
    defects: list[tuple[str, str]]  #: the check that failed, and a message
    skipped: list[str]  #: checks that were not made, and why
    warnings: list[str]
    tensors: int
    bytes: int
    sha256: dict[str, str]  #: by file
    components: list[str] = field(default_factory=list)  #: the components of a pipeline that were checked

    def __bool__(self) -> bool:
        return self.ok

    def _facts(self) -> list[str]:
        verdict = "ok" if self.ok else counted(len(self.defects), "defect")
        return [verdict, counted(self.tensors, "tensor"), size_text(self.bytes), f"checked {', '.join(self.checks)}"]

    def __repr__(self) -> str:
        return f"VerifyReport({', '.join(self._facts()[:3])})"

    def _repr_html_(self) -> str:
        parts = [
            _html.table(("check", "defect"), self.defects, len(self.defects)),
            _html.table(("file", "SHA-256"), self.sha256.items(), len(self.sha256)),
            _html.notes("Warnings", self.warnings),
            _html.notes("Not checked", self.skipped),
        ]
        return _html.page("VerifyReport", self._facts(), *parts)


@dataclass(frozen=True, repr=False)
class AgainstReport:
    """How the predictions of a model differ from those of its original. KL divergences are in nats."""

    perplexity: float  #: of the original
    perplexity_ratio: float  #: of the model to the original
    kl_mean: float  #: of the model's predictions from the original's
    kl_stderr: float  #: standard error of kl_mean
    kl_p99: float  #: 99 % of the tokens have at most this
    top1_agreement: float  #: share of tokens for which both find the same next token most likely
    worst_layer: int  #: the layer after which the hidden states differ most
    layer_errors: list[float]  #: after each layer, relative RMS difference of the hidden states
    kl: list[float]  #: of each scored token, in order

    def _facts(self) -> list[str]:
        return [
            f"perplexity ratio {self.perplexity_ratio:.4f}",
            f"KL {self.kl_mean:.4g} ± {self.kl_stderr:.2g}",
            f"top-1 agreement {self.top1_agreement:.2%}",
        ]

    def __repr__(self) -> str:
        return f"AgainstReport({', '.join(self._facts())})"


@dataclass(frozen=True, repr=False)
class EvaluateReport:
    """The result of evaluate()."""

    perplexity: float
    perplexity_stderr: float  #: its standard error
    loss: float  #: mean negative log likelihood of the next token
    tokens: int  #: scored: all but the first of each window
    windows: int
    length: int  #: of a window
    unused_tokens: int  #: at the end, which fill no window
    against: AgainstReport | None
    warnings: list[str]

    def _facts(self) -> list[str]:
        facts = [f"perplexity {self.perplexity:.4g} ± {self.perplexity_stderr:.2g}", counted(self.tokens, "token")]
        return facts if self.against is None else facts + self.against._facts()

    def __repr__(self) -> str:
        return f"EvaluateReport({', '.join(self._facts())})"

    def _repr_html_(self) -> str:
        errors = [] if self.against is None else self.against.layer_errors
        layers = _html.table(("after layer", "difference of the hidden states"), enumerate(errors), len(errors))
        return _html.page("EvaluateReport", self._facts(), layers, _html.notes("Warnings", self.warnings))


@dataclass(frozen=True, repr=False)
class CalibrateReport:
    """The result of calibrate()."""

    path: str  #: of the file
    weights: int  #: with statistics
    tokens: int
    windows: int
    layers: int
    resumed_layers: int  #: finished by an earlier run
    unused_tokens: int  #: at the end, which fill no window
    bytes: int  #: size of the file
    warnings: list[str]

    def _facts(self) -> list[str]:
        return [counted(self.weights, "weight"), counted(self.tokens, "token"), size_text(self.bytes)]

    def __repr__(self) -> str:
        return f"CalibrateReport({self.path!r}, {', '.join(self._facts())})"

    def _repr_html_(self) -> str:
        return _html.page("CalibrateReport", [self.path, *self._facts()], _html.notes("Warnings", self.warnings))


def evaluate_report_of(made: dict[str, Any]) -> EvaluateReport:
    """Make the report from the dict that the core returns."""
    if made["against"] is not None:
        made["against"] = AgainstReport(**made["against"])
    return EvaluateReport(**made)


def convert_report_of(made: dict[str, Any]) -> ConvertReport:
    """Make the report from the dict that the core returns."""
    made["components"] = [ComponentReport(**component) for component in made["components"]]
    return ConvertReport(**made)


def quantize_report_of(made: dict[str, Any]) -> QuantizeReport:
    """Make the report from the dict that the core returns."""
    made["layers"] = [LayerReport(**layer) for layer in made["layers"]]
    made["components"] = [ComponentReport(**component) for component in made["components"]]
    if made["calibration"] is not None:
        made["calibration"] = CalibrationReport(**made["calibration"])
    if made["size_fit"] is not None:
        made["size_fit"] = SizeFitReport(**made["size_fit"])
    return QuantizeReport(**made)
