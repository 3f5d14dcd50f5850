"""The success rate of one attack over noise and encrypted share: which cells, and how often each is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from paper_attacks.agreement import NEAR_ZERO, least_bound, most_bound, shows_near_zero

__all__ = ["ETAS", "SIGMAS", "Cell", "Counts", "Matrix", "cross", "full_grid", "least"]

SIGMAS = (0.0, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1)
"""Noise multipliers: those of the paper's table I, and none."""
ETAS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.7, 0.8, 1.0)
"""Encrypted shares of the same table."""
_LOOKS = (20, 60, 200, 600)
"""After so many tries a coarse cell may be decided."""
_ALL_TRIED = 20
"""Tries that every cell of a coarse matrix has, before only the first undecided one of a line goes on."""


@dataclass(frozen=True, order=True)
class Cell:
    """A noise multiplier and an encrypted share."""

    sigma: float
    eta: float


def cross(sigmas: Sequence[float] = SIGMAS, etas: Sequence[float] = ETAS) -> tuple[Cell, ...]:
    """Return the cells without encryption and those without noise: what both least values are read off."""
    return (*(Cell(sigma, 0.0) for sigma in sigmas), *(Cell(0.0, eta) for eta in etas if eta))


def full_grid() -> tuple[Cell, ...]:
    """Return all cells."""
    return tuple(Cell(*values) for values in product(SIGMAS, ETAS))


@dataclass
class Counts:
    """How often a cell was tried, and with what success."""

    tried: int = 0
    successes: int = 0
    decibels: list[float] = field(default_factory=list)
    """PSNR of images that were identified, to their nearest."""

    @property
    def rate(self) -> float:
        """The success rate; NaN where nothing was tried."""
        return self.successes / self.tried if self.tried else float("nan")

    @property
    def is_near_zero(self) -> bool:
        """Whether the rate is below 0.5 %, as the paper reads its matrix: whatever the number of tries."""
        return self.rate < NEAR_ZERO

    @property
    def shows_near_zero(self) -> bool:
        """Whether the tries show it."""
        return shows_near_zero(self.successes, self.tried)

    def __str__(self) -> str:
        shown = (
            "shown < 0.5 %" if self.shows_near_zero else f"<= {most_bound(self.successes, self.tried):.1%}"
        )
        median = f", {np.median(self.decibels):.0f} dB" if self.decibels else ""
        return f"{self.successes}/{self.tried} ({shown}{median})"


class Matrix:
    """The counts of one attack's cells.

    Parameters
    ----------
    cells : to be tried. Where all is encrypted, nothing is: the server has no value.
    most : tries of a cell, at most.
    stops_early : False tries each cell as often. True tries all a few times, and then, of those without noise and of
        those without encryption, the first alone that is neither above nor below 0.5 % by its interval.
    """

    def __init__(self, cells: Iterable[Cell], most: int, *, stops_early: bool) -> None:
        self.counts = {cell: Counts() for cell in cells if cell.eta < 1.0}
        self._most, self._stops_early = most, stops_early

    def run(
        self,
        attempt: Callable[[int, Sequence[Cell]], Iterator[tuple[bool, float]]],
        seconds_left: Callable[[], float],
    ) -> None:
        """Try until all cells are done or time is over.

        ``attempt`` takes the number of a try and cells, and yields for each whether it succeeded, and the PSNR.
        """
        while (cells := self._next()) and seconds_left() > 0:
            number = self.counts[cells[0]].tried
            for cell, (success, decibels) in zip(cells, attempt(number, cells), strict=True):
                counts = self.counts[cell]
                counts.tried += 1
                counts.successes += success
                if success:
                    counts.decibels.append(decibels)

    def _next(self) -> list[Cell]:
        """Return the cells that the next try is of: those that were tried least."""
        going = [cell for cell, counts in self.counts.items() if counts.tried < self._most]
        if self._stops_early:
            young = [cell for cell in going if self.counts[cell].tried < _ALL_TRIED]
            going = young or list(dict.fromkeys(self._first_undecided()))
        fewest = min((self.counts[cell].tried for cell in going), default=0)
        return [cell for cell in going if self.counts[cell].tried == fewest]

    def _first_undecided(self) -> Iterator[Cell]:
        """Yield of each line the first cell that may still be the least one, and that more tries can tell of."""
        for line in ([c for c in self.counts if c.eta == 0], [c for c in self.counts if c.sigma == 0]):
            for cell in sorted(line):
                counts = self.counts[cell]
                if counts.shows_near_zero:
                    break
                is_above = counts.tried in _LOOKS and least_bound(counts.successes, counts.tried) > NEAR_ZERO
                if not is_above and counts.tried < self._most:
                    yield cell
                    break


def least(counts: dict[Cell, Counts], along: str) -> tuple[float | None, float | None]:
    """Return the least noise multiplier (``sigma``) or share (``eta``) at which an attack fails, the other being zero.

    The first is that of the first cell with a rate below 0.5 %, as the paper scans its matrix; the second that of the
    first cell whose tries show it. Where all is encrypted both hold; None where no cell is so.
    """
    other = {"sigma": "eta", "eta": "sigma"}[along]
    line = [cell for cell in sorted(counts) if getattr(cell, other) == 0]
    end = 1.0 if along == "eta" else None
    near_zero = (getattr(cell, along) for cell in line if counts[cell].is_near_zero)
    shown = (getattr(cell, along) for cell in line if counts[cell].shows_near_zero)
    return next(near_zero, end), next(shown, end)
