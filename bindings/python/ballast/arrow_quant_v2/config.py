"""Settings under their names in ArrowQuant V2."""

from __future__ import annotations

import os
from typing import Any, Literal, TypeVar

from ballast.config import QuantizeConfig
from ballast.model import Path

_Config = TypeVar("_Config", bound="DiffusionQuantConfig")


class DiffusionQuantConfig(QuantizeConfig):
    """The settings of QuantizeConfig. What is not given is as the deployment profile has it.

    >>> config = DiffusionQuantConfig(bit_width=2, modality="text", num_time_groups=10, enable_spatial=False)
    >>> config == DiffusionQuantConfig.from_yaml(config.to_yaml())
    True
    """

    @classmethod
    def from_profile(cls: type[_Config], profile: Literal["edge", "local", "cloud"], **given: Any) -> _Config:
        """The settings of a profile; the other arguments go before them.

        >>> DiffusionQuantConfig.from_profile("cloud", group_size=128)
        DiffusionQuantConfig(deployment_profile='cloud', bit_width=8, group_size=128, ...)
        """
        return cls(deployment_profile=profile, **given)

    def to_yaml(self, path: Path | None = None) -> str:
        """All settings, as from_yaml() reads them, written to a file if there is a path."""
        text = super().to_yaml()
        if path is not None:
            with open(os.fspath(path), "w", encoding="utf-8") as file:
                file.write(text)
        return text
