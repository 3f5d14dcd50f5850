"""Which positions a client encrypts, and how many: SenseCrypt's selection (section 3.3), solved exactly.

Scores are the sensitivities of the parameters (eq. 2), weights the parameters themselves. Threads: None means all
cores; no result depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import shieldfl._core as _core
from shieldfl.array_view import as_real, as_threads, as_unsigned, as_vector
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask, bits_of

__all__ = [
    "DEFAULT_BINS",
    "Selection",
    "SelectionLimits",
    "mutual_information",
    "positions_in_budget",
    "select",
    "sense_crypt_budgets",
    "top_k",
]

DEFAULT_BINS = 256


@dataclass(frozen=True, kw_only=True)
class SelectionLimits:
    """What a client's selection has to keep to, and how it weighs cost against gain.

    Attributes
    ----------
    budget
        The largest share of all positions that the client may choose, alpha of eq. 6: in (0, 1].
    exposed_share, exposure_decay
        C and B of eq. 7, both above 0: the chosen positions have at least a share of
        ``1 - exposed_share * exp(-exposure_decay * budget)`` of the scores' sum. That must be in [0, 1].
    information_bits
        The most mutual information that is left, eta_MI of eq. 8: at least 0; ``math.inf`` for no bound.
    bins
        Bins of its estimate, from 1 to 65,536: see :func:`mutual_information`.
    cost_weight, gain_weight
        beta_1 and beta_2 of the scalarised problem, both above 0.
    normalised
        Whether the two objectives are, as the paper writes them with bars; else their difference as it is printed,
        without: ``cost_weight * k - gain_weight * (sum of the chosen scores)``. Of scores below 1 that is least where
        nothing is chosen that the other limits do not ask for.
    """

    budget: float
    exposed_share: float = 0.7
    exposure_decay: float = 1.3
    information_bits: float = 2.0
    bins: int = DEFAULT_BINS
    cost_weight: float = 1.0
    gain_weight: float = 1.0
    normalised: bool = True


@dataclass(frozen=True)
class Selection:
    """The chosen positions, what led to their number, and what they reach.

    Attributes
    ----------
    mask
        The chosen positions: those with the highest scores, of equal scores the lower positions.
    limits
        What the selection had to keep to.
    best_count
        How many positions the scalarised problem takes without limits.
    security_count, information_count
        The fewest that eq. 7 and eq. 8 allow.
    budget_count
        The most that eq. 6 allows: the largest k with ``k / P <= budget``.
    required_share
        The share of the scores' sum that eq. 7 asks for.
    share
        The share that is chosen; 1 where all scores are 0, which leaves nothing to protect.
    information_bits
        I(W; masked W), in bits.
    """

    mask: Mask
    limits: SelectionLimits
    best_count: int
    security_count: int
    information_count: int
    budget_count: int
    required_share: float
    share: float
    information_bits: float

    @property
    def count(self) -> int:
        """How many positions are chosen."""
        return self.mask.count

    @property
    def meets_security(self) -> bool:
        """Whether eq. 7 holds; where it does not, the budget is too small for it."""
        return self.count >= self.security_count

    @property
    def meets_information(self) -> bool:
        """Whether eq. 8 holds; where it does not, the budget is too small for it."""
        return self.count >= self.information_count

    @property
    def share_shortfall(self) -> float:
        """How much of the scores' sum is missing for eq. 7, as a share of it; 0 where it holds."""
        return 0.0 if self.meets_security else max(0.0, self.required_share - self.share)

    @property
    def information_excess_bits(self) -> float:
        """How many bits are above the limit of eq. 8; 0 where it holds."""
        return (
            0.0 if self.meets_information else max(0.0, self.information_bits - self.limits.information_bits)
        )


def select(scores: Any, weights: Any, limits: SelectionLimits, threads: int | None = None) -> Selection:
    """Choose the positions that one client encrypts (SenseCrypt, eqs. 4 to 9).

    Minimises ``cost_weight * k / P - gain_weight * share``, or its form that is not normalised, where ``k`` of the
    ``P`` positions are chosen and ``share`` is theirs of the scores' sum, under budget and security: exactly, as for
    every ``k`` the highest scores are the best choice. Sums are compared without rounding. The bound on the mutual
    information, which no order of the positions is best for, is kept by taking so many of the highest scores that it
    holds. Where the limits contradict each other the budget wins, and the result tells what falls short.

    Where all scores are 0, security holds for the empty mask, and only the mutual information chooses
    positions: the first ones.

    Parameters
    ----------
    scores
        (P,) float32 or float64, finite and at least 0; 1 <= P <= 2**31.
    weights
        (P,) of the scores' dtype, finite.
    limits
        What to keep to.
    threads
        How many threads to use; None for as many as the work is worth.

    Raises
    ------
    ArrayTypeError
        An array has another dtype or rank.
    ParameterError
        The lengths differ or are 0, or a limit is outside its range.
    RangeError
        A value is NaN, infinite or negative; it says at which position.
    """
    score_vector = as_vector(scores, (np.float32, np.float64), "the scores")
    weight_vector = as_vector(weights, (score_vector.dtype.type,), "the weights")
    cost, gain = as_real(limits.cost_weight, "cost_weight"), as_real(limits.gain_weight, "gain_weight")
    if not limits.normalised and cost > 0.0 and gain > 0.0:
        total = float(score_vector.sum(dtype=np.float64))
        # Where all scores are 0, or one is no number, which the core refuses, the weight of the gain does not matter.
        cost, gain = cost * score_vector.size, gain * (total if 0.0 < total < np.inf else 1.0)
    core_limits = _core.SelectionLimits(
        budget=as_real(limits.budget, "budget"),
        exposed_share=as_real(limits.exposed_share, "exposed_share"),
        exposure_decay=as_real(limits.exposure_decay, "exposure_decay"),
        information_bits=as_real(limits.information_bits, "information_bits"),
        bins=as_unsigned(limits.bins, "bins"),
        cost_weight=cost,
        gain_weight=gain,
    )
    found = _core.select(score_vector, weight_vector, core_limits, as_threads(threads))
    return Selection(
        mask=Mask(found.mask),
        limits=limits,
        best_count=found.best_count,
        security_count=found.security_count,
        information_count=found.information_count,
        budget_count=found.budget_count,
        required_share=found.required_share,
        share=found.share,
        information_bits=found.information_bits,
    )


