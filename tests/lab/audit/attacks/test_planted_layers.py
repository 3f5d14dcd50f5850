"""Planted layers of two kinds: samples that are read off them, and what hides them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.audit.updates import best_psnr, observed_step, positions_of, unit_images
from shieldfl.lab.audit.attacks.planted_layers import (
    CuriousAbandonHonesty,
    RobbingTheFed,
    trap_rows,
)
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model

SHAPE = (1, 8, 8)
BINS = RobbingTheFed(60, measured="random")


@pytest.fixture(scope="module")
def digits():
    dataset = load_dataset("digits")
    train, test = unit_images(dataset)
    return torch.cat([train, test]), torch.cat([dataset.train_labels, dataset.test_labels])


@pytest.fixture(scope="module")
def planted(digits):
    return BINS.planted(build_model("mlp", SHAPE, 10, 0), SHAPE, digits[0], seed=5)


def drawn(digits, count: int, seed: int = 0):
    chosen = np.random.default_rng(seed).choice(len(digits[0]), count, replace=False)
    return digits[0][chosen], digits[1][chosen]


def test_images_that_are_alone_in_their_bin_are_recovered_as_often_as_the_formula_says(digits, planted):
    recovered = []
    for trial in range(40):
        images, labels = drawn(digits, 10, trial)
        found = BINS.recover(observed_step(planted, images, labels), 0).images
        recovered += (best_psnr(found, images) > 40).tolist()
    assert np.mean(recovered) == pytest.approx((1 - 1 / 60) ** 9, abs=0.06)


def test_bins_by_brightness_recover_images_too(digits):
    attack = RobbingTheFed(60)
    planted = attack.planted(build_model("linear", SHAPE, 10, 0), SHAPE, digits[0], seed=1)
    images, labels = drawn(digits, 4)
    assert (best_psnr(attack.recover(observed_step(planted, images, labels), 0).images, images) > 40).any()


def test_small_rows_change_nothing_of_what_the_model_says(digits):
    model = build_model("mlp", SHAPE, 10, 0)
    outputs = [
        RobbingTheFed(60, shrunk=shrunk).planted(model, SHAPE, digits[0], seed=1)(digits[0][:50])
        for shrunk in (1 / 64, 1.0)
    ]
    assert torch.allclose(*outputs, atol=1e-4)


def test_a_normalised_range_is_none_of_the_attack_s_business(digits):
    shifted = 3 * digits[0] - 1
    planted = BINS.planted(build_model("mlp", SHAPE, 10, 0), SHAPE, shifted, seed=5)
    images, labels = drawn((shifted, digits[1]), 4)
    observed = replace(observed_step(planted, images, labels), value_range=(-1.0, 2.0))
    assert (best_psnr(BINS.recover(observed, 0).images, images) > 40).sum() >= 3


def test_of_hidden_weights_the_rest_of_the_image_is_recovered(digits, planted):
    images, labels = drawn(digits, 1)
    observed = observed_step(planted, images, labels)
    left_half = torch.arange(64).reshape(8, 8) % 8 < 4
    hidden = positions_of(observed, "bins.weight")
    hidden[hidden] = left_half.reshape(-1).repeat(60).numpy()
    (found,) = BINS.recover(replace(observed, known=~hidden), 0).images
    assert torch.allclose(found[0][~left_half], images[0, 0][~left_half], atol=1e-3)
    assert not found[0][left_half].any()


def test_what_is_hidden_of_one_row_is_taken_from_its_equals(digits, planted):
    """A third of all positions, biases too: with 60 rows for 3 images each pixel is known of some row between two."""
    images, labels = drawn(digits, 3)
    whole = observed_step(planted, images, labels)
    known = np.random.default_rng(0).random(whole.change.size) > 1 / 3
    partly = replace(whole, known=known, change=np.where(known, whole.change, np.float32(7)))
    for observed in (whole, partly):
        assert (best_psnr(BINS.recover(observed, 0).images, images) > 40).all()


def test_without_biases_an_image_is_recovered_up_to_its_contrast(digits, planted):
    images, labels = drawn(digits, 1, seed=3)
    observed = observed_step(planted, images, labels)
    found = BINS.recover(replace(observed, known=~positions_of(observed, "bins.bias")), 0).images
    assert len(found) == 1
    assert torch.allclose(found * images.max(), images, atol=1e-3)


@pytest.mark.parametrize(("attack", "model", "least"), [("BINS", "planted", 0.6), ("TRAPS", "trapped", 0.1)])
def test_noise_of_which_nothing_stands_out_recovers_no_image(digits, request, attack, model, least):
    attack, model = globals()[attack], request.getfixturevalue(model)
    images, labels = drawn(digits, 10)
    unharmed = attack.recover(observed_step(model, images, labels), 0).images
    drowned = attack.recover(observed_step(model, images, labels, noise_deviation=10.0), 0).images
    assert (best_psnr(unharmed, images) > 25).mean(dtype=torch.float) >= least
    assert not (best_psnr(drowned, images) > 25).any()


def test_it_says_what_it_needs(digits, planted):
    images, labels = drawn(digits, 4)
    observed = observed_step(planted, images, labels)
    assert BINS.inapplicable(observed) is None
    hidden = replace(observed, known=~positions_of(observed, "bins.weight"))
    assert "nothing is known" in BINS.inapplicable(hidden)
    unplanted = observed_step(build_model("mlp", SHAPE, 10, 0), images, labels)
    for attack in (BINS, TRAPS):
        assert "planted" in attack.inapplicable(unplanted)


def test_the_model_stays_what_it_was_and_its_copy_takes_the_same_samples(digits):
    model = build_model("mlp", SHAPE, 10, 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    planted = BINS.planted(model, SHAPE, digits[0], seed=5)
    assert planted(digits[0][:3]).shape == (3, 10)
    planted(digits[0][:3]).sum().backward()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


# Of 64 features random halves differ by more than of 3,072: the scale that isolates images is smaller.
TRAPS = CuriousAbandonHonesty(rows=300, scale=0.7)


@pytest.fixture(scope="module")
def train_digits():
    dataset = load_dataset("digits")
    return unit_images(dataset)[0], dataset.train_labels


@pytest.fixture(scope="module")
def trapped(train_digits):
    return TRAPS.planted(build_model("mlp", SHAPE, 10, 0), SHAPE, train_digits[0], seed=2)


def alone(trapped: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Which images are the only one that some row passes on."""
    passed = trapped.traps(images.flatten(1)) > 0
    return passed[:, passed.sum(dim=0) == 1].any(dim=1)


