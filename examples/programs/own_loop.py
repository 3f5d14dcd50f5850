"""A regression in one's own training loop: three clients, an aggregator, a key authority, and nothing of a framework.

`python own_loop.py` needs shieldfl, torch and scikit-learn.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import shieldfl as sf
from shieldfl.models import ModelLayout

CLIENTS, ROUNDS = 3, 20


def make_model() -> nn.Module:
    """Return the model that all begin from."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))


def train(model: nn.Module, features: torch.Tensor, targets: torch.Tensor) -> None:
    """Make a client's steps of a round."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(features), targets).backward()
        optimizer.step()


def main() -> float:
    """Train, print the error of each round, and return the last one."""
    data, target = map(np.asarray, load_diabetes(return_X_y=True))
    features = torch.tensor(data / data.std(0), dtype=torch.float32)
    targets = torch.tensor((target[:, None] - 152.0) / 77.0, dtype=torch.float32)
    parts = torch.tensor_split(torch.arange(342), CLIENTS)

    model = make_model()
    layout = ModelLayout.of(model)
    parameters = sf.kahe.Parameters.plan(max_clients=CLIENTS, count=layout.size)
    authority = sf.KeyAuthority(parameters, min_clients=CLIENTS)
    keys = [authority.enrol(f"clinic-{number}") for number in range(CLIENTS)]

    error = float("nan")
    for number in range(1, ROUNDS + 1):
        aggregator = sf.kahe.Aggregator(
            authority.public_key, round=number, positions=sf.Mask.full(layout.size), weighted=False
        )
        for key, part in zip(keys, parts, strict=True):  # on each client
            own = make_model()
            own.load_state_dict(model.state_dict())
            train(own, features[part], targets[part])
            batch = layout.encrypt(sf.kahe.Encryptor(key), own, since=model, round=number)
            aggregator.add(batch.to_bytes())
        total = aggregator.total()
        answer = authority.sum_key(total.request())
        update = sf.kahe.open(total, answer, keys[0]) / CLIENTS  # on each client
        model.load_state_dict(layout.moved(model, update))
        with torch.no_grad():
            error = float(nn.functional.mse_loss(model(features[342:]), targets[342:]))
        print(f"round {number}: mean squared error {error:.4f}")
    return error


if __name__ == "__main__":
    assert np.isfinite(main())
