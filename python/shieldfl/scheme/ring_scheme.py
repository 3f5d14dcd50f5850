"""What the registry knows of every scheme over a ring: how parameters are chosen, and what frames state of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from shieldfl.errors import ParameterError
from shieldfl.scheme.core import CoreCiphertext
from shieldfl.scheme.interface import Fact, FrameBody, Scheme, SumNeeds

__all__ = ["RingCiphertext", "RingScheme"]


class RingCiphertext(CoreCiphertext, Protocol):
    """A checked frame of a batch or a total, which states its parameters."""

    @property
    def facts(self) -> dict[str, Any]:
        """The parameters, as the core's parameters have them."""


class RingScheme(Scheme):
    """A scheme whose ``Parameters`` are :class:`~shieldfl.scheme.ring_parameters.RingParameters`."""

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return those that take a client the least work."""
        return self.Parameters.plan(goal="speed")

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return those of the ring that needs the fewest bytes, with bits for weights while there is room.

        Clients divide their weights by the largest, and values become smaller by that: they get as many bits more,
        behind the point, as make up for it on average. Where the count is not known, the default ring.
        """
        make: Callable[..., Any] = self.Parameters
        count = self._planned_count(needs)
        if count is not None:
            # Where weights differ, each is encrypted behind the values.
            fields = count + 1 if needs.most_weight > 1 else max(count, 1)
            make = partial(self.Parameters.plan, goal="size", count=fields)

        def with_more(bits: int) -> Any:
            value_bits, fraction_bits = needs.value_bits + bits, needs.fraction_bits + bits
            return make(max_clients=needs.clients, value_bits=value_bits, fraction_bits=fraction_bits)

        for bits in range(_bits_for_weights(needs.most_weight, needs.mean_weight), 0, -1):
            try:
                return with_more(bits)
            except ParameterError:  # no room for so many
                continue
        return with_more(0)

    def _planned_count(self, needs: SumNeeds) -> int | None:
        """Return how many values the ring is chosen for; None for the default ring."""
        return needs.count

    def _public_key_body(self, frame: bytes) -> FrameBody:
        parameters = self.PublicKey.from_bytes(frame).parameters
        return FrameBody(parameters=self._named(parameters._facts), description=parameters.describe())

    def _ciphertext_body(self, ciphertext: RingCiphertext) -> FrameBody:
        facts = ciphertext.facts
        description = self._derived_description(facts, ciphertext.parameter_id)
        return FrameBody(FrameBody.counts_of(ciphertext), self._named(facts), description)

    def _named(self, facts: Mapping[str, Any]) -> dict[str, Fact]:
        """Return parameters by names as people write them; lists as what they come to."""
        named = FrameBody.spaced({name: value for name, value in facts.items() if name != "primes"})
        named["modulus bits"] = sum(prime.bit_length() for prime in facts["primes"])
        return named

    def _derived_description(self, facts: Mapping[str, Any], parameter_id: bytes) -> str:
        """Derive the parameters anew; empty where another version of shieldfl derived them differently."""
        try:
            parameters = self.Parameters(**{name: facts[name] for name in self.Parameters._SETTINGS})
        except ParameterError:
            return ""
        return parameters.describe() if parameters.id == parameter_id else ""


def _bits_for_weights(most_weight: int, mean_weight: float | None) -> int:
    """Say how many bits dividing by the largest weight costs the mean of all clients, rounded up.

    Each of K clients is off by half a step at most, and the mean by half a step times K / sum(weights): with weights
    divided by the largest that is most_weight / mean_weight, of which this is the logarithm. It is at most log2 K.
    """
    return 0 if mean_weight is None else max(math.ceil(math.log2(most_weight / mean_weight)), 0)
