"""Synthetic data for the clients of a simulated federation: made once from all data, or given, and dealt out evenly.

Alt-FL trains one generator for each data set, and its synthetic data are iid at all clients (section VI). So does this
simulation: the generator is fitted to the pooled samples of all clients, which its noise covers. Nobody holds them
together in a real federation; there the sums that it is fitted to would be added under encryption.
"""

from __future__ import annotations

import torch

from shieldfl.errors import ParameterError
from shieldfl.methods.method import Method
from shieldfl.privacy.mean_embedding import fit_synthetic_data
from shieldfl.simulation.data import Dataset

__all__ = ["synthetic_shares"]

LabelledSamples = tuple[torch.Tensor, torch.Tensor]


def synthetic_shares(
    method: Method, dataset: Dataset, clients: int, seed: int, given: LabelledSamples | None
) -> list[LabelledSamples | None]:
    """Return each client's features and labels; None for each where the method needs none.

    Data that are made are charged to the method; of data that are given it notes that nobody knows what they cost.
    Raises ParameterError for fewer samples than clients, RangeError where noise hides every class.
    """
    demand = method.synthetic_demand
    if demand is None:
        return [None] * clients
    if given is None:
        made = fit_synthetic_data(
            dataset.train_features,
            dataset.train_labels,
            dataset.classes,
            epsilon=demand.epsilon,
            delta=demand.delta,
            samples=demand.samples or len(dataset.train_labels),
            seed=seed,
        )
        method.charge_synthetic_data(made.noise_multiplier)
        features, labels = made.features, made.labels
    else:
        features, labels = given
        method.notes.append("synthetic data were given: what they tell of the real data is not in epsilon")
    if len(labels) < clients:
        raise ParameterError(f"{len(labels)} synthetic samples are too few for {clients} clients: bring more")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return [(features[share], labels[share]) for share in torch.tensor_split(order, clients)]
