"""The stopwatch, against a clock that moves only when told."""

from __future__ import annotations

import pytest

from shieldfl.learning import local_update
from shieldfl.learning.local_update import StageClock


@pytest.fixture
def now(monkeypatch):
    """Seconds that stand still until a test adds to them."""

    class Now:
        seconds = 100.0

    monkeypatch.setattr(local_update.time, "perf_counter", lambda: Now.seconds)
    return Now


def test_stages_add_up_over_their_visits(now):
    clock = StageClock()
    for seconds in (1.0, 2.0):
        with clock.stage("train"):
            now.seconds += seconds
        now.seconds += 50.0  # between two stages nothing is charged
    with clock.stage("open"):
        now.seconds += 0.5
    assert clock.take() == {"train": 3.0, "open": 0.5}


def test_an_inner_stage_is_taken_from_the_outer_one(now):
    clock = StageClock()
    with clock.stage("train"):
        now.seconds += 1.0
        for _ in range(2):
            with clock.stage("score"):
                now.seconds += 4.0
                with clock.stage("merge"):
                    now.seconds += 16.0
        now.seconds += 2.0
    assert clock.take() == {"train": 3.0, "score": 8.0, "merge": 32.0}


def test_the_sum_of_all_stages_is_the_time_that_passed(now):
    clock = StageClock()
    start = now.seconds
    with clock.stage("a"):
        for name in ("b", "c", "a", "b"):
            now.seconds += 0.25
            with clock.stage(name):
                now.seconds += 0.5
    assert sum(clock.take().values()) == now.seconds - start


def spend_and_fail(clock, now):
    with clock.stage("inner"):
        now.seconds += 2.0
        raise RuntimeError("inside")


def test_an_exception_does_not_lose_or_misplace_time(now):
    clock = StageClock()
    with clock.stage("outer"):
        now.seconds += 1.0
        with pytest.raises(RuntimeError, match="inside"):
            spend_and_fail(clock, now)
        now.seconds += 4.0
    assert clock.take() == {"outer": 5.0, "inner": 2.0}


def test_taking_starts_again_from_zero(now):
    clock = StageClock()
    with clock.stage("train"):
        now.seconds += 1.0
    taken = clock.take()
    assert clock.take() == {}
    with clock.stage("train"):
        now.seconds += 3.0
    assert taken == {"train": 1.0}  # what was taken is the caller's
    assert clock.take() == {"train": 3.0}
