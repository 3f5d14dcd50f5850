"""When a run has converged: Alt-FL's rule.

Source: Alt-FL, section VII ("FL training"): a moving average of the accuracy, and convergence once its
improvement stays below 0.1 % for 10 consecutive rounds. The paper does not say what the improvement is
measured against. Here it is the average one round before, the accuracy is a share of 1 and 0.1 % are 0.001 of
it. An accuracy that falls does not improve, and counts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from shieldfl.array_view import as_count
from shieldfl.errors import ParameterError

__all__ = ["averaging_window", "converged_at"]

_LEAST_GAIN = 0.001
_PATIENCE_ROUNDS = 10


def averaging_window(ratio: Fraction | None) -> int:
    """Return the rounds that the accuracy is averaged over.

    8 for the interleaving ratios 1/4 and 3/4, 10 for all others and, as None, for methods that do not
    interleave. For the paper's ratios it is a whole number of periods, so that the two kinds of rounds weigh
    alike in every average.
    """
    return 8 if ratio in (Fraction(1, 4), Fraction(3, 4)) else 10


def converged_at(accuracies: Sequence[float], window: int = 10) -> int | None:
    """Return the round at which a run had converged.

    Parameters
    ----------
    accuracies : sequence of float
        Test accuracy after rounds 1, 2, ..., each in [0, 1]; one for each round.
    window : int
        Rounds averaged over, at least 1. The first average is that of rounds 1 to ``window``.

    Returns
    -------
    int or None
        The first round, counted from 1, that ends 10 consecutive gains below 0.001, so at least
        ``window + 10``; None if there is none yet.

    Raises
    ------
    ParameterError
        If the window is below 1, or an accuracy is NaN or outside [0, 1].
    """
    window = as_count(window, "window")
    if not all(0.0 <= accuracy <= 1.0 for accuracy in accuracies):
        raise ParameterError("accuracies must be shares in [0, 1]")
    quiet_rounds = 0
    for index in range(window, len(accuracies)):
        # Two averages one round apart share all but the newest and the oldest value.
        gain = (accuracies[index] - accuracies[index - window]) / window
        quiet_rounds = quiet_rounds + 1 if gain < _LEAST_GAIN else 0
        if quiet_rounds == _PATIENCE_ROUNDS:
            return index + 1
    return None
