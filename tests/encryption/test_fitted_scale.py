"""Parameters.fit: as few bits as keep rounding within an error; and what a scale then holds."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import shieldfl as sf
from encryption.paillier_keys import authority_for
from reference import ckks as reference

FITS = {
    "ckks": sf.ckks.Parameters.fit,
    "slots": lambda sample, **settings: sf.ckks.Parameters.fit(sample, packing="slots", **settings),
    "kahe": sf.kahe.Parameters.fit,
    "paillier": sf.paillier.Parameters.fit,
}
every_scheme = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)


def rounding_error(parameters, update, weight=1.0):
    """Of one client's weighted update, relative to its length: values and the weight."""
    rounded_weight = np.rint(weight / parameters.weight_step) * parameters.weight_step
    step = 2.0**-parameters.fraction_bits
    rounded = np.rint(update.astype(np.float64) * rounded_weight / step) * step
    return np.linalg.norm(rounded - update * np.float64(weight)) / np.linalg.norm(update * np.float64(weight))


@every_scheme
@pytest.mark.parametrize("size", [1e-9, 1e-6, 0.01, 1.0, 50.0])
@pytest.mark.parametrize("error", [1e-2, 1e-3, 1e-5])
def test_the_error_is_kept_and_no_bit_is_wasted(fit, size, error):
    sample = np.random.default_rng(1).normal(0.0, size, 5000).astype(np.float32)
    parameters = fit(sample, relative_error=error, max_clients=8)
    reached = rounding_error(parameters, sample)
    assert reached <= error
    if parameters.fraction_bits:
        # Rounding errors are uniform, which is 1 / sqrt(3) of the bound, and the step is a power of two.
        assert reached > error / 5
    assert parameters.value_limit >= 4 * np.abs(sample).max()
    assert parameters.value_limit < 16 * np.abs(sample).max()


@every_scheme
@pytest.mark.parametrize("weights", [(0.0024, 0.018), (0.1, 1.0), (1.0, 1.0)])
def test_the_smallest_weight_costs_no_precision_and_the_largest_fits(fit, weights):
    sample = np.random.default_rng(2).normal(0.0, 1e-5, 2000)
    parameters = fit(sample, weights=weights, max_clients=8)
    for weight in weights:
        assert rounding_error(parameters, sample, weight) <= 1e-3
    assert parameters.value_limit >= 4 * np.abs(sample).max() * weights[1]
    update = sample * 4
    if isinstance(parameters, sf.ckks.Parameters):
        key = sf.KeyAuthority(parameters).public_key
        assert sf.ckks.Encryptor(key).encrypt(update, weight=weights[1]).underflowed < 20


@every_scheme
def test_values_much_smaller_than_the_others_are_kept_where_there_is_room(fit):
    rng = np.random.default_rng(6)
    sample = rng.normal(0.0, 1.0, 1000) * np.where(np.arange(1000) % 5 == 0, 1e-5, 1.0)
    parameters = fit(sample, max_clients=8)
    assert reference.count_underflowed(sample, parameters.fraction_bits) <= 50
    assert reference.count_underflowed(sample, parameters.fraction_bits - 1) > 50
    # Without room for them, the others decide.
    sample[::5] *= 1e-20
    parameters = fit(sample, max_clients=8)
    assert reference.count_underflowed(sample, parameters.fraction_bits) == 200
    assert rounding_error(parameters, sample) <= 1e-3


def test_paillier_s_integer_weights_take_their_guard_bits():
    sample = np.full(10, 1.0)
    error = 2.0**-36
    fitted = sf.paillier.Parameters.fit(sample, relative_error=error, max_clients=1000)
    # Four times the sample is 2^37 steps of 2^-35, in one bit more than 2^37 - 1 takes, and the sign's.
    assert (fitted.value_bits, fitted.fraction_bits) == (39, 35)
    with pytest.raises(sf.ParameterError, match=r"34 bits a value .* reach a relative error of"):
        sf.paillier.Parameters.fit(sample, relative_error=error, max_clients=1000, max_weight=1000)


@pytest.mark.parametrize(("scheme", "default", "largest"), [(sf.ckks, 2048, 4096), (sf.kahe, 4096, 8192)])
def test_a_fit_can_be_planned(scheme, default, largest):
    sample = np.random.default_rng(4).normal(0.0, 1e-3, 1000)
    assert scheme.Parameters.fit(sample).ring_degree == default
    few, many = (scheme.Parameters.fit(sample, goal="size", count=count) for count in (100, 10**6))
    assert (few.ring_degree, many.ring_degree) == (2048, largest)
    with pytest.raises(sf.ParameterError, match="goal"):
        scheme.Parameters.fit(sample, count=100_000)


@every_scheme
@pytest.mark.parametrize(
    ("sample", "settings", "error", "message"),
    [
        (np.zeros(5), {}, sf.ParameterError, "zero"),
        (np.array([1.0, np.nan]), {}, sf.RangeError, "NaN"),
        (np.array([1.0, np.inf]), {}, sf.RangeError, "NaN or infinity"),
        (np.ones(5, dtype=np.int64), {}, sf.ArrayTypeError, "dtype"),
        (np.ones(5), {"mask": sf.Mask.full(4)}, sf.ParameterError, "4"),
        (np.ones(5), {"relative_error": 0.0}, sf.ParameterError, "relative_error"),
        (np.ones(5), {"relative_error": 1.0}, sf.ParameterError, "relative_error"),
        (np.ones(5), {"relative_error": float("nan")}, sf.ParameterError, "relative_error"),
        (np.ones(5), {"relative_error": "1e-3"}, sf.ParameterError, "relative_error"),
        (np.ones(5), {"headroom": 0.5}, sf.ParameterError, "headroom"),
        (np.ones(5), {"headroom": float("inf")}, sf.ParameterError, "headroom"),
        (np.ones(5), {"weights": (0.0, 1.0)}, sf.ParameterError, "weights"),
        (np.ones(5), {"weights": 0.5}, sf.ParameterError, "weights must be two numbers"),
        (np.ones(5), {"weights": (0.5, 0.2)}, sf.ParameterError, "weights"),
        (np.ones(5), {"weights": (120, 900)}, sf.ParameterError, "divide every client's"),
        (np.ones(5), {"max_clients": -1}, sf.ParameterError, "max_clients must be between 1 and"),
        (np.full(5, 1e300), {}, sf.ParameterError, "no scale has room"),
        (np.full(5, 1e-20), {}, sf.ParameterError, "reach a relative error of"),
        (np.array([1e-9] * 1000 + [1.0]), {"relative_error": 1e-12}, sf.ParameterError, "reach a relative"),
    ],
)
def test_what_cannot_be_fitted_is_refused(fit, sample, settings, error, message):
    with pytest.raises(error, match=message):
        fit(sample, **settings)


def test_the_error_that_a_refusal_names_can_be_reached():
    sample = np.random.default_rng(5).normal(0.0, 1.0, 1000)
    with pytest.raises(sf.ParameterError, match="reach a relative error of") as caught:
        sf.ckks.Parameters.fit(sample, relative_error=1e-13)
    named = float(str(caught.value).partition("error of ")[2].partition(",")[0])
    assert rounding_error(sf.ckks.Parameters.fit(sample, relative_error=1.1 * named), sample) <= 1.1 * named


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
    settings = {"key_bits": 2048} if scheme is sf.paillier else {}
    parameters = scheme.Parameters(
        max_clients=4, value_bits=value_bits, fraction_bits=fraction_bits, **settings
    )
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
