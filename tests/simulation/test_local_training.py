"""One client's training: what it starts from, which scores it brings along, where its time goes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shieldfl.methods.method import StartingPoint
from shieldfl.profiling.stages import StageClock
from shieldfl.sensitivity.fisher import (
    FisherAccumulator,
    full_batch_fisher,
    normalise_per_layer,
    per_sample_fisher,
)
from shieldfl.simulation.local_training import LocalTrainer, training_seed
from shieldfl.simulation.models import build_model
from shieldfl.simulation.training import TrainingSettings, train_locally
from shieldfl.torch_bridge import flatten, flatten_buffers, parameter_layout

SHAPE = (1, 4, 4)
SETTINGS = TrainingSettings(local_epochs=2, batch_size=8, learning_rate=0.1)


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(20, *SHAPE, generator=generator), torch.randint(0, 3, (20,), generator=generator)


def fresh(name: str = "simple-cnn", seed: int = 1):
    return build_model(name, SHAPE, 3, seed)


@pytest.mark.parametrize("sensitivity", ["full-batch", "batch", "per-sample", None])
def test_an_update_is_that_of_training_from_the_starting_point(sensitivity):
    features, labels = samples()
    expected = fresh()
    start = StartingPoint(flatten(expected), flatten_buffers(expected))
    layout = parameter_layout(expected)
    fisher = FisherAccumulator(layout)
    at_the_start = full_batch_fisher(expected, features, labels)
    expected_loss = train_locally(expected, features, labels, SETTINGS, 7, fisher.update)
    raw = {
        "full-batch": lambda: at_the_start,
        "batch": fisher.scores,
        "per-sample": lambda: per_sample_fisher(expected, features, labels),
    }

    clock = StageClock()
    # The module holds other weights: what was left in it by the client before must not matter.
    trainer = LocalTrainer(fresh(seed=2), features, labels, SETTINGS, sensitivity, clock)
    update, loss = trainer.train(start, 7)
    assert loss == expected_loss
    np.testing.assert_array_equal(update.parameters, flatten(expected))
    np.testing.assert_array_equal(update.buffers, flatten_buffers(expected))
    if sensitivity is None:
        assert update.scores is None
    else:
        np.testing.assert_array_equal(update.scores, normalise_per_layer(raw[sensitivity](), layout))
    seconds = clock.take()
    assert set(seconds) <= {"train", "score"}
    assert seconds["train"] > 0.0
    assert sensitivity is None or seconds["score"] > 0.0


def test_the_starting_point_and_earlier_updates_are_left_alone():
    features, labels = samples()
    module = fresh("linear")
    start = StartingPoint(flatten(module), flatten_buffers(module))
    before = start.parameters.copy()
    trainer = LocalTrainer(module, features, labels, SETTINGS, "batch", StageClock())
    first, _ = trainer.train(start, 0)
    kept = first.parameters.copy()
    trainer.train(start, 1)
    np.testing.assert_array_equal(start.parameters, before)
    np.testing.assert_array_equal(first.parameters, kept)


def test_every_client_and_round_has_a_seed_of_its_own():
    seeds = {
        training_seed(seed, number, client) for seed in (0, 1) for number in range(20) for client in range(20)
    }
    assert len(seeds) == 800
    assert training_seed(3, 4, 5) == training_seed(3, 4, 5)
