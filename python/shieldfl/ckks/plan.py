"""Choosing a ring: what each would cost, and why one was chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import shieldfl._core as _core
from shieldfl.errors import ParameterError

__all__ = ["GOALS", "RingCost", "ring_costs"]

GOALS = ("speed", "size")

_RING_DEGREES = (2048, 4096)


@dataclass(frozen=True)
class RingCost:
    """What encrypting ``count`` values costs in one ring."""

    core: _core.CkksParameters
    count: int
    ciphertexts: int
    wire_bytes: int
    butterflies: int
    """Of the number-theoretic transforms: three for each prime and ciphertext."""
    random_bytes: int
    """Of key stream, on average: 1/3 a coefficient for u, 16/3 for each of e0 and e1."""

    @property
    def work(self) -> int:
        """Butterflies and random bytes: one of either takes about as long on a processor with vectors."""
        return self.butterflies + self.random_bytes

    @property
    def ring_degree(self) -> int:
        """N of the ring."""
        return int(self.core.facts["ring_degree"])

    def describe(self) -> str:
        """Say what it costs, each figure for one value."""
        return (
            f"N = {self.ring_degree}: {self.wire_bytes / self.count:.2f} bytes, "
            f"{self.butterflies / self.count:.1f} butterflies, {self.random_bytes / self.count:.1f} random bytes"
        )


def ring_costs(facts: dict[str, Any], count: int | None) -> list[RingCost]:
    """Work out the cost in every ring that has room for these values.

    ``count`` is how many values a client encrypts at a time; None for so many that ciphertexts are full.
    """
    costs = []
    for degree in _RING_DEGREES:
        try:
            core = _core.CkksParameters(
                facts["packing"], facts["max_clients"], facts["value_bits"], facts["fraction_bits"], degree
            )
        except ParameterError:
            continue
        in_one = int(core.facts["values_per_ciphertext"])
        ciphertexts = 1 if count is None else math.ceil(count / in_one)
        transforms = 3 * len(core.facts["primes"]) * ciphertexts
        costs.append(
            RingCost(
                core=core,
                count=in_one if count is None else count,
                ciphertexts=ciphertexts,
                wire_bytes=ciphertexts * int(core.facts["ciphertext_bytes"]),
                butterflies=transforms * (degree // 2) * int(math.log2(degree)),
                random_bytes=ciphertexts * degree * 11,
            )
        )
    return costs
