"""Alt-FL's schedule: the algorithms' line 2 by hand, whole periods by property, and its refusals."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shieldfl.errors import ParameterError
from shieldfl.methods.noised_average.rounds import AlternatingSchedule


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
    schedule = AlternatingSchedule(ratio)
    assert [schedule.is_first_kind(t + 1) for t in range(len(kinds))] == [kind == "1" for kind in kinds]


@given(ratios(), st.integers(1, 200))
def test_any_period_holds_exactly_the_ratios_share_of_second_kind_rounds(ratio: Fraction, start: int) -> None:
    schedule = AlternatingSchedule(ratio)
    period = range(start, start + schedule.period_rounds)
    assert sum(not schedule.is_first_kind(t) for t in period) == ratio.numerator
    assert schedule.is_first_kind(start) == schedule.is_first_kind(start + schedule.period_rounds)


@given(ratios(), st.integers(1, 100))
def test_rounds_of_the_first_kind_are_counted_without_looking_at_each(ratio: Fraction, total: int) -> None:
    schedule = AlternatingSchedule(ratio)
    assert schedule.first_kind_count(total) == sum(map(schedule.is_first_kind, range(1, total + 1)))
    whole = schedule.period_rounds * 10**12
    assert schedule.first_kind_count(whole) == 10**12 * (schedule.period_rounds - schedule.ratio.numerator)


@pytest.mark.parametrize("text", ["1/4", "2/8", "0.25", " 1/4 ", "00.250"])
def test_ways_of_writing_one_ratio_are_one_schedule(text: str) -> None:
    schedule = AlternatingSchedule(text)
    assert schedule == AlternatingSchedule(Fraction(1, 4))
    assert (schedule.ratio, schedule.period_rounds) == (Fraction(1, 4), 4)
    assert len({schedule, AlternatingSchedule("2/8")}) == 1


def test_a_schedule_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        AlternatingSchedule("1/4").ratio = Fraction(1, 2)


@pytest.mark.parametrize(
    ("ratio", "message"),
    [
        ("1/0", "zero rounds"),
        ("0/0", "zero rounds"),
        ("-1/2", r"in \[0, 1\]"),
        (Fraction(-1, 4), r"in \[0, 1\]"),
        ("3/2", r"in \[0, 1\]"),
        ("1.01", r"in \[0, 1\]"),
        ("", "no fraction"),
        ("half", "no fraction"),
        ("1/-2", "no fraction"),
        ("1/2/3", "no fraction"),
        ("nan", "no fraction"),
        ("1e-99999999", "no fraction"),
        ("1/" + "9" * 5000, "no fraction"),
        (0.25, "Fraction or text"),
        (True, "Fraction or text"),
        (None, "Fraction or text"),
    ],
)
def test_what_is_no_ratio_is_refused(ratio: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        AlternatingSchedule(ratio)


def test_there_is_no_round_before_the_first() -> None:
    schedule = AlternatingSchedule("1/2")
    for number in (0, -3):
        with pytest.raises(ParameterError, match="count from 1"):
            schedule.is_first_kind(number)
        with pytest.raises(ParameterError, match="at least 1 round"):
            schedule.first_kind_count(number)
