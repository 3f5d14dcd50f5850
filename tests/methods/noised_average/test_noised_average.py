"""DP-FedAvg, whose clients clip and noise whole updates; Alt-FL's schedule, by hand and by property."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.method_conformance import SteppedRun
from methods.variants import PARAMETERS, Variant
from shieldfl.errors import ParameterError
from shieldfl.methods.dp_sgd_rounds import KindsOfRounds, RoundKind, read_ratio
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings


def run_of(*, rounds: int = 3, weights: tuple[int, ...] | None = None, **changes: object) -> SteppedRun:
    variant = Variant("dp-fedavg", SelectiveShieldSettings(), "dp-fedavg").with_others(**changes)
    return SteppedRun(variant, rounds=rounds, weights=weights)


def sent_by(run: SteppedRun, client: int) -> np.ndarray:
    return run.sent["update"][client].vector("update", np.float32, PARAMETERS)


def test_an_update_is_clipped_and_noised():
    quiet, loud = run_of(noise_multiplier=0.0, clip_norm=0.25), run_of(noise_multiplier=4.0, clip_norm=0.25)
    quiet.run_round()
    loud.run_round()
    assert np.linalg.norm(sent_by(quiet, 0)) == pytest.approx(0.25, rel=1e-5)
    noise = sent_by(loud, 0) - sent_by(quiet, 0)
    # The deviation of 333 draws of N(0, 1) lies within 20 % of 1 but for one run in 10^6.
    assert noise.std() == pytest.approx(1.0, rel=0.2)
    assert quiet.clients[0].disclosure.shares()["clear"] == 1.0
    assert loud.clients[0].disclosure.shares()["noise"] == 1.0
    assert loud.clients[0].disclosure.buffers == "local"


def test_a_target_is_met_and_not_much_more():
    run = run_of(rounds=5, target_epsilon=6.0)
    for _ in range(5):
        run.run_round()
    assert 0.99 * 6.0 <= run.account.spent().epsilon <= 6.0
    assert run.setup.settings["noise_multiplier"] == run.settings()["noise_multiplier"]


FIRST, SECOND = RoundKind(encrypts=True), RoundKind(noises=True)


def rounds_of(ratio: str) -> KindsOfRounds:
    return KindsOfRounds(FIRST, SECOND, ratio)


@st.composite
def ratios(draw: st.DrawFn) -> Fraction:
    denominator = draw(st.integers(1, 40))
    return Fraction(draw(st.integers(0, denominator)), denominator)


@pytest.mark.parametrize(
    ("ratio", "kinds"),
    [
        ("0", "11111111"),
        ("1/4", "11011101"),
        ("2/5", "1100111001"),
        ("1/2", "01010101"),
        ("3/5", "1000110001"),
        ("3/4", "00010001"),
        ("1", "00000000"),
    ],
)
def test_the_papers_ratios_by_hand(ratio: str, kinds: str) -> None:
    rounds = rounds_of(ratio)
    assert [rounds.kind(t + 1) == FIRST for t in range(len(kinds))] == [kind == "1" for kind in kinds]


@given(ratios(), st.integers(1, 200))
def test_any_period_holds_exactly_the_ratios_share_of_second_kind_rounds(ratio: Fraction, start: int) -> None:
    rounds, period = rounds_of(str(ratio)), ratio.denominator
    assert [rounds.kind(t) for t in range(start, start + period)].count(SECOND) == ratio.numerator
    assert rounds.kind(start) == rounds.kind(start + period)


@given(ratios(), st.integers(1, 100))
def test_rounds_of_each_kind_are_counted_without_looking_at_each(ratio: Fraction, total: int) -> None:
    rounds = rounds_of(str(ratio))
    assert rounds.counts(total) == Counter(map(rounds.kind, range(1, total + 1)))
    assert rounds.counts(ratio.denominator * 10**12)[SECOND] == 10**12 * ratio.numerator


@pytest.mark.parametrize("text", ["1/4", "2/8", "0.25", " 1/4 ", "00.250"])
def test_ways_of_writing_one_ratio_are_one(text: str) -> None:
    assert read_ratio(text) == Fraction(1, 4)


@pytest.mark.parametrize(
    ("ratio", "message"),
    [
        ("1/0", "zero rounds"),
        ("-1/2", r"in \[0, 1\]"),
        ("3/2", r"in \[0, 1\]"),
        ("1.01", r"in \[0, 1\]"),
        ("", "no fraction"),
        ("half", "no fraction"),
        ("1/-2", "no fraction"),
        ("1/2/3", "no fraction"),
        ("1e-99999999", "no fraction"),
        ("1/" + "9" * 5000, "no fraction"),
    ],
)
def test_what_is_no_ratio_is_refused(ratio: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_ratio(ratio)
