"""DLG and iDLG on a small smooth model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from audit.small_updates import digits_range, drawn, relu_model, sigmoid_model, trained
from shieldfl.audit.attacks.searches import Dlg, Idlg
from shieldfl.audit.figures import psnr
from shieldfl.training.models import build_model


@pytest.mark.parametrize("attack", [Dlg(iterations=40, starts=2), Idlg(iterations=40, starts=1)])
def test_finds_image_and_label(attack):
    features, labels = drawn(1, seed=2)
    found = attack.recover(trained(sigmoid_model(), features, labels), seed=0)
    assert found.label_counts is not None
    assert found.images is not None
    assert found.label_counts[labels[0]] == found.label_counts.sum() == 1
    assert float(psnr(found.images, features, digits_range())) > 25


def test_what_is_unknown_has_no_say():
    features, labels = drawn(1, seed=2)
    size = trained(sigmoid_model(), features, labels).change.size
    known = np.ones(size, dtype=bool)
    known[:72] = False  # the convolution's weight
    observed = trained(sigmoid_model(), features, labels, known=known)
    attack = Idlg(iterations=30, starts=1)
    first = attack.recover(observed, seed=0)
    observed.change[:72] = np.nan
    second = attack.recover(observed, seed=0)
    assert first.images is not None
    assert second.images is not None
    assert first.images.equal(second.images)
    assert float(psnr(first.images, features, digits_range())) > 15


def test_positions_count_by_how_little_noise_they_have():
    """Half of the last layer has noise of twice the gradient's size, and the attacker knows where."""
    features, labels = drawn(1, seed=2)
    clean = trained(sigmoid_model(), features, labels)
    noise = np.zeros(clean.change.size, np.float32)
    noise[-2560:] = 2 * np.sqrt(np.mean(clean.change**2))
    drawn_noise = np.random.default_rng(0).normal(size=noise.size).astype(np.float32) * noise
    attack = Idlg(iterations=40, starts=2)

    def found(told: np.ndarray) -> float:
        observed = replace(clean, change=clean.change + drawn_noise, noise_deviation=told)
        images = attack.recover(observed, seed=0).images
        assert images is not None
        return float(psnr(images, features, digits_range()))

    assert found(noise) > found(np.zeros_like(noise)) + 5


def test_a_gradient_of_another_image_gives_another():
    # What it finds comes of the update, and not of the noise that it starts from.
    found = []
    for seed in (1, 2):
        features, labels = drawn(1, seed)
        images = (
            Idlg(iterations=40, starts=1).recover(trained(sigmoid_model(), features, labels), seed=0).images
        )
        assert images is not None
        found.append(images)
    assert float(psnr(*found, digits_range())) < 20


def test_the_label_of_one_sample_is_exact():
    for seed in range(10):
        features, labels = drawn(1, seed)
        found = Idlg(iterations=1, starts=1).recover(trained(relu_model(seed), features, labels), seed=0)
        assert found.label_counts is not None
        assert found.label_counts[labels[0]] == 1


def test_says_where_it_cannot_be_tried():
    features, labels = drawn(2, seed=0)
    assert "one sample" in (Idlg().inapplicable(trained(relu_model(), features, labels)) or "")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())
    assert "Linear" in (Idlg().inapplicable(trained(model, features[:1], labels[:1])) or "")
    assert Idlg().inapplicable(trained(relu_model(), features[:1], labels[:1])) is None
    assert Dlg().inapplicable(trained(model, features, labels)) is None


def test_a_model_on_channels_last_memory_is_searched_too():
    model = build_model("lenet5", (3, 12, 12), 10, 0)
    update = trained(model, torch.rand(1, 3, 12, 12), torch.tensor([4]))
    images = Dlg(iterations=1, starts=1).recover(update, seed=0).images
    assert images is not None
    assert images.shape == (1, 3, 12, 12)
