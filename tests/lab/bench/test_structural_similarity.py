"""Structural similarity beside its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attack_references.structural_similarity import ssim
from shieldfl.errors import ParameterError


def images(count: int, seed: int = 0, shape: tuple[int, ...] = (2, 14, 13)) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def test_ssim_is_that_of_its_definition():
    """Window by window, as Wang et al. write it."""
    true, found = images(1), images(1, seed=1)
    bell = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    weights = np.outer(bell, bell) / np.outer(bell, bell).sum()
    values = []
    for channel in range(2):
        for row in range(4):
            for column in range(3):
                x, y = (
                    one[0, channel, row : row + 11, column : column + 11].double().numpy()
                    for one in (found, true)
                )
                mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
                var_x, var_y = (weights * (x - mean_x) ** 2).sum(), (weights * (y - mean_y) ** 2).sum()
                both = (weights * (x - mean_x) * (y - mean_y)).sum()
                c1, c2 = 0.01**2, 0.03**2
                values.append(
                    (2 * mean_x * mean_y + c1)
                    * (2 * both + c2)
                    / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
                )
    assert float(ssim(found, true, (0.0, 1.0))) == pytest.approx(np.mean(values), rel=1e-9)
    assert ssim(true, true, (0.0, 1.0)).tolist() == pytest.approx([1.0])


def test_small_or_other_images_are_refused():
    for others in (images(1, shape=(1, 8, 8)), images(2)):
        with pytest.raises(ParameterError, match="11 x 11"):
            ssim(images(1, shape=(1, 8, 8)), others, (0.0, 1.0))
