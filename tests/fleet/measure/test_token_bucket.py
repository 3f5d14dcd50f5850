from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shieldfl.errors import ParameterError
from shieldfl.fleet.measure.paced_link import TokenBucket


class Clock:
    """Time that passes only when somebody sleeps or says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0.0
        # As real sleeps do, a little longer than asked for.
        self.now += seconds + 1e-4


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=30), st.floats(10.0, 1e6), st.floats(1.0, 1e4))
def test_tokens_take_as_long_as_the_rate_says(counts: list[int], rate: float, burst: float) -> None:
    clock = Clock()
    bucket = TokenBucket(rate, burst, clock, clock.sleep)
    for count in counts:
        bucket.take(count)
    least = sum(counts) / rate
    # Each sleep may be longer than needed; what is gained by that is kept, but for what exceeds the burst.
    assert least - 1e-6 <= clock.now - 100.0 <= least + 1e-4 * (len(counts) + 1) + 1e-6


def test_starts_empty_and_saves_up_to_the_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(100.0, 50.0, clock, clock.sleep)
    bucket.take(10)
    assert clock.now == pytest.approx(100.1, abs=1e-3)
    clock.now += 1000.0
    before = clock.now
    bucket.take(50)
    assert clock.now == before
    bucket.take(10)
    assert clock.now == pytest.approx(before + 0.1, abs=1e-3)


@pytest.mark.parametrize(
    ("rate", "burst"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))]
)
def test_rates_that_are_none(rate: float, burst: float) -> None:
    with pytest.raises(ParameterError, match="above zero"):
        TokenBucket(rate, burst)
