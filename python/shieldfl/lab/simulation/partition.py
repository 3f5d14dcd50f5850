"""Which samples each client gets: its part of a data set, the same way every time for a seed, and of synthetic data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from io import BytesIO

import numpy as np
import numpy.typing as npt
import torch

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation.data import Dataset, check_alike
from shieldfl.methods.registry import BUILT_IN, named_method
from shieldfl.privacy.synthetic_data import check_labelled_samples, fit_synthetic_data
from shieldfl.rounds.method import Method
from shieldfl.rounds.reports import Account

IndexArray = npt.NDArray[np.int64]


def deal_out(
    labels: npt.ArrayLike, clients: int, alpha: float, seed: int, classes_per_client: int | None
) -> list[IndexArray]:
    if classes_per_client is not None:
        return grouped_partition(labels, clients, classes_per_client, seed)
    return dirichlet_partition(labels, clients, alpha, seed)


def dirichlet_partition(labels: npt.ArrayLike, clients: int, alpha: float, seed: int) -> list[IndexArray]:
    """Share samples out unevenly by class: of each class, the clients' shares are a draw from Dir(alpha, ..., alpha).

    SelectiveShield, section 5: a small alpha gives clients that see few classes; an infinite one deals the
    shuffled samples out evenly. A client left without any gets one from the client that has most.

    Returns one ascending int64 array of positions for each client; together they hold each of 0..N-1 once. Raises
    ParameterError for more clients than samples.
    """
    classes, clients = np.asarray(labels), as_count(clients, "clients")
    if clients > classes.size:
        raise ParameterError(
            f"{classes.size} samples cannot give {clients} clients 1 each: use fewer clients"
        )
    generator = np.random.default_rng(as_unsigned(seed, "seed"))
    if math.isinf(alpha):
        parts = np.array_split(generator.permutation(classes.size), clients)
    else:
        parts = _split_by_class(classes, clients, alpha, generator)
        _level(parts)
    return [np.sort(part).astype(np.int64) for part in parts]


def grouped_partition(
    labels: npt.ArrayLike, clients: int, classes_per_client: int, seed: int
) -> list[IndexArray]:
    """Share samples out so that clients form groups, each with consecutive classes of its own.

    SenseCrypt's section 4.1 and appendix D: within a group data are alike, between groups no class is shared. There are
    as few groups as keep each at ``classes_per_client`` classes, or fewer where the classes do not divide; consecutive
    clients form a group, and the samples of each class are dealt out evenly within its group, by the seed.

    Returns positions as :func:`dirichlet_partition` does. Raises ParameterError for fewer clients than groups, or a
    client that is left without samples.
    """
    classes, clients = np.asarray(labels), as_count(clients, "clients")
    classes_per_client = as_count(classes_per_client, "classes_per_client")
    present = np.unique(classes)
    groups = max(1, math.ceil(present.size / classes_per_client))
    if clients < groups:
        raise ParameterError(
            f"{present.size} classes, {classes_per_client} for each client, make {groups} groups, and there are "
            f"{clients} clients: use more clients, or more classes_per_client"
        )
    generator = np.random.default_rng(as_unsigned(seed, "seed"))
    pieces = [[np.empty(0, np.int64)] for _ in range(clients)]
    members_of = np.array_split(np.arange(clients), groups)
    for own, members in zip(np.array_split(present, groups), members_of, strict=True):
        for number, label in enumerate(own):
            samples = generator.permutation(np.flatnonzero(classes == label))
            # What does not divide goes to another client with each class.
            split = np.array_split(samples, members.size)
            for client, piece in zip(np.roll(members, -number), split, strict=True):
                pieces[client].append(piece)
    parts = [np.sort(np.concatenate(own)) for own in pieces]
    empty = [client for client, part in enumerate(parts) if not part.size]
    if empty:
        raise ParameterError(
            f"{classes.size} samples leave client {empty[0]} without any: use fewer clients or more samples"
        )
    return parts


def label_shares(
    partition: Sequence[IndexArray], labels: npt.ArrayLike, classes: int
) -> npt.NDArray[np.float64]:
    """Return the share of each class in each client's data, (clients, classes); labels are 0..classes-1."""
    known = np.asarray(labels)
    counts = np.array([np.bincount(known[part], minlength=classes) for part in partition], np.float64)
    shares: npt.NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _split_by_class(
    labels: npt.NDArray[np.generic], clients: int, alpha: float, generator: np.random.Generator
) -> list[IndexArray]:
    pieces = [[np.empty(0, np.int64)] for _ in range(clients)]
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        cuts = np.floor(np.cumsum(_shares(clients, alpha, generator))[:-1] * members.size).astype(np.int64)
        for client, piece in enumerate(np.split(members, cuts)):
            pieces[client].append(piece)
    return [np.concatenate(own) for own in pieces]


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


