"""A client's share of distributed noise: what it sends of an update, and how the mean of the total is read.

Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation"
(2021), algorithms 1 and 2; Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated
Learning" (2021). How much noise a share needs, and what privacy the total then has, is for the caller to say.

The rotation differs from the papers' in one point: instead of padding n values to a power of two, a Walsh-Hadamard
transform of the first 2^k values is followed by one of the last 2^k, with k = floor(log2 n), each after random signs of
its own. The product is exactly orthonormal. Over the signs every coordinate of a rotated x, chosen before them, is
sub-Gaussian with variance proxy |x|² / 2^k, where the papers' padding to 2^d has |x|² / 2^d.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import as_count, as_real, as_threads, as_unsigned, as_vector
from shieldfl.errors import ParameterError
from shieldfl.privacy import draws
from shieldfl.privacy.mechanisms import FloatVector, as_float_vector, check_norm
from shieldfl.privacy.noise_table import NoiseTable

__all__ = ["NoiseShareFacts", "mean_of_total", "noise_share", "rotated"]

Real = TypeVar("Real", np.float32, np.float64)

_SEED_BYTES = 32
_MOST_ROUNDED = 2**30
_MOST_SENT = 2**31 - 1


class NoiseShareFacts(NamedTuple):
    """What a client learns on the way. All of it depends on its data without noise: never to be uploaded so."""

    original_norm: float
    """L2 norm of the update, in float64."""
    was_clipped: bool
    """Whether it was longer than the clipping norm."""
    rounding_tries: int
    """How often rounding was drawn until the rounded vector was short enough."""


def noise_share(
    update: FloatVector,
    *,
    clip_norm: float,
    steps_per_unit: float,
    rotation_seed: bytes,
    norm_bound_squared: int,
    most_rounded: int,
    most_sent: int,
    table: NoiseTable,
    threads: int | None = None,
) -> tuple[NDArray[np.int32], NoiseShareFacts]:
    """Clip, rotate, scale and round an update, and add a share of the noise.

    The update is scaled down to an L2 norm of at most ``clip_norm``, rotated (:func:`rotated`) and multiplied by
    ``steps_per_unit``. Each value then goes to one of the two integers next to it at random, with the mean that it had,
    up to 2^-33. This is drawn again until the integers' squared norm, computed exactly, is at most
    ``norm_bound_squared``: so that bound, which privacy rests on, does not depend on the accuracy of floats. Then every
    value is brought within ±``most_rounded``, gets an independent draw from ``table``, and is brought within
    ±``most_sent``. All randomness is the core's, from a seed of the operating system's.

    How long it takes and which lines of a cache are read depends on the update and the noise: let nobody on the same
    machine measure it whom they are to be kept from.

    Parameters
    ----------
    update : ndarray of float32, shape (n,)
        May be empty; is not changed, and must not be changed by others meanwhile.
    clip_norm : float
        Clipping norm C, from 2^-100 to 2^100.
    steps_per_unit : float
        Grid steps for 1 of the update, positive; C must have at most 2^28 steps.
    rotation_seed : bytes
        32 bytes, public, the same for all clients of a total. Fresh for each round: the rotation does its work for
        updates that were chosen before it.
    norm_bound_squared : int
        In squared steps, below 2^64.
    most_rounded, most_sent : int
        From 1 to 2^30 and from 1 to 2^31 - 1.
    table : NoiseTable
        The distribution of this share's noise, in steps.
    threads : int, optional
        For the core; None for as many as the work is worth.

    Returns
    -------
    share : ndarray of int32, shape (n,)
        In steps.
    facts : NoiseShareFacts
        For the client alone.

    Raises
    ------
    ParameterError
        If a number is outside the stated bounds.
    ArrayTypeError
        If the update is not float32 of one dimension.
    RangeError
        If the update holds NaN or infinity, or if 1000 roundings were all longer than the bound, which is then too
        small for this clipping norm.
    """
    values = as_float_vector(update)
    check_norm(clip_norm)
    if not isinstance(table, NoiseTable):
        raise ParameterError(
            "the table must be a NoiseTable: make one with NoiseTable.discrete_gaussian or skellam"
        )
    share, norm, was_clipped, tries = draws.noise_share_vartime(
        values,
        clip_norm,
        _as_scale(steps_per_unit),
        _as_seed(rotation_seed),
        as_unsigned(norm_bound_squared, "norm_bound_squared"),
        _as_limit(most_rounded, "most_rounded", _MOST_ROUNDED),
        _as_limit(most_sent, "most_sent", _MOST_SENT),
        table,
        as_threads(threads),
    )
    return share, NoiseShareFacts(norm, was_clipped, tries)


def mean_of_total(
    total: NDArray[np.float64],
    *,
    clients: int,
    steps_per_unit: float,
    rotation_seed: bytes,
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Return the mean of the clients' updates that a total of their shares tells of, in the updates' unit.

    Parameters
    ----------
    total : ndarray of float64, shape (n,)
        The sum of the shares, in steps.
    clients : int
        What the sum is divided by, at least 1.
    steps_per_unit, rotation_seed, threads
        As in :func:`noise_share`.

    Raises
    ------
    ParameterError
        If a number is outside its bounds.
    ArrayTypeError
        If the total is not float64 of one dimension and contiguous.
    """
    values = as_vector(total, (np.float64,), "the total")
    factor = 1.0 / (_as_scale(steps_per_unit) * as_count(clients, "clients"))
    return _core.rotate(values, _as_seed(rotation_seed), True, factor, as_threads(threads))


def rotated(
    vector: NDArray[Real], rotation_seed: bytes, *, inverse: bool = False, threads: int | None = None
) -> NDArray[Real]:
    """Return a vector after the public random rotation of this seed, or after its inverse; orthonormal both.

    Parameters
    ----------
    vector : ndarray of float32 or float64, shape (n,)
        Contiguous; computed with in its own precision, and not changed.
    rotation_seed : bytes
        32 bytes, public.
    inverse : bool
    threads : int, optional
        The result does not depend on it.

    Raises
    ------
    ParameterError
        If the seed has not 32 bytes.
    ArrayTypeError
        If the vector has another dtype or shape.
    """
    values = as_vector(vector, (np.float32, np.float64), "the vector")
    return _core.rotate(values, _as_seed(rotation_seed), bool(inverse), 1.0, as_threads(threads))


def _as_seed(seed: bytes) -> bytes:
    if not isinstance(seed, bytes) or len(seed) != _SEED_BYTES:
        raise ParameterError(f"a rotation's seed must be {_SEED_BYTES} bytes")
    return seed


def _as_scale(steps_per_unit: float) -> float:
    scale = as_real(steps_per_unit, "steps_per_unit")
    if not (math.isfinite(scale) and scale > 0):
        raise ParameterError("steps_per_unit must be positive and finite")
    return scale


def _as_limit(value: int, name: str, most: int) -> int:
    limit = as_unsigned(value, name)
    if not 1 <= limit <= most:
        raise ParameterError(f"{name} must be from 1 to {most}")
    return limit
