"""The ledger against Opacus' accountant and against the closed form of the Gaussian mechanism."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import pytest
from opacus.accountants import RDPAccountant

from shieldfl.errors import ParameterError
from shieldfl.privacy.accounting import PrivacyLedger, noise_multiplier_for

DELTA = 1e-5


def ledger(noise_multiplier: float, participants: list[int]) -> PrivacyLedger:
    book = PrivacyLedger(noise_multiplier)
    for count in participants:
        book.charge_round(count)
    return book


def opacus_epsilon(multipliers: list[float], delta: float) -> float:
    accountant = RDPAccountant()
    for noise_multiplier in multipliers:
        accountant.step(noise_multiplier=noise_multiplier, sample_rate=1.0)
    return float(accountant.get_epsilon(delta))


def closed_form_epsilon(noise_multiplier: float, rounds: int, delta: float) -> float:
    """T α / 2σ² and lemma 2 (Balle et al. 2020), minimised over a fine grid of orders."""
    orders = [1 + 10 ** (exponent / 2000) for exponent in range(-6000, 8000)]
    return min(
        rounds * order / (2 * noise_multiplier**2)
        + math.log((order - 1) / order)
        - (math.log(delta) + math.log(order)) / (order - 1)
        for order in orders
    )


@pytest.mark.parametrize("sigma", [0.7, 1.0, 1.6])
def test_both_figures_equal_opacus_own_accountant(sigma: float) -> None:
    participants = [4, 9, 4, 16, 9, 4]
    spent = ledger(sigma, participants).epsilon(DELTA)
    assert spent.of_noise == pytest.approx(opacus_epsilon([sigma] * 6, DELTA), rel=1e-9)
    together = opacus_epsilon([sigma * math.sqrt(k) for k in participants], DELTA)
    assert spent.if_participants_true == pytest.approx(together, rel=1e-9)
    assert (spent.rounds, spent.delta) == (6, DELTA)


@pytest.mark.parametrize("sigma", [0.8, 2.0, 10.0, 60.0, 200.0])
@pytest.mark.parametrize("rounds", [1, 10, 100])
def test_the_closed_form_holds(sigma: float, rounds: int) -> None:
    spent = ledger(sigma, [1] * rounds).epsilon(DELTA)
    expected = closed_form_epsilon(sigma, rounds, DELTA)
    # A minimum over fewer orders is an upper bound; the grid is dense enough to cost little.
    assert expected * (1 - 1e-9) <= spent.of_noise <= expected * 1.02


def test_the_second_figure_is_the_first_of_a_larger_multiplier() -> None:
    spent = ledger(2.0, [20] * 10).epsilon(DELTA)
    larger = ledger(2.0 * math.sqrt(20), [1] * 10).epsilon(DELTA)
    assert spent.if_participants_true == larger.of_noise
    assert spent.if_participants_true < spent.of_noise


def test_one_participant_makes_the_figures_equal() -> None:
    spent = ledger(3.0, [1, 1, 1]).epsilon(DELTA)
    assert spent.if_participants_true == spent.of_noise


def test_a_round_with_nobody_is_charged_as_one_participant() -> None:
    assert ledger(3.0, [0, 5]).epsilon(DELTA) == ledger(3.0, [1, 5]).epsilon(DELTA)


def test_every_round_costs_and_order_does_not_matter() -> None:
    book = PrivacyLedger(2.0)
    figures = []
    for participants in (3, 7, 3, 5):
        book.charge_round(participants)
        figures.append(book.epsilon(DELTA))
    assert [figure.rounds for figure in figures] == [1, 2, 3, 4]
    for before, after in pairwise(figures):
        assert before.of_noise < after.of_noise
        assert before.if_participants_true < after.if_participants_true
    assert ledger(2.0, [5, 3, 7, 3]).epsilon(DELTA) == figures[-1]


def test_nothing_charged_costs_nothing() -> None:
    for sigma in (0.0, 2.0):
        spent = PrivacyLedger(sigma).epsilon(DELTA)
        assert (spent.of_noise, spent.if_participants_true, spent.rounds) == (0.0, 0.0, 0)


def test_no_noise_costs_everything() -> None:
    spent = ledger(0.0, [5, 5]).epsilon(DELTA)
    assert (spent.of_noise, spent.if_participants_true, spent.rounds) == (math.inf, math.inf, 2)


@pytest.mark.parametrize("sigma", [1e-3, 0.05, 1e3])
def test_extreme_noise_gives_a_figure_and_no_warning(sigma: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spent = ledger(sigma, [4] * 3).epsilon(DELTA)
    assert 0.0 <= spent.if_participants_true <= spent.of_noise < math.inf


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0, 1000.0])
def test_calibration_comes_back_within_its_budget(epsilon: float) -> None:
    sigma = noise_multiplier_for(epsilon, DELTA, rounds=10)
    spent = ledger(sigma, [20] * 10).epsilon(DELTA)
    assert 0.999 * epsilon <= spent.of_noise <= epsilon


def test_calibration_grows_with_rounds_as_their_square_root() -> None:
    ratio = noise_multiplier_for(1.0, DELTA, rounds=40) / noise_multiplier_for(1.0, DELTA, rounds=10)
    assert ratio == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds"),
    [
        (0.0, DELTA, 1),
        (-1.0, DELTA, 1),
        (math.nan, DELTA, 1),
        (math.inf, DELTA, 1),
        (1.0, 0.0, 1),
        (1.0, 1.0, 1),
        (1.0, math.nan, 1),
        (1.0, DELTA, 0),
        (1e-6, DELTA, 10),
    ],
)
def test_an_impossible_target_is_refused(epsilon: float, delta: float, rounds: int) -> None:
    with pytest.raises(ParameterError):
        noise_multiplier_for(epsilon, delta, rounds)


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf])
def test_an_impossible_ledger_is_refused(sigma: float) -> None:
    with pytest.raises(ParameterError):
        PrivacyLedger(sigma)


def test_no_rate_of_sampling_clients_can_be_stated() -> None:
    """Whoever sees how many take part sees enough: there is no amplification to be had."""
    with pytest.raises(TypeError):
        PrivacyLedger(1.0, 0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        noise_multiplier_for(1.0, DELTA, 10, 0.5)  # type: ignore[call-arg]


def test_impossible_questions_are_refused() -> None:
    book = PrivacyLedger(1.0)
    with pytest.raises(ParameterError, match="participants"):
        book.charge_round(-1)
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ParameterError, match="delta"):
            book.epsilon(delta)
    assert book.rounds == 0
