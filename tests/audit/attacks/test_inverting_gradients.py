"""Inverting gradients on a small model, through one step and through several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from audit.small_updates import ONE_STEP, digits_range, drawn, sigmoid_model, trained
from shieldfl.audit.attacks.searches import Inverting, total_variation
from shieldfl.audit.figures import matched, psnr
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.settings import TrainingSettings

ATTACK = Inverting(iterations=120, smoothness=1e-4)


def quality(observed: ObservedUpdate, features: torch.Tensor, attack: Inverting = ATTACK) -> float:
    """Mean PSNR of the images that were found, dB."""
    images = attack.recover(observed, seed=0).images
    assert images is not None
    low, high = digits_range()
    assert images.min() >= low
    assert images.max() <= high
    rows, columns = matched(images, features)
    return float(psnr(images[rows], features[columns], digits_range()).mean())


def test_finds_one_image_and_its_label():
    features, labels = drawn(1, seed=1)
    observed = trained(sigmoid_model(), features, labels)
    assert quality(observed, features) > 20
    counts = ATTACK.recover(observed, seed=0).label_counts
    assert counts is not None
    assert counts[labels[0]] == 1


def test_finds_a_batch():
    features, labels = drawn(2, seed=3)
    assert quality(trained(sigmoid_model(), features, labels), features) > 14


def test_sees_through_several_steps():
    # Large steps: what the client changes is far from a multiple of the first gradient.
    training = TrainingSettings(local_epochs=3, batch_size=1, learning_rate=0.3, momentum=0.0)
    features, labels = drawn(2, seed=4)
    observed = trained(sigmoid_model(), features, labels, training)
    as_one_step = replace(observed, change=-observed.gradient, training=ONE_STEP)
    assert quality(observed, features) > quality(as_one_step, features) + 4


def test_what_is_unknown_has_no_say():
    features, labels = drawn(1, seed=2)
    known = np.ones(trained(sigmoid_model(), features, labels).change.size, dtype=bool)
    known[:72] = False  # the convolution's weight
    observed = trained(sigmoid_model(), features, labels, known=known)
    short = Inverting(iterations=20)
    first = short.recover(observed, seed=0).images
    observed.change[:72] = np.nan
    second = short.recover(observed, seed=0).images
    assert first is not None
    assert second is not None
    assert first.equal(second)


def test_the_variation_is_that_of_neighbours():
    image = torch.tensor([[0.0, 1.0], [3.0, 7.0]]).reshape(1, 1, 2, 2)
    assert float(total_variation(image)) == pytest.approx((3 + 6) / 2 + (1 + 4) / 2)


def test_says_where_it_cannot_be_tried():
    features, labels = drawn(2, seed=0)
    flat = nn.Sequential(nn.Linear(64, 10))
    assert "images" in (Inverting().inapplicable(trained(flat, features.flatten(1), labels)) or "")
    tail = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())
    for count in (1, 2):
        assert "Linear" in (Inverting().inapplicable(trained(tail, features[:count], labels[:count])) or "")
    assert Inverting().inapplicable(trained(sigmoid_model(), features, labels)) is None
