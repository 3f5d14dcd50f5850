"""Updates as small as fine-tuning's: values that round to zero are lost to the mean."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import shieldfl as sf
from encryption.paillier_keys import authority_for
from reference import ckks as reference


# Mean and deviation of log2 |value|, and the share of zeros, as bench/experiments/fine_tuning_precision.py prints
# them; None is for normal updates of deviation 1e-6 without weights.
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
