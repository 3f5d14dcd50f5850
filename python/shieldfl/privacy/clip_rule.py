"""How a clipping norm follows a quantile of the updates' norms, the same bit by bit for all who work it out.

Andrew, Thakkar, McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (NeurIPS 2021), section
2: after a round in which a share b of the clients was within C, C becomes C exp(-eta (b - gamma)).

Ours are the grid and the bounds. C is C_0 times 2^(k / 2^16) for a whole number k, which is what moves, and which is
sent: a hundred-thousandth at a time. Powers are products of square roots, which IEEE 754 rounds exactly where exp and
pow are each library's own. The share is brought within 0 and 1, so that noise, or one client that lies, moves C by no
more than a round in which all are within it, or none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LEAST_FIRST_NORM", "MOST_EXPONENT", "MOST_FIRST_NORM", "STEPS_PER_OCTAVE", "ClipRule"]

_ROOTS = 16
STEPS_PER_OCTAVE = 1 << _ROOTS
"""How many steps of the exponent double a norm."""
MOST_EXPONENT = 16 * STEPS_PER_OCTAVE
"""The largest magnitude of an exponent: a norm is within 2^-16 and 2^16 of the first."""
LEAST_FIRST_NORM, MOST_FIRST_NORM = 2.0**-84, 2.0**84
"""All norms that come of it can be clipped to."""
_LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class ClipRule:
    """From the norm of the first round to that of each later one."""

    first_norm: float
    """C_0, above 0."""
    quantile: float
    """gamma: the share of the clients that is to be within C."""
    learning_rate: float
    """eta, above 0: by how much C moves."""

    def norm_at(self, exponent: int) -> float:
        """Return C at an exponent: its first norm at 0."""
        octaves, part = divmod(exponent, STEPS_PER_OCTAVE)
        factor, root = 1.0, 2.0
        for place in reversed(range(_ROOTS)):
            root = math.sqrt(root)
            if part >> place & 1:
                factor *= root
        return math.ldexp(self.first_norm * factor, octaves)

    def moved(self, exponent: int, share_within: float) -> int:
        """Return the exponent after a round in which this share of the clients was within C, as its sum says."""
        share = min(max(share_within, 0.0), 1.0)
        steps = self.learning_rate * (share - self.quantile) * _LOG2_E * STEPS_PER_OCTAVE
        lower = round(min(max(steps, -2.0 * MOST_EXPONENT), 2.0 * MOST_EXPONENT))
        return min(max(exponent - lower, -MOST_EXPONENT), MOST_EXPONENT)
