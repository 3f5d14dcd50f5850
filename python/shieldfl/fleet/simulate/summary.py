"""A simulation in figures: what tables print and JSON files hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shieldfl.fleet.simulate.round_simulation import STAGES, FleetRounds

__all__ = ["FleetSummary", "client_rows", "summarise"]


@dataclass(frozen=True)
class FleetSummary:
    """Means over rounds; seconds and bytes."""

    method: str
    scheme: str
    clients: int
    clusters: int
    rounds: int
    total_seconds: float
    round_seconds: float
    slowest_client_seconds: float
    """Until the last update has arrived."""
    straggler_index: float | None
    """None where nobody survived a round."""
    straggler: str
    idle_share: float | None
    bytes_up: float
    """Of all clients in a round."""
    bytes_down: float
    least_encrypted_share: float
    most_encrypted_share: float
    union_share: float
    """Of the largest cluster total."""
    clients_short_of_budget: int
    """Whose budget is smaller than what security asks for."""
    dropouts: int
    wasted_seconds: float
    failed_rounds: int
    """Rounds of clusters in which too few clients were left; the model stayed as it was."""


def summarise(rounds: FleetRounds) -> FleetSummary:
    """Reduce rounds to figures."""
    parameters = rounds.fleet.model.parameters
    values = rounds.plan.values
    return FleetSummary(
        method=rounds.plan.method,
        scheme=rounds.scheme,
        clients=rounds.fleet.size,
        clusters=int(rounds.plan.union_values.size),
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


def _mean(values: Any) -> float | None:
    known = [value for value in values.tolist() if not math.isnan(value)]
    return sum(known) / len(known) if known else None