def _level(parts: list[IndexArray]) -> None:
    """Move a sample of the largest client (the first of equals) to each that has none."""
    sizes = [part.size for part in parts]
    for client in range(len(parts)):
        if not sizes[client]:
            giver = int(np.argmax(sizes))
            parts[client] = np.append(parts[client], parts[giver][-1])
            parts[giver] = parts[giver][:-1]
            sizes[client] += 1
            sizes[giver] -= 1


LabelledSamples = tuple[torch.Tensor, torch.Tensor]


def check_synthetic_samples(
    given: LabelledSamples | None, methods: Iterable[Method], dataset: Dataset, clients: int
) -> None:
    """Check the samples that a user gives, or what the methods ask to be made.

    Raises ParameterError, ArrayTypeError or DataError.
    """
    demands = [method.synthetic_demand for method in methods if method.synthetic_demand is not None]
    sizes = [demand.samples or len(dataset.train_labels) for demand in demands]
    if given is not None:
        if dataset.feature_range is None:
            _check_like(given, dataset)
        else:
            check_labelled_samples(*given, dataset.feature_shape, dataset.classes)
        sizes = [len(given[1])]
    elif demands and dataset.feature_range is None:
        raise ParameterError(
            "synthetic data are not made of data of one's own, whose public range nobody has said: give some "
            "(synthetic, or synthetic_data in the configuration), or leave out the methods that train on them"
        )
    if sizes and min(sizes) < clients:
        raise ParameterError(
            f"{min(sizes)} synthetic samples are too few for {clients} clients: bring or make more"
        )
    if given is not None and not demands:
        takers = " or ".join(name for name in BUILT_IN if named_method(name).takes_synthetic)
        raise ParameterError(
            f"synthetic data are given, but no round trains on them: leave them out, or run {takers} for "
            "enough rounds, or with a synthetic_share"
        )


def _check_like(given: LabelledSamples, dataset: Dataset) -> None:
    check_alike(given, dataset.train_features, dataset.train_labels, "the synthetic data")
    if dataset.classes and not 0 <= int(given[1].min()) <= int(given[1].max()) < dataset.classes:
        raise DataError(f"synthetic targets must be classes below {dataset.classes}")


def synthetic_shares(
    method: Method, account: Account, dataset: Dataset, clients: int, seed: int, given: LabelledSamples | None
) -> list[LabelledSamples | None]:
    """Return them by client, and charge what is made. Raises RangeError where noise hides every class."""
    demand = method.synthetic_demand
    if demand is None:
        return [None] * clients
    if given is None:
        assert dataset.feature_range is not None, "check_synthetic_samples has refused it"
        made = fit_synthetic_data(
            dataset.train_features,
            dataset.train_labels,
            dataset.classes,
            feature_range=dataset.feature_range,
            epsilon=demand.epsilon,
            delta=demand.delta,
            samples=demand.samples or len(dataset.train_labels),
            seed=seed,
        )
        account.charge_release(made.noise_multiplier)
        features, labels = made.features, made.labels
    else:
        features, labels = given
        account.note_given_synthetic_data()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return [(features[share], labels[share]) for share in torch.tensor_split(order, clients)]


def shares_to_bytes(shares: Sequence[LabelledSamples | None]) -> bytes:
    """Encode what :func:`synthetic_shares` returned; empty for none. Data are never made the same twice."""
    held = [share for share in shares if share is not None]
    file = BytesIO()
    if held:
        features, labels = (torch.cat(tensors).numpy() for tensors in zip(*held, strict=True))
        np.savez(file, features=features, labels=labels)
    return file.getvalue()


def shares_from_bytes(data: bytes, clients: int) -> list[LabelledSamples | None]:
    if not data:
        return [None] * clients
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        features, labels = (torch.from_numpy(arrays[name]) for name in ("features", "labels"))
    return list(zip(torch.tensor_split(features, clients), torch.tensor_split(labels, clients), strict=True))