def test_images_that_a_row_passed_alone_are_recovered_and_few_others(train_digits, trapped):
    recovered, isolated = [], []
    for trial in range(15):
        chosen = np.random.default_rng(trial).choice(len(train_digits[0]), 12, replace=False)
        images = train_digits[0][chosen]
        found = TRAPS.recover(observed_step(trapped, images, train_digits[1][chosen]), 0).images
        recovered.append(best_psnr(found, images) > 40)
        isolated.append(alone(trapped, images))
    recovered, isolated = torch.cat(recovered), torch.cat(isolated)
    assert 0.3 < isolated.float().mean() < 0.95
    assert recovered[isolated].float().mean() > 0.97
    assert recovered[~isolated].float().mean() < 0.1


@pytest.mark.parametrize("hidden", [0.0, 0.3])
def test_an_image_that_several_rows_caught_is_handed_back_once_and_whole(train_digits, trapped, hidden):
    images = train_digits[0][:1]
    assert (trapped.traps(images.flatten(1)) > 0).sum() > 1
    whole = observed_step(trapped, images, train_digits[1][:1])
    known = np.random.default_rng(0).random(whole.change.size) > hidden
    known |= positions_of(whole, "traps.bias")
    found = TRAPS.recover(replace(whole, known=known), 0).images
    assert len(found) == 1
    assert torch.allclose(found, images, atol=1e-3)


def test_rows_with_hidden_positions_tell_the_rest(train_digits, trapped):
    images = train_digits[0][:1]
    observed = observed_step(trapped, images, train_digits[1][:1])
    hidden = positions_of(observed, "traps.weight")
    hidden[hidden] = (torch.arange(64) < 32).repeat(300).numpy()
    hidden |= positions_of(observed, "traps.bias")
    for found in TRAPS.recover(replace(observed, known=~hidden), 0).images:
        bottom = images[0, 0, 4:]
        assert torch.allclose(found[0, 4:] * bottom.max(), bottom, atol=2e-3)
        assert not found[0, :4].any()


def test_half_of_a_row_outweighs_the_other():
    rows = trap_rows(20, 9, 0.5, 0.9, torch.Generator().manual_seed(0))
    assert ((rows < 0).sum(dim=1) == 4).all()
    assert ((rows > 0).sum(dim=1) == 4).all()
    low, high = rows.sort(dim=1).values[:, :4], rows.sort(dim=1).values[:, 5:]
    assert torch.allclose(-0.9 * low.flip(1), high)
    many = trap_rows(50, 1000, 0.5, 1.0, torch.Generator().manual_seed(0))
    assert many.square().mean().sqrt() == pytest.approx(0.5, abs=0.01)
