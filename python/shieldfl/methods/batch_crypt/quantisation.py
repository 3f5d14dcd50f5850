"""BatchCrypt's quantisation: integers whose sums are exact, from updates that are clipped layer by layer.

Source: Zhang et al. 2020, "BatchCrypt: Efficient Homomorphic Encryption for Cross-Silo Federated Learning",
sections 4.2 and 4.3. With width r, m parties and a layer's clip bound alpha:

- an update is clipped to [-alpha, alpha]; the r bits, sign included, span the sum, r_max = m * alpha, so that one
  step is r_max / (2^(r-1) - 1);
- rounding is stochastic: the mean of the rounded value is the clipped one;
- the bound is dACIQ's, alpha = c(r) * sigma: from the range of all clients' values instead of from the values.

A client's integer is at most ceil((2^(r-1) - 1) / m) in magnitude. m of them, each rounded up, may pass 2^(r-1) - 1 by
up to m - 1. Fields here are wide enough for that, so that no sum overflows: what is out of range is clipped, and
counted, by the client that has it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_unsigned, as_vector
from shieldfl.authority.message import Message
from shieldfl.encryption import paillier
from shieldfl.errors import ParameterError, RangeError, WireFormatError

_LEAST_WIDTH, _MOST_WIDTH = 2, 32
_MOST_PARTIES = 2**20
# Far outside of what ranges of float32 lead to, and far inside of what float64 divides without overflow.
_LEAST_BOUND, _MOST_BOUND = 2.0**-200, 2.0**200
# Of the standard deviation that ACIQ reads off the range of n normal values: sigma = factor * range / sqrt(2 ln n).
_SIGMA_FACTOR = 0.5 * 0.35 * (1.0 + math.sqrt(math.pi * math.log(4.0)))


@dataclass(frozen=True)
class Quantisation:
    """What all roles agree on: the layers, the width r, and m, the most clients of a round.

    m is not the number of those who take part in one: fields are as wide as a client's integer, and that is larger for
    a smaller m.
    """

    offsets: tuple[int, ...]
    width: int
    parties: int

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.offsets) - 1

    def read_bounds(self, message: Message) -> NDArray[np.float64]:
        """Read the clip bounds, float64 (L,). Raises WireFormatError for another number, or what is no bound."""
        bounds = message.vector("bounds", np.float64, self.layers)
        try:
            return checked_bounds(bounds, self.layers)
        except ParameterError as error:
            raise WireFormatError(f"the round's clip bounds cannot be used: {error}") from None


class QuantisedUpdate(NamedTuple):
    """A client's integers, int64 (P,), and how many values were outside of their clip bound."""

    values: NDArray[np.int64]
    saturated: int


def layer_ranges(update: Any, offsets: Sequence[int]) -> NDArray[np.float32]:
    """Return the least and the greatest value of each layer, float32 (L, 2); zeros for an empty layer.

    This is what a client sends in the clear before it quantises, and it depends on its data.

    Parameters
    ----------
    update : float32 vector, shape (P,)
    offsets : sequence of int, L + 1 ascending numbers
        Layer i covers ``offsets[i]`` up to ``offsets[i + 1]``, as in ``ParameterLayout.offsets``.

    Raises ArrayTypeError, ParameterError for offsets that do not fit, RangeError for NaN or infinity.
    """
    values = as_vector(update, (np.float32,), "the update")
    layers = _layers(offsets, values.size)
    if not np.isfinite(values).all():
        raise RangeError(
            "the update has NaN or infinity: lower the learning rate or check this client's data"
        )
    ranges = np.zeros((len(layers), 2), dtype=np.float32)
    for layer, piece in enumerate(layers):
        if piece.stop > piece.start:
            ranges[layer] = values[piece].min(), values[piece].max()
    return ranges


