"""Costs of several schemes, and where they come from: a device profile, or the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shieldfl.fleet.costs import CostModel
from shieldfl.fleet.device_profile import DeviceProfile
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.paper_costs import paper_costs_for

__all__ = ["CostSource"]


@dataclass(frozen=True)
class CostSource:
    """Cost models by the name of their scheme, and whose they are."""

    models: dict[str, CostModel]
    profile: DeviceProfile | None
    """None for the paper's costs."""

    def for_method(self, method: str, scheme: str) -> CostModel:
        """Return the costs of a scheme under a method."""
        model = self.models[scheme]
        return paper_costs_for(method, model) if self.profile is None else model

    def describe(self) -> str:
        """Say in a line whose costs these are."""
        if self.profile is None:
            return "costs: those that the SenseCrypt paper reports"
        machine = self.profile.machine
        known = [str(machine[key]) for key in ("processor", "date") if machine.get(key)]
        return f"costs: device profile{' of ' if known else ''}{', '.join(known)}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        profile = self.profile
        return {
            "source": "paper" if profile is None else "device profile",
            "machine": None if profile is None else profile.machine,
            "schemes": list(self.models),
        }

    def notes(self, fleets: Sequence[Fleet]) -> list[str]:
        """Say what a reader has to know about training times that no fleet file states."""
        if self.profile is None:
            return []
        untold = [fleet for fleet in fleets if fleet.model.train_core_seconds_per_sample is None]
        measured = self.profile.model
        if measured is None:
            return _note(
                untold,
                "training is counted as taking no time. State train_core_seconds_per_sample in the fleet file, or "
                "calibrate with --model.",
            )
        return _note(
            [fleet for fleet in untold if fleet.model.parameters != measured.parameters],
            f"training takes what {measured.name} with {measured.parameters:,} parameters took, another number than "
            "the fleet's model has.",
        )


def _note(fleets: Sequence[Fleet], text: str) -> list[str]:
    return [f"{', '.join(fleet.name for fleet in fleets)}: {text}"] if fleets else []
