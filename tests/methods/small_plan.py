"""A plan small enough for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from methods.variants import BUFFERS, PARAMETERS
from shieldfl.rounds.plan import FederationPlan


def small_plan(weights: Sequence[int] | None = None, **changes: Any) -> FederationPlan:
    """All clients take part in each round, and the server averages as FedAvg does, but for what is changed."""
    plain = {"clients": 2, "rounds": 100, "min_clients": 2, "server_learning_rate": 1.0}
    model = {"parameters": PARAMETERS, "buffers": BUFFERS}
    return FederationPlan.for_weights(weights, **{**plain, **model, **changes})
