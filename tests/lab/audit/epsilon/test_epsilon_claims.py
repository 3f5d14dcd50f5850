"""Honest methods are not said to claim too little; what claims nothing or cannot be measured is said to be so.

A bound is above a claim that is true with a chance of 5 % at most, for each method: here noise, coins and draws of
clients have seeds, so that what holds once holds always. Batches of DP-SGD are drawn from the operating system where
there are several in a round; the claims below are far above what is measured there.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("dp_accounting")

from privacy.seeded_draws import seed_noise
from shieldfl.errors import DisprovedError
from shieldfl.lab.audit.audit_config import AuditConfig, EpsilonConfig
from shieldfl.lab.audit.epsilon import ClaimedEpsilon, check_claims, measure_epsilons
from shieldfl.methods.settings import MethodSettings
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise

NOISY_SUMS = {"sum_noise_multiplier": 1.0}
ALL_NOISED = {"threshold": 1.0, "noise_multiplier": 1.0}


def measured(
    method: str, values: dict[str, Any] | None = None, rounds: int = 3, canaries: int = 150, **more: Any
) -> ClaimedEpsilon:
    federation = {
        name: more.pop(name) for name in ("clients", "min_clients", "budget_minutes") if name in more
    }
    settings = MethodSettings() if values is None else MethodSettings().changed(method, values)
    result = measure_epsilons(
        AuditConfig(rounds=rounds, threads=1, **federation),
        EpsilonConfig(canaries=canaries, **more),
        [method],
        settings,
    )
    check_claims(result)
    (claim,) = result.claims
    return claim


@pytest.mark.parametrize(
    ("method", "unit", "values", "how", "seen"),
    [
        ("dp-fedavg", "client", {}, {}, 0.5),
        ("dp-fedavg", "client", {}, {"clients": 100, "min_clients": 1, "sample_rate": 0.5, "rounds": 4}, 0.5),
        ("ddp-fedavg", "client", {}, {"clients": 30, "min_clients": 30}, 0.5),
        ("full-he", "client", NOISY_SUMS, {"clients": 30, "min_clients": 30}, 0.5),
        pytest.param(
            *("dict-pfl", "client", NOISY_SUMS, {"clients": 30, "min_clients": 30}, 0.5),
            marks=pytest.mark.slow,
        ),
        # A witness in a round of DP-SGD shows what the sum with noise of the round before has moved.
        ("alt-fl-pi", "sample", NOISY_SUMS, {}, 0.5),
        ("dp-sgd", "sample", {}, {}, 0.5),
        ("dp-sgd", "sample", {"noise_multiplier": 0.5}, {"steps": 2}, 0.1),
        ("alt-fl-si-dp", "sample", {}, {}, 0.5),
        ("alt-fl-pi", "sample", {}, {"rounds": 1}, 0.5),
        ("selective-shield", "client", ALL_NOISED, {"rounds": 1, "canaries": 40}, 0.0),
    ],
)
def test_an_honest_method_claims_no_less_than_is_measured(monkeypatch, method, unit, values, how, seen):
    seed_noise(monkeypatch)
    claim = measured(method, values, **how)
    assert claim.status == "measured"
    assert claim.bound is not None
    assert claim.bound.unit == claim.unit == unit
    assert claim.bound.confidence == 0.95
    assert seen <= claim.bound.at_least < claim.bound.claimed


def test_the_claim_is_that_of_the_methods_own_account(monkeypatch):
    seed_noise(monkeypatch)
    bound = measured("dp-fedavg", {"noise_multiplier": 2.0}, canaries=20).bound
    assert bound.claimed == pytest.approx(epsilon_of({Noise(2.0, "client"): 3}, 1e-5))
    assert bound.delta == 1e-5


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("dp-fedavg", {"noise_multiplier": 2.0}),
        ("ddp-fedavg", {"noise_multiplier": 2.1}),
        pytest.param("full-he", {"sum_noise_multiplier": 2.1}, marks=pytest.mark.slow),
        ("dp-sgd", {"noise_multiplier": 2.0}),
    ],
)
def test_a_tenth_of_the_noise_is_caught(monkeypatch, method, values):
    seed_noise(monkeypatch, factor=0.1)
    with pytest.raises(DisprovedError, match=f"{method} claims epsilon 2"):
        measured(method, values, rounds=1)


@pytest.mark.parametrize(
    ("method", "values", "why"),
    [
        ("fedavg", None, "no noise"),
        ("full-he", {"sum_clip_norm": 2.0}, "no noise"),
        ("alt-fl-pi", None, "sum of round"),
        ("alt-fl-si-he", None, "sum of round"),
        ("selective-shield", None, "mask"),
        ("dp-fedavg", {"noise_multiplier": 0.0}, "values"),
    ],
)
def test_who_claims_nothing_is_not_measured(method, values, why):
    claim = measured(method, values, canaries=20)
    assert claim.status == "claims nothing"
    assert "epsilon is infinite" in claim.reason
    assert why in claim.reason
    assert claim.bound is None


def test_a_claim_of_what_nobody_reads_is_not_measured_and_not_said_to_hold():
    claim = measured("alt-fl-mp", canaries=20)
    assert (claim.status, claim.bound) == ("not measured", None)
    assert "no number" in claim.reason
    assert measured("sense-crypt", canaries=20).status == "not measured"
    assert "time was over" in measured("dp-fedavg", budget_minutes=1e-9).reason


def test_synthetic_samples_beside_the_own_are_no_canaries():
    claim = measured("alt-fl-si-dp", {"synthetic_share": 0.25}, canaries=20)
    assert (claim.status, claim.bound) == ("not measured", None)
    assert "set synthetic_share to 0" in claim.reason
