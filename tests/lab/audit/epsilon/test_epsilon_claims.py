"""Honest methods are not said to claim too little; what claims nothing or cannot be measured is said to be so.

A bound is above a claim that is true with a chance of 5 % at most, for each method: here noise, coins and draws of
clients have seeds, so that what holds once holds always. Batches of DP-SGD are drawn from the operating system where
there are several in a round; the claims below are far above what is measured there.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("dp_accounting")

import numpy as np
from scipy.stats import binom

from privacy.seeded_draws import seed_noise
from shieldfl.errors import DisprovedError
from shieldfl.lab.audit.audit_config import AuditConfig, EpsilonConfig
from shieldfl.lab.audit.epsilon import (
    ClaimedEpsilon,
    Guesses,
    bound_from_one_run,
    check_claims,
    count_guesses,
    measure_epsilons,
    one_run_p_value,
)
from shieldfl.methods.registry import MethodSettings
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
    assert "no value" in claim.reason
    assert measured("sense-crypt", canaries=20).status == "not measured"
    assert "time was over" in measured("dp-fedavg", budget_minutes=1e-9).reason


def test_synthetic_samples_beside_the_own_are_no_canaries():
    claim = measured("alt-fl-si-dp", {"synthetic_share": 0.25}, canaries=20)
    assert (claim.status, claim.bound) == ("not measured", None)
    assert "set synthetic_share to 0" in claim.reason


def randomised_response(generator: np.random.Generator, count: int, epsilon: float) -> int:
    """How many of so many coins are right that are told with the accuracy that epsilon allows."""
    return int(generator.binomial(count, 1 / (1 + math.exp(-epsilon))))


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_the_p_value_is_that_of_the_corollary(delta):
    canaries, made, right, epsilon = 40, 30, 22, 0.8
    accuracy = 1 / (1 + math.exp(-epsilon))

    def chance(values) -> float:
        return sum(binom.pmf(value, made, accuracy) for value in values)

    alpha = max(chance(range(right - i, right)) / i for i in range(1, right + 1))
    expected = chance(range(right, made + 1)) + 2 * canaries * delta * alpha
    assert one_run_p_value(canaries, Guesses(made, right), epsilon, delta) == pytest.approx(
        expected, rel=1e-9
    )


def test_of_randomised_response_few_audits_say_too_much_and_most_say_nearly_all():
    generator = np.random.default_rng(0)
    bounds = [
        bound_from_one_run(
            2000, [Guesses(2000, randomised_response(generator, 2000, 1.0))], delta=0.0, unit="sample"
        ).at_least
        for _ in range(400)
    ]
    # Of 400, 20 may say more on average, and 37 would be four deviations above that. Next to none would do so of a
    # bound that is looser than it need be.
    assert 5 <= sum(bound > 1.0 for bound in bounds) <= 36
    assert np.median(bounds) > 0.85


def test_the_best_of_several_numbers_of_guesses_is_no_more_often_wrong():
    generator = np.random.default_rng(1)
    counts = (100, 300, 1000, 2000)
    too_much = 0
    for _ in range(100):
        right = generator.random(2000) < 1 / (1 + math.exp(-1.0))
        guesses = [Guesses(count, int(right[:count].sum())) for count in counts]
        too_much += bound_from_one_run(2000, guesses, delta=0.0, unit="client").at_least > 1.0
    assert too_much <= 14


def test_what_is_always_right_disproves_a_logarithm_of_the_guesses():
    bound = bound_from_one_run(1000, [Guesses(1000, 1000)], delta=0.0, unit="client", claimed=5.0)
    accuracy = 0.05 ** (1 / 1000)
    assert bound.at_least == pytest.approx(math.log(accuracy / (1 - accuracy)), abs=1e-4)
    assert bound.contradicts_claim
    assert (bound.unit, bound.claimed, bound.confidence) == ("client", 5.0, 0.95)


def test_chance_disproves_nothing_and_a_larger_delta_less():
    for guesses, delta in ((Guesses(1000, 500), 1e-5), (Guesses(0, 0), 0.0)):
        assert bound_from_one_run(1000, [guesses], delta=delta, unit="sample").at_least == 0.0
    bounds = [
        bound_from_one_run(1000, [Guesses(200, 190)], delta=delta, unit="sample").at_least
        for delta in (0.0, 1e-5, 1e-3, 0.4)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[2] > bounds[3] == 0.0


def test_the_strongest_evidence_is_guessed_first():
    evidence, included = np.array([0.1, -3.0, 2.0, -0.2]), np.array([False, False, True, True])
    assert count_guesses(evidence, included, (0.5, 1.0)) == [Guesses(2, 2), Guesses(4, 2)]
