"""Fisher scores against gradients computed by hand and by a loop over samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.learning.scores import (
    FisherAccumulator,
    full_batch_fisher,
    normalise_per_layer,
    per_sample_fisher,
)
from shieldfl.learning.sensitive_positions import sensitive_positions
from shieldfl.models.parameter_layout import ParameterLayout
from shieldfl.models.torch_bridge import parameter_layout


def small_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def batch(count: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 5, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def softmax_gradient(model: nn.Linear, features: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    """Gradient of the mean cross-entropy of a linear model, by its closed form (p - y) xᵀ."""
    x = features.double().numpy()
    logits = x @ model.weight.detach().double().numpy().T + model.bias.detach().double().numpy()
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    residual = (p - np.eye(p.shape[1])[labels.numpy()]) / len(x)
    return np.concatenate([(residual.T @ x).ravel(), residual.sum(axis=0)])


def backward(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> None:
    model.zero_grad()
    nn.functional.cross_entropy(model(features), labels).backward()


def test_accumulator_is_the_square_of_the_mean_batch_gradient() -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    accumulator = FisherAccumulator(parameter_layout(model))
    expected = np.zeros(18)
    for seed in range(4):
        features, labels = batch(7, seed)
        backward(model, features, labels)
        accumulator.update(model)
        expected += softmax_gradient(model, features, labels)
    scores = accumulator.scores()
    assert scores.dtype == np.float32
    assert accumulator.updates == 4
    np.testing.assert_allclose(scores, (expected / 4) ** 2, rtol=2e-4, atol=1e-9)


def test_accumulator_leaves_the_gradients_alone() -> None:
    model = small_model()
    backward(model, *batch(6))
    before = [parameter.grad.clone() for parameter in model.parameters()]
    FisherAccumulator(parameter_layout(model)).update(model)
    assert all(torch.equal(p.grad, b) for p, b in zip(model.parameters(), before, strict=True))


def test_scores_are_a_snapshot() -> None:
    model = small_model()
    accumulator = FisherAccumulator(parameter_layout(model))
    backward(model, *batch(6))
    accumulator.update(model)
    first = accumulator.scores()
    kept = first.copy()
    backward(model, *batch(6, seed=9))
    accumulator.update(model)
    np.testing.assert_array_equal(first, kept)
    assert not np.array_equal(accumulator.scores(), kept)


def test_frozen_parameters_score_zero() -> None:
    model = small_model()
    model[0].weight.requires_grad_(False)
    accumulator = FisherAccumulator(parameter_layout(model))
    backward(model, *batch(6))
    accumulator.update(model)
    scores = accumulator.scores()
    assert not scores[:20].any()
    assert scores[20:].any()
    exact = per_sample_fisher(model, *batch(6))
    assert not exact[:20].any()
    assert exact[20:].any()


def test_no_update_is_an_error() -> None:
    model = small_model()
    accumulator = FisherAccumulator(parameter_layout(model))
    with pytest.raises(ParameterError, match="update"):
        accumulator.scores()
    with pytest.raises(ParameterError, match="backward"):
        accumulator.update(model)


@pytest.mark.parametrize("other", [nn.Linear(5, 4), nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 3))])
def test_another_model_is_refused(other: nn.Module) -> None:
    accumulator = FisherAccumulator(parameter_layout(small_model()))
    for parameter in other.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with pytest.raises(ParameterError, match="layout"):
        accumulator.update(other)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_a_bad_gradient_names_its_layer_even_rounds_later(bad: float) -> None:
    model = small_model()
    accumulator = FisherAccumulator(parameter_layout(model))
    backward(model, *batch(6))
    model[2].bias.grad[1] = bad
    accumulator.update(model)
    for seed in range(3):
        backward(model, *batch(6, seed))
        accumulator.update(model)
    with pytest.raises(RangeError, match=r"'2\.bias'"):
        accumulator.scores()


@pytest.mark.parametrize("batch_size", [1, 4, 11, 100])
def test_per_sample_fisher_equals_a_loop_over_samples(batch_size: int) -> None:
    model = small_model()
    features, labels = batch(11)
    expected = np.zeros(parameter_layout(model).size)
    for row in range(11):
        backward(model, features[row : row + 1], labels[row : row + 1])
        gradient = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
        expected += gradient.double().square().numpy()
    scores = per_sample_fisher(model, features, labels, batch_size=batch_size)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected / 11, rtol=1e-4, atol=1e-9)


def test_per_sample_fisher_is_not_the_squared_batch_gradient() -> None:
    model = small_model()
    features, labels = batch(32)
    accumulator = FisherAccumulator(parameter_layout(model))
    backward(model, features, labels)
    accumulator.update(model)
    # The square of a mean is at most the mean of squares (Jensen), and here strictly less.
    assert (accumulator.scores() <= per_sample_fisher(model, features, labels) * (1 + 1e-5)).all()
    assert accumulator.scores().sum() < 0.9 * per_sample_fisher(model, features, labels).sum()


def test_per_sample_fisher_uses_running_statistics_and_keeps_every_mode() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    model(torch.randn(64, 5) * 3 + 1)
    model.train()
    model[2].eval()
    features, labels = batch(9)
    statistics = model[1].running_mean.clone()
    scores = per_sample_fisher(model, features, labels, batch_size=4)
    assert [module.training for module in model] == [True, True, False, True]
    assert torch.equal(model[1].running_mean, statistics)
    np.testing.assert_allclose(
        scores, per_sample_fisher(model, features.flip(0), labels.flip(0), batch_size=9), rtol=1e-5, atol=1e-9
    )
    assert all(parameter.grad is None for parameter in model.parameters())


def test_per_sample_fisher_refuses_bad_input() -> None:
    model = small_model()
    features, labels = batch(4)
    with pytest.raises(ParameterError, match="no data"):
        per_sample_fisher(model, features[:0], labels[:0])
    with pytest.raises(ParameterError, match="3 labels"):
        per_sample_fisher(model, features, labels[:3])
    with pytest.raises(ParameterError, match="batch_size"):
        per_sample_fisher(model, features, labels, batch_size=0)
    features[2, 2] = float("nan")
    with pytest.raises(RangeError, match=r"'0\.weight'"):
        per_sample_fisher(model, features, labels)


def layers(*sizes: int) -> ParameterLayout:
    offsets = tuple(int(offset) for offset in np.cumsum((0, *sizes)))
    return ParameterLayout(tuple(f"layer{i}" for i in range(len(sizes))), tuple((s,) for s in sizes), offsets)


def test_normalisation_is_per_layer() -> None:
    scores = np.array([1, 3, 2, 5, 5, 5, 100, 300], dtype=np.float32)
    normalised = normalise_per_layer(scores, layers(3, 3, 2))
    np.testing.assert_array_equal(normalised, np.array([0, 1, 0.5, 0, 0, 0, 0, 1], dtype=np.float32))
    assert normalised.dtype == np.float32
    np.testing.assert_array_equal(scores, [1, 3, 2, 5, 5, 5, 100, 300])


@given(
    st.lists(
        st.lists(st.floats(0, 2.0**127, width=32), min_size=1, max_size=9),
        min_size=1,
        max_size=5,
    )
)
def test_normalised_scores_keep_order_and_reach_both_ends(values: list[list[float]]) -> None:
    layout = layers(*(len(layer) for layer in values))
    scores = np.array([value for layer in values for value in layer], dtype=np.float32)
    normalised = normalise_per_layer(scores, layout)
    for _, piece in layout.slices():
        before, after = scores[piece], normalised[piece]
        if before.min() == before.max():
            assert not after.any()
            continue
        assert after.min() == 0.0
        assert after.max() == 1.0
        assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()


def test_normalisation_refuses_bad_input() -> None:
    layout = layers(2, 2)
    good = np.zeros(4, dtype=np.float32)
    with pytest.raises(ParameterError, match="4 parameters"):
        normalise_per_layer(good[:3], layout)
    with pytest.raises(ArrayTypeError):
        normalise_per_layer(good.astype(np.float64), layout)  # type: ignore[arg-type]
    good[3] = np.nan
    with pytest.raises(RangeError, match="'layer1'"):
        normalise_per_layer(good, layout)


def test_positions_are_chosen_strictly_above_the_threshold() -> None:
    normalised = np.array([0.0, 0.05, np.nextafter(np.float32(0.05), np.float32(1)), 1.0], dtype=np.float32)
    assert sensitive_positions(normalised, 0.05).tolist() == [False, False, True, True]
    assert sensitive_positions(normalised, 0.0).tolist() == [False, True, True, True]
    assert not sensitive_positions(normalised, 1.0).any()
    assert sensitive_positions(normalised, 0.5).dtype == np.bool_


@pytest.mark.parametrize("threshold", [-0.01, 1.01, float("nan"), float("inf")])
def test_a_threshold_outside_the_unit_interval_is_refused(threshold: float) -> None:
    with pytest.raises(ParameterError, match="threshold"):
        sensitive_positions(np.zeros(3, dtype=np.float32), threshold)


def test_full_batch_fisher_is_the_square_of_the_gradient_whatever_the_batch_size() -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    features, labels = batch(50, 1)
    backward(model, features, labels)
    kept = model.weight.grad.clone()
    expected = softmax_gradient(model, features, labels) ** 2
    for batch_size in (1, 7, 50, 1000):
        scores = full_batch_fisher(model, features, labels, batch_size)
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, expected, rtol=2e-4, atol=1e-9)
    assert torch.equal(model.weight.grad, kept)


def test_full_batch_fisher_of_frozen_parameters_and_bad_input() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[0].requires_grad_(False)
    model.train()
    features, labels = batch(20, 1)
    scores = full_batch_fisher(model, features, labels)
    assert not scores[:24].any()
    assert scores[24:].any()
    assert model.training
    assert model[1].num_batches_tracked == 0
    for bad in ((features[:0], labels[:0], 5), (features, labels[:3], 5), (features, labels, 0)):
        with pytest.raises(ParameterError):
            full_batch_fisher(model, *bad)
    with pytest.raises(RangeError, match="weight"):
        full_batch_fisher(model, features * float("nan"), labels)
