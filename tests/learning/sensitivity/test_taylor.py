"""Weight times gradient against a loop over samples, and against what zeroing a weight really does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.scores import full_batch_fisher, taylor_sensitivity
from shieldfl.models.torch_bridge import flatten, load_flat


def small_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def samples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 5, generator=generator), torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.parametrize("batch_size", [1, 5, 100])
def test_equals_a_loop_over_samples(batch_size):
    model = small_model()
    features, labels = samples(13)
    sums = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in model.parameters()]
    for sample, label in zip(features, labels, strict=True):
        loss = -torch.log_softmax(model(sample), dim=0)[label]
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        sums = [total + gradient / 13 for total, gradient in zip(sums, gradients, strict=True)]
    expected = np.concatenate(
        [
            np.abs(parameter.detach().double().numpy() * total.numpy()).ravel()
            for parameter, total in zip(model.parameters(), sums, strict=True)
        ]
    )
    scores = taylor_sensitivity(model, features, labels, batch_size)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-9)


def test_is_the_change_of_the_loss_to_first_order():
    model = small_model()
    features, labels = samples(40)
    weights = flatten(model)
    scores = taylor_sensitivity(model, features, labels)

    def loss(vector: np.ndarray) -> float:
        load_flat(model, vector)
        with torch.no_grad():
            return float(nn.functional.cross_entropy(model(features).double(), labels))

    step = 1e-2
    for position in np.argsort(scores)[-8:]:
        moved = weights.copy()
        moved[position] *= 1.0 - step
        change = abs(loss(moved) - loss(weights)) / step
        assert change == pytest.approx(scores[position], rel=0.05)


def test_a_weight_that_is_zero_or_frozen_scores_zero():
    model = small_model()
    with torch.no_grad():
        model[0].weight[1, 2] = 0.0
    model[2].bias.requires_grad_(False)
    scores = taylor_sensitivity(model, *samples(6))
    assert scores[1 * 5 + 2] == 0.0
    assert not scores[-3:].any()
    assert (scores >= 0.0).all()
    assert np.count_nonzero(scores) == 4 * 5 + 4 + 4 * 3 - 1


def test_squares_to_weight_times_fisher():
    model = small_model()
    features, labels = samples(6)
    weights = flatten(model).astype(np.float64)
    np.testing.assert_allclose(
        taylor_sensitivity(model, features, labels).astype(np.float64) ** 2,
        weights**2 * full_batch_fisher(model, features, labels),
        rtol=1e-5,
        atol=1e-14,
    )


def test_refuses_bad_input():
    model = small_model()
    features, labels = samples(4)
    with pytest.raises(ParameterError, match="no data"):
        taylor_sensitivity(model, features[:0], labels[:0])
    with pytest.raises(ParameterError, match="3 labels"):
        taylor_sensitivity(model, features, labels[:3])
    features[1, 1] = float("nan")
    with pytest.raises(RangeError, match=r"'0\.weight'"):
        taylor_sensitivity(model, features, labels)


def test_a_score_beyond_float32_names_its_layer():
    model = nn.Linear(5, 3, bias=False)
    with torch.no_grad():
        model.weight.fill_(1e20)
    with pytest.raises(RangeError, match="'weight'"):
        taylor_sensitivity(model, torch.full((1, 5), 1e19), torch.zeros(1, dtype=torch.int64))
