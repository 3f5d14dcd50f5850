"""Images that a trap lets pass alone are the ones recovered; hidden positions, noise and odd sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from audit.planted_updates import best_psnr, observed_step, positions_of, unit_images
from shieldfl.audit.attacks.planted_layers import CuriousAbandonHonesty, trap_rows
from shieldfl.errors import ParameterError
from shieldfl.simulation.data import load_dataset
from shieldfl.training.models import build_model

SHAPE = (1, 8, 8)
# Of 64 features random halves differ by more than of 3,072: the scale that isolates images is smaller.
ATTACK = CuriousAbandonHonesty(rows=300, scale=0.7)


@pytest.fixture(scope="module")
def digits():
    dataset = load_dataset("digits")
    return unit_images(dataset)[0], dataset.train_labels


@pytest.fixture(scope="module")
def planted(digits):
    return ATTACK.planted(build_model("mlp", SHAPE, 10, 0), SHAPE, digits[0], seed=2)


def alone(planted: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Which images are the only one that some row passes on."""
    passed = planted.traps(images.flatten(1)) > 0
    return passed[:, passed.sum(dim=0) == 1].any(dim=1)


def test_images_that_a_row_passed_alone_are_recovered_and_few_others(digits, planted):
    recovered, isolated = [], []
    for trial in range(15):
        chosen = np.random.default_rng(trial).choice(len(digits[0]), 12, replace=False)
        images = digits[0][chosen]
        found = ATTACK.recover(observed_step(planted, images, digits[1][chosen]), 0).images
        recovered.append(best_psnr(found, images) > 40)
        isolated.append(alone(planted, images))
    recovered, isolated = torch.cat(recovered), torch.cat(isolated)
    assert 0.3 < isolated.float().mean() < 0.95
    assert recovered[isolated].float().mean() > 0.97
    assert recovered[~isolated].float().mean() < 0.1


def test_an_image_that_several_rows_caught_is_handed_back_once(digits, planted):
    images = digits[0][:1]
    assert (planted.traps(images.flatten(1)) > 0).sum() > 1
    found = ATTACK.recover(observed_step(planted, images, digits[1][:1]), 0).images
    assert len(found) == 1
    assert torch.allclose(found, images, atol=1e-3)


def test_what_is_hidden_of_one_row_is_taken_from_others_that_found_the_same(digits, planted):
    images = digits[0][:1]
    whole = observed_step(planted, images, digits[1][:1])
    known = np.random.default_rng(0).random(whole.change.size) > 0.3
    known |= positions_of(whole, "traps.bias")
    found = ATTACK.recover(replace(whole, known=known), 0).images
    assert torch.allclose(found, images, atol=1e-3)


def test_rows_with_hidden_positions_tell_the_rest(digits, planted):
    images = digits[0][:1]
    observed = observed_step(planted, images, digits[1][:1])
    hidden = positions_of(observed, "traps.weight")
    hidden[hidden] = (torch.arange(64) < 32).repeat(300).numpy()
    hidden |= positions_of(observed, "traps.bias")
    for found in ATTACK.recover(replace(observed, known=~hidden), 0).images:
        bottom = images[0, 0, 4:]
        assert torch.allclose(found[0, 4:] * bottom.max(), bottom, atol=2e-3)
        assert not found[0, :4].any()


def test_noise_of_which_nothing_stands_out_recovers_no_image(digits, planted):
    images, labels = digits[0][:10], digits[1][:10]
    assert (best_psnr(ATTACK.recover(observed_step(planted, images, labels), 0).images, images) > 25).any()
    drowned = ATTACK.recover(observed_step(planted, images, labels, noise_deviation=10.0), 0).images
    assert not (best_psnr(drowned, images) > 25).any()


def test_half_of_a_row_outweighs_the_other():
    rows = trap_rows(20, 9, 0.5, 0.9, torch.Generator().manual_seed(0))
    assert ((rows < 0).sum(dim=1) == 4).all()
    assert ((rows > 0).sum(dim=1) == 4).all()
    low, high = rows.sort(dim=1).values[:, :4], rows.sort(dim=1).values[:, 5:]
    assert torch.allclose(-0.9 * low.flip(1), high)
    many = trap_rows(50, 1000, 0.5, 1.0, torch.Generator().manual_seed(0))
    assert many.square().mean().sqrt() == pytest.approx(0.5, abs=0.01)


def test_it_says_what_it_needs_and_refuses_what_makes_no_trap(digits):
    unplanted = observed_step(build_model("mlp", SHAPE, 10, 0), digits[0][:4], digits[1][:4])
    assert "planted" in ATTACK.inapplicable(unplanted)
    for rows, deviation, scale in ((0, 0.5, 0.9), (5, 0.0, 0.9), (5, 0.5, 1.1)):
        with pytest.raises(ParameterError):
            CuriousAbandonHonesty(rows, deviation, scale)
    with pytest.raises(ParameterError, match="one value"):
        ATTACK.planted(build_model("mlp", SHAPE, 10, 0), SHAPE, torch.ones(2, *SHAPE), 0)
