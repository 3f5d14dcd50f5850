"""Several fleets under the same schemes and methods; their figures, and the tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from shieldfl.lab.fleet.cost_source import CostSource, MaskSettings, simulated_method
from shieldfl.lab.fleet.fleet import Fleet, FloatVector
from shieldfl.lab.fleet.round_simulation import STAGES, FleetRounds, simulate
from shieldfl.quantities import MISSING, bytes_text, seconds_text, share_text
from shieldfl.settings import Count, Seed, Text, about

__all__ = [
    "FleetSimulation",
    "FleetSummary",
    "SimulatedFleet",
    "SimulationSettings",
    "client_rows",
    "simulate_fleets",
    "summarise",
]

_ROUNDS = "Rounds"
_ROUNDS_AT_RANDOM = 100


@dataclass(frozen=True)
class SimulationSettings(MaskSettings):
    """What is simulated of each fleet. Also raises ParameterError for methods that cannot be simulated."""

    methods: Annotated[
        tuple[Text, ...],
        Meta(min_length=1),
        about("Methods to compare.", options=("--method",), panel=_ROUNDS),
    ] = ("fedavg", "sense-crypt", "mask-crypt", "fedml-he", "full-he")
    rounds: Annotated[
        Count | None,
        about(
            "Rounds to simulate for each fleet. Default: 100 if clients may drop out, else 1, since "
            "nothing else is random.",
            panel=_ROUNDS,
        ),
    ] = None
    seed: Annotated[Seed, about("Seed of the dropouts.", panel=_ROUNDS)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.methods:
            simulated_method(name)


@dataclass(frozen=True)
class SimulatedFleet:
    """One fleet under every scheme and method."""

    fleet: Fleet
    runs: dict[str, list[FleetRounds]]

    @property
    def rounds(self) -> int:
        return int(next(iter(self.runs.values()))[0].dropped.shape[0])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.fleet.name,
            "clients": self.fleet.size,
            "parameters": self.fleet.model.parameters,
            "rounds": self.rounds,
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
    settings: SimulationSettings

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(self.costs.models)

    @property
    def notes(self) -> list[str]:
        return self.costs.notes([one.fleet for one in self.fleets])

    def to_json(self) -> dict[str, Any]:
        return {
            "costs": self.costs.to_json(),
            "seed": self.settings.seed,
            "fleets": [one.to_json() for one in self.fleets],
            "notes": self.notes,
        }


def simulate_fleets(
    fleets: Sequence[Fleet], costs: CostSource, settings: SimulationSettings
) -> FleetSimulation:
    """Simulate every fleet under every scheme and method; see :mod:`shieldfl.lab.fleet.round_simulation`."""

    def rounds(fleet: Fleet, scheme: str, method: str) -> FleetRounds:
        many = settings.rounds or (_ROUNDS_AT_RANDOM if fleet.dropout_probability.any() else 1)
        return simulate(method, fleet, costs.for_method(method, scheme), many, settings.seed, settings)

    methods = tuple(dict.fromkeys(settings.methods))
    simulated = (
        SimulatedFleet(
            fleet, {one: [rounds(fleet, one, method) for method in methods] for one in costs.models}
        )
        for fleet in fleets
    )
    return FleetSimulation(tuple(simulated), costs, settings)


@dataclass(frozen=True)
class FleetSummary:
    """Means over rounds; seconds and bytes."""

    method: str
    scheme: str
    clients: int
    rounds: int
    total_seconds: float
    round_seconds: float
    slowest_client_seconds: float  # until the last update has arrived
    straggler_index: float | None  # None where nobody survived a round
    straggler: str
    idle_share: float | None
    bytes_up: float  # of all clients in a round
    bytes_down: float
    least_encrypted_share: float
    most_encrypted_share: float
    union_share: float  # of the largest cluster total
    clients_short_of_budget: int
    dropouts: int
    wasted_seconds: float
    failed_rounds: int  # of clusters in which too few clients were left


def summarise(rounds: FleetRounds) -> FleetSummary:
    """Reduce rounds to figures."""
    parameters = rounds.fleet.model.parameters
    values = rounds.plan.values
    return FleetSummary(
        method=rounds.plan.method,
        scheme=rounds.scheme,
        clients=rounds.fleet.size,
        rounds=int(rounds.dropped.shape[0]),
        total_seconds=rounds.total_seconds,
        round_seconds=float(rounds.round_seconds.mean()),
        slowest_client_seconds=float(rounds.client_seconds.max(axis=1).mean()),
        straggler_index=_mean(rounds.straggler_index),
        straggler=rounds.stragglers[0],
        idle_share=_mean(rounds.idle_share),
        bytes_up=float(rounds.bytes_up.sum(axis=1).mean()),
        bytes_down=float(rounds.bytes_down.sum(axis=1).mean()),
        least_encrypted_share=float(values.min()) / parameters,
        most_encrypted_share=float(values.max()) / parameters,
        union_share=float(rounds.plan.union_values.max()) / parameters,
        clients_short_of_budget=int(np.count_nonzero(rounds.plan.budget_shortfall)),
        dropouts=int(np.count_nonzero(rounds.dropped)),
        wasted_seconds=rounds.wasted_seconds,
        failed_rounds=int(np.count_nonzero(rounds.failed)),
    )


def client_rows(rounds: FleetRounds) -> list[dict[str, Any]]:
    """Return a row of plain JSON types for each client: means over rounds, in seconds and bytes."""
    means = {f"{name}_seconds": rounds.stages[name].mean(axis=0) for name in STAGES}
    means |= {
        "idle_seconds": rounds.idle.mean(axis=0),
        "download_seconds": rounds.download.mean(axis=0),
        "bytes_up": rounds.bytes_up.mean(axis=0),
        "bytes_down": rounds.bytes_down.mean(axis=0),
        "dropouts": rounds.dropped.sum(axis=0),
    }
    clusters = rounds.fleet.cluster_names
    return [
        {
            "client": name,
            "cluster": clusters[rounds.fleet.clusters[number]],
            "encrypted_values": int(rounds.plan.values[number]),
            **{key: column[number].item() for key, column in means.items()},
        }
        for number, name in enumerate(rounds.fleet.client_names)
    ]


def _mean(values: FloatVector) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def summary_cells(one: FleetSummary) -> dict[str, str]:
    least, most = (share_text(share) for share in (one.least_encrypted_share, one.most_encrypted_share))
    return {
        "round": seconds_text(one.round_seconds),
        "update": seconds_text(one.slowest_client_seconds),
        "index": MISSING if one.straggler_index is None else f"{one.straggler_index:.2f}",
        "idle": MISSING if one.idle_share is None else f"{one.idle_share:.0%}",
        "up": bytes_text(one.bytes_up),
        "encrypted": most if least == most else f"{least} – {most}",
        "union": share_text(one.union_share),
        "slowest": one.straggler,
    }


def remarks(one: FleetSummary) -> list[str]:
    lines, rounds = [], f"{one.rounds:,} round{'' if one.rounds == 1 else 's'}"
    if one.clients_short_of_budget:
        lines.append(
            f"budgets smaller than what security asks for: {one.clients_short_of_budget:,} of "
            f"{one.clients:,} clients"
        )
    if one.dropouts:
        wasted = seconds_text(one.wasted_seconds)
        lines.append(f"dropouts: {one.dropouts:,} in {rounds}, {wasted} of clients wasted")
    if one.failed_rounds:
        lines.append(f"totals of too few clients to be opened: {one.failed_rounds:,} in {rounds}")
    return lines


def client_cells(rounds: FleetRounds, most: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of a table of clients, in the fleet's order, or the ``most`` slowest first."""
    clients = client_rows(rounds)
    if most is not None:
        mean = rounds.client_seconds.mean(axis=0)
        clients = [clients[client] for client in (-mean).argsort(kind="stable")[:most]]
    cells = {
        "client": [row["client"] for row in clients],
        "cluster": [row["cluster"] for row in clients],
        "values": [f"{row['encrypted_values']:,}" for row in clients],
    }
    for head, name in {
        **dict(zip(STAGES, STAGES, strict=True)),
        "wait": "idle",
        "download": "download",
    }.items():
        cells[head] = [seconds_text(row[f"{name}_seconds"]) for row in clients]
    cells["up"] = [bytes_text(row["bytes_up"]) for row in clients]
    cells["dropouts"] = [str(row["dropouts"]) for row in clients]
    if len(rounds.fleet.cluster_names) == 1:
        del cells["cluster"]
    if not rounds.dropped.any():
        del cells["dropouts"]
    return list(cells), [list(row) for row in zip(*cells.values(), strict=True)]


def short_seconds_text(seconds: float) -> str:
    if seconds >= 0.9995e-3:
        return seconds_text(seconds)
    return f"{seconds * 1e9:.3g} ns" if seconds < 0.9995e-6 else f"{seconds * 1e6:.3g} µs"
