"""How much privacy the noise zone has spent, by Opacus' Rényi accountant.

Each client of a round adds N(0, (C σ)² · K), K the number of participants (SelectiveShield, text under eq.
21), while eq. 22 charges for N(0, (C σ)²) only. The two figures are reported side by side and never mixed
up.

What the figures say: the unit is one client (its whole clipped update of a round, adding or removing the
client), the total is over all charged rounds. They cover the noise zone alone: neither the choice of the
masks, which depends on data, nor what the opened sums of the encrypted zone reveal is charged. A
``sample_rate`` below 1 claims amplification by sampling, which holds against whoever does not learn who took
part; against the aggregator, which does, use 1.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from opacus.accountants import RDPAccountant
from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent
from opacus.accountants.utils import get_noise_multiplier

from shieldfl.errors import ParameterError

__all__ = ["PrivacyLedger", "PrivacySpent", "noise_multiplier_for"]

# Every order gives a valid bound, the smallest bound counts. Opacus' own orders end at 63, which cannot show
# an epsilon under about ln(1/delta)/62, so whole orders go on in steps of a fifth, up to where its binomials
# overflow. Its fractional orders (1.1 to 10.9) are many times dearer under sampling and matter only for
# a large epsilon: they are tried where the best whole order is small.
_WHOLE_ORDERS = (
    *range(2, 64),
    *(64, 76, 90, 107, 128, 152, 181, 215, 256, 304, 362, 431, 512, 609, 724, 861, 1024),
)
_FRACTIONAL_ORDERS = tuple(order for order in RDPAccountant.DEFAULT_ALPHAS if not float(order).is_integer())
_SMALL_ORDER = 12


@dataclass(frozen=True)
class PrivacySpent:
    """What a run has spent: two ε for the same δ.

    Attributes
    ----------
    paper : float
        ε by the paper's eq. 22, noise multiplier σ; the larger, conservative figure. ``math.inf`` without
        noise.
    added : float
        ε of the noise that the clients really added, noise multiplier σ·√K.
    delta : float
        The δ that both belong to.
    rounds : int
        Rounds charged.
    """

    paper: float
    added: float
    delta: float
    rounds: int


class PrivacyLedger:
    """Counts rounds of the noise zone and says what they cost.

    Parameters
    ----------
    noise_multiplier : float
        σ: standard deviation over clipping norm, before the factor √K. 0 means no noise: ε is infinite.
    sample_rate : float
        Probability q with which a client takes part in a round, in (0, 1]; 1 claims no amplification.

    Raises
    ------
    ParameterError
        If σ is negative, NaN or infinite, or q is outside (0, 1].
    """

    def __init__(self, noise_multiplier: float, sample_rate: float = 1.0) -> None:
        if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
            raise ParameterError("the noise multiplier must be finite and not negative")
        _require_sample_rate(sample_rate)
        self._noise_multiplier = float(noise_multiplier)
        self._sample_rate = float(sample_rate)
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

    def epsilon(self, delta: float) -> PrivacySpent:
        """Return both figures for all rounds charged so far; zero before the first.

        Raises
        ------
        ParameterError
            If ``delta`` is outside (0, 1).
        """
        _require_delta(delta)
        sigma = self._noise_multiplier
        paper = [(sigma, self._sample_rate, self.rounds)]
        added = [
            (sigma * math.sqrt(participants), self._sample_rate, rounds)
            for participants, rounds in sorted(self._rounds_by_participants.items())
        ]
        return PrivacySpent(self._spent(paper, delta), self._spent(added, delta), delta, self.rounds)

    def _spent(self, history: list[tuple[float, float, int]], delta: float) -> float:
        if self.rounds == 0:
            return 0.0
        if self._noise_multiplier == 0:
            return math.inf
        return _epsilon_and_order(history, delta)[0]


def noise_multiplier_for(epsilon: float, delta: float, rounds: int, sample_rate: float = 1.0) -> float:
    """Find the least σ that keeps ``rounds`` rounds within (ε, δ), by Opacus' ``get_noise_multiplier``.

    Parameters
    ----------
    epsilon : float
        Total ε that may be spent, positive and finite.
    delta : float
        Total δ, in (0, 1).
    rounds : int
        Number of rounds T that will be charged, at least 1.
    sample_rate : float
        Client sampling rate q, in (0, 1].

    Returns
    -------
    float
        A multiplier that spends between 99.9 % and 100 % of ε (the figure called ``paper`` in a ledger).

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
    _require_sample_rate(sample_rate)
    try:
        multiplier = _calibrate(epsilon, delta, rounds, sample_rate, _WHOLE_ORDERS)
        _, order = _epsilon_and_order([(multiplier, sample_rate, rounds)], delta)
        if order < _SMALL_ORDER:
            near = tuple(candidate for candidate in _FRACTIONAL_ORDERS if abs(candidate - order) <= 1.0)
            multiplier = min(multiplier, _calibrate(epsilon, delta, rounds, sample_rate, near))
    except (ValueError, ArithmeticError) as error:
        raise ParameterError(
            f"no noise multiplier reaches epsilon {epsilon:g} at delta {delta:g} over {rounds} rounds: "
            "allow a larger epsilon or fewer rounds"
        ) from error
    return multiplier


def _calibrate(
    epsilon: float, delta: float, rounds: int, sample_rate: float, orders: tuple[float, ...]
) -> float:
    with _boundary_orders_allowed():
        multiplier = get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=sample_rate,
            steps=rounds,
            epsilon_tolerance=epsilon * 1e-3,
            alphas=orders,
        )
    return float(multiplier)


def _epsilon_and_order(history: list[tuple[float, float, int]], delta: float) -> tuple[float, float]:
    """Return the least ε over all orders, and its order, for entries of (multiplier, rate, rounds)."""
    epsilon, order = _best(history, delta, _WHOLE_ORDERS)
    if order < _SMALL_ORDER:
        epsilon, order = min((epsilon, order), _best(history, delta, _FRACTIONAL_ORDERS))
    # The conversion may come out a little below zero where nearly nothing was spent.
    return max(epsilon, 0.0), order


def _best(
    history: list[tuple[float, float, int]], delta: float, orders: tuple[float, ...]
) -> tuple[float, float]:
    total = sum(rounds * _round_cost(multiplier, rate, orders) for multiplier, rate, rounds in history)
    with _boundary_orders_allowed():
        epsilon, order = get_privacy_spent(orders=orders, rdp=total, delta=delta)
    return float(epsilon), float(order)


@lru_cache(maxsize=4096)
def _round_cost(multiplier: float, rate: float, orders: tuple[float, ...]) -> npt.NDArray[np.float64]:
    # Costs add up over rounds, so one round per multiplier is computed once, however often epsilon is asked
    # for.
    return np.asarray(compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=orders))


def _require_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ParameterError("delta must lie strictly between 0 and 1")


def _require_sample_rate(sample_rate: float) -> None:
    if not 0.0 < sample_rate <= 1.0:
        raise ParameterError("the sample rate must lie in (0, 1]")


@contextmanager
def _boundary_orders_allowed() -> Iterator[None]:
    # Opacus warns where the best order is the first or the last of the list. The bound still holds there, it
    # is only looser than it could be, and the list above is as wide as Opacus can compute.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the")
        yield
