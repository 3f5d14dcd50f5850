"""What noise on whole clients' updates costs, by Opacus' Rényi accountant.

Unit: one client. Neighbours: two runs with the same participants, in which all that one client sends is computed
from its clipped update, or from zeros in its place. Each upload has noise of at least N(0, (C sigma)^2), and what is
proved counts that multiplier sigma in every round (SelectiveShield, eq. 22). A run without the client at all is no
neighbour: it would have one participant less, which shows in messages, in the noise that SelectiveShield adds (its text
under eq. 21: N(0, (C sigma)^2 K) with K participants) and in the divisor of a mean.

There is no amplification by sampling of clients: the aggregator, every client, and whoever sees how many take part
know who took part or how many did, and both tell.

The noise of sigma * sqrt(K), of SelectiveShield's clients or of all K together in a mean of DP-FedAvg's, is a figure of
its own: it holds if the number of participants that the server stated was true. The two are never mixed up. Neither
covers what opened sums or masks tell: that is for :mod:`shieldfl.privacy.events`.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from shieldfl.errors import ParameterError
from shieldfl.installing import require

__all__ = ["NoiseSpent", "PrivacyLedger", "noise_multiplier_for"]

# Missing it is told at once, but it takes seconds to load: functions import it, and runs without noise never do.
require("opacus")

# Every order gives a valid bound, the smallest bound counts. Opacus' own orders end at 63, which cannot show
# an epsilon under about ln(1/delta)/62, so whole orders go on in steps of a fifth. Its fractional orders (1.1 to 10.9)
# matter only for a large epsilon: they are tried where the best whole order is small.
_WHOLE_ORDERS = (
    *range(2, 64),
    *(64, 76, 90, 107, 128, 152, 181, 215, 256, 304, 362, 431, 512, 609, 724, 861, 1024),
)
_SMALL_ORDER = 12


@dataclass(frozen=True)
class NoiseSpent:
    """What the noise of a run was charged: two ε for the same δ.

    Attributes
    ----------
    of_noise : float
        ε with multiplier σ; the larger figure. ``math.inf`` without noise.
    if_participants_true : float
        ε with multiplier σ·√K, if the stated K was true.
    delta : float
        The δ that both belong to.
    rounds : int
        Rounds charged.
    """

    of_noise: float
    if_participants_true: float
    delta: float
    rounds: int


class PrivacyLedger:
    """Counts rounds of noised uploads and says what they cost.

    Parameters
    ----------
    noise_multiplier : float
        σ: standard deviation over clipping norm, before any factor √K. 0 means no noise: ε is infinite.

    Raises
    ------
    ParameterError
        If σ is negative, NaN or infinite.
    """

    def __init__(self, noise_multiplier: float) -> None:
        if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
            raise ParameterError("the noise multiplier must be finite and not negative")
        self._noise_multiplier = float(noise_multiplier)
        self._rounds_by_participants: Counter[int] = Counter()

    @property
    def rounds(self) -> int:
        """Rounds charged so far."""
        return self._rounds_by_participants.total()

    def charge_round(self, participants: int) -> None:
        """Charge one round in which ``participants`` clients (K) were drawn.

        A draw that was thrown away because too few clients came is charged too; with nobody drawn it counts
        as K = 1, the least noise that a client could have added.
        """
        if participants < 0:
            raise ParameterError(f"a round cannot have {participants} participants")
        self._rounds_by_participants[max(participants, 1)] += 1

    def epsilon(self, delta: float) -> NoiseSpent:
        """Return both figures for all rounds charged so far; zero before the first.

        Raises
        ------
        ParameterError
            If ``delta`` is outside (0, 1).
        """
        _require_delta(delta)
        sigma = self._noise_multiplier
        own = [(sigma, self.rounds)]
        together = [
            (sigma * math.sqrt(participants), rounds)
            for participants, rounds in sorted(self._rounds_by_participants.items())
        ]
        return NoiseSpent(self._spent(own, delta), self._spent(together, delta), delta, self.rounds)

    def _spent(self, history: list[tuple[float, int]], delta: float) -> float:
        if self.rounds == 0:
            return 0.0
        if self._noise_multiplier == 0:
            return math.inf
        return _epsilon_and_order(history, delta)[0]


def noise_multiplier_for(epsilon: float, delta: float, rounds: int) -> float:
    """Find the least σ that keeps ``rounds`` rounds within (ε, δ), by Opacus' ``get_noise_multiplier``.

    Parameters
    ----------
    epsilon : float
        Total ε that may be spent, positive and finite.
    delta : float
        Total δ, in (0, 1).
    rounds : int
        Number of rounds T that will be charged, at least 1.

    Returns
    -------
    float
        A multiplier that spends between 99.9 % and 100 % of ε (``of_noise`` in a ledger).

    Raises
    ------
    ParameterError
        If an argument is out of range, or no multiplier up to 10^6 can reach so small an ε.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ParameterError("the target epsilon must be positive and finite")
    _require_delta(delta)
    if rounds < 1:
        raise ParameterError(f"a privacy target needs at least 1 round, got {rounds}")
    try:
        multiplier = _calibrate(epsilon, delta, rounds, _WHOLE_ORDERS)
        _, order = _epsilon_and_order([(multiplier, rounds)], delta)
        if order < _SMALL_ORDER:
            near = tuple(candidate for candidate in _fractional_orders() if abs(candidate - order) <= 1.0)
            multiplier = min(multiplier, _calibrate(epsilon, delta, rounds, near))
    except (ValueError, ArithmeticError) as error:
        raise ParameterError(
            f"no noise multiplier reaches epsilon {epsilon:g} at delta {delta:g} over {rounds} rounds: "
            "allow a larger epsilon or fewer rounds"
        ) from error
    return multiplier


