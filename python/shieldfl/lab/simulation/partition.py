"""Which samples each client gets: its part of a data set, the same way every time for a seed, and of synthetic data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.authority.message import Message
from shieldfl.errors import DataError, ParameterError, WireFormatError
from shieldfl.lab.simulation.data import Dataset
from shieldfl.methods.discovery import BUILT_IN, named_method
from shieldfl.privacy.synthetic_data import check_labelled_samples, fit_synthetic_data
from shieldfl.rounds.account import Account
from shieldfl.rounds.method import Method

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
    """Share samples out unevenly by class: of each class, the clients' shares are a draw from Dir(alpha, ..., alpha).

    SelectiveShield, section 5: a small alpha gives clients that see few classes. Every sample goes to exactly one
    client. A client left with fewer than ``min_samples`` gets samples from the one that has most.

    Parameters
    ----------
    labels : class of each sample, int (N,).
    alpha : concentration, positive; ``math.inf`` and ``"iid"`` deal the shuffled samples out evenly.
    seed : decides the partition; not cryptographic.
    min_samples : of each client, where samples are not dealt out evenly.

    Returns one ascending int64 array of positions for each client; together they hold each of 0..N-1 once. Raises
    ParameterError for an argument out of range, or more clients than the samples can serve.
    """
    classes = np.asarray(labels)
    if classes.ndim != 1:
        raise ParameterError(f"labels must be one-dimensional, got rank {classes.ndim}")
    clients, min_samples = as_count(clients, "clients"), as_unsigned(min_samples, "min_samples")
    if clients * min_samples > classes.size:
        raise ParameterError(
            f"{classes.size} samples cannot give {clients} clients {min_samples} each: use fewer clients"
        )
    concentration = math.inf if alpha == "iid" else alpha
    if isinstance(concentration, str) or not concentration > 0:
        raise ParameterError('alpha must be a positive number or "iid"')
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
    clients form a group, and the samples of each class are dealt out evenly within its group, by the seed.

    Returns positions as :func:`dirichlet_partition` does. Raises ParameterError for an argument out of range, fewer
    clients than groups, or a client that is left without samples.
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


LabelledSamples = tuple[torch.Tensor, torch.Tensor]


def check_synthetic_samples(
    given: LabelledSamples | None, methods: Iterable[Method], dataset: Dataset, clients: int
) -> None:
    """Check, before anything trains, the samples that a user gives, or what the methods ask to be made.

    Raises ParameterError, ArrayTypeError or DataError as
    :func:`shieldfl.privacy.synthetic_data.check_labelled_samples`, ParameterError where no round of any method would
    use those given, or for fewer samples than clients.
    """
    demands = [method.synthetic_demand for method in methods if method.synthetic_demand is not None]
    if given is None:
        if demands and dataset.feature_range is None:
            raise ParameterError(
                "synthetic data are not made of data of one's own, whose public range nobody has said: give some "
                "(synthetic, or synthetic_data in the configuration), or leave out the methods that train on them"
            )
        for demand in demands:
            _check_enough(demand.samples or len(dataset.train_labels), clients)
        return
    if dataset.feature_range is None:
        _check_like(given, dataset)
    else:
        check_labelled_samples(*given, dataset.feature_shape, dataset.classes)
    _check_enough(len(given[1]), clients)
    if not demands:
        raise ParameterError(
            f"synthetic data are given, but no round trains on them: leave them out, or run {_takers()} for enough "
            "rounds, or with a synthetic_share"
        )


def _check_like(given: LabelledSamples, dataset: Dataset) -> None:
    """Raise ParameterError for samples that are not like those of a user's own data."""
    pairs = zip(given, (dataset.train_features, dataset.train_labels), ("features", "targets"), strict=True)
    for one, other, what in pairs:
        if one.shape[1:] != other.shape[1:] or one.dtype != other.dtype:
            raise ParameterError(
                f"{what} of the synthetic data are {tuple(one.shape[1:])} of {one.dtype}, those of the task "
                f"{tuple(other.shape[1:])} of {other.dtype}"
            )
    if dataset.classes and not 0 <= int(given[1].min()) <= int(given[1].max()) < dataset.classes:
        raise DataError(f"synthetic targets must be classes below {dataset.classes}")


def synthetic_shares(
    method: Method,
    account: Account,
    dataset: Dataset,
    clients: int,
    seed: int,
    given: LabelledSamples | None,
) -> list[LabelledSamples | None]:
    """Return each client's features and labels; None for each where the method needs none.

    Data that are made are charged to the account; data that are given cost nothing, which a note says.
    Raises RangeError where noise hides every class.
    """
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
    """Encode what :func:`synthetic_shares` returned: data that are made are never made the same twice.

    Empty where the method needs none.
    """
    held = [share for share in shares if share is not None]
    if not held:
        return b""
    parts: dict[str, bytes] = {}
    for name, tensors in zip(("features", "labels"), zip(*held, strict=True), strict=True):
        array = torch.cat(tensors).contiguous().numpy()
        parts[name] = array.tobytes()
        parts[f"{name} shape"] = np.array(array.shape, dtype=np.int64).tobytes()
        parts[f"{name} dtype"] = array.dtype.str.encode()
    return Message(parts).to_bytes()


def shares_from_bytes(data: bytes, clients: int) -> list[LabelledSamples | None]:
    """Read what :func:`shares_to_bytes` wrote for so many clients. Raises WireFormatError."""
    if not data:
        return [None] * clients
    message = Message.from_bytes(data)
    features, labels = (_tensor_in(message, name) for name in ("features", "labels"))
    return list(zip(torch.tensor_split(features, clients), torch.tensor_split(labels, clients), strict=True))


def _tensor_in(message: Message, name: str) -> torch.Tensor:
    dtype: Any = {"<f4": np.float32, "<i8": np.int64}.get(bytes(message[f"{name} dtype"]).decode())
    if dtype is None:
        raise WireFormatError("the checkpoint has synthetic data of a dtype that none have")
    shape = message.vector(f"{name} shape", np.int64, len(message[f"{name} shape"]) // 8).tolist()
    return torch.tensor(message.vector(name, dtype, math.prod(shape))).reshape(shape)


def _takers() -> str:
    """Name the methods of this package that train on synthetic data."""
    return " or ".join(name for name in BUILT_IN if named_method(name).takes_synthetic)


def _check_enough(samples: int, clients: int) -> None:
    if samples < clients:
        raise ParameterError(
            f"{samples} synthetic samples are too few for {clients} clients: bring or make more"
        )
