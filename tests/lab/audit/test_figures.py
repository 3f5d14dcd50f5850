"""Figures of images and labels against their definitions, and how often intervals hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shieldfl.lab.audit.attack import (
    Outcome,
    Recovered,
    bootstrap_interval,
    image_outcome,
    label_scores,
    matched,
    psnr,
)


def images(count: int, seed: int = 0, shape: tuple[int, ...] = (2, 14, 13)) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def test_psnr_of_a_known_error():
    true = images(2)
    found = true.clone()
    found[1] += 0.2
    assert psnr(found, true, (0.0, 1.0)).tolist() == pytest.approx([math.inf, 20 * math.log10(5)], rel=1e-5)
    assert float(psnr(found, true, (-1.0, 1.0))[1]) == pytest.approx(20 * math.log10(10), rel=1e-5)


def test_pairs_are_those_of_the_least_sum():
    true = images(4)
    order = torch.tensor([2, 0, 3])
    rows, columns = matched(true[order] + 0.01, true)
    assert rows.tolist() == [0, 1, 2]
    assert columns.tolist() == order.tolist()
    # The first is nearest to both; taken one by one, the second would be left with what is far.
    near = torch.tensor([[0.0], [1.0]])
    rows, columns = matched(torch.tensor([[0.1], [-0.5]]), near)
    assert columns.tolist() == [1, 0]


def judged(found: torch.Tensor) -> Outcome:
    """Images of one client with 5 samples, in a pool of 20."""
    return image_outcome(Recovered(images=found), images(5), images(15, seed=1), (0.0, 1.0), seed=0)


def test_the_nearest_of_a_pool_is_the_true_one():
    noise = 0.02 * torch.randn(5, 2, 14, 13, generator=torch.Generator().manual_seed(0))
    found = judged((images(5) + noise)[[3, 1]])
    assert (found.figure, found.chance, found.others["images"]) == (1.0, 5 / 20, 2.0)
    assert judged(images(15, seed=1)[[4]]).figure == 0.0
    assert judged(images(0)).figure == 0.0


def test_images_that_tell_nothing_are_found_as_often_as_chance_says():
    found = [judged(images(50, seed=seed)).figure for seed in range(2, 12)]
    assert np.mean(found) == pytest.approx(0.25, abs=0.12)


def test_shares_of_classes_are_counted():
    true = np.array([2, 0, 1, 0])
    assert label_scores(true, true) == (1.0, 1.0)
    assert label_scores(np.array([1, 0, 1, 1]), true) == (0.75, 0.5)


def test_bootstrap_holds_the_truth_about_as_often_as_it_says():
    for statistic in (np.mean, np.median):
        ends = [
            bootstrap_interval(np.random.default_rng(trial).normal(5.0, 2.0, 40).tolist(), trial, statistic)
            for trial in range(20)
        ]
        assert sum(low <= 5.0 <= high for low, high in ends) >= 16


def test_few_and_equal_values():
    assert bootstrap_interval([3.0] * 5, seed=0) == (3.0, 3.0)
    assert bootstrap_interval([3.0], seed=0) == (-math.inf, math.inf)
