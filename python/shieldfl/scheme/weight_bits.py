"""Bits that values get for weights that travel encrypted beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.scheme.interface import SumNeeds

__all__ = ["weighted_parameters"]


def weighted_parameters(make: Callable[..., Any], needs: SumNeeds) -> Any:
    """Return parameters for such sums, with bits for weights while there is room; ``make`` takes their keywords.

    Clients divide their weights by the largest, and values become smaller by that: they get as many bits more, behind
    the point, as make up for it on average. Raises ParameterError where there is no room without them either.
    """
    if needs.sum_bits is not None and needs.most_weight > 1:
        raise ParameterError("sum_bits are for sums whose weights do not travel encrypted: leave them out")
    narrower = {} if needs.sum_bits is None else {"sum_bits": needs.sum_bits}

    def with_more(bits: int) -> Any:
        value_bits, fraction_bits = needs.value_bits + bits, needs.fraction_bits + bits
        return make(max_clients=needs.clients, value_bits=value_bits, fraction_bits=fraction_bits, **narrower)

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
