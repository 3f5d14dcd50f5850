"""Synthetic data for the clients of a simulated federation: made once from all data, or given, and dealt out evenly.

Alt-FL trains one generator for each data set, and its synthetic data are iid at all clients (section VII). So does this
simulation: the generator is fitted to the pooled samples of all clients, which its noise covers. Nobody holds them
together in a real federation; there the sums that it is fitted to would be added under encryption.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from shieldfl.errors import DataError, ParameterError, WireFormatError
from shieldfl.methods.discovery import BUILT_IN, named_method
from shieldfl.methods.protocol.account import Account
from shieldfl.methods.protocol.method import Method
from shieldfl.privacy.mean_embedding import fit_synthetic_data
from shieldfl.privacy.synthetic_data import check_labelled_samples
from shieldfl.roles.message import Message
from shieldfl.simulation.data import Dataset

__all__ = [
    "LabelledSamples",
    "check_synthetic_samples",
    "shares_from_bytes",
    "shares_to_bytes",
    "synthetic_shares",
]

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
