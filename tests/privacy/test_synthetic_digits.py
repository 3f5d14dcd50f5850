"""Private synthetic data of real digits are good enough to train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model
from shieldfl.learning.sgd import evaluate, train_locally
from shieldfl.privacy.synthetic_data import check_labelled_samples, fit_synthetic_data
from shieldfl.settings import TrainingSettings


@pytest.mark.slow
def test_a_model_trained_on_synthetic_digits_reads_real_ones(data_dir: Path) -> None:
    dataset = load_dataset("mnist", data_dir)
    made = fit_synthetic_data(
        dataset.train_features[:20000],
        dataset.train_labels[:20000],
        10,
        feature_range=dataset.feature_range,
        epsilon=1.0,
        delta=1e-5,
        samples=2000,
        seed=0,
        steps=100,
    )
    check_labelled_samples(made.features, made.labels, dataset.feature_shape, 10)
    model = build_model("mlp", dataset.feature_shape, 10, 0)
    train_locally(model, made.features, made.labels, TrainingSettings(5, 64, 0.05, momentum=0.0), 0)
    assert evaluate(model, dataset.test_features, dataset.test_labels) > 0.6
