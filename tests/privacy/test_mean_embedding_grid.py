"""The grid on which sums of synthetic data's features are released, and how far one sample moves them."""

from __future__ import annotations

import math

import pytest
import torch

from shieldfl.errors import ParameterError
from shieldfl.privacy import synthetic_data


@pytest.mark.parametrize("place", [0, 1500, 199_999])
def test_the_sensitivity_is_the_same_among_very_many_samples(place: int) -> None:
    """Sums of about 140,000, where float32 has steps of 2^-6."""
    generator = torch.Generator().manual_seed(place)
    features = torch.randn(200_000, 2, generator=generator)
    frequencies = torch.randn(2, 2, generator=generator) / 8
    labels = torch.zeros(len(features), dtype=torch.int64)
    grid = synthetic_data._Grid.choose(4.0, 2)
    with_it = synthetic_data._class_sums(features, labels, 1, frequencies, grid)
    rest = torch.cat([features[:place], features[place + 1 :]])
    moved = with_it - synthetic_data._class_sums(rest, labels[1:], 1, frequencies, grid)
    assert with_it.abs().max() == len(features) * 2**grid.fraction_bits
    norm = math.sqrt(int(moved.square().sum())) * 2.0**-grid.fraction_bits
    assert norm == pytest.approx(math.sqrt(2), rel=1e-5)
    assert norm <= grid.sensitivity


def test_the_grid_follows_from_public_numbers_and_a_contribution_that_is_too_long_is_left_out() -> None:
    grid = synthetic_data._Grid.choose(4.0, 100)
    assert grid.fraction_bits == 20
    longest = torch.zeros(2, 101, dtype=torch.float64)
    longest[0, :2] = 1.0
    longest[1, :2] = 1.001
    rounded = grid.round(longest)
    assert rounded[0, :2].tolist() == [2**20, 2**20]
    assert not bool(rounded[1].any())
    # Noise of a wider deviation has wider steps, so that it can be drawn.
    wide = synthetic_data._Grid.choose(400.0, 100)
    assert 2**22 < 400.0 * wide.sensitivity * 2**wide.fraction_bits <= 2**24
    assert wide.sensitivity > grid.sensitivity
    with pytest.raises(ParameterError, match="larger one"):
        synthetic_data._Grid.choose(1e8, 100)
