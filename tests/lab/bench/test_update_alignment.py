"""Updates point to the samples that they came from, as far as they are known and have no noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from attack_references.membership import update_alignment
from lab.audit.updates import observed_step
from shieldfl.lab.audit.attacks.membership import membership_figures
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def step():
    """One step on 30 digits, and 60 candidates of which they are the first half."""
    dataset = load_dataset("digits")
    features, labels = dataset.train_features[200:260], dataset.train_labels[200:260]
    model = build_model("mlp", SHAPE, 10, 3)
    return observed_step(model, features[:30], labels[:30]), features, labels, np.arange(60) < 30


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_an_update_points_to_the_samples_that_it_came_from(step, share):
    observed, features, labels, members = step
    known = np.random.default_rng(0).random(observed.change.size) < share
    hidden = replace(observed, known=known, change=np.where(known, observed.change, np.float32(1e3)))
    figures = membership_figures(update_alignment(hidden, features, labels), members)
    assert figures.area.low > 0.55


def test_an_update_under_noise_points_nowhere(step):
    observed, features, labels, members = step
    noise = np.random.default_rng(0).normal(0, 10, observed.change.size).astype(np.float32)
    drowned = replace(observed, change=observed.change + noise)
    figures = membership_figures(update_alignment(drowned, features, labels), members)
    assert figures.area.low < 0.5 < figures.area.high


def test_cosines_are_those_of_full_gradients(step):
    observed, features, labels, _ = step
    model = observed.model
    loss = nn.functional.cross_entropy(model(features[5:6]), labels[5:6])
    own = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    expected = torch.nn.functional.cosine_similarity(own, torch.from_numpy(observed.gradient), dim=0)
    assert update_alignment(observed, features, labels, batch_size=7)[5] == pytest.approx(
        float(expected), abs=1e-5
    )
