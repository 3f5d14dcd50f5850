"""Figures of images and labels against their definitions, and how often intervals hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shieldfl.lab.audit.figures import bootstrap_interval, identified, label_scores, matched, psnr


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


@pytest.mark.parametrize("distance", ["squared", "correlation"])
def test_the_nearest_of_a_pool_is_the_true_one(distance):
    pool = images(50)
    mine = torch.tensor([3, 17])
    noise = 0.02 * torch.randn(2, *pool.shape[1:], generator=torch.Generator().manual_seed(0))
    found = identified(pool[mine] + noise, pool, mine, distance)
    assert (found.identified, found.tried, found.precision) == (2, 2, 1.0)
    assert found.chance == 2 / 50
    assert identified(pool[[5]], pool, mine, distance).precision == 0.0


def test_correlation_does_not_see_brightness_and_contrast():
    pool = images(50)
    dimmed = 0.02 * pool[[9]] + 0.5
    assert identified(dimmed, pool, torch.tensor([9]), "correlation").precision == 1.0
    assert identified(dimmed, pool, torch.tensor([9]), "squared").precision == 0.0


def test_images_that_tell_nothing_are_found_as_often_as_chance_says():
    pool = images(20)
    strangers = images(50, seed=7)
    found = [
        identified(strangers, pool, torch.randperm(20, generator=torch.Generator().manual_seed(seed))[:5])
        for seed in range(100)
    ]
    assert found[0].chance == 0.25
    assert np.mean([one.precision for one in found]) == pytest.approx(0.25, abs=0.05)


def test_nothing_tried_has_no_precision():
    found = identified(images(0), images(5), torch.tensor([1]))
    assert found.tried == 0
    assert math.isnan(found.precision)


def test_shares_of_classes_are_counted():
    true = np.array([2, 0, 1, 0])
    assert label_scores(true, true) == label_scores(np.array([2, 0, 1, 0]), true)
    scores = label_scores(np.array([1, 0, 1, 1]), true)
    assert (scores.existence, scores.number) == (0.75, 0.5)


def test_bootstrap_holds_the_truth_about_as_often_as_it_says():
    held = {"mean": 0, "median": 0}
    for trial in range(20):
        values = np.random.default_rng(trial).normal(5.0, 2.0, 40)
        for statistic in ("mean", "median"):
            found = bootstrap_interval(values.tolist(), statistic, seed=trial)
            assert found.low < found.high
            held[statistic] += found.low <= 5.0 <= found.high
    assert all(count >= 16 for count in held.values())


def test_few_and_equal_values():
    assert bootstrap_interval([3.0] * 5, "median", seed=0).low == 3.0
    assert bootstrap_interval([3.0], "mean", seed=0).high == math.inf
