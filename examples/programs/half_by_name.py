"""A state dict whose layers are encrypted by name, the others averaged in the clear: `python half_by_name.py`.

What is sent in the clear tells of the training data, as in any federation without protection: which layers may be is
for whoever knows the data to say.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import shieldfl as sf
from shieldfl.models import ModelLayout

CLIENTS = 3


def make_model(seed: int) -> nn.Module:
    """Return an encoder and a head; clients' differ, as trained ones do."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.BatchNorm1d(32))
    return nn.ModuleDict({"encoder": encoder, "head": nn.Linear(32, 5)})


def main() -> dict[str, torch.Tensor]:
    """Average three models and return the mean's state dict."""
    states = [make_model(seed).state_dict() for seed in range(CLIENTS)]  # one on each client
    layout = ModelLayout.of(states[0])
    secret = layout.mask("encoder.0.*", "head.weight")
    for layer in secret.describe(layout):
        print(f"{layer.name:28} {layer.chosen:>5} of {layer.size:>5} encrypted")

    authority = sf.KeyAuthority(sf.kahe.Parameters(max_clients=CLIENTS), min_clients=CLIENTS)
    keys = [authority.enrol(f"client-{number}") for number in range(CLIENTS)]
    aggregator = sf.kahe.Aggregator(authority.public_key, round=1, positions=secret, weighted=False)
    clear = np.zeros((~secret).count)
    for key, state in zip(keys, states, strict=True):  # on each client
        aggregator.add(layout.encrypt(sf.kahe.Encryptor(key), state, secret, round=1).to_bytes())
        clear += (~secret).gather(layout.flatten(state)) / CLIENTS
    total = aggregator.total()
    opened = sf.kahe.open(total, authority.sum_key(total.request()), keys[0]) / CLIENTS

    mean = layout.replaced(states[0], opened, secret)
    return layout.replaced(mean, clear, ~secret)


if __name__ == "__main__":
    make_model(0).load_state_dict(main())
