"""What DP-SGD has cost each client, by Opacus' Rényi accountant with its own orders.

Source: Alt-FL, section VI: ε for each client on its own at δ = 1/N, of which the largest is reported. Only
rounds of DP-SGD are charged. Neighbours: one sample's gradients are zeroed out, numbers of samples stay. What encrypted
rounds reveal through the sums that are opened is not part of the figure, and Alt-FL has no account of it: whether an
epsilon still holds then is for :mod:`shieldfl.privacy.events`.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shieldfl.array_view import as_real, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.installing import require

if TYPE_CHECKING:
    from opacus.accountants import RDPAccountant

__all__ = ["DpSgdLedger", "DpSgdSpent", "check_sampled_steps"]

# Missing it is told at once, but it takes seconds to load: only a ledger imports it.
require("opacus")


@dataclass(frozen=True)
class DpSgdSpent:
    """What a run of DP-SGD has spent, for neighbours that differ in one sample.

    Attributes
    ----------
    epsilon : float
        The largest ε of all clients; 0 if none was charged, ``math.inf`` for steps without noise.
    epsilon_by_client : dict of int to float
        ε of each client that was charged.
    delta : float
        The δ that they all belong to.
    """

    epsilon: float
    epsilon_by_client: dict[int, float]
    delta: float


def check_sampled_steps(sample_rate: float, steps: int) -> None:
    """Raise ParameterError unless a round of DP-SGD can have so many steps, each on such a sample of the data."""
    if not 0.0 < as_real(sample_rate, "the sample rate") <= 1.0:
        raise ParameterError("the sample rate must lie in (0, 1]")
    if as_unsigned(steps, "the number of steps") < 1:
        raise ParameterError("a round of DP-SGD has at least 1 step")


class DpSgdLedger:
    """Counts each client's noised steps and says what they cost.

    Parameters
    ----------
    delta : float
        δ in (0, 1). The paper's is 1/N, N the samples of all clients together: with a client's own number instead, δ
        would be larger and ε smaller.

    Raises
    ------
    ParameterError
        If δ is outside (0, 1).
    """

    def __init__(self, delta: float) -> None:
        from opacus.accountants import RDPAccountant

        self._delta = as_real(delta, "delta")
        if not 0.0 < self._delta < 1.0:
            raise ParameterError("delta must lie strictly between 0 and 1")
        self._accountants: defaultdict[int, RDPAccountant] = defaultdict(RDPAccountant)

    def charge(self, client: int, *, noise_multiplier: float, sample_rate: float, steps: int) -> None:
        """Charge one round of a client's DP-SGD.

        Parameters
        ----------
        client : int
            Who trained.
        noise_multiplier : float
            σ of the steps, finite and not negative.
        sample_rate : float
            Probability of each sample to be in a batch, in (0, 1]; 1 if the batches can be known to others.
        steps : int
            Noised steps of the round, at least 1.

        Raises
        ------
        ParameterError
            If a value is out of its range.
        """
        if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
            raise ParameterError("the noise multiplier must be finite and not negative")
        check_sampled_steps(sample_rate, steps)
        accountant = self._accountants[client]
        # Once for each step, so that the accountant joins equal steps in its own way.
        for _ in range(steps):
            accountant.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)

    def steps(self, client: int) -> int:
        """Return the steps charged to a client so far."""
        if client not in self._accountants:
            return 0
        return sum(steps for _, _, steps in self._accountants[client].history)

    def spent(self) -> DpSgdSpent:
        """Return ε for everything charged so far."""
        by_client = {client: self._epsilon(accountant) for client, accountant in self._accountants.items()}
        return DpSgdSpent(max(by_client.values(), default=0.0), by_client, self._delta)

    def _epsilon(self, accountant: RDPAccountant) -> float:
        if not accountant.history:
            return 0.0
        from opacus.accountants.analysis.rdp import get_privacy_spent

        # As the accountant computes it, but for the costs that are known already.
        costs = sum(steps * _step_cost(sigma, rate) for sigma, rate, steps in accountant.history)
        with warnings.catch_warnings():
            # The bound holds at the first and the last order as well, it is only looser than it could be.
            warnings.filterwarnings("ignore", message="Optimal order is the")
            # The conversion may come out a little below zero where nearly nothing was spent.
            epsilon, _ = get_privacy_spent(orders=accountant.DEFAULT_ALPHAS, rdp=costs, delta=self._delta)
            return max(float(epsilon), 0.0)


@lru_cache(maxsize=4096)
def _step_cost(noise_multiplier: float, sample_rate: float) -> npt.NDArray[np.float64]:
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    # A third of a second for each pair under sampling: far too long for every client after every round.
    orders = RDPAccountant.DEFAULT_ALPHAS
    return np.asarray(compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=1, orders=orders))
