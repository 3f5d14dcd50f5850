"""How an epsilon is measured: how many canaries, and what there is of sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shieldfl.settings import Count, Settings, Share, about

__all__ = ["EpsilonConfig"]


@dataclass(frozen=True)
class EpsilonConfig(Settings):
    """Beside an :class:`AuditConfig`, which says how many clients and rounds a federation has."""

    canaries: Annotated[
        Count,
        about(
            "Samples or clients for each method, each in or out by a coin. Of m that are all guessed right the bound "
            "is about ln(m / 5), so that a larger claim needs more of them to be above."
        ),
    ] = 1000
    steps: Annotated[
        Count,
        about("Of DP-SGD in a round: each sample is in each step with a probability of 1 over this."),
    ] = 1
    sample_rate: Annotated[
        Share, about("Probability of each client to take part in a round, which all others see.")
    ] = 1.0
