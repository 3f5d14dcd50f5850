"""Updates as small as fine-tuning's: values that round to zero are lost to the mean."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import shieldfl as sf
from encryption.paillier_keys import authority_for
from reference import ckks as reference

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
    authority = sf.KeyAuthority(parameters, min_clients=3, weight_bounds=(2.0**-10, 1.0))
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
def test_small_updates_are_not_lost_in_silence(case):
    updates, weights = updates_of(case)
    with pytest.warns(sf.PrecisionWarning, match=r"Parameters\.fit\(sample_update, weights=") as caught:
        error, batches = relative_error(sf.ckks.Parameters(max_clients=len(SAMPLES)), updates, weights)
    assert error > 0.2
    assert len(caught) == 1  # one encryptor, one round
    for number, batch in enumerate(batches):
        values = updates[number] * np.float64(1.0 if weights is None else weights[number])
        lost = np.count_nonzero(updates[number]) - np.count_nonzero(np.rint(values * 2.0**20))
        # A weight is rounded to a multiple of 2^-20, which moves a few values over the border.
        assert abs(batch.underflowed - lost) <= (0 if weights is None else 0.001 * SIZE)
        assert batch.underflowed > 0.1 * np.count_nonzero(updates[number])


@pytest.mark.parametrize("case", CASES)
def test_a_scale_fitted_to_one_update_serves_all(case):
    updates, weights = updates_of(case)
    bounds = None if weights is None else (min(weights), max(weights))
    parameters = sf.ckks.Parameters.fit(updates[0], max_clients=len(SAMPLES), weights=bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error, _ = relative_error(parameters, updates, weights)
    assert 0.0 < error < 1e-3


@pytest.mark.parametrize(
    ("scheme", "settings", "tolerance"),
    [
        (sf.ckks, {"packing": "exact"}, 1e-15),
        (sf.ckks, {"packing": "slots"}, 2.0**-31),
        (sf.paillier, {"key_bits": 2048}, 1e-15),
    ],
    ids=["exact", "slots", "paillier"],
)
def test_a_weight_has_a_step_of_its_own_where_the_scale_is_fine(scheme, settings, tolerance):
    def parameters_of(fraction_bits):
        return scheme.Parameters(max_clients=8, value_bits=20, fraction_bits=fraction_bits, **settings)

    parameters = parameters_of(30)
    assert parameters.weight_step == 2.0 ** -reference.weight_fraction_bits(20, 30) == 2.0**-18
    assert parameters_of(18).weight_step == 2.0**-18
    assert parameters_of(10).weight_step == 2.0**-10
    authority = authority_for(parameters) if scheme is sf.paillier else sf.KeyAuthority(parameters)
    rng = np.random.default_rng(5)
    updates = [rng.uniform(-2e-4, 2e-4, 100) for _ in range(3)]
    weights = [1.0, 0.25, 3 * 2.0**-18]
    encryptor = scheme.Encryptor(authority.public_key)
    aggregator = scheme.Aggregator(authority.public_key)
    for update, weight in zip(updates[:2], weights[:2], strict=True):
        aggregator.add(encryptor.encrypt(update, weight=weight))
    with pytest.warns(sf.PrecisionWarning):
        aggregator.add(encryptor.encrypt(updates[2], weight=weights[2]))
    steps = sum(np.rint(u * w * 2.0**30) for u, w in zip(updates, weights, strict=True))
    mean = authority.open_mean(aggregator.total())
    np.testing.assert_allclose(mean, steps / 2.0**30 / sum(weights), rtol=0, atol=tolerance)
    for weight in (2.0, 2.0**-20):
        with pytest.raises(sf.ParameterError, match=r"at least 2\^-18 and at most 1.99999: divide"):
            encryptor.encrypt(updates[0], weight=weight)


@pytest.mark.parametrize("scheme", [sf.kahe, sf.pads, sf.ckks, sf.paillier])
@pytest.mark.parametrize(("value_bits", "fraction_bits"), [(24, 20), (16, 14), (20, 30), (12, 0), (2, 0)])
def test_the_limits_that_are_stated_are_allowed(scheme, value_bits, fraction_bits):
    parameters = scheme.Parameters(max_clients=4, value_bits=value_bits, fraction_bits=fraction_bits)
    authority = (authority_for if scheme is sf.paillier else sf.KeyAuthority)(parameters)
    key = authority.enrol("clinic-1") if hasattr(authority, "enrol") else authority.public_key
    encryptor = scheme.Encryptor(key)
    stated = float(re.search(r"\|value\| <= (\S+) in", parameters.describe())[1])
    with pytest.raises(sf.RangeError, match=rf"above the limit of {stated:g} in magnitude") as refused:
        encryptor.encrypt(np.array([2.0 ** (value_bits - 1 - fraction_bits)]))
    assert refused.value.position == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encryptor.encrypt(np.array([stated, -stated]))
    if value_bits > 2:
        with pytest.raises(sf.ParameterError, match="at most") as refused:
            encryptor.encrypt(np.array([stated]), weight=2.0 ** (value_bits - 1))
        encryptor.encrypt(np.array([0.0]), weight=float(re.search(r"at most (\S+):", str(refused.value))[1]))