def clip_bounds(
    ranges: Sequence[NDArray[np.float32]], offsets: Sequence[int], width: int
) -> NDArray[np.float64]:
    """Return each layer's clip bound alpha, from the ranges of all clients (section 4.3, dACIQ).

    alpha = c(r) * sigma, and sigma is read off the range of the n values of all clients in the layer, taken to be
    normal with mean 0: sigma = 0.175 * (1 + sqrt(pi * ln 4)) * (max - min) / sqrt(2 * ln n), as in the authors'
    published program and in ACIQ (Banner et al. 2018) before it. Where all values of a layer are equal, there is no
    sigma: the bound is their magnitude.

    Parameters
    ----------
    ranges : sequence of float32 arrays, shape (L, 2)
        What :func:`layer_ranges` gave each client.
    offsets : sequence of int
        As for :func:`layer_ranges`.
    width : int
        r, 2 to 32.

    Returns
    -------
    ndarray of float64, shape (L,)
        Not negative; 0 for a layer that is empty or 0 everywhere.

    Raises
    ------
    ParameterError
        For no clients, ranges of another number of layers, or another width.
    RangeError
        For a range that is NaN, infinite or upside down.
    """
    factor = clip_factor(width)
    if len(ranges) == 0:
        raise ParameterError("no client has sent its ranges: wait for at least one")
    layers = _layers(offsets, offsets[-1] if len(offsets) else 0)
    for one in ranges:
        if np.shape(one) != (len(layers), 2):
            raise ParameterError(f"a client's ranges have shape {np.shape(one)}, expected ({len(layers)}, 2)")
    stacked = np.asarray(ranges, dtype=np.float64)
    if not (np.isfinite(stacked).all() and (stacked[..., 0] <= stacked[..., 1]).all()):
        raise RangeError("a client's range is NaN, infinite or has a minimum above its maximum")
    least, greatest = stacked[..., 0].min(axis=0), stacked[..., 1].max(axis=0)
    bounds: NDArray[np.float64] = np.abs(greatest)
    for layer in np.flatnonzero(greatest > least):
        values = len(ranges) * (layers[layer].stop - layers[layer].start)
        if values < 2:
            raise RangeError("a client's range is of two values where the layer has at most one")
        spread = (greatest[layer] - least[layer]) / math.sqrt(2.0 * math.log(values))
        bounds[layer] = factor * _SIGMA_FACTOR * spread
    return bounds


@cache
def clip_factor(width: int) -> float:
    """Return c(r): the bound that is best for normal values of variance 1. c(8) = 3.7736, c(16) = 5.8294.

    It minimises the expected squared error of clipping and rounding, the latter 2 a^2 (2^r - 2) / (3 * 2^(3 r)) by
    the authors' published program. The derivative vanishes where
    sqrt(2/pi) * exp(-a^2/2) / a - erfc(a/sqrt(2)) = 2 (2^r - 2) / (3 * 2^(3 r)), whose left side falls with a.
    The published c(16) = 5.8296 comes from a minimiser that stops a little beside it: the minimum is flat.

    Raises ParameterError unless the width is from 2 to 32.
    """
    _check_width(width)
    target = 2.0 * (2.0**width - 2.0) / (3.0 * 2.0 ** (3 * width))
    low, high = 0.5, 16.0
    while True:
        middle = (low + high) / 2.0
        if middle in (low, high):
            return middle
        gain = math.sqrt(2.0 / math.pi) * math.exp(-middle * middle / 2.0) / middle
        if gain - math.erfc(middle / math.sqrt(2.0)) > target:
            low = middle
        else:
            high = middle


