"""Updates as small as fine-tuning's: values that round to zero are lost to the mean."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import shieldfl as sf

SIZE = 20_000
SAMPLES = (120, 180, 250, 330, 420, 550, 700, 900)
WEIGHTS = [samples / 50_000 for samples in SAMPLES]

# Mean and deviation of log2 |value|, and the share of zeros, as bench/experiments/fine_tuning_precision.py prints
# them; None is for normal updates of deviation 1e-6 without weights.
CASES = {
    "adamw-1e-5": (-18.4, 5.4, 0.0),
    "sgd-1e-3": (-19.4, 2.8, 0.309),
    "sgd-1e-4": (-22.5, 2.5, 0.322),
    "normal-1e-6": None,
}


def updates_of(case):
    """One update for each client, and the weights."""
    rng = np.random.default_rng(1)
    if CASES[case] is None:
        return [rng.normal(0, 1e-6, SIZE).astype(np.float32) for _ in SAMPLES], None
    mean, deviation, zeros = CASES[case]
    # Clients agree in part. The upper tail of a log-normal distribution is longer than the measured one: no value is
    # more than a deviation above the mean.
    common = rng.normal(0, 1, SIZE)
    updates = []
    for _ in SAMPLES:
        exponent = mean + deviation * np.minimum(rng.normal(0, 1, SIZE), 1.0)
        sign = np.sign(common + rng.normal(0, 1, SIZE)) * (rng.random(SIZE) >= zeros)
        updates.append((sign * 2.0**exponent).astype(np.float32))
    return updates, WEIGHTS


def relative_error(parameters, updates, weights):
    """Of the opened mean, in the L2 norm; and the batches."""
    authority = sf.KeyAuthority(parameters, min_clients=3)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    aggregator = sf.ckks.Aggregator(authority.public_key)
    batches = []
    for number, update in enumerate(updates):
        batches.append(encryptor.encrypt(update, weight=None if weights is None else weights[number]))
        aggregator.add(batches[-1])
    exact = np.average(np.stack(updates).astype(np.float64), axis=0, weights=weights)
    opened = authority.open_mean(aggregator.total())
    return np.linalg.norm(opened - exact) / np.linalg.norm(exact), batches


@pytest.mark.parametrize("case", CASES)
def test_small_updates_are_lost_in_silence(case):
    updates, weights = updates_of(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error, batches = relative_error(sf.ckks.Parameters(max_clients=len(SAMPLES)), updates, weights)
    assert error > 0.2
    assert not caught
    assert not any(hasattr(batch, "underflowed") for batch in batches)
