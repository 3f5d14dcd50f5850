"""Data, networks and training of apps in the shapes of Flower's quick starts; clients have 1, 2, 3 and 4 tenths."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris
from torch import nn

SETS = {"digits": load_digits, "iris": load_iris}


def data_of(name):
    """Return features, scaled, and labels, in one order for all."""
    data = SETS[name]()
    features = (data.data - data.data.mean(0)) / (data.data.std(0) + 1e-6)
    order = np.random.default_rng(1).permutation(len(features))
    return features[order].astype(np.float32), data.target[order]


def own_data(name, context):
    """Return what a node trains on, and what it evaluates with."""
    features, labels = data_of(name)
    features, labels = features[: len(features) // 5 * 4], labels[: len(labels) // 5 * 4]
    partition, partitions = context.node_config["partition-id"], context.node_config["num-partitions"]
    ends = np.cumsum(np.arange(partitions + 1)) * len(features) // (partitions * (partitions + 1) // 2)
    part = slice(ends[partition], ends[partition + 1])
    features, labels = features[part], labels[part]
    cut = len(features) // 5 * 4
    return (features[:cut], labels[:cut]), (features[cut:], labels[cut:])


def central_data(name):
    """Return what the server evaluates with."""
    features, labels = data_of(name)
    return features[len(features) // 5 * 4 :], labels[len(labels) // 5 * 4 :]


def loader(data, batch_size):
    features, labels = map(torch.as_tensor, data)
    dataset = torch.utils.data.TensorDataset(features, labels)
    return torch.utils.data.DataLoader(dataset, batch_size)


def net_of(*sizes):
    torch.manual_seed(7)
    layers = [nn.Linear(inner, outer) for inner, outer in itertools.pairwise(sizes)]
    return nn.Sequential(*[one for layer in layers for one in (layer, nn.ReLU())][:-1])


def train(model, batches, learning_rate, mu=0.0):
    """Descend once through all batches; return the last loss. ``mu`` pulls to the model that it began with."""
    began = [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for features, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), labels)
        near = sum(((one - other) ** 2).sum() for one, other in zip(model.parameters(), began, strict=True))
        (loss + mu / 2 * near).backward()
        optimizer.step()
    return float(loss.detach())


def test(model, batches):
    """Return mean loss and accuracy."""
    losses, right, count = 0.0, 0, 0
    with torch.no_grad():
        for features, labels in batches:
            output = model(features)
            losses += float(nn.functional.cross_entropy(output, labels, reduction="sum"))
            right += int((output.argmax(1) == labels).sum())
            count += len(labels)
    return losses / count, right / count
