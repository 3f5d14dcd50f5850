"""How much of the sensitivity a share of the positions holds, and the mask that SenseCrypt's constraints ask for.

A curve stands for a model's scores where no model is trained: in simulations and plans.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from shieldfl.errors import ParameterError, RangeError
from shieldfl.fleet.fleet import FloatVector
from shieldfl.settings import NotNegative, Probability, Settings, about

__all__ = ["SecurityFloor", "SensitivityCurve"]

# Of the grid on which curves are kept: fine where few positions hold much.
_POINTS = 2049
_SMALLEST_SHARE = 1e-6


@dataclass(frozen=True)
class SecurityFloor(Settings):
    """The share of the sensitivity that a client must encrypt: 1 - C exp(-B alpha) (SenseCrypt, eq. 7).

    The defaults are the paper's for FMNIST; for CIFAR-10 it has C = 0.5 and B = 2 (section 4.1).
    """

    exposed_share: Annotated[
        Probability,
        about("Of sense-crypt: what a client without any budget may leave exposed.", symbol="C"),
    ] = 0.7
    exposure_decay: Annotated[
        NotNegative, about("Of sense-crypt: how fast that falls as the budget grows.", symbol="B")
    ] = 1.3

    def shares(self, budgets: FloatVector) -> FloatVector:
        """Return the floor for each budget: float64 in [0, 1]."""
        floors: FloatVector = 1.0 - self.exposed_share * np.exp(-self.exposure_decay * budgets)
        return floors


@dataclass(frozen=True)
class SensitivityCurve:
    """Cumulated share of the sensitivity over the share of positions, most sensitive first.

    Attributes
    ----------
    position_shares : tuple of float
        Ascending from 0 to 1.
    sensitivity_shares : tuple of float
        Of the same length, from 0 to 1, not decreasing and concave but for rounding.
    """

    position_shares: tuple[float, ...]
    sensitivity_shares: tuple[float, ...]

    def __post_init__(self) -> None:
        positions, held = np.asarray(self.position_shares), np.asarray(self.sensitivity_shares)
        if positions.shape != held.shape or positions.size < 2:
            raise ParameterError("a sensitivity curve needs two or more points, with both shares for each")
        for shares in (positions, held):
            ends = shares[0] == 0.0 and shares[-1] == 1.0
            if not (np.isfinite(shares).all() and ends and (np.diff(shares) >= 0.0).all()):
                raise ParameterError("both shares of a sensitivity curve must rise from 0 to 1")

    @classmethod
    def from_scores(cls, scores: ArrayLike) -> SensitivityCurve:
        """Measure the curve of a model's scores (SenseCrypt, eq. 2).

        Raises RangeError for NaN, infinite or negative scores, ParameterError where none is above zero.
        """
        ranked = np.sort(np.asarray(scores, dtype=np.float64).reshape(-1))[::-1]
        if ranked.size and not (np.isfinite(ranked).all() and ranked[-1] >= 0.0):
            raise RangeError("sensitivities must be finite and not negative")
        if not ranked.size or ranked[0] == 0.0:
            raise ParameterError("a sensitivity curve needs a score above zero")
        held = np.concatenate(([0.0], np.cumsum(ranked)))
        at = _grid()
        shares = np.interp(at * ranked.size, np.arange(held.size), held / held[-1])
        return cls(tuple(at.tolist()), tuple(shares.tolist()))

    @classmethod
    def log_normal(cls, deviation: float = 2.0) -> SensitivityCurve:
        """Return the curve of log-normal scores, for where no model is at hand.

        ``deviation`` is that of the natural logarithm: 0 for equal scores, larger for more in few positions. The
        share of the top q is Phi(deviation - z) with Phi(z) = 1 - q.
        """
        if not (math.isfinite(deviation) and deviation >= 0.0):
            raise ParameterError("deviation must be finite and not negative")
        normal = NormalDist()
        at = _grid()
        inner = [normal.cdf(deviation - normal.inv_cdf(1.0 - share)) for share in at[1:-1].tolist()]
        return cls(tuple(at.tolist()), (0.0, *inner, 1.0))

    def least_ratio(self, sensitivity_share: ArrayLike) -> FloatVector:
        """Return the smallest share of positions that holds these shares of the sensitivity."""
        wanted = np.asarray(sensitivity_share, dtype=np.float64)
        ratios: FloatVector = np.interp(wanted, *self._rising())
        return ratios

    def best_ratio(self, cost_weight: float = 1.0) -> float:
        """Return the share of positions whose gain exceeds their cost: what eq. 9 chooses when nothing constrains it.

        With equal weights those are the positions whose score is above the mean.

        Parameters
        ----------
        cost_weight : beta_1 / beta_2, positive; infinite to encrypt as little as the constraints allow.
        """
        if not cost_weight > 0.0:
            raise ParameterError("cost_weight must be positive")
        widths, gains = np.diff(self.position_shares), np.diff(self.sensitivity_shares)
        return float(widths[gains > cost_weight * widths].sum()) if math.isfinite(cost_weight) else 0.0

    def mask_ratios(
        self,
        budgets: FloatVector,
        floor: SecurityFloor,
        *,
        cost_weight: float = 1.0,
        leakage_ratio: float = 0.0,
    ) -> tuple[FloatVector, FloatVector]:
        """Return the share of positions that each client encrypts, and by how much its budget falls short.

        The share is the best one (eq. 9), raised to what the constraints ask for, and at most the budget (eq. 6).
        Where that is less than they ask for, the second vector says how much is missing.

        Parameters
        ----------
        budgets : alpha of each client, float64 of shape (K,).
        floor : the share of the sensitivity that must be encrypted (eq. 7).
        cost_weight : see :meth:`best_ratio`.
        leakage_ratio : the share of positions that the bound on mutual information asks for (eq. 8), 0 for none.
        """
        needed = np.maximum(self.least_ratio(floor.shares(budgets)), leakage_ratio)
        wanted = np.maximum(needed, self.best_ratio(cost_weight))
        return np.minimum(wanted, budgets), np.maximum(needed - budgets, 0.0)

    def _rising(self) -> tuple[Sequence[float], Sequence[float]]:
        """Both shares, each sensitivity share once, with the fewest positions that reach it."""
        held, first = np.unique(np.asarray(self.sensitivity_shares), return_index=True)
        return held.tolist(), np.asarray(self.position_shares)[first].tolist()


def _grid() -> FloatVector:
    fine = np.geomspace(_SMALLEST_SHARE, 1.0, _POINTS - 1)
    grid: FloatVector = np.concatenate(([0.0], fine))
    grid[-1] = 1.0
    return grid
