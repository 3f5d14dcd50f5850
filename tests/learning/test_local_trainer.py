"""One client's training: what it starts from, which scores it brings along, where its time goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.learning.local_trainer import LocalTrainer, train_locally, training_seed
from shieldfl.learning.local_update import GradientNoise, StartingPoint
from shieldfl.learning.networks import build_model
from shieldfl.learning.scores import (
    FisherAccumulator,
    full_batch_fisher,
    full_batch_gradient,
    label_sensitivity,
    normalise_per_layer,
    per_sample_fisher,
    taylor_sensitivity,
)
from shieldfl.models.torch_bridge import flatten, flatten_buffers, parameter_layout
from shieldfl.privacy.dp_sgd import train_privately
from shieldfl.settings import TrainingSettings

SHAPE = (1, 4, 4)
SETTINGS = TrainingSettings(local_epochs=2, batch_size=8, learning_rate=0.1)


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(20, *SHAPE, generator=generator), torch.randint(0, 3, (20,), generator=generator)


def fresh(name: str = "simple-cnn", seed: int = 1):
    return build_model(name, SHAPE, 3, seed)


@pytest.mark.parametrize("kind", ["full-batch", "batch", "per-sample", "taylor", "label", "gradient", None])
def test_an_update_is_that_of_training_from_the_starting_point(kind):
    features, labels = samples()
    expected = fresh()
    start = StartingPoint(flatten(expected), flatten_buffers(expected), scores=kind)
    layout = parameter_layout(expected)
    fisher = FisherAccumulator(layout)
    at_the_start = full_batch_fisher(expected, features, labels)
    expected_loss = train_locally(expected, features, labels, SETTINGS, 7, fisher)
    # Fisher informations are normalised in each layer, the others are as they are.
    scores = {
        "full-batch": lambda: normalise_per_layer(at_the_start, layout),
        "batch": lambda: normalise_per_layer(fisher.scores(), layout),
        "per-sample": lambda: normalise_per_layer(per_sample_fisher(expected, features, labels), layout),
        "taylor": lambda: taylor_sensitivity(expected, features, labels),
        "label": lambda: label_sensitivity(expected, features, labels),
        "gradient": lambda: full_batch_gradient(expected, features, labels),
    }

    # The module holds other weights: what was left in it by the client before must not matter.
    trainer = LocalTrainer(fresh(seed=2), features, labels, SETTINGS)
    update, loss = trainer.train(start, 7)
    assert loss == expected_loss
    np.testing.assert_array_equal(update.parameters, flatten(expected))
    np.testing.assert_array_equal(update.buffers, flatten_buffers(expected))
    if kind is None:
        assert update.scores is None
    else:
        np.testing.assert_array_equal(update.scores, scores[kind]())
    seconds = trainer.clock.take()
    assert set(seconds) <= {"train", "score"}
    assert seconds["train"] > 0.0
    assert kind is None or seconds["score"] > 0.0


def test_samples_may_be_positions_in_those_of_all():
    features, labels = samples()
    own = torch.tensor([3, 17, 4, 11])
    start = StartingPoint(flatten(fresh()), flatten_buffers(fresh()))
    chosen = LocalTrainer(fresh(), features, labels, SETTINGS, samples=own)
    copied = LocalTrainer(fresh(), features[own], labels[own], SETTINGS)
    assert chosen.samples == copied.samples == 4
    (one, loss), (other, same_loss) = (trainer.train(start, 7) for trainer in (chosen, copied))
    assert loss == same_loss
    np.testing.assert_array_equal(one.parameters, other.parameters)


def test_the_starting_point_and_earlier_updates_are_left_alone():
    features, labels = samples()
    module = fresh("linear")
    start = StartingPoint(flatten(module), flatten_buffers(module), scores="batch")
    before = start.parameters.copy()
    trainer = LocalTrainer(module, features, labels, SETTINGS)
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


def test_a_share_of_synthetic_samples_is_laid_beside_the_own():
    """A quarter of all is a third of 20 own ones, seven: of five that there are two come twice."""
    features, labels = samples()
    module = fresh("linear")
    start = StartingPoint(flatten(module), flatten_buffers(module), scores="gradient", synthetic_share=0.25)
    made = features[:5] + 1.0, (labels[:5] + 1) % 3
    trainer = LocalTrainer(fresh("linear"), features, labels, SETTINGS, made)
    update, _ = trainer.train(start, 7)
    both = [torch.cat([own, other, other[:2]]) for own, other in zip((features, labels), made, strict=True)]
    train_locally(module, *both, SETTINGS, 7)
    np.testing.assert_array_equal(update.parameters, flatten(module))
    np.testing.assert_array_equal(update.scores, full_batch_gradient(module, *both))
    # Where training is on synthetic samples alone nothing is laid beside them.
    alone, _ = trainer.train(replace(start, synthetic=True), 7)
    expected = fresh("linear")
    train_locally(expected, *made, SETTINGS, 7)
    np.testing.assert_array_equal(alone.parameters, flatten(expected))


def test_what_dp_sgd_is_charged_counts_synthetic_samples_too():
    features, labels = samples()
    module = fresh("linear")
    noise = GradientNoise(1.0, 1.0)
    start = StartingPoint(flatten(module), flatten_buffers(module), noise=noise, synthetic_share=0.5)
    trainer = LocalTrainer(module, features, labels, SETTINGS, (features + 1.0, labels))
    update, _ = trainer.train(start, 7)
    assert update.private_steps.sample_rate == pytest.approx(SETTINGS.batch_size / 40)


@pytest.mark.parametrize(
    ("asked", "synthetic", "words"),
    [
        ({"scores": "guess"}, None, "'guess'"),
        ({"synthetic": True}, None, "give the trainer some"),
        ({"synthetic_share": 0.25}, None, "give the trainer some"),
        (
            {"synthetic": True},
            (torch.zeros(0, *SHAPE), torch.zeros(0, dtype=torch.int64)),
            "give the trainer some",
        ),
        *(({"synthetic_share": share}, None, "synthetic_share must") for share in (1.0, -0.1, float("nan"))),
    ],
)
def test_what_cannot_be_had_is_refused(asked, synthetic, words):
    features, labels = samples()
    module = fresh("linear")
    start = StartingPoint(flatten(module), flatten_buffers(module), **asked)
    with pytest.raises(ParameterError, match=words):
        LocalTrainer(module, features, labels, SETTINGS, synthetic).train(start, 0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("epochs", "batch_size", "samples"), [(1, 8, 8), (3, 4, 10)])
def test_the_noise_of_all_steps_is_what_is_left_of_it_in_the_end(momentum, epochs, batch_size, samples):
    training = TrainingSettings(
        local_epochs=epochs, batch_size=batch_size, learning_rate=0.3, momentum=momentum
    )
    model = nn.Linear(5000, 1, bias=False)
    before = flatten(model)
    # Samples of zeros have no gradient: noise alone moves the parameters.
    nothing = torch.zeros(samples, 5000), torch.zeros(samples, 1)
    train_privately(
        model,
        *nothing,
        training,
        noise_multiplier=0.7,
        max_grad_norm=2.0,
        loss=lambda outputs, targets: ((outputs - targets) ** 2).mean(),
    )
    stated = GradientNoise(0.7, 2.0).deviation(training, samples)
    assert np.std(flatten(model) - before) == pytest.approx(stated, rel=0.06)