def largest_magnitude(width: int, parties: int) -> int:
    """Return the most that a client's integer can be in magnitude: ceil((2^(r-1) - 1) / m).

    Raises ParameterError for a width outside of 2 to 32 or parties outside of 1 to 2^20.
    """
    return -(-_top(width) // _check_parties(parties))


def paillier_parameters(width: int, parties: int, *, key_bits: int = 3072) -> paillier.Parameters:
    """Return parameters under which :func:`quantise`'s integers are packed, summed and opened exactly.

    No fraction bits, just the value bits that a client's integer needs, sign included, and guard bits for the sum of m
    of them: a field is at most two bits wider than r, unless there are more parties than steps.

    Raises ParameterError as :func:`largest_magnitude`, and for a key of another size.
    """
    return paillier.Parameters(
        key_bits=key_bits,
        packing="dense",
        max_clients=parties,
        value_bits=largest_magnitude(width, parties).bit_length() + 1,
        fraction_bits=0,
    )


def quantise(
    update: Any,
    offsets: Sequence[int],
    bounds: Any,
    width: int,
    parties: int,
    generator: np.random.Generator | None = None,
) -> QuantisedUpdate:
    """Clip each layer and round it stochastically to steps of m * alpha / (2^(r-1) - 1).

    Parameters
    ----------
    update : float32 vector, shape (P,)
    offsets : sequence of int
        As for :func:`layer_ranges`.
    bounds : float64 vector, shape (L,)
        From :func:`clip_bounds`. A layer with bound 0 becomes 0.
    width, parties : int
        r from 2 to 32, and m from 1 to 2^20: how many updates are summed at most.
    generator : numpy Generator, optional
        Decides the rounding; None makes one that is seeded by the operating system.

    Raises
    ------
    ArrayTypeError
        If a vector has another dtype, rank or memory layout.
    ParameterError
        If offsets, bounds, width or parties do not fit.
    RangeError
        If the update has NaN or infinity.
    """
    values = as_vector(update, (np.float32,), "the update")
    layers = _layers(offsets, values.size)
    alphas = checked_bounds(bounds, len(layers))
    most = largest_magnitude(width, parties)
    if not np.isfinite(values).all():
        raise RangeError(
            "the update has NaN or infinity: lower the learning rate or check this client's data"
        )
    random = np.random.default_rng() if generator is None else generator
    integers = np.zeros(values.size, dtype=np.int64)
    saturated = 0
    for piece, alpha in zip(layers, alphas, strict=True):
        layer = values[piece].astype(np.float64)
        saturated += int(np.count_nonzero(np.abs(layer) > alpha))
        if alpha > 0.0:
            steps = np.clip(layer, -alpha, alpha) * (_top(width) / (parties * alpha))
            below = np.floor(steps)
            rounded = below + (random.random(layer.size) < steps - below)
            # The product may be a hair above a whole number of steps where alpha itself is a whole number.
            integers[piece] = np.clip(rounded, -most, most)
    return QuantisedUpdate(integers, saturated)


def dequantise(
    sums: Any, offsets: Sequence[int], bounds: Any, width: int, parties: int
) -> NDArray[np.float64]:
    """Return what sums of integers stand for: the sums of the clipped and rounded updates, float64 (P,).

    Parameters
    ----------
    sums : int64 or float64 vector, shape (P,)
        Whole numbers: sums of up to m clients' integers.
    offsets, bounds, width, parties
        As for :func:`quantise`, the same for all.

    Raises
    ------
    ArrayTypeError
        If a vector has another dtype, rank or memory layout.
    ParameterError
        If offsets, bounds, width or parties do not fit.
    RangeError
        If a sum is no whole number, or larger than m clients' integers can make it.
    """
    totals = as_vector(sums, (np.int64, np.float64), "the sums")
    layers = _layers(offsets, totals.size)
    alphas = checked_bounds(bounds, len(layers))
    most = parties * largest_magnitude(width, parties)
    values = totals.astype(np.float64)
    if not ((np.abs(values) <= most).all() and (values == np.rint(values)).all()):
        raise RangeError(
            f"a sum of {parties:,} clients' integers is a whole number of at most {most:,} in magnitude: "
            "these were quantised with other settings"
        )
    for piece, alpha in zip(layers, alphas, strict=True):
        values[piece] *= parties * alpha / _top(width)
    return values


def _check_width(width: int) -> int:
    number = as_unsigned(width, "the quantisation width")
    if not _LEAST_WIDTH <= number <= _MOST_WIDTH:
        raise ParameterError(f"the quantisation width must be {_LEAST_WIDTH} to {_MOST_WIDTH} bits")
    return number


def _top(width: int) -> int:
    return int(2 ** (_check_width(width) - 1)) - 1


def _check_parties(parties: int) -> int:
    number = as_unsigned(parties, "parties")
    if not 1 <= number <= _MOST_PARTIES:
        raise ParameterError(f"there must be 1 to {_MOST_PARTIES:,} parties")
    return number


def _layers(offsets: Sequence[int], size: int) -> list[slice]:
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != size or any(np.diff(offsets) < 0):
        raise ParameterError(
            f"offsets must ascend from 0 to the {size:,} values of the vector: take ParameterLayout.offsets"
        )
    return [slice(start, stop) for start, stop in itertools.pairwise(offsets)]


def checked_bounds(bounds: Any, layers: int) -> NDArray[np.float64]:
    """Return the clip bounds of so many layers. Raises ParameterError for another number, or one out of range."""
    alphas = as_vector(bounds, (np.float64,), "the clip bounds")
    if alphas.size != layers:
        raise ParameterError(f"there are {alphas.size:,} clip bounds for {layers:,} layers")
    if not ((alphas == 0.0) | ((alphas >= _LEAST_BOUND) & (alphas <= _MOST_BOUND))).all():
        raise ParameterError("a clip bound must be 0, or positive and of a size that float32 updates lead to")
    return alphas
