"""What the registry knows of every scheme over a ring: how parameters are chosen, and what frames state of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from shieldfl.scheme.described_scheme import DescribedScheme
from shieldfl.scheme.interface import Fact, FrameBody, SumNeeds
from shieldfl.scheme.weight_bits import weighted_parameters

__all__ = ["RingScheme"]


class RingScheme(DescribedScheme):
    """A scheme whose ``Parameters`` are :class:`~shieldfl.scheme.ring_parameters.RingParameters`."""

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return those that take a client the least work."""
        return self.Parameters.plan(goal="speed")

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return those of the ring that needs the fewest bytes, with bits for weights while there is room.

        Where the count is not known, the default ring.
        """
        make: Callable[..., Any] = self.Parameters
        count = self._planned_count(needs)
        if count is not None:
            # Where weights differ, each is encrypted behind the values.
            fields = count + 1 if needs.most_weight > 1 else max(count, 1)
            make = partial(self.Parameters.plan, goal="size", count=fields)
        return weighted_parameters(make, needs if self.has_sum_bits else replace(needs, sum_bits=None))

    def _planned_count(self, needs: SumNeeds) -> int | None:
        """Return how many values the ring is chosen for; None for the default ring."""
        return needs.count

    def _named(self, facts: Mapping[str, Any]) -> dict[str, Fact]:
        """Return parameters by names as people write them; lists as what they come to."""
        named = FrameBody.spaced({name: value for name, value in facts.items() if name != "primes"})
        named["modulus bits"] = sum(prime.bit_length() for prime in facts["primes"])
        return named
