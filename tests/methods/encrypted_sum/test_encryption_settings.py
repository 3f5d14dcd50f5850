"""Parameters of updates: the ring fits how much is encrypted."""

from __future__ import annotations

import numpy as np
import pytest

from methods.small_plan import small_plan
from shieldfl.authority.key_authority import KeyAuthority
from shieldfl.encryption import ckks
from shieldfl.errors import ParameterError, PrecisionWarning, RangeError
from shieldfl.methods.encryption_settings import (
    EncryptionSettings,
    FedMlHeSettings,
    FixedPoint,
    MaskCryptSettings,
    update_parameters,
)
from shieldfl.methods.mask_crypt import FedMlHe, MaskCrypt
from shieldfl.methods.registry import MethodSettings
from shieldfl.testing import MethodCase, SteppedRun

CLIENTS = 20


@pytest.mark.parametrize(
    ("encryption", "share", "degree"),
    [("ckks", 0.01, 2048), ("ckks", 0.5, 4096), ("kahe", 0.01, 2048), ("kahe", 1.0, 4096)],
)
def test_a_share_of_the_parameters_takes_the_ring_of_that_share(
    encryption: str, share: float, degree: int
) -> None:
    for make, settings in (
        (FedMlHe, FedMlHeSettings(ratio=share, encryption=encryption)),
        (MaskCrypt, MaskCryptSettings(ratio=share, encryption=encryption)),
    ):
        method = make("by share", settings, small_plan(parameters=24_570, buffers=0))
        assert method.purposes["update"].ring_degree == degree


def largest_error(parameters: ckks.Parameters, weights: list[float] | None) -> float:
    """Of the mean of eight updates, in steps of the settings' fixed point."""
    updates = np.random.default_rng(1).uniform(-0.01, 0.01, (8, 1000))
    authority = KeyAuthority(parameters)
    aggregator, encryptor = ckks.Aggregator(authority.public_key, 1), ckks.Encryptor(authority.public_key, 1)
    for number, update in enumerate(updates):
        aggregator.add(encryptor.encrypt(update, weight=None if weights is None else weights[number]))
    mean = np.average(updates, axis=0, weights=weights)
    return float(np.abs(authority.open_mean(aggregator.total()) - mean).max() * 2.0**20)


def test_weights_that_differ_cost_a_mean_no_precision() -> None:
    counts = [1] * 7 + [400]
    weights = [count / 400 for count in counts]
    plain = update_parameters("ckks", 8, FixedPoint())
    kept = update_parameters("ckks", 8, FixedPoint(), most_weight=400, mean_weight=sum(counts) / 8)
    assert (kept.value_bits, kept.fraction_bits) == (24 + 3, 20 + 3)  # 400 / 50.9 is below 2^3
    assert largest_error(plain, None) <= 0.5
    assert largest_error(kept, weights) <= 0.51  # what rounding the weights does is far below a step
    assert largest_error(update_parameters("ckks", 8, FixedPoint(), most_weight=400), weights) > 0.9


def test_equal_weights_and_paillier_s_integer_ones_need_no_more_bits() -> None:
    plain = update_parameters("ckks", CLIENTS, FixedPoint())
    assert update_parameters("ckks", CLIENTS, FixedPoint(), most_weight=7, mean_weight=7.0) == plain
    paillier = [
        update_parameters("paillier-dense", CLIENTS, FixedPoint(), most_weight=7, mean_weight=mean)
        for mean in (None, 2.0)
    ]
    assert paillier[0] == paillier[1]


@pytest.mark.parametrize("encryption", ["kahe", "pads", "ckks", "paillier-dense"])
def test_what_is_out_of_range_is_told_by_settings_of_the_method(encryption):
    """A run has no encryptor to pass clip to, and no Parameters to fit."""
    settings = EncryptionSettings(encryption=encryption, value_bits=8, fraction_bits=4)
    run = SteppedRun(MethodCase("full-he", MethodSettings().changed("full-he", vars(settings))))
    start = run.begin_round(1)
    run.train_client(0, 1, 4, start)
    with pytest.warns(
        PrecisionWarning, match="Raise the method's settings fraction_bits and value_bits by as"
    ):
        run.clients[0].step("update", None)
    run._train = lambda number, client, begun: begun.trained(begun.parameters + 100, begun.buffers)
    run.train_client(1, 1, 4, start)
    with pytest.raises(
        RangeError, match=r"position 0 .*learning rate, or of the method's settings raise value_bits or lower"
    ) as refused:
        run.clients[1].step("update", None)
    assert "clip" not in str(refused.value)
    assert refused.value.position == 0


@pytest.mark.parametrize(
    ("encryption", "needs", "said"),
    [
        ("kahe", {"clients": 70_000}, "guard bits for the most clients of a round"),
        (
            "paillier-dense",
            {"clients": 3, "most_weight": 2**31},
            "the largest weight of a client must be between",
        ),
    ],
)
def test_what_a_scheme_refuses_is_told_by_what_a_run_has(encryption, needs, said):
    with pytest.raises(ParameterError, match=said) as refused:
        update_parameters(encryption, fixed_point=FixedPoint(value_bits=40), count=10, **needs)
    assert "max_" not in str(refused.value)
