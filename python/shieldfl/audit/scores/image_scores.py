"""How near recovered images are to the true ones, and whether they tell whose they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment

from shieldfl.errors import ParameterError

__all__ = ["DISTANCES", "Identified", "identified", "matched", "psnr"]


def psnr(images: torch.Tensor, true: torch.Tensor, value_range: tuple[float, float]) -> torch.Tensor:
    """Return the peak signal-to-noise ratio of each image (m, ...) to its true one, dB (m,); infinite where equal.

    The peak is the width of the value range.
    """
    _check_shapes(images, true)
    error = (images - true).double().square().flatten(1).mean(dim=1)
    return 10 * torch.log10((value_range[1] - value_range[0]) ** 2 / error)


def matched(images: torch.Tensor, true: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pair recovered images (m, ...) with true ones (n, ...) so that the sum of squared distances is least.

    Each is in one pair at most, and there are min(m, n) pairs: positions of the recovered ones in ascending order, and
    of their true ones.
    """
    rows, columns = linear_sum_assignment(_squared_distances(images, true).numpy())
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _squared_distances(images: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return torch.cdist(images.flatten(1).double(), others.flatten(1).double()).square()


def _correlation_distances(images: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    def directions(values: torch.Tensor) -> torch.Tensor:
        flat = values.flatten(1).double()
        return torch.nn.functional.normalize(flat - flat.mean(dim=1, keepdim=True), dim=1)

    return 1 - directions(images) @ directions(others).T


DISTANCES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "squared": _squared_distances,
    "correlation": _correlation_distances,
}
"""By what images are near, by name: of (m, ...) and (n, ...) to (m, n). ``correlation`` is blind to brightness and
contrast, which the gradient's direction says nothing of."""


@dataclass(frozen=True)
class Identified:
    """Of how many recovered images the nearest in a pool is one that the client trained on."""

    identified: int
    tried: int
    chance: float
    """The share that images have which tell nothing: the client's share of the pool."""
    distance: str
    pool: int
    """How many images there are to choose from, the client's among them."""

    @property
    def precision(self) -> float:
        """IIP (Alt-FL, section V), in [0, 1]; NaN where nothing was tried."""
        return self.identified / self.tried if self.tried else math.nan


def identified(
    images: torch.Tensor, pool: torch.Tensor, true_positions: torch.Tensor, distance: str = "squared"
) -> Identified:
    """Look for the nearest of a pool (n, ...) to each recovered image (m, ...).

    ``true_positions`` say which of the pool are the client's. Of equally near ones the first counts, so that the pool
    has to be in an order that says nothing. Raises ParameterError for an unknown distance.
    """
    if distance not in DISTANCES:
        raise ParameterError(f"unknown distance {distance!r}: choose one of {', '.join(DISTANCES)}")
    nearest = (
        DISTANCES[distance](images, pool).argmin(dim=1) if len(images) else torch.empty(0, dtype=torch.int64)
    )
    return Identified(
        identified=int(torch.isin(nearest, true_positions).sum()),
        tried=len(images),
        chance=len(set(true_positions.tolist())) / len(pool),
        distance=distance,
        pool=len(pool),
    )


def _check_shapes(images: torch.Tensor, true: torch.Tensor) -> None:
    if images.shape != true.shape:
        raise ParameterError(
            f"images and true ones differ in shape: {tuple(images.shape)}, {tuple(true.shape)}"
        )
