"""Small runs whose process ends, as far as the run can tell, after some rounds."""

from __future__ import annotations

from collections.abc import Callable

from shieldfl.simulation.results import RoundRecord

__all__ = ["SMALL", "CutOffError", "cut_after"]

SMALL = {"clients": 4, "rounds": 4, "local_epochs": 1, "model": "linear", "threads": 1, "learning_rate": 0.05}


class CutOffError(Exception):
    """The process ends."""


def cut_after(rounds: int) -> Callable[[str, RoundRecord], None]:
    """Return what ends a run after so many rounds, those before it was gone on with included."""
    told: list[tuple[str, int]] = []

    def on_round(name: str, record: RoundRecord) -> None:
        told.append((name, record.round))
        if len(told) == rounds:
            raise CutOffError

    return on_round
