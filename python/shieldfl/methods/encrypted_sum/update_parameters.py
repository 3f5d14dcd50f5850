"""Encryption parameters of the updates that a method averages, by the name of the scheme."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from msgspec import Meta

from shieldfl import ckks, paillier
from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.settings import Settings, about

__all__ = ["ENCRYPTIONS", "FixedPoint", "update_parameters"]

ENCRYPTIONS = ("paillier-dense", "paillier-single", "ckks")


@dataclass(frozen=True)
class FixedPoint(Settings):
    """How values are quantised before they are encrypted."""

    value_bits: Annotated[int, Meta(ge=2, le=40), about("Bits of an encrypted value.")] = 24
    fraction_bits: Annotated[
        int, Meta(ge=0, le=52), about("Bits of an encrypted value behind the binary point.")
    ] = 20


def update_parameters(
    encryption: str,
    clients: int,
    fixed_point: FixedPoint,
    *,
    count: int | None = None,
    most_weight: int = 1,
    mean_weight: float | None = None,
    key_bits: int = 3072,
    takes_clear_values: bool = False,
) -> ckks.Parameters | paillier.Parameters:
    """Return the parameters for sums over so many clients.

    Parameters
    ----------
    encryption : one of :data:`ENCRYPTIONS`.
    clients, most_weight : how many clients there are, and the largest weight of one.
    mean_weight : of all clients; None for as much as the largest. CKKS clients divide their weights by the largest,
        and values become smaller by that: they get as many bits more, behind the point, as make up for it on average,
        or as there is room for. So the mean of all clients is rounded no more than it would be without weights.
    count : how many values a client encrypts: CKKS then takes the ring that needs the fewest bytes for them. None where
        that is not known before the first round: the smallest ring, whose ciphertexts are soon full.
    key_bits : of the Paillier modulus.
    takes_clear_values : whether plain numbers are added to ciphertexts. Nobody can see whether a client encrypts where
        it also sends a plain number, so fields then have room for both.

    Raises ParameterError for an unknown name and what the scheme refuses.
    """
    if encryption not in ENCRYPTIONS:
        raise ParameterError(f"encryption must be one of {', '.join(ENCRYPTIONS)}")
    if encryption == "ckks":
        make: Callable[..., ckks.Parameters] = ckks.Parameters
        if count is not None:
            # Where weights differ, each is encrypted behind the values.
            fields = count + 1 if most_weight > 1 else max(count, 1)
            make = partial(ckks.Parameters.plan, goal="size", count=fields)
        for bits in range(_bits_for_weights(most_weight, mean_weight), 0, -1):
            try:
                return make(
                    max_clients=clients,
                    value_bits=fixed_point.value_bits + bits,
                    fraction_bits=fixed_point.fraction_bits + bits,
                )
            except ParameterError:  # no room for so many
                continue
        return make(
            max_clients=clients,
            value_bits=fixed_point.value_bits,
            fraction_bits=fixed_point.fraction_bits,
        )
    if as_unsigned(key_bits, "key_bits") not in (2048, 3072, 4096):
        raise ParameterError("key_bits must be 2048, 3072 or 4096")
    return paillier.Parameters(
        key_bits=key_bits,
        packing=encryption.removeprefix("paillier-"),
        max_clients=2 * clients if takes_clear_values else clients,
        value_bits=fixed_point.value_bits,
        fraction_bits=fixed_point.fraction_bits,
        max_weight=most_weight,
    )


def _bits_for_weights(most_weight: int, mean_weight: float | None) -> int:
    """Say how many bits dividing by the largest weight costs the mean of all clients, rounded up.

    Each of K clients is off by half a step at most, and the mean by half a step times K / sum(weights): with weights
    divided by the largest that is most_weight / mean_weight, of which this is the logarithm. It is at most log2 K.
    """
    return 0 if mean_weight is None else max(math.ceil(math.log2(most_weight / mean_weight)), 0)
