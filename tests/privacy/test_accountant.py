"""The accountant against closed forms, integrals, privacy loss distributions, and Opacus' accountant."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, logsumexp

from shieldfl.errors import ParameterError
from shieldfl.privacy import accountant
from shieldfl.privacy.accountant import ORDERS, epsilon_of, gaussian_noise_multiplier, noise_multiplier_for
from shieldfl.privacy.book import PrivacyBook
from shieldfl.privacy.events import ClientsDrawn, Noise

DELTA = 1e-5
KNOWN = json.loads(Path(__file__).with_name("known_epsilons.json").read_text("utf-8"))
"""Computed by Opacus 1.6: for clients over all orders in ORDERS, for DP-SGD over its own, which end at 63.

clients: sigma, rounds, participants in turn, delta, epsilon, epsilon with the noise of all participants; dp_sgd: sigma,
sample rate, steps, delta, epsilon; multipliers: epsilon, rounds, delta, sigma, of which 99.9 % of epsilon was asked.
one_release: epsilon, delta, and the least sigma by the exact delta of continuous noise, from epsilon 1 on, and by
concentrated differential privacy over orders as fine as can be.
"""


def of_clients(multiplier: float, rounds: int = 1) -> Counter[Noise]:
    return Counter({Noise(multiplier, "client"): rounds})


def delta_of(multiplier: float, epsilon: float) -> float:
    """The exact delta of one release with continuous noise (Balle and Wang 2018, theorem 8)."""
    half_step, shift = 0.5 / multiplier, epsilon * multiplier
    log_first = float(log_ndtr(half_step - shift))
    log_ratio = epsilon + float(log_ndtr(-half_step - shift)) - log_first
    return math.exp(log_first) * (-math.expm1(log_ratio) if log_ratio < 0.0 else 0.0)


@pytest.mark.parametrize(("sigma", "rounds", "participants", "delta", "own", "together"), KNOWN["clients"])
def test_clients_are_charged_as_opacus_charges_them(sigma, rounds, participants, delta, own, together):
    noise = Noise(sigma, "client")
    counts = [participants[number % len(participants)] for number in range(rounds)]
    spent = PrivacyBook(ClientsDrawn(count, noise) for count in counts).spent(delta)
    assert (spent.of_noise, spent.if_participants_true) == pytest.approx((own, together), rel=1e-9)
    # No less than what is true of so much noise at once.
    assert delta_of(sigma / math.sqrt(rounds), spent.of_noise) <= delta


@pytest.mark.parametrize(("sigma", "rate", "steps", "delta", "known"), KNOWN["dp_sgd"])
def test_dp_sgd_is_charged_as_opacus_charges_it_up_to_its_orders(sigma, rate, steps, delta, known):
    spent = epsilon_of({Noise(sigma, "sample", rate, steps): 1}, delta)
    if known < 2.0:
        # Orders above 63, and a delta that is enough without any epsilon.
        assert spent <= known * 1.003
    else:
        # Orders near 1 at which the library stops before its series has converged matter where epsilon is large.
        more = 0.003 if known < 10.0 else 0.01 if known < 30.0 else 1.5
        assert known * 0.99 <= spent <= known * (1.0 + more)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [
        (1.1, 0.1, 1000, 1e-5),
        (1.0, 0.5, 20, 1e-5),
        (0.5, 0.01, 1000, 1e-5),
        (4.0, 0.1, 1000, 1 / 60000),
        (20.0, 0.5, 20, 1e-8),
        (0.8, 0.02, 300, 1e-3),
    ],
)
def test_no_figure_is_below_what_is_true(sigma, rate, steps, delta):
    """What a privacy loss distribution gives that is rounded down is below the least epsilon, a little."""
    one_step = privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        sampling_prob=rate,
        pessimistic_estimate=False,
        use_connect_dots=False,
        value_discretization_interval=1e-3,
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    )
    least = one_step.self_compose(steps).get_epsilon_for_delta(delta)
    spent = epsilon_of({Noise(sigma, "sample", rate, steps): 1}, delta)
    assert 0.0 < least <= spent <= least * 1.45


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.1), (0.5, 0.5), (4.0, 0.01), (20.0, 0.001)])
def test_divergences_under_sampling_are_the_integrals(sigma, rate):
    divergences = dict(zip(ORDERS, accountant._divergences(sigma, rate), strict=True))
    for order in (1.5, 2, 2.5, 3.7, 8, 10.9, 32):
        # Of the ratio's power, over the density that the samples are missing from; sums are exact for such integrands.
        x, width = np.linspace(-20.0 * sigma, order + 20.0 * sigma, 400_001, retstep=True)
        log_ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2.0 * x - 1.0) / (2.0 * sigma**2))
        log_terms = order * log_ratio - (x / sigma) ** 2 / 2 - math.log(sigma * math.sqrt(2.0 * math.pi))
        exact = float(logsumexp(log_terms) + math.log(width)) / (order - 1.0)
        # Never below. The library rounds series up that converge slowly, as those of small broken orders do.
        most = 1.0 + (1e-6 if order == int(order) else 0.02) if order >= 2 else math.inf
        assert exact * (1.0 - 1e-6) - 1e-12 <= divergences[order] <= exact * most + 1e-11


@pytest.mark.parametrize(
    ("sigma", "rate"), [(1e-12, 0.5), (1e-3, 1e-9), (1e6, 1e-9), (1e12, 0.3), (50.0, 1.0)]
)
def test_divergences_are_numbers_and_never_negative(sigma, rate):
    divergences = accountant._divergences(sigma, rate)
    assert (divergences > 0.0).all()
    assert (divergences <= np.asarray(ORDERS) / (2.0 * sigma**2) * (1.0 + 1e-12)).all()


def test_orders_that_are_left_out_are_not_warned_of(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        accountant._divergences.cache_clear()
        assert epsilon_of({Noise(1.0, "sample", 0.1): 1}, DELTA) > 0.0
    assert not caplog.records


def test_releases_of_different_noise_add_up_in_any_order():
    parts = [(Noise(1.0, "sample", 0.1, 4), 3), (Noise(2.0, "sample", 0.2, 2), 1), (Noise(9.0, "sample"), 5)]
    assert epsilon_of({}, DELTA) == 0.0
    together = epsilon_of(dict(parts), DELTA)
    assert together == pytest.approx(epsilon_of(dict(reversed(parts)), DELTA), rel=1e-12)
    assert max(epsilon_of({noise: count}, DELTA) for noise, count in parts) < together
    # Steps are releases.
    assert epsilon_of({Noise(1.0, "sample", 0.1, 4): 3}, DELTA) == pytest.approx(
        epsilon_of({Noise(1.0, "sample", 0.1): 12}, DELTA), rel=1e-12
    )


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan, "1/N"])
def test_an_impossible_delta_is_refused(delta):
    for ask in (
        lambda: epsilon_of({}, delta),
        lambda: noise_multiplier_for(1.0, delta, 1),
        lambda: gaussian_noise_multiplier(1.0, delta),
    ):
        with pytest.raises(ParameterError, match="delta"):
            ask()


@pytest.mark.parametrize(
    ("multiplier", "unit", "rate", "steps"),
    [
        *((multiplier, "sample", 0.1, 1) for multiplier in (0.0, -1.0, math.nan)),
        # Whoever sees how many clients take part sees enough: no sampling of them counts.
        *((math.inf, "client", 1.0, 1), (1.0, "client", 0.5, 1), (1.0, "record", 0.1, 1)),
        *((1.0, "sample", rate, 1) for rate in (0.0, 1.1, math.nan, "all")),
        *((1.0, "sample", 0.1, steps) for steps in (0, -3, 1.5)),
    ],
)
def test_impossible_noise_is_refused(multiplier, unit, rate, steps):
    with pytest.raises(ParameterError):
        Noise(multiplier, unit, rate, steps)


@pytest.mark.parametrize(("epsilon", "rounds", "delta", "known"), KNOWN["multipliers"])
def test_a_multiplier_spends_what_was_asked_for_and_no_more(epsilon, rounds, delta, known):
    sigma = noise_multiplier_for(epsilon, delta, rounds)
    assert 0.9999 * epsilon <= epsilon_of(of_clients(sigma, rounds), delta) <= epsilon
    assert sigma == pytest.approx(known, rel=2e-3)


@pytest.mark.parametrize(("epsilon", "delta", "exact", "concentrated"), KNOWN["one_release"])
def test_one_release_has_enough_noise(epsilon, delta, exact, concentrated):
    sigma, least = gaussian_noise_multiplier(epsilon, delta), noise_multiplier_for(epsilon, delta, 1)
    # Of discrete noise, orders are what is proved.
    assert least == pytest.approx(concentrated, rel=4e-3)
    assert delta_of(sigma, epsilon) <= delta
    if epsilon <= 1.0:
        assert sigma == exact == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)
    else:
        assert exact <= sigma <= exact * 1.12
    assert epsilon_of(of_clients(sigma), delta) <= epsilon


@settings(deadline=None, max_examples=25)
@given(st.floats(0.1, 1e4), st.floats(0.1, 1e4), st.floats(1e-12, 0.5), st.floats(1e-12, 0.5))
def test_noise_never_rises_with_epsilon_or_delta(one, other, delta, more):
    small, large = sorted((one, other))
    less, more = sorted((delta, more))
    for multiplier in (gaussian_noise_multiplier, lambda *ask: noise_multiplier_for(*ask, 1)):
        most = multiplier(small, less)
        assert multiplier(large, less) <= most * (1 + 1e-5)
        assert multiplier(small, more) <= most * (1 + 1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds"),
    [
        *((epsilon, DELTA, 1) for epsilon in (0.0, -1.0, math.nan, math.inf, "much", None)),
        *((1.0, DELTA, 0), (1e-6, DELTA, 1000), (1e-300, 1e-300, 1)),
    ],
)
def test_an_impossible_target_is_refused(epsilon, delta, rounds):
    with pytest.raises(ParameterError):
        noise_multiplier_for(epsilon, delta, rounds)
    if (delta, rounds) == (DELTA, 1):
        with pytest.raises(ParameterError, match="epsilon"):
            gaussian_noise_multiplier(epsilon, delta)