@cache
def _fractional_orders() -> tuple[float, ...]:
    from opacus.accountants import RDPAccountant

    return tuple(order for order in RDPAccountant.DEFAULT_ALPHAS if not float(order).is_integer())


def _calibrate(epsilon: float, delta: float, rounds: int, orders: tuple[float, ...]) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    with _boundary_orders_allowed():
        multiplier = get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=1.0,
            steps=rounds,
            epsilon_tolerance=epsilon * 1e-3,
            alphas=orders,
        )
    return float(multiplier)


def _epsilon_and_order(history: list[tuple[float, int]], delta: float) -> tuple[float, float]:
    """Return the least ε over all orders, and its order, for entries of (multiplier, rounds)."""
    epsilon, order = _best(history, delta, _WHOLE_ORDERS)
    if order < _SMALL_ORDER:
        epsilon, order = min((epsilon, order), _best(history, delta, _fractional_orders()))
    # The conversion may come out a little below zero where nearly nothing was spent.
    return max(epsilon, 0.0), order


def _best(history: list[tuple[float, int]], delta: float, orders: tuple[float, ...]) -> tuple[float, float]:
    from opacus.accountants.analysis.rdp import get_privacy_spent

    total = sum(rounds * _round_cost(multiplier, orders) for multiplier, rounds in history)
    with _boundary_orders_allowed():
        epsilon, order = get_privacy_spent(orders=orders, rdp=total, delta=delta)
    return float(epsilon), float(order)


@lru_cache(maxsize=4096)
def _round_cost(multiplier: float, orders: tuple[float, ...]) -> npt.NDArray[np.float64]:
    from opacus.accountants.analysis.rdp import compute_rdp

    # Costs add up over rounds, so one round per multiplier is computed once, however often epsilon is asked
    # for.
    return np.asarray(compute_rdp(q=1.0, noise_multiplier=multiplier, steps=1, orders=orders))


def _require_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ParameterError("delta must lie strictly between 0 and 1")


@contextmanager
def _boundary_orders_allowed() -> Iterator[None]:
    # Opacus warns where the best order is the first or the last of the list. The bound still holds there, it
    # is only looser than it could be, and the list above is as wide as Opacus can compute.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the")
        yield
