"""Settings of quantization."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, Union, Unpack

import numpy as np

from ballast import _core
from ballast._arguments import path_of, text

Profile = Literal["edge", "local", "cloud"]
Type = Literal["int", "fp8", "mxfp4", "mxfp8", "nvfp4"]
Strategy = Literal["tensor", "channel", "group", "block"]
Method = Literal["auto", "rtn", "search", "hqq"]
Format = Literal["parquet", "mlx", "compressed-tensors", "hf-fp8"]
Modality = Literal["text", "code", "image", "audio"]

Fields = dict[str, Union[str, list[str], dict[str, str]]]
_Config = TypeVar("_Config", bound="QuantizeConfig")


class QuantizeSettings(TypedDict, total=False):
    """The settings of QuantizeConfig as keyword arguments. None stands for the value of the deployment profile."""

    deployment_profile: Profile | None
    bit_width: int | None
    group_size: int | None
    type: Type | None
    strategy: Strategy | None
    asymmetric: bool | None
    method: Method | None
    format: Format | None
    recipe: str | None
    modality: Modality | None
    min_accuracy: float | None
    fail_fast: bool | None
    skip_sensitive_layers: bool | None
    sensitive_layer_names: Sequence[str] | None
    sensitive_layer_patterns: Sequence[str] | None
    layer_bit_widths: Mapping[str, int] | None
    num_threads: int | None
    max_memory_limit_mb: int | None
    target_model_size_mb: float | None
    enable_time_aware: bool | None
    enable_spatial: bool | None
    num_time_groups: int | None
    calibration_samples: int | None


class _Widths(dict[str, int]):
    """An immutable dict."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Widths, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("QuantizeConfig is immutable; replace() returns a config with other settings")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


@dataclass(frozen=True)
class QuantizeConfig:
    """Settings of quantization, checked when the config is made.

    A setting that is not given has the value of the deployment profile, which is "local" by default.
    docs/quantization.md describes the settings.

    >>> config = QuantizeConfig(deployment_profile="edge", group_size=64)
    >>> config.bit_width, config.group_size
    (2, 64)
    >>> QuantizeConfig(bit_width=7)
    Traceback (most recent call last):
    ...
    ballast.ArgumentError: bit_width is 7, it must be 2, 3, 4, 5, 6 or 8
    """

    deployment_profile: Profile = "local"
    bit_width: int = None  # type: ignore[assignment]
    group_size: int = None  # type: ignore[assignment]
    type: Type = None  # type: ignore[assignment]
    strategy: Strategy | None = None
    asymmetric: bool = None  # type: ignore[assignment]
    method: Method = None  # type: ignore[assignment]
    format: Format = None  # type: ignore[assignment]
    recipe: str = None  # type: ignore[assignment]
    modality: Modality | None = None
    min_accuracy: float = None  # type: ignore[assignment]
    fail_fast: bool = None  # type: ignore[assignment]
    skip_sensitive_layers: bool = None  # type: ignore[assignment]
    sensitive_layer_names: Sequence[str] = None  # type: ignore[assignment]
    sensitive_layer_patterns: Sequence[str] = None  # type: ignore[assignment]
    layer_bit_widths: Mapping[str, int] = None  # type: ignore[assignment]
    num_threads: int = None  # type: ignore[assignment]
    max_memory_limit_mb: int = None  # type: ignore[assignment]
    target_model_size_mb: float | None = None
    enable_time_aware: bool | None = None
    enable_spatial: bool | None = None
    num_time_groups: int = None  # type: ignore[assignment]
    calibration_samples: int = None  # type: ignore[assignment]

    _given: ClassVar[Fields]

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name) is not None}
        if self.deployment_profile == "local":
            del given["deployment_profile"]
        self._fill([as_fields(given)])

    def _fill(self, sources: list[Fields]) -> None:
        """Set all fields from settings, of which later ones take precedence."""
        given: Fields = {}
        for source in sources:
            given.update(source)
        object.__setattr__(self, "_given", given)  # for replace(), where another profile must not change these
        for name, value in _core.make_config(sources).items():
            if isinstance(value, list):
                value = tuple(value)
            elif isinstance(value, dict):
                value = _Widths(value)
            object.__setattr__(self, name, value)

    @classmethod
    def _of(cls: builtins.type[_Config], sources: list[Fields]) -> _Config:
        config = cls()
        config._fill(sources)
        return config

    @classmethod
    def from_yaml(cls: builtins.type[_Config], source: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> _Config:
        """Read settings from a YAML file, given as a path or URI, or from a str that contains a line break.

        >>> QuantizeConfig.from_yaml("bit_width: 3\\nmethod: hqq\\n").method
        'hqq'
        """
        if isinstance(source, str) and "\n" in source:
            return cls._of([_core.parse_config(text("source", source))])
        return cls._of([_core.read_config(path_of(source))])

    @classmethod
    def from_environment(cls: builtins.type[_Config], **settings: Unpack[QuantizeSettings]) -> _Config:
        """Read settings from variables such as BALLAST_BIT_WIDTH. Arguments take precedence.

        >>> QuantizeConfig.from_environment(bit_width=8).bit_width
        8
        """
        return cls._of([_core.config_from_environment(), as_fields(settings)])

    def replace(self: _Config, **settings: Unpack[QuantizeSettings]) -> _Config:
        """Return a config with other settings. None resets a setting to the value of the deployment profile.

        A new profile changes all settings that were not given. dataclasses.replace() would keep the old profile's values.

        >>> QuantizeConfig(group_size=64).replace(deployment_profile="edge").bit_width
        2
        """
        kept = {name: value for name, value in self._given.items() if name not in settings}
        return self._of([kept, as_fields(settings)])

    __replace__ = replace

    def to_yaml(self) -> str:
        """Return all settings as YAML, which from_yaml() reads.

        >>> print(QuantizeConfig(bit_width=3).to_yaml())
        deployment_profile: local
        bit_width: 3
        ...
        """
        return _core.config_yaml([as_fields({field.name: getattr(self, field.name) for field in fields(self)})])


def as_fields(values: Mapping[str, Any]) -> Fields:
    """Convert settings to what the core takes: strings, lists of strings and dicts of strings. Drops None."""
    made: Fields = {}
    for name, value in values.items():
        text("the name of a setting", name)
        if value is None:
            continue
        if isinstance(value, Mapping):
            made[name] = {_word(name, key): _word(name, each) for key, each in value.items()}
        elif isinstance(value, str) or not isinstance(value, (Sequence, set, frozenset)):
            made[name] = _word(name, value)
        else:
            made[name] = [_word(name, each) for each in value]
    return made


def _word(name: str, value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    return text(name, str(value))
