"""A client's training by NVFlare's client API: it knows nothing of encryption."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import nvflare.client as flare
import torch
from digits import SITES, Classifier, accuracy, training_data
from meters import write_figure
from torch import nn

BATCH = 32


def loaded(model: nn.Module, arrays: dict[str, object]) -> None:
    """Put what a task brings into a model; TenSEAL's filter brings flat lists."""
    state = model.state_dict()
    read = {name: torch.tensor(np.asarray(values), dtype=torch.float32) for name, values in arrays.items()}
    model.load_state_dict({name: read[name].reshape(state[name].shape) for name in state})


def train(model: nn.Module, pixels: torch.Tensor, digits: torch.Tensor, seed: int) -> int:
    """Go through a site's data once, and return the number of steps."""
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = torch.randperm(len(digits)).split(BATCH)
    for batch in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pixels[batch]), digits[batch]).backward()
        optimizer.step()
    return len(batches)


def main() -> None:
    """Train in every round that the server asks for, and write how good the model is that it begins from."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, nargs="+", required=True)
    parser.add_argument("--figures", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    flare.init()
    site = flare.get_site_name()
    model = Classifier(given.hidden)
    pixels, digits = training_data(site)
    while flare.is_running():
        task = flare.receive()
        if task is None:
            break
        loaded(model, task.params)
        write_figure(given.figures, site, "accuracy", task.current_round, accuracy(model))
        steps = train(model, pixels, digits, seed=1_000 * task.current_round + SITES.index(site))
        flare.send(
            flare.FLModel(
                params={name: tensor.clone() for name, tensor in model.state_dict().items()},
                meta={"NUM_STEPS_CURRENT_ROUND": steps},
            )
        )


if __name__ == "__main__":
    main()
