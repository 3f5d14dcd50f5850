"""What noise is charged over a number of steps: no training, the accountant alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from papers.kinds import Measured, check_keys
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise

__all__ = ["FIGURES", "check", "measure"]

FIGURES = ("epsilon",)
_KEYS = ("noise_multiplier", "sample_rate", "steps", "delta")


def check(settings: Mapping[str, Any]) -> None:
    """Raise ParameterError for settings that name no mechanism."""
    check_keys(settings, _KEYS, "accounting")
    _noise(settings)


def measure(settings: Mapping[str, Any]) -> Measured:
    """Return the epsilon of one sample, removed or zeroed out, by Rényi divergences."""
    return {"epsilon": epsilon_of({_noise(settings): 1}, settings["delta"])}


def _noise(settings: Mapping[str, Any]) -> Noise:
    return Noise(settings["noise_multiplier"], "sample", settings["sample_rate"], settings["steps"])
