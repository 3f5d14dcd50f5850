"""Several fleets under the same schemes and methods: what tables, pictures and reports are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shieldfl.fleet.fleet import Fleet, FloatVector
from shieldfl.fleet.report.pictures import straggler_index_by_budget
from shieldfl.fleet.simulate.cost_source import CostSource
from shieldfl.fleet.simulate.encryption_plan import MaskSettings
from shieldfl.fleet.simulate.round_simulation import FleetRounds, simulate
from shieldfl.fleet.simulate.summary import client_rows, summarise

__all__ = ["FleetSimulation", "SimulatedFleet", "simulate_fleets"]


@dataclass(frozen=True)
class SimulatedFleet:
    """One fleet under every scheme and method."""

    fleet: Fleet
    runs: dict[str, list[FleetRounds]]
    """By scheme; one for each method."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.fleet.name,
            "clients": self.fleet.size,
            "parameters": self.fleet.model.parameters,
            "runs": [
                asdict(summarise(rounds)) | {"timelines": client_rows(rounds)}
                for runs in self.runs.values()
                for rounds in runs
            ],
        }


@dataclass(frozen=True)
class FleetSimulation:
    """Fleets in the order given, with what they were simulated from."""

    fleets: tuple[SimulatedFleet, ...]
    costs: CostSource
    settings: MaskSettings
    rounds: int
    seed: int

    @property
    def schemes(self) -> tuple[str, ...]:
        """Their names, in the costs' order."""
        return tuple(self.costs.models)

    @property
    def notes(self) -> list[str]:
        """What a reader has to know about these costs."""
        return self.costs.notes([one.fleet for one in self.fleets])

    def straggler_indices(self, fleet: Fleet) -> dict[str, FloatVector]:
        """Return, for each scheme, the straggler index over the shares of ``BUDGETS``."""
        return {
            scheme: straggler_index_by_budget(
                fleet, self.costs.for_method("mask-crypt", scheme), self.settings
            )
            for scheme in self.schemes
        }

    def round_seconds(self, scheme: str) -> dict[str, list[float]]:
        """Return each method's mean seconds of a round, one for each fleet."""
        seconds: dict[str, list[float]] = {}
        for one in self.fleets:
            for rounds in one.runs[scheme]:
                seconds.setdefault(rounds.plan.method, []).append(float(rounds.round_seconds.mean()))
        return seconds

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "costs": self.costs.to_json(),
            "rounds": self.rounds,
            "seed": self.seed,
            "fleets": [one.to_json() for one in self.fleets],
            "notes": self.notes,
        }


def simulate_fleets(
    fleets: Sequence[Fleet],
    methods: Sequence[str],
    costs: CostSource,
    rounds: int = 1,
    seed: int = 0,
    settings: MaskSettings | None = None,
) -> FleetSimulation:
    """Simulate every fleet under every scheme and method; see :mod:`shieldfl.fleet.simulate.round_simulation`."""
    chosen = settings or MaskSettings()
    costs.check(fleets)
    simulated = (
        SimulatedFleet(
            fleet,
            {
                scheme: [
                    simulate(method, fleet, costs.for_method(method, scheme), rounds, seed, chosen)
                    for method in methods
                ]
                for scheme in costs.models
            },
        )
        for fleet in fleets
    )
    return FleetSimulation(tuple(simulated), costs, chosen, rounds, seed)
