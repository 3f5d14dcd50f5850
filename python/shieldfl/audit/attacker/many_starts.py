"""L-BFGS from several starts at once: the steps of torch's, with rate 1 and without a line search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

__all__ = ["Descent", "Least", "least_of_many"]

_HISTORY = 100
_LEAST_CURVATURE = 1e-10
"""Of a step's y·s, for it to be kept."""

ValuesAndGradients = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Takes points (B, d), returns values (B,) and gradients (B, d)."""


@dataclass(frozen=True)
class Least:
    """Where the starts have come lowest."""

    values: torch.Tensor
    """(B,)."""
    points: torch.Tensor
    """(B, d)."""
    steps: int
    """How many were taken."""


@dataclass(frozen=True)
class Descent:
    """When it ends."""

    steps: int
    """At most."""
    found: float
    """A value from which on a start has found what is looked for: others are left where they are."""
    exact: float
    """A value below which nothing more is to be gained."""
    patience: int
    """Steps over which a start has to come lower by a tenth than ever before, or it is left."""


class _Curvature:
    """What the last steps say of the second derivatives, of each start.

    The product of the inverse Hessian with a vector is the compact one of Byrd, Nocedal, Schnabel (1994, theorem 2.2):
    the same as by the usual two loops over the history, in a dozen operations for all starts. Pairs lie in a window
    that moves through arrays of twice the length. A pair that a start does not keep is all zeros.
    """

    def __init__(self, starts: int, size: int, like: torch.Tensor) -> None:
        # One after another in memory: a row is written at once, and read with those beside it.
        self._s, self._y = (like.new_zeros(starts, 2 * _HISTORY, size) for _ in range(2))
        self._sy, self._yy = (
            torch.zeros(starts, 2 * _HISTORY, 2 * _HISTORY, dtype=torch.float64) for _ in range(2)
        )
        self._scale = torch.ones(starts, dtype=torch.float64)
        self._begin = self._end = 0

    def keep(self, chosen: torch.Tensor) -> None:
        """Go on with some of the starts alone."""
        self._s, self._y, self._sy, self._yy, self._scale = (
            one[chosen] for one in (self._s, self._y, self._sy, self._yy, self._scale)
        )

    def add(self, step: torch.Tensor, change: torch.Tensor) -> None:
        """Take in a step (B, d) and the change of the gradient (B, d) that it made."""
        product = _dot(step, change)
        kept = product > _LEAST_CURVATURE
        square = _dot(change, change)
        self._scale = torch.where(kept, product / square.clamp_min(1e-300), self._scale)
        if self._end == 2 * _HISTORY:
            self._move_to_front()
        if self._end - self._begin == _HISTORY:
            self._begin += 1
        at = self._end
        self._end += 1
        window = slice(self._begin, self._end)
        self._s[:, at] = torch.where(kept[:, None], step, 0.0)
        self._y[:, at] = torch.where(kept[:, None], change, 0.0)
        self._sy[:, window, at] = _products(self._s[:, window], self._y[:, at])
        self._sy[:, at, at] += (
            ~kept
        ).double()  # a pair of zeros leaves the triangle solvable, and adds nothing
        across = _products(self._y[:, window], self._y[:, at])
        self._yy[:, window, at] = across
        self._yy[:, at, window] = across

    def _move_to_front(self) -> None:
        window, front = slice(self._begin, self._end), slice(0, self._end - self._begin)
        for one in (self._s, self._y):
            one[:, front] = one[:, window].clone()
        for one in (self._sy, self._yy):
            one[:, front, front] = one[:, window, window].clone()
        self._begin, self._end = 0, front.stop

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return minus the inverse Hessian's product with a gradient, both (B, d)."""
        window = slice(self._begin, self._end)
        s, y = self._s[:, window], self._y[:, window]
        triangle = self._sy[:, window, window].triu()
        scale = self._scale[:, None]
        along, across = _products(s, gradient), _products(y, gradient)
        solved = torch.linalg.solve_triangular(triangle, along[:, :, None], upper=True)[:, :, 0]
        diagonal = triangle.diagonal(dim1=1, dim2=2)
        both = diagonal * solved + scale * (_products(self._yy[:, window, window], solved) - across)
        back = torch.linalg.solve_triangular(triangle.mT, both[:, :, None], upper=False)[:, :, 0]
        dtype = gradient.dtype
        return (
            -scale.to(dtype) * gradient
            - _sums(s, back.to(dtype))
            + scale.to(dtype) * _sums(y, solved.to(dtype))
        )


def _dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one.double() * other.double()).sum(dim=1)


def _products(rows: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return the products of rows (B, m, d) with a vector (B, d), float64 (B, m)."""
    return torch.bmm(rows, vector[:, :, None])[:, :, 0].double()


def _sums(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the sums of rows (B, m, d) by weights (B, m): (B, d)."""
    return torch.bmm(weights[:, None, :], rows)[:, 0]


def least_of_many(evaluate: ValuesAndGradients, points: torch.Tensor, descent: Descent) -> Least:
    """Descend from each point (B, d) by itself, and return where it came lowest.

    A start that comes to no number, stands still or runs out of patience is left. Once one of them has found what is
    looked for, it alone goes on.
    """
    least = torch.full((len(points),), math.inf, dtype=torch.float64)
    best = points.clone()
    running = torch.arange(len(points))
    now = points.clone()
    values, gradients = evaluate(now)
    curvature = _Curvature(now.shape[0], now.shape[1], now)
    mark, marked_at = least.clone(), torch.zeros(len(points), dtype=torch.long)
    taken = 0
    for taken in range(descent.steps + 1):
        value = values.double()
        lower = value < least[running]
        places = running[lower]
        least[places], best[places] = value[lower], now[lower]
        advanced = least[running] < 0.9 * mark[running]
        mark[running] = torch.where(advanced, least[running], mark[running])
        marked_at[running] = torch.where(advanced, taken, marked_at[running])
        going = value.isfinite() & gradients.isfinite().all(dim=1) & (gradients.abs().amax(dim=1) > 0)
        going &= (taken - marked_at[running] < descent.patience) & (least[running] > descent.exact)
        if least.min() <= descent.found:
            going &= running == least.argmin()
        if not going.any() or taken == descent.steps:
            break
        if not going.all():
            running, now, values, gradients = running[going], now[going], values[going], gradients[going]
            curvature.keep(going)
        if taken == 0:
            step = -gradients / gradients.abs().sum(dim=1, keepdim=True).clamp_min(1.0)
        else:
            step = curvature.direction(gradients)
        now = now + step
        before = gradients
        values, gradients = evaluate(now)
        curvature.add(step, gradients - before)
    return Least(least, best, taken)
