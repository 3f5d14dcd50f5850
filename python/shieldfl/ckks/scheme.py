"""CKKS as the registry has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import shieldfl._core as _core
from shieldfl.ckks.encryption import Aggregator, Encryptor, Total
from shieldfl.ckks.parameters import Parameters, PublicKey
from shieldfl.errors import ParameterError
from shieldfl.scheme.interface import Fact, FrameBody, Scheme, SumNeeds

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

    @property
    def frame_readers(self) -> Mapping[str, Callable[[bytes], FrameBody]]:
        """Of public keys, batches and totals."""
        return {
            "ckks public key": _public_key_body,
            "ckks batch": lambda frame: _ciphertext_body(_core.CkksCiphertext.batch(frame)),
            "ckks total": lambda frame: _ciphertext_body(_core.CkksCiphertext.total(frame)),
        }

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return those that take a client the least work."""
        return self.Parameters.plan(goal="speed")

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return those of the ring that needs the fewest bytes, with bits for weights while there is room.

        Clients divide their weights by the largest, and values become smaller by that: they get as many bits more,
        behind the point, as make up for it on average. Where the count is not known, the smallest ring.
        """
        make: Callable[..., Any] = self.Parameters
        if needs.count is not None:
            # Where weights differ, each is encrypted behind the values.
            fields = needs.count + 1 if needs.most_weight > 1 else max(needs.count, 1)
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


def _bits_for_weights(most_weight: int, mean_weight: float | None) -> int:
    """Say how many bits dividing by the largest weight costs the mean of all clients, rounded up.

    Each of K clients is off by half a step at most, and the mean by half a step times K / sum(weights): with weights
    divided by the largest that is most_weight / mean_weight, of which this is the logarithm. It is at most log2 K.
    """
    return 0 if mean_weight is None else max(math.ceil(math.log2(most_weight / mean_weight)), 0)


def _public_key_body(frame: bytes) -> FrameBody:
    key = PublicKey.from_bytes(frame)
    return FrameBody(parameters=_named(key.parameters._facts), description=key.parameters.describe())


def _ciphertext_body(ciphertext: _core.CkksCiphertext) -> FrameBody:
    facts = ciphertext.facts
    return FrameBody(
        FrameBody.counts_of(ciphertext), _named(facts), _derived_description(facts, ciphertext.parameter_id)
    )


def _named(facts: Mapping[str, Any]) -> dict[str, Fact]:
    lists = ("primes", "dropped_bits")
    named = FrameBody.spaced({name: value for name, value in facts.items() if name not in lists})
    named["modulus bits"] = sum(prime.bit_length() for prime in facts["primes"])
    named["dropped bits of c0"], named["dropped bits of c1"] = facts["dropped_bits"]
    return named


def _derived_description(facts: Mapping[str, Any], parameter_id: bytes) -> str:
    """Derive the parameters anew; empty where another version of shieldfl derived them differently."""
    names = ("packing", "max_clients", "value_bits", "fraction_bits", "ring_degree")
    try:
        parameters = Parameters(**{name: facts[name] for name in names})
    except ParameterError:
        return ""
    return parameters.describe() if parameters.id == parameter_id else ""


SCHEME = Ckks()
