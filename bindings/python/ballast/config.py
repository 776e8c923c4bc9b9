"""How a model is to be quantized."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar, Union

import numpy as np

from ballast import _core
from ballast.arguments import path_of, text
from ballast.errors import ArgumentError

Fields = dict[str, Union[str, list[str], dict[str, str]]]
_Config = TypeVar("_Config", bound="QuantizeConfig")


class _Widths(dict[str, int]):
    """A dict that stays as it is."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Widths, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a QuantizeConfig stays as it is: replace() gives one with other settings")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


@dataclass(frozen=True)
class QuantizeConfig:
    """Settings, all of them checked. What is not given is as the deployment profile has it, by default "local".

    >>> config = QuantizeConfig(deployment_profile="edge", group_size=64)
    >>> config.bit_width, config.group_size
    (2, 64)
    >>> QuantizeConfig(bit_width=7)
    Traceback (most recent call last):
    ...
    ballast.errors.ArgumentError: bit_width is 7, it must be 2, 3, 4, 5, 6 or 8
    """

    deployment_profile: Literal["edge", "local", "cloud"] = "local"
    bit_width: int = None  # type: ignore[assignment]
    group_size: int = None  # type: ignore[assignment]
    method: Literal["rtn", "search", "hqq"] = None  # type: ignore[assignment]
    format: Literal["parquet", "mlx"] = None  # type: ignore[assignment]
    recipe: str = None  # type: ignore[assignment]
    modality: Literal["text", "code", "image", "audio"] | None = None
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
        given: Fields = {}
        for source in sources:
            given.update(source)
        object.__setattr__(self, "_given", given)  # what others go before
        for name, value in _core.make_config(sources).items():
            if isinstance(value, list):
                value = tuple(value)
            elif isinstance(value, dict):
                value = _Widths(value)
            object.__setattr__(self, name, value)

    @classmethod
    def _of(cls: type[_Config], sources: list[Fields]) -> _Config:
        config = cls()
        config._fill(sources)
        return config

    @classmethod
    def from_yaml(cls: type[_Config], source: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> _Config:
        """From a file, by its path or URI, or from text that has a line break in it.

        >>> QuantizeConfig.from_yaml("bit_width: 3\\nmethod: hqq\\n").method
        'hqq'
        """
        if isinstance(source, str) and "\n" in source:
            return cls._of([_core.parse_config(text("the config", source))])
        return cls._of([_core.read_config(path_of(source))])

    @classmethod
    def from_environment(cls: type[_Config], **given: Any) -> _Config:
        """From variables such as BALLAST_BIT_WIDTH, which the arguments go before."""
        return cls._of([_core.config_from_environment(), as_fields(given)])

    def replace(self: _Config, **settings: Any) -> _Config:
        """With other settings; None stands for what the deployment profile has. Unlike dataclasses.replace(), which takes every value
        along, another profile changes all that was not given.

        >>> QuantizeConfig(group_size=64).replace(deployment_profile="edge").bit_width
        2
        """
        kept = {name: value for name, value in self._given.items() if name not in settings}
        return self._of([kept, as_fields(settings)])

    __replace__ = replace

    def to_yaml(self) -> str:
        """All settings, as from_yaml() reads them."""
        return _core.config_yaml([as_fields({field.name: getattr(self, field.name) for field in fields(self)})])


def as_fields(values: Mapping[str, Any]) -> Fields:
    """As the core takes settings: words, lists of words and pairs of words. None is left out."""
    made: Fields = {}
    for name, value in values.items():
        text("a setting", name)
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
