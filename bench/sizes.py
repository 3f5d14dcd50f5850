"""How much the targets are measured with.

Sizes are those of the full run unless ``quick`` makes them small, which shows that everything works and says nothing
about speed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """How many values and repetitions the figures are measured with."""

    dense: int = 1_000_000
    sparse: int = 25_000_000
    masks: int = 10_000_000
    noise: int = 10_000_000
    authority_clients: int = 1_000_000
    in_parts: int = 300_000_000
    repetitions: int = 9
    seconds: float = 10.0
    baseline_values: int = 48 * 4096


QUICK = Sizes(
    dense=20_000,
    sparse=1_000_000,
    masks=100_000,
    noise=100_000,
    authority_clients=1000,
    in_parts=10_000_000,
    repetitions=1,
    seconds=0.0,
    baseline_values=4096,
)
