"""Splitting a data set over clients, the same way every time for a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.errors import ParameterError

__all__ = [
    "IndexArray",
    "deal_out",
    "dirichlet_partition",
    "grouped_partition",
    "label_shares",
    "mean_label_distance",
]

IndexArray = npt.NDArray[np.int64]


def deal_out(
    labels: npt.ArrayLike, clients: int, alpha: float, classes_per_client: int | None, seed: int
) -> list[IndexArray]:
    """Return the partition that a run's settings name: in groups of classes, or else by a Dirichlet draw."""
    if classes_per_client is not None:
        return grouped_partition(labels, clients, classes_per_client, seed)
    return dirichlet_partition(labels, clients, alpha, seed)


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
    clients, min_samples = as_count(clients, "clients"), as_unsigned(min_samples, "min_samples")
    if clients * min_samples > classes.size:
        raise ParameterError(
            f"{classes.size} samples cannot give {clients} clients {min_samples} each: use fewer clients"
        )
    concentration = _concentration(alpha)
    generator = np.random.default_rng(as_unsigned(seed, "seed"))
    if math.isinf(concentration):
        parts = np.array_split(generator.permutation(classes.size), clients)
    else:
        parts = _split_by_class(classes, clients, concentration, generator)
        _level(parts, min_samples)
    return [np.sort(part).astype(np.int64) for part in parts]


def grouped_partition(
    labels: npt.ArrayLike, clients: int, classes_per_client: int, seed: int
) -> list[IndexArray]:
    """Share samples out so that clients form groups, each with consecutive classes of its own.

    SenseCrypt's section 4.1 and appendix D: within a group data are alike, between groups no class is shared. There are
    as few groups as keep each at ``classes_per_client`` classes, or fewer where the classes do not divide; consecutive
    clients form a group, and the samples of each class are dealt out evenly within its group.

    Parameters
    ----------
    labels : array-like of int, shape (N,)
        Class of each sample.
    clients : int
        Number of clients, at least one for each group.
    classes_per_client : int
        At least 1; all the classes, or more, make one group.
    seed : int
        Decides which samples of a class a client gets; not cryptographic.

    Returns
    -------
    list of ndarray of int64
        One ascending index array per client; together they hold each of 0..N-1 once.

    Raises
    ------
    ParameterError
        For an argument out of range, fewer clients than groups, or a client that is left without samples.
    """
    classes = np.asarray(labels)
    if classes.ndim != 1:
        raise ParameterError(f"labels must be one-dimensional, got rank {classes.ndim}")
    clients = as_count(clients, "clients")
    classes_per_client = as_count(classes_per_client, "classes_per_client")
    present = np.unique(classes)
    groups = max(1, math.ceil(present.size / classes_per_client))
    if clients < groups:
        raise ParameterError(
            f"{present.size} classes, {classes_per_client} for each client, make {groups} groups, and there are "
            f"{clients} clients: use more clients, or more classes_per_client"
        )
    generator = np.random.default_rng(as_unsigned(seed, "seed"))
    pieces: list[list[IndexArray]] = [[] for _ in range(clients)]
    members_of = np.array_split(np.arange(clients), groups)
    for own, members in zip(np.array_split(present, groups), members_of, strict=True):
        for number, label in enumerate(own):
            samples = generator.permutation(np.flatnonzero(classes == label))
            # What does not divide goes to another client with each class.
            turned = np.roll(members, -number)
            for client, piece in zip(turned, np.array_split(samples, members.size), strict=True):
                pieces[client].append(piece)
    parts = [
        np.sort(np.concatenate(own)).astype(np.int64) if own else np.empty(0, np.int64) for own in pieces
    ]
    empty = [client for client, part in enumerate(parts) if not part.size]
    if empty:
        raise ParameterError(
            f"{classes.size} samples leave client {empty[0]} without any: use fewer clients or more samples"
        )
    return parts


def label_shares(
    partition: Sequence[IndexArray], labels: npt.ArrayLike, classes: int
) -> npt.NDArray[np.float64]:
    """Return the share of each class in each client's data, (clients, classes); labels are 0..classes-1.

    Every client has a sample at least, and the shares of each sum to 1.
    """
    known = np.asarray(labels)
    counts = np.array([np.bincount(known[part], minlength=classes) for part in partition], np.float64)
    shares: npt.NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True)
    return shares


def mean_label_distance(shares: npt.NDArray[np.float64]) -> float:
    """Return how far clients' labels lie apart: the mean earth mover's distance of every two of them.

    SenseCrypt, appendix D and figure 10, which does not define it: the Wasserstein distance of two distributions
    over the index of the class, in classes, gives its figures. ``shares`` is (clients, classes) of
    :func:`label_shares`. Raises ParameterError for fewer than two clients.
    """
    if len(shares) < 2:
        raise ParameterError("a distance is one of two clients at least")
    below = np.cumsum(shares, axis=1)
    first, second = np.triu_indices(len(shares), 1)
    return float(np.abs(below[first] - below[second]).sum(axis=1).mean())


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
