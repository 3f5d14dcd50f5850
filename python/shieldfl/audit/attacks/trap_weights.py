"""When the Curious Abandon Honesty: planted rows that few samples pass; what passed one alone is read off."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from scipy.sparse.csgraph import connected_components
from torch import nn

from shieldfl.audit.attack import ModelPlantingAttack, Recovered
from shieldfl.audit.attacks.planted_layer import (
    RowGradients,
    in_front,
    means_of_known,
    missing_layer,
    recovered_samples,
)
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.errors import ParameterError

__all__ = ["CuriousAbandonHonesty", "trap_rows"]

_PLANTED = "traps"
_FEWEST_IN_COMMON = 16
"""Positions known of two images, from which on it is no accident that they agree."""
_SAME = 1e-3
"""Of the range of values, root mean square: samples that are closer are one that several rows have caught."""


class CuriousAbandonHonesty(ModelPlantingAttack):
    """Each row weighs a random half of the features against the other, to its own disadvantage.

    The sum of most samples stays below zero then, and a row passes on few samples of a batch, often one. Features are
    scaled to [0, 1] by the range of the server's own samples. Exact after one local step.

    Parameters
    ----------
    rows : int
        Of the planted layer, at least 1.
    deviation : float
        Sigma of the weights, positive.
    scale : float
        s: how much smaller positive weights are than negative ones, in (0, 1].
    shrunk : float
        In (0, 1]: rows are so much smaller, and what follows them as much larger, as of :class:`RobbingTheFed`.

    Raises ParameterError for other values.
    """

    name: ClassVar[str] = "curious-abandon-honesty"
    recovers: ClassVar[Literal["labels", "images"]] = "images"
    source: ClassVar[str] = "Boenisch et al., EuroS&P 2023, section V, algorithm 1"

    def __init__(
        self, rows: int = 1000, deviation: float = 0.5, scale: float = 0.95, shrunk: float = 1 / 32
    ) -> None:
        if rows < 1 or not deviation > 0 or not 0 < scale <= 1 or not 0 < shrunk <= 1:
            raise ParameterError(
                "trap weights need 1 row or more, a positive deviation, and a scale and a shrinking in (0, 1], "
                f"got {rows}, {deviation}, {scale} and {shrunk}"
            )
        self.rows = rows
        self._deviation = deviation
        self._scale = scale
        self._shrunk = shrunk

    def planted(
        self, model: nn.Module, sample_shape: tuple[int, ...], public: torch.Tensor, seed: int
    ) -> nn.Module:
        """Put the traps in front of a copy of the model, which then sees the mean sample and a mixture of rows.

        Raises ParameterError for public samples that are all one value, or of another shape.
        """
        if len(public) < 1 or tuple(public.shape[1:]) != tuple(sample_shape):
            raise ParameterError(f"give public samples of the shape {tuple(sample_shape)}")
        low, high = float(public.min()), float(public.max())
        if not high > low:
            raise ParameterError("the public samples have one value alone: their range is not known by them")
        generator = torch.Generator().manual_seed(seed)
        features = math.prod(sample_shape)
        rows = trap_rows(self.rows, features, self._deviation, self._scale, generator) / (high - low)
        samples = public.reshape(len(public), features).float()
        passed_on = (samples @ rows.T - low * rows.sum(dim=1)).clamp_min(0)
        mixture = torch.randn(features, self.rows, generator=generator)
        deviation = (passed_on @ mixture.T).std(correction=0).clamp_min(1e-6)
        mixture *= samples.std(correction=0) / deviation
        front, back = nn.Linear(features, self.rows), nn.Linear(self.rows, features)
        with torch.no_grad():
            front.weight.copy_(self._shrunk * rows)
            front.bias.copy_(-self._shrunk * low * rows.sum(dim=1))
            back.weight.copy_(mixture / self._shrunk)
            back.bias.copy_(samples.mean(dim=0))
        return in_front(model, _PLANTED, front, back, sample_shape)

    def with_rows(self, rows: int) -> CuriousAbandonHonesty:
        """Return it with so many rows: it tells fewer samples apart."""
        return CuriousAbandonHonesty(rows, self._deviation, self._scale, self._shrunk)

    def lasting(self) -> CuriousAbandonHonesty:
        """Return it with rows that are not shrunk: a step changes them by less of what they are."""
        return CuriousAbandonHonesty(self.rows, self._deviation, self._scale, shrunk=1.0)

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """It can be tried where some weight of the planted layer is known."""
        return missing_layer(observed, _PLANTED)

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Return one image of each row that passed something on, as far as it stands clear of the noise.

        Rows that have found the same image give one: what is hidden of one row is taken from the others.
        """
        found, known = RowGradients.of(observed, _PLANTED).samples(observed.value_range)
        low, high = observed.value_range
        images = _joined(found, known, _SAME * (high - low))
        return recovered_samples(images, observed)


def _joined(found: torch.Tensor, known: torch.Tensor, nearest: float) -> torch.Tensor:
    """Return the means (k, features) of images that are nearer to each other than that, where both are known."""
    values, there = found.double(), known.double()
    squares = values.square()
    distances = squares @ there.T + there @ squares.T - 2 * values @ values.T
    common = there @ there.T
    fewest = min(_FEWEST_IN_COMMON, found.shape[1])
    same = (common >= fewest) & (distances < common * nearest**2)
    count, groups = connected_components(same.numpy(), directed=False)
    return means_of_known(found, known, torch.from_numpy(groups).long(), count)[0]


def trap_rows(
    rows: int, features: int, deviation: float, scale: float, generator: torch.Generator
) -> torch.Tensor:
    """Return weights, float32 (rows, features): a random half -|N(0, sigma²)|, the other s times the same, permuted.

    Of an odd number of features the last one of each row's order has the weight 0.
    """
    half = features // 2
    magnitudes = deviation * torch.randn(rows, half, generator=generator).abs()
    order = torch.rand(rows, half, generator=generator).argsort(dim=1)
    values = torch.cat([-magnitudes, scale * magnitudes.gather(1, order)], dim=1)
    places = torch.rand(rows, features, generator=generator).argsort(dim=1)[:, : 2 * half]
    return torch.zeros(rows, features).scatter_(1, places, values)
