"""Costs of several schemes, and where they come from: a device profile, or the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.fleet.costs.cost_model import CostModel
from shieldfl.fleet.costs.device_profile import DeviceProfile
from shieldfl.fleet.fleet import Fleet
from shieldfl.fleet.simulate.paper_costs import paper_costs_for
from shieldfl.training import MODELS

__all__ = ["CostSource"]

_PAPER_MODEL = "AlexNet"


@dataclass(frozen=True)
class CostSource:
    """Cost models by the name of their scheme, and whose they are."""

    models: dict[str, CostModel]
    profile: DeviceProfile | None
    """None for the paper's costs."""
    of_clients: Mapping[str, DeviceProfile] = field(default_factory=dict)
    """By path, the profiles that clients have of their own."""

    def for_method(self, method: str, scheme: str) -> CostModel:
        """Return the costs of a scheme under a method."""
        model = self.models[scheme]
        return paper_costs_for(method, model) if self.profile is None else model

    def check(self, fleets: Sequence[Fleet]) -> None:
        """Refuse a fleet that trains another model than these costs are of, unless it states what training takes.

        Raises ParameterError that names the choices.
        """
        for fleet in fleets:
            name = fleet.model.name
            if name is None or fleet.model.train_core_seconds_per_sample is not None:
                continue
            if self.profile is None:
                known: tuple[str, ...] = (_PAPER_MODEL,)
            else:
                known = MODELS if self.profile.model is None else (self.profile.model.name,)
            if name not in known:
                raise ParameterError(
                    f"{fleet.name}: these costs have no training step of the model {name!r}, only of "
                    f"{', '.join(known)}: calibrate with --model, one of {', '.join(MODELS)}, or state "
                    "train_core_seconds_per_sample in the fleet file"
                )

    def describe(self) -> str:
        """Say in a line whose costs these are."""
        if self.profile is None:
            return "costs: those that the SenseCrypt paper reports"
        return f"costs: device profile{_of(self.profile)}"

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
        return [*self._training_notes(fleets), *self._profile_notes(fleets), *self._set_notes(fleets)]

    def _profile_notes(self, fleets: Sequence[Fleet]) -> list[str]:
        """Say whose costs clients have that name a profile."""
        return [
            f"{fleet.name}: {kind.name} has its own device profile{_of(self.of_clients[kind.profile])}."
            for fleet in fleets
            for kind in fleet.kinds
            if kind.profile in self.of_clients
        ]

    def _set_notes(self, fleets: Sequence[Fleet]) -> list[str]:
        """Warn of clients whose processor has another instruction set than the machine of their profile."""
        notes = []
        for fleet in fleets:
            for kind in fleet.kinds:
                for scheme, base in self.models.items():
                    costs = base.clients.get(kind.profile, base).scheme
                    there = costs.instruction_set
                    if kind.simd in ("", there):
                        continue
                    whose = (
                        f"{kind.name} has {kind.simd} and its profile's machine {there or 'an unknown set'}"
                    )
                    if kind.simd in costs.set_factors:
                        factor = costs.factor_of(kind.simd)
                        text = f"{whose}: its {scheme} counts as taking {factor:.3g} times as long, as measured there."
                    else:
                        text = (
                            f"{whose}, where {kind.simd} was not measured: its {scheme} is wrong by an unknown factor. "
                            "Calibrate a machine of its kind and name the file as its profile."
                        )
                    notes.append(f"{fleet.name}: {text}")
        return notes

    def _training_notes(self, fleets: Sequence[Fleet]) -> list[str]:
        assert self.profile is not None
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


def _of(profile: DeviceProfile) -> str:
    known = [str(profile.machine[key]) for key in ("processor", "date") if profile.machine.get(key)]
    return f"{' of ' if known else ''}{', '.join(known)}"


def _note(fleets: Sequence[Fleet], text: str) -> list[str]:
    return [f"{', '.join(fleet.name for fleet in fleets)}: {text}"] if fleets else []
