"""A token bucket: what keeps the rate of a measured client's link."""

from __future__ import annotations

import time
from collections.abc import Callable

from shieldfl.errors import ParameterError

__all__ = ["TokenBucket"]

# Of a token: without it the last wait could be too short for the clock to show it.
_ROUNDING = 1e-6


class TokenBucket:
    """Hands out tokens at a rate. Starts empty, so n tokens take n / rate from the start on.

    Whoever is held up finds the tokens of the meantime, up to ``burst`` of them: a sender whose processor was away
    for a moment keeps its mean rate. For one thread.

    Parameters
    ----------
    tokens_per_second, burst : finite and above 0; ParameterError otherwise.
    clock, sleep : seconds that rise, and waiting for some; tests pass their own.
    """

    def __init__(
        self,
        tokens_per_second: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (0.0 < tokens_per_second < float("inf") and 0.0 < burst < float("inf")):
            raise ParameterError("the rate and the burst of a token bucket must be finite and above zero")
        self._rate = tokens_per_second
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._tokens = 0.0
        self._filled_at = clock()

    def take(self, count: float) -> None:
        """Wait until ``count`` tokens are there, and take them. More than ``burst`` at once are no error."""
        self._fill()
        self._tokens -= count
        while self._tokens < -_ROUNDING:
            self._sleep(-self._tokens / self._rate)
            self._fill()

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
