"""A federation small enough for tests."""

from __future__ import annotations

from typing import Any

from shieldfl.methods.federation import Federation


def small_federation(**changes: Any) -> Federation:
    """All clients take part in each round, and the server averages as FedAvg does, but for what is changed."""
    plain = {"clients": 2, "rounds": 3, "min_clients": 2, "server_learning_rate": 1.0}
    return Federation(**{**plain, "threads": 1, **changes})
