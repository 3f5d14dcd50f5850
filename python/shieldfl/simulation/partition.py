"""Splitting a data set over clients, the same way every time for a seed."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shieldfl.errors import ParameterError

__all__ = ["IndexArray", "dirichlet_partition"]

IndexArray = npt.NDArray[np.int64]


def dirichlet_partition(
    labels: npt.ArrayLike, clients: int, alpha: float | str, seed: int, min_samples: int = 1
) -> list[IndexArray]:
    """Share samples out so that each class is spread over the clients by a Dirichlet draw.

    For each class the shares of the clients are one draw from Dir(alpha, ..., alpha) (the partition of
    SelectiveShield, section 5): a small alpha gives clients that see few classes. Every sample goes to
    exactly one client. A client left with fewer than ``min_samples`` gets samples from the one that has
    most.

    Parameters
    ----------
    labels : array-like of int, shape (N,)
        Class of each sample.
    clients : int
        Number of clients, at least 1.
    alpha : float or "iid"
        Concentration, positive; ``math.inf`` and ``"iid"`` deal the shuffled samples out evenly.
    seed : int
        Decides the partition; not cryptographic.
    min_samples : int
        Least number of samples per client, at least 0.

    Returns
    -------
    list of ndarray of int64
        One ascending index array per client; together they hold each of 0..N-1 once.

    Raises
    ------
    ParameterError
        For an argument out of range, or more clients than the samples can serve.
    """
    classes = np.asarray(labels)
    if classes.ndim != 1:
        raise ParameterError(f"labels must be one-dimensional, got rank {classes.ndim}")
    if clients < 1:
        raise ParameterError(f"a partition needs at least 1 client, got {clients}")
    if min_samples < 0:
        raise ParameterError(f"min_samples must not be negative, got {min_samples}")
    if clients * min_samples > classes.size:
        raise ParameterError(
            f"{classes.size} samples cannot give {clients} clients {min_samples} each: "
            "use fewer clients or a smaller min_samples"
        )
    concentration = _concentration(alpha)
    generator = np.random.default_rng(seed)
    if math.isinf(concentration):
        parts = np.array_split(generator.permutation(classes.size), clients)
    else:
        parts = _split_by_class(classes, clients, concentration, generator)
        _level(parts, min_samples)
    return [np.sort(part).astype(np.int64) for part in parts]


def _concentration(alpha: float | str) -> float:
    if isinstance(alpha, str):
        if alpha != "iid":
            raise ParameterError('alpha must be a positive number or "iid"')
        return math.inf
    if not alpha > 0:
        raise ParameterError('alpha must be a positive number or "iid"')
    return float(alpha)


def _split_by_class(
    labels: npt.NDArray[np.generic], clients: int, alpha: float, generator: np.random.Generator
) -> list[IndexArray]:
    pieces: list[list[IndexArray]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        cuts = np.floor(np.cumsum(_shares(clients, alpha, generator))[:-1] * members.size).astype(np.int64)
        for client, piece in enumerate(np.split(members, cuts)):
            pieces[client].append(piece)
    return [np.concatenate(own) if own else np.empty(0, dtype=np.int64) for own in pieces]


def _shares(clients: int, alpha: float, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = generator.dirichlet(np.full(clients, alpha))
    if np.isfinite(shares).all() and math.isclose(float(shares.sum()), 1.0, rel_tol=1e-6):
        return shares
    # Extreme concentrations overflow or underflow the gamma draws; these are the two limits of the
    # distribution.
    if alpha >= 1.0:
        return np.full(clients, 1.0 / clients)
    shares = np.zeros(clients)
    shares[generator.integers(clients)] = 1.0
    return shares


def _level(parts: list[IndexArray], min_samples: int) -> None:
    """Move single samples from the largest client (the first of equals) until nobody is short."""
    sizes = [part.size for part in parts]
    for client in range(len(parts)):
        while sizes[client] < min_samples:
            giver = int(np.argmax(sizes))
            parts[client] = np.append(parts[client], parts[giver][-1])
            parts[giver] = parts[giver][:-1]
            sizes[client] += 1
            sizes[giver] -= 1