def positions_in_budget(budget: float, size: int) -> int:
    """Return the largest k with ``k / size <= budget`` in float64: 0.29 of 100 are 29, though the product is below.

    Raises ParameterError for a budget that is not in [0, 1], or a size that is negative.
    """
    share, count = as_real(budget, "budget"), as_unsigned(size, "size")
    return _core.positions_in_budget(share, count) if share else 0


def top_k(scores: Any, k: int, threads: int | None = None) -> Mask:
    """Choose the ``k`` positions with the highest scores; of equal scores the lower positions.

    ``scores`` is (P,) float32 or float64, finite and at least 0. Raises ArrayTypeError for another dtype or rank,
    ParameterError for k above P, RangeError, which says where, for a score that is NaN, infinite or negative.
    """
    vector = as_vector(scores, (np.float32, np.float64), "the scores")
    return Mask(_core.top_k(vector, as_unsigned(k, "k"), as_threads(threads)))


def mutual_information(
    weights: Any, mask: Mask, bins: int = DEFAULT_BINS, threads: int | None = None
) -> float:
    """Estimate how much the weights outside of ``mask`` tell of all weights: I(W; masked W), in bits (eq. 3).

    A histogram estimate with ``bins`` equal-width bins over the smallest range that holds every weight and 0, the
    same for both vectors; the masked vector has 0 where ``mask`` chooses. It is at least 0, exactly 0 where all
    positions are masked, and does not rise when more of them are.

    ``weights`` is (P,) float32 or float64, finite, P >= 1; ``bins`` from 1 to 65,536. Raises ArrayTypeError for
    another dtype or rank, ParameterError for other bins, no weights or a mask of another size, RangeError, which
    says where, for a weight that is NaN or infinite.
    """
    vector = as_vector(weights, (np.float32, np.float64), "the weights")
    return _core.mutual_information(vector, bits_of(mask), as_unsigned(bins, "bins"), as_threads(threads))


def sense_crypt_budgets(
    bytes_per_second: ArrayLike, compute_speed: ArrayLike, clusters: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return alpha of each client (SenseCrypt, section 3.2): float64 of shape (K,), in (0, 1].

    Within a cluster, bandwidth and computing speed are each divided by the largest of them; the smaller of the two
    quotients is divided by the largest such. The fastest client of each cluster gets 1, so a client that is alone
    does.

    Parameters
    ----------
    bytes_per_second, compute_speed : array-like of shape (K,)
        In any units; all of them finite and above zero.
    clusters : array-like of int, shape (K,), optional
        Cluster of each client, from 0; None for a single one.

    Raises
    ------
    ParameterError
        For no clients, different lengths, or a value that is zero, negative, infinite or NaN (with the position).
    """
    rates = _positive(bytes_per_second, "bytes_per_second")
    speeds = _positive(compute_speed, "compute_speed")
    groups = np.zeros(rates.size, dtype=np.int64) if clusters is None else np.asarray(clusters)
    if not rates.size == speeds.size == groups.size:
        raise ParameterError(
            f"budgets need one bandwidth, speed and cluster for each client, got {rates.size}, {speeds.size} "
            f"and {groups.size}"
        )
    if groups.ndim != 1 or not np.issubdtype(groups.dtype, np.integer) or groups.min() < 0:
        raise ParameterError("clusters must be a vector of whole numbers from 0")
    slower = np.minimum(_scaled(rates, groups), _scaled(speeds, groups))
    return _scaled(slower, groups)


def _positive(values: ArrayLike, what: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"{what} must be a vector with an entry for each client")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0.0)))
    if wrong.size:
        raise ParameterError(f"{what} must be finite and above zero, client {wrong[0]} is not")
    return array


def _scaled(values: NDArray[np.float64], clusters: NDArray[np.int64]) -> NDArray[np.float64]:
    largest = np.zeros(int(clusters.max()) + 1)
    np.maximum.at(largest, clusters, values)
    # A quotient that is too small for a double is still a budget above zero.
    scaled: NDArray[np.float64] = np.maximum(values / largest[clusters], np.finfo(np.float64).tiny)
    return scaled
