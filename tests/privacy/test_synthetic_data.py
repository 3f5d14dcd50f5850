"""Private synthetic data: what it keeps, what it costs, what noise it gets; and the checks on a user's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shieldfl.errors import ArrayTypeError, DataError, ParameterError, RangeError
from shieldfl.privacy import mean_embedding
from shieldfl.privacy.gaussian_mechanism import gaussian_noise_multiplier
from shieldfl.privacy.mean_embedding import fit_synthetic_data
from shieldfl.privacy.synthetic_data import SyntheticData, check_labelled_samples
from shieldfl.simulation.data import load_dataset
from shieldfl.simulation.models import build_model
from shieldfl.simulation.training import TrainingSettings, evaluate, train_locally

SHAPE = (1, 3, 4)
CLASSES = 4


def samples(count: int, labels: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, *SHAPE, generator=torch.Generator().manual_seed(99))
    if labels is None:
        labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return centres[labels] + 0.3 * torch.randn(len(labels), *SHAPE, generator=generator), labels


def fit(features: torch.Tensor, labels: torch.Tensor, **changed: Any) -> SyntheticData:
    arguments: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "samples": 400,
        "seed": 3,
        "fourier_features": 100,
        "steps": 100,
    }
    return fit_synthetic_data(features, labels, CLASSES, **(arguments | changed))


def test_synthetic_classes_lie_where_the_real_ones_do() -> None:
    features, labels = samples(4000)
    made = fit(features, labels)
    check_labelled_samples(made.features, made.labels, SHAPE, CLASSES)
    assert len(made.features) == 400
    real_means = torch.stack([features[labels == c].mean(dim=0) for c in range(CLASSES)])
    distances = torch.cdist(made.features.flatten(1), real_means.flatten(1))
    assert float((distances.argmin(dim=1) == made.labels).float().mean()) > 0.9


def test_classes_come_in_their_shares_and_absent_ones_never() -> None:
    features, labels = samples(0, torch.tensor([0] * 3000 + [2] * 1000))
    made = fit(features, labels, samples=2000, steps=1)
    shares = torch.bincount(made.labels, minlength=CLASSES) / 2000
    assert shares.tolist() == [pytest.approx(0.75, abs=0.08), 0.0, pytest.approx(0.25, abs=0.08), 0.0]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 20), st.floats(0.01, 1e4))
def test_one_sample_more_moves_what_is_released_by_the_sensitivity_at_most(
    seed: int, others: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = scale * torch.randn(others + 1, 6, generator=generator)
    labels = torch.randint(0, CLASSES, (others + 1,), generator=generator)
    frequencies = torch.randn(6, 50, generator=generator)
    with_it = mean_embedding._class_sums(features, labels, CLASSES, frequencies)
    without = mean_embedding._class_sums(features[1:], labels[1:], CLASSES, frequencies)
    moved = float((with_it.double() - without.double()).norm())
    assert moved <= mean_embedding._SENSITIVITY
    assert moved == pytest.approx(math.sqrt(2), rel=1e-4)


def test_everything_released_is_noised_once_for_the_stated_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def record(vector: np.ndarray, deviation: float) -> np.ndarray:
        calls.append((vector, deviation))
        return np.full_like(vector, 5000.0)

    monkeypatch.setattr(mean_embedding, "gaussian_noise", record)
    features, labels = samples(500)
    made = fit(features, labels, epsilon=2.0, delta=1e-4, steps=1)
    multiplier = gaussian_noise_multiplier(2.0, 1e-4)
    assert (made.epsilon, made.delta, made.noise_multiplier) == (2.0, 1e-4, multiplier)
    [(vector, deviation)] = calls
    assert deviation == multiplier * mean_embedding._SENSITIVITY
    assert vector.shape == (CLASSES * 101,)
    assert vector.reshape(CLASSES, 101)[:, -1].tolist() == torch.bincount(labels).tolist()
    # The real samples reach the result through that one call only.
    other = fit(*samples(0, torch.zeros(50, dtype=torch.int64)), epsilon=2.0, delta=1e-4, steps=1)
    assert torch.equal(other.features, made.features)
    assert torch.equal(other.labels, made.labels)


def test_noise_follows_no_seed_and_torchs_generator_is_left_alone() -> None:
    features, labels = samples(2000)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second = fit(features, labels, steps=2), fit(features, labels, steps=2)
    assert not torch.equal(first.features, second.features)
    assert torch.equal(torch.get_rng_state(), before)


def test_classes_that_the_noise_hides_are_an_error() -> None:
    with pytest.raises(RangeError, match="larger epsilon"):
        fit(*samples(40))
    assert set(fit(*samples(40), epsilon=1e4, steps=1).labels.tolist()) <= set(range(CLASSES))


@pytest.mark.slow
def test_a_model_trained_on_synthetic_digits_reads_real_ones(data_dir: Path) -> None:
    dataset = load_dataset("mnist", data_dir)
    made = fit_synthetic_data(
        dataset.train_features[:20000],
        dataset.train_labels[:20000],
        10,
        epsilon=1.0,
        delta=1e-5,
        samples=5000,
        seed=0,
        steps=200,
    )
    check_labelled_samples(made.features, made.labels, dataset.feature_shape, 10)
    model = build_model("mlp", dataset.feature_shape, 10, 0)
    train_locally(model, made.features, made.labels, TrainingSettings(2, 64, 0.05), 0)
    assert evaluate(model, dataset.test_features, dataset.test_labels) > 0.6


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"samples": 0},
        {"steps": 0},
        {"fourier_features": 0},
        {"fourier_features": 7},
        {"kernel_length": 0.0},
        {"kernel_length": math.inf},
    ],
)
def test_impossible_settings_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        fit(*samples(20), **changed)


def test_real_samples_are_checked_too() -> None:
    features, labels = samples(20)
    with pytest.raises(DataError, match="labels"):
        fit_synthetic_data(features, labels, 1, epsilon=1.0, delta=1e-5, samples=1, seed=0)


FEATURES = torch.zeros(5, *SHAPE)
LABELS = torch.tensor([0, 1, 2, 3, 0])


def poisoned(value: float) -> torch.Tensor:
    features = FEATURES.clone()
    features[2, 0, 1, 1] = value
    return features


@pytest.mark.parametrize(
    ("features", "labels", "classes", "error", "message"),
    [
        (FEATURES.double(), LABELS, CLASSES, ArrayTypeError, "float32"),
        (FEATURES, LABELS.int(), CLASSES, ArrayTypeError, "int64"),
        (FEATURES, LABELS.float(), CLASSES, ArrayTypeError, "int64"),
        (FEATURES.flatten(1), LABELS, CLASSES, ParameterError, r"\(N, 1, 3, 4\)"),
        (FEATURES.transpose(2, 3), LABELS, CLASSES, ParameterError, r"\(N, 1, 3, 4\)"),
        (torch.tensor(0.0), LABELS, CLASSES, ParameterError, r"\(N, 1, 3, 4\)"),
        (FEATURES[:0], LABELS[:0], CLASSES, ParameterError, "at least 1 sample"),
        (FEATURES, LABELS[:4], CLASSES, ParameterError, "label for each"),
        (FEATURES, LABELS[:, None], CLASSES, ParameterError, "label for each"),
        (FEATURES, LABELS, 0, ParameterError, "at least 1 class"),
        (poisoned(math.nan), LABELS, CLASSES, DataError, "NaN"),
        (poisoned(-math.inf), LABELS, CLASSES, DataError, "NaN"),
        (FEATURES, LABELS, 3, DataError, "0 to 2"),
        (FEATURES, LABELS - 1, CLASSES, DataError, "0 to 3"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    features: torch.Tensor, labels: torch.Tensor, classes: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_labelled_samples(features, labels, SHAPE, classes)


def test_samples_that_fit_pass() -> None:
    check_labelled_samples(FEATURES, LABELS, SHAPE, CLASSES)
    check_labelled_samples(FEATURES, LABELS, SHAPE, 100)
