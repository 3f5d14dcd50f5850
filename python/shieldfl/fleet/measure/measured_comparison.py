"""How far simulated rounds are from measured ones: client by client and stage by stage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.fleet.measure.measured_fleet import MeasuredFleet
from shieldfl.fleet.simulate.fleet_simulation import client_rows
from shieldfl.fleet.simulate.round_simulation import STAGES, FleetRounds

__all__ = ["STEPS", "ClientDeviations", "Deviation", "MethodComparison", "compare"]

STEPS = (*STAGES, "download")
"""What a client does in a round and is compared in."""


@dataclass(frozen=True)
class Deviation:
    """A time as it was measured in several rounds, and as it is simulated, in seconds."""

    measured_median_seconds: float
    measured_least_seconds: float
    measured_most_seconds: float
    simulated_seconds: float
    """Median over the same rounds."""
    error: float | None
    """By how much the simulated time is too long, as a share of the measured one: the median over rounds. None for a
    step that takes no time."""


@dataclass(frozen=True)
class ClientDeviations:
    """One client over the rounds that it stayed in."""

    client: str
    rounds: int
    """That it stayed in."""
    until_update: Deviation | None
    """From the start until its update has arrived; None for a client that never stayed."""
    steps: dict[str, Deviation]
    """Of ``STEPS``, those that the client has."""


@dataclass(frozen=True)
class MethodComparison:
    """One method: measured and simulated."""

    fleet: MeasuredFleet
    round: Deviation | None
    """Over rounds that nobody dropped out of; None where there are none."""
    round_apart: Deviation | None
    """The same beside the simulation of clients that do not share a machine."""
    clients: tuple[ClientDeviations, ...]

    @property
    def client_errors(self) -> list[float]:
        """Of the clients' times until the update has arrived."""
        known = [one.until_update for one in self.clients if one.until_update is not None]
        return [one.error for one in known if one.error is not None]

    @property
    def mean_error(self) -> float | None:
        """Mean magnitude of the clients' errors."""
        errors = self.client_errors
        return float(np.mean(np.abs(errors))) if errors else None

    @property
    def largest_error(self) -> float | None:
        """The client's error of the largest magnitude, with its sign."""
        return max(self.client_errors, key=abs, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "method": self.fleet.measured.plan.method,
            "round": self.round and asdict(self.round),
            "round_apart": self.round_apart and asdict(self.round_apart),
            "mean_error": self.mean_error,
            "largest_error": self.largest_error,
            "clients": [asdict(one) for one in self.clients],
            "measured": _rounds_to_json(self.fleet),
            "slowdown": {name: factors.tolist() for name, factors in self.fleet.slowdown.items()},
            "simulated": client_rows(self.fleet.simulated),
            "simulated_apart": client_rows(self.fleet.simulated_apart),
        }


def compare(fleet: MeasuredFleet) -> MethodComparison:
    """Compare measured rounds with simulated ones, round by round."""
    measured, simulated = fleet.measured, fleet.simulated
    complete = ~measured.dropped.any(axis=1) & ~measured.failed.any(axis=1)
    whole = measured.round_seconds[complete]
    return MethodComparison(
        fleet=fleet,
        round=_deviation(whole, simulated.round_seconds[complete]),
        round_apart=_deviation(whole, fleet.simulated_apart.round_seconds[complete]),
        clients=tuple(
            _client(name, number, measured, simulated)
            for number, name in enumerate(measured.fleet.client_names)
        ),
    )


def _client(name: str, number: int, measured: FleetRounds, simulated: FleetRounds) -> ClientDeviations:
    stayed = ~measured.dropped[:, number]
    opened = stayed & ~measured.failed[:, measured.plan.groups[number]]

    def of(rounds: FleetRounds, step: str) -> NDArray[np.float64]:
        seconds: NDArray[np.float64] = (
            rounds.download[opened, number] if step == "download" else rounds.stages[step][stayed, number]
        )
        return seconds

    deviations = {step: _deviation(of(measured, step), of(simulated, step)) for step in STEPS}
    steps = {step: one for step, one in deviations.items() if one and one.measured_median_seconds > 0.0}
    return ClientDeviations(
        client=name,
        rounds=int(np.count_nonzero(stayed)),
        until_update=_deviation(
            measured.client_seconds[stayed, number], simulated.client_seconds[stayed, number]
        ),
        steps={
            step: found
            for step, found in steps.items()
            if found is not None and found.measured_median_seconds > 0.0
        },
    )


def _deviation(measured: NDArray[np.float64], simulated: NDArray[np.float64]) -> Deviation | None:
    if not measured.size:
        return None
    known = measured > 0.0
    errors = simulated[known] / measured[known] - 1.0
    return Deviation(
        measured_median_seconds=float(np.median(measured)),
        measured_least_seconds=float(measured.min()),
        measured_most_seconds=float(measured.max()),
        simulated_seconds=float(np.median(simulated)),
        error=float(np.median(errors)) if errors.size else None,
    )


def _rounds_to_json(fleet: MeasuredFleet) -> dict[str, Any]:
    """Return every measured figure: lists over rounds, and in these over clients or clusters."""
    rounds = fleet.measured
    figures = {
        **{f"{name}_seconds": seconds for name, seconds in rounds.stages.items()},
        **{f"{name}_processor_seconds": seconds for name, seconds in fleet.processor_seconds.items()},
        "download_seconds": rounds.download,
        "aggregation_seconds": rounds.aggregation,
        "opening_seconds": rounds.opening,
        "round_seconds": rounds.round_seconds,
        "bytes_up": rounds.bytes_up,
        "bytes_down": rounds.bytes_down,
        "dropped": rounds.dropped,
        "failed": rounds.failed,
        "load_of_others": fleet.load_of_others,
    }
    return {"limit": fleet.limit, **{name: values.tolist() for name, values in figures.items()}}
