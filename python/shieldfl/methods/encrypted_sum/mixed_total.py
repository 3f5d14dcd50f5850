"""The key authority's view of a round's sum: what the aggregator claims, and the mean that it opens to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.mixed_sum import read_clear_sums
from shieldfl.methods.protocol.opening_rule import RoundSums
from shieldfl.roles.message import Message
from shieldfl.scheme.encryption import SchemeTotal
from shieldfl.scheme.interface import Positions
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import scheme_of

__all__ = ["MixedTotal"]


@dataclass(frozen=True)
class MixedTotal:
    """What ``MixedSum.parts`` wrote, looked at before anything is opened."""

    total: SchemeTotal
    union: Positions
    sums: NDArray[np.float64]
    """Of plain numbers outside of the union; empty where none are sent."""
    weight: int
    encrypts_weights: bool

    @classmethod
    def read(
        cls,
        message: Message,
        suffix: str,
        parameters: SchemeParameters[Any, Any],
        size: int,
        round_number: int,
        has_rest: bool = True,
    ) -> MixedTotal:
        """Read the parts with this suffix. Raises WireFormatError for what does not hang together.

        ``size`` is N, of an update; ``round_number`` is the one under which the ciphertexts travelled.
        """
        scheme = scheme_of(parameters)
        union = scheme.read_positions(message[f"{scheme.positions_part}{suffix}"], size)
        total = scheme.Total.from_bytes(message[f"total{suffix}"])
        if not total.is_of(union) or total.round != round_number:
            raise WireFormatError("the total is of another round, or of other positions than the union's")
        sums = read_clear_sums(message, f"sums{suffix}", size - union.count if has_rest else 0)
        weight = message.number(f"weight{suffix}")
        weights_differ = scheme.integer_weights and total.total_weight != weight
        if weight < total.clients or weights_differ:
            raise WireFormatError("the weight of the sums is not that of the total")
        return cls(total, union, sums, weight, encrypts_weights=not scheme.integer_weights)

    @property
    def positions(self) -> Mask:
        """The union as a mask of N positions."""
        return self.union.mask

    def check_weights(self, most_weight: int) -> bool:
        """Say whether the total has encrypted weights.

        Raises WireFormatError where it has some or none against the agreement, or where what the clients stated in the
        clear sums to what weights between 1 and the largest cannot.
        """
        encrypted = most_weight > 1 and self.encrypts_weights
        clients = self.total.clients
        if self.total.weighted != encrypted or not clients <= self.weight <= clients * most_weight:
            raise WireFormatError(
                f"the weights of the total's {clients} clients are not between 1 and {most_weight}, or not encrypted "
                "as was agreed on: nothing was opened"
            )
        return encrypted

    def clear_mean(self) -> NDArray[np.float64]:
        """Return the weighted mean (N,) of what came in the clear, zero elsewhere: to be looked at before opening."""
        mean = np.zeros(self.positions.size)
        (~self.positions).scatter(self.sums / self.weight, mean)
        return mean

    def open_mean(self, sums: RoundSums, most_weight: int) -> NDArray[np.float64]:
        """Open the total and return the weighted mean (N,), zero where nothing was sent.

        Raises PolicyError, WireFormatError, and RangeError where the encrypted weights do not sum to the stated ones.
        """
        stated = self.weight / most_weight if self.check_weights(most_weight) else self.weight
        mean: NDArray[np.float64] = self.union.scatter(sums.open_mean(self.total, stated_weight=stated))
        if self.sums.size:
            (~self.positions).scatter(self.sums / self.weight, mean)
        return mean
