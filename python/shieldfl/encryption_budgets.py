"""Share of the parameters that each client can encrypt without holding the others up."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shieldfl.errors import ParameterError

__all__ = ["sense_crypt_budgets"]

FloatVector = NDArray[np.float64]
IntVector = NDArray[np.int64]


def sense_crypt_budgets(
    bytes_per_second: ArrayLike, compute_speed: ArrayLike, clusters: ArrayLike | None = None
) -> FloatVector:
    """Return alpha of each client (SenseCrypt, section 3.2): float64 of shape (K,), in (0, 1].

    Within a cluster, bandwidth and computing speed are each divided by the largest of them; the smaller of the two
    quotients is divided by the largest such. The fastest client of each cluster gets 1, so a client that is alone
    does.

    Parameters
    ----------
    bytes_per_second, compute_speed : array-like of shape (K,)
        In any units; all of them finite and above zero.
    clusters : array-like of int, shape (K,), optional
        Cluster of each client, from 0; None for a single one.

    Raises
    ------
    ParameterError
        For no clients, different lengths, or a value that is zero, negative, infinite or NaN (with the position).
    """
    rates = _positive(bytes_per_second, "bytes_per_second")
    speeds = _positive(compute_speed, "compute_speed")
    groups = np.zeros(rates.size, dtype=np.int64) if clusters is None else np.asarray(clusters)
    if not rates.size == speeds.size == groups.size:
        raise ParameterError(
            f"budgets need one bandwidth, speed and cluster for each client, got {rates.size}, {speeds.size} "
            f"and {groups.size}"
        )
    if groups.ndim != 1 or not np.issubdtype(groups.dtype, np.integer) or groups.min() < 0:
        raise ParameterError("clusters must be a vector of whole numbers from 0")
    slower = np.minimum(_scaled(rates, groups), _scaled(speeds, groups))
    return _scaled(slower, groups)


def _positive(values: ArrayLike, what: str) -> FloatVector:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"{what} must be a vector with an entry for each client")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0.0)))
    if wrong.size:
        raise ParameterError(f"{what} must be finite and above zero, client {wrong[0]} is not")
    return array


def _scaled(values: FloatVector, clusters: IntVector) -> FloatVector:
    largest = np.zeros(int(clusters.max()) + 1)
    np.maximum.at(largest, clusters, values)
    # A quotient that is too small for a double is still a budget above zero.
    scaled: FloatVector = np.maximum(values / largest[clusters], np.finfo(np.float64).tiny)
    return scaled
