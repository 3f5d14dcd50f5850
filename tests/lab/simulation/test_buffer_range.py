"""Buffers beyond the range of parameters: BatchNorm's statistics of features that are not scaled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf

# Whose clients send buffers, and what makes each of them do so.
SENDING = {
    "full-he": {},
    "plain-he": {"key_bits": 2048},
    "mask-crypt": {},
    "selective-shield": {"buffers": "encrypted"},
    "dict-pfl": {"rank": 1},
}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))


def run_on_features_of(
    deviation: float, method: str, settings: dict[str, object] | None = None, **config: object
) -> np.ndarray:
    """Return the running variances after two rounds."""
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 2, 60)
    features = (generator.normal(0.0, deviation, (60, 4)) + targets[:, None]).astype(np.float32)
    task = sf.Task(model=model, train_data=(features, targets), test_data=(features[:9], targets[:9]))
    found = sf.run(
        task,
        method,
        rounds=2,
        clients=3,
        batch_size=60,
        alpha=math.inf,
        settings={method: settings} if settings else None,
        **config,
    )
    return found.state_dict(method)["0.running_var"].numpy()


@pytest.mark.parametrize("method", SENDING)
def test_statistics_above_the_range_of_parameters_are_averaged(method):
    """Of features with a deviation of 8 a round moves the variance by about 26."""
    expected = run_on_features_of(8.0, "fedavg")
    assert expected.min() > 30.0
    found = run_on_features_of(8.0, method, SENDING[method])
    np.testing.assert_allclose(found, expected, rtol=0, atol=3 * 2.0**-16)


ADVICE = {
    "full-he": {"buffer_range_bits": 10},
    "selective-shield": {"buffers": "encrypted", "buffer_range_bits": 10},
    "dict-pfl": {"rank": 1, "buffer_range_bits": 10},
    "batch-crypt": {"largest_update": 4000.0, "key_bits": 2048},
}


@pytest.mark.parametrize("method", ADVICE)
def test_a_statistic_that_is_refused_is_named_and_what_helps_helps(method):
    advised = ADVICE[method]
    settings = {name: value for name, value in advised.items() if name in ("buffers", "rank", "key_bits")}
    setting = next(name for name in advised if name not in settings)
    with pytest.raises(sf.RangeError, match=r"\(the tensor '0\.running_var'\)") as refused:
        run_on_features_of(60.0, method, settings)
    assert "lower the learning rate" not in str(refused.value)
    assert f"raise the method's setting {setting}" in str(refused.value)
    assert run_on_features_of(60.0, method, advised).min() > 300.0
    assert run_on_features_of(1.0, method, settings).max() < 3.0


def test_a_parameter_that_is_refused_is_named_beside_buffers_too():
    with pytest.raises(
        sf.RangeError, match=r"limit of 7\.99999 .*: lower the learning rate.*\(the tensor '[01]\.\w+'\)"
    ):
        run_on_features_of(1.0, "full-he", learning_rate=60.0, local_epochs=1)
    for helps in ({"value_bits": 32}, {"fraction_bits": 12}):
        assert run_on_features_of(1.0, "full-he", helps, learning_rate=60.0, local_epochs=1).size == 4
