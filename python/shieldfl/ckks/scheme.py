"""CKKS as the registry has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from shieldfl.ckks.aggregator import Aggregator
from shieldfl.ckks.ciphertext import Total
from shieldfl.ckks.encryptor import Encryptor
from shieldfl.ckks.parameters import Parameters, PublicKey
from shieldfl.errors import ParameterError
from shieldfl.scheme.interface import Scheme

__all__ = ["SCHEME", "Ckks"]


class Ckks(Scheme):
    """Its pairs live for one round: one client that tampers with its ciphertexts learns the key from the opened sum."""

    name = "ckks"
    Parameters = Parameters
    PublicKey = PublicKey
    Encryptor = Encryptor
    Aggregator = Aggregator
    Total = Total
    opening = "shieldfl.ckks.opening"
    encryptions = ("ckks",)

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return those that take a client the least work."""
        return self.Parameters.plan(goal="speed")

    def update_parameters(
        self,
        encryption: str,
        clients: int,
        value_bits: int,
        fraction_bits: int,
        *,
        count: int | None,
        most_weight: int,
        mean_weight: float | None,
        key_bits: int,
        takes_clear_values: bool,
    ) -> Any:
        """Return those of the ring that needs the fewest bytes, with bits for weights while there is room.

        Clients divide their weights by the largest, and values become smaller by that: they get as many bits more,
        behind the point, as make up for it on average. Where ``count`` is not known, the smallest ring.
        """
        make: Callable[..., Any] = self.Parameters
        if count is not None:
            # Where weights differ, each is encrypted behind the values.
            fields = count + 1 if most_weight > 1 else max(count, 1)
            make = partial(self.Parameters.plan, goal="size", count=fields)
        for bits in range(_bits_for_weights(most_weight, mean_weight), 0, -1):
            try:
                return make(
                    max_clients=clients, value_bits=value_bits + bits, fraction_bits=fraction_bits + bits
                )
            except ParameterError:  # no room for so many
                continue
        return make(max_clients=clients, value_bits=value_bits, fraction_bits=fraction_bits)


def _bits_for_weights(most_weight: int, mean_weight: float | None) -> int:
    """Say how many bits dividing by the largest weight costs the mean of all clients, rounded up.

    Each of K clients is off by half a step at most, and the mean by half a step times K / sum(weights): with weights
    divided by the largest that is most_weight / mean_weight, of which this is the logarithm. It is at most log2 K.
    """
    return 0 if mean_weight is None else max(math.ceil(math.log2(most_weight / mean_weight)), 0)


SCHEME = Ckks()
