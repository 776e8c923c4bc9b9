"""Settings under the name they have in ArrowQuant V2."""

from __future__ import annotations

import os
from typing import Literal, TypeVar, Unpack

from ballast._config import QuantizeConfig, QuantizeSettings
from ballast._tensor import Path

_Config = TypeVar("_Config", bound="DiffusionQuantConfig")


class DiffusionQuantConfig(QuantizeConfig):
    """The settings of QuantizeConfig. A setting that is not given has the value of the deployment profile.

    >>> config = DiffusionQuantConfig(bit_width=2, modality="text", num_time_groups=10, enable_spatial=False)
    >>> config == DiffusionQuantConfig.from_yaml(config.to_yaml())
    True
    """

    @classmethod
    def from_profile(
        cls: type[_Config], profile: Literal["edge", "local", "cloud"], **settings: Unpack[QuantizeSettings]
    ) -> _Config:
        """Return the settings of a profile. The other arguments take precedence.

        >>> DiffusionQuantConfig.from_profile("cloud", group_size=128)
        DiffusionQuantConfig(deployment_profile='cloud', bit_width=8, group_size=128, ...)
        """
        settings["deployment_profile"] = profile
        return cls().replace(**settings)

    def to_yaml(self, path: Path | None = None) -> str:
        """Return all settings as YAML, which from_yaml() reads. With `path`, write them to this file too."""
        text = super().to_yaml()
        if path is not None:
            with open(os.fspath(path), "w", encoding="utf-8") as file:
                file.write(text)
        return text
