"""Robbing the Fed: a planted layer sorts samples into bins, and those that are alone in theirs are read off."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import nn

from shieldfl.audit.attack import ModelPlantingAttack, Recovered
from shieldfl.audit.attacks.planted_layer import RowGradients, in_front, missing_layer, recovered_samples
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.errors import ParameterError

__all__ = ["RobbingTheFed", "expected_share"]

_PLANTED = "bins"


class RobbingTheFed(ModelPlantingAttack):
    """All rows measure one thing of a sample, and each passes on the samples above its threshold.

    What two adjacent rows' gradients differ by comes from the samples between their thresholds. These are quantiles of
    the server's own samples, so that bins are filled alike. Exact after one local step; an approximation after several.

    Parameters
    ----------
    bins : int
        K, the rows of the planted layer, at least 2.
    measured : "brightness" or "random"
        The mean of a sample's features, or a random linear functional of them.
    shrunk : float
        In (0, 1]: how much smaller rows are than what they measure, and by how much what follows them is larger. The
        model is the same. With small rows a change of float32 parameters tells the gradient of one step more precisely;
        with large rows the thresholds stay where they are for more steps.

    Raises ParameterError for other values.
    """

    name: ClassVar[str] = "robbing-the-fed"
    recovers: ClassVar[Literal["labels", "images"]] = "images"
    source: ClassVar[str] = "Fowl, Geiping, Czaja, Goldblum, Goldstein, ICLR 2022, section 4"

    def __init__(
        self,
        bins: int = 100,
        measured: Literal["brightness", "random"] = "brightness",
        shrunk: float = 1 / 32,
    ) -> None:
        if bins < 2:
            raise ParameterError(f"samples are told apart by 2 bins or more, got {bins}")
        if measured not in ("brightness", "random"):
            raise ParameterError(f"samples are measured by 'brightness' or 'random', got {measured!r}")
        if not 0 < shrunk <= 1:
            raise ParameterError(f"rows are shrunk by a factor in (0, 1], got {shrunk}")
        self.rows = bins
        self._measured = measured
        self._shrunk = shrunk

    def planted(
        self, model: nn.Module, sample_shape: tuple[int, ...], public: torch.Tensor, seed: int
    ) -> nn.Module:
        """Put the bins in front of a copy of the model, which then sees the mean sample, more or less bright.

        Raises ParameterError for fewer than 2 public samples, or samples of another shape.
        """
        if len(public) < 2 or tuple(public.shape[1:]) != tuple(sample_shape):
            raise ParameterError(
                f"quantiles need 2 public samples or more of the shape {tuple(sample_shape)}, "
                f"got {len(public)} of {tuple(public.shape[1:])}"
            )
        generator = torch.Generator().manual_seed(seed)
        features = math.prod(sample_shape)
        row = torch.full((features,), 1 / features)
        if self._measured == "random":
            row = torch.randn(features, generator=generator) / math.sqrt(features)
        samples = public.reshape(len(public), features).float()
        values = samples @ row
        thresholds = torch.quantile(values, torch.arange(self.rows) / self.rows)
        thresholds[0] = 2 * values.min() - values.max()  # below all samples that the server has not seen, too
        front, back = nn.Linear(features, self.rows), nn.Linear(self.rows, features)
        passed_on = (values[:, None] - thresholds).clamp_min(0).sum(dim=1)
        # The random pattern has what comes back from all pixels not cancel.
        pattern = torch.randn(features, generator=generator) * samples.std(dim=0)
        pattern /= passed_on.std().clamp_min(1e-6)
        with torch.no_grad():
            front.weight.copy_(self._shrunk * row.expand(self.rows, -1))
            front.bias.copy_(-self._shrunk * thresholds)
            back.weight.copy_((pattern / self._shrunk)[:, None].expand(-1, self.rows))
            back.bias.copy_(samples.mean(dim=0) - pattern * passed_on.mean())
        return in_front(model, _PLANTED, front, back, sample_shape)

    def with_rows(self, rows: int) -> RobbingTheFed:
        """Return it with so many rows: it tells fewer samples apart."""
        return RobbingTheFed(rows, self._measured, self._shrunk)

    def lasting(self) -> RobbingTheFed:
        """Return it with rows that are not shrunk: a step changes them by less of what they are."""
        return RobbingTheFed(self.rows, self._measured, shrunk=1.0)

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """It can be tried where some weight of the planted layer is known."""
        return missing_layer(observed, _PLANTED)

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Return one image of each bin that was not empty: the sample, or a mean of those that shared the bin.

        A bin counts as empty where what it holds does not stand clear of the noise. Rows with no sample between them
        have the same gradients: what is hidden of one is taken from the other.
        """
        rows = RowGradients.of(observed, _PLANTED).equal_rows_as_one()
        found, _ = rows.between_rows().samples(observed.value_range)
        return recovered_samples(found, observed)


def expected_share(bins: int, samples: int) -> float:
    """Return the share of samples that is expected to be alone in a bin, if all bins are equally likely."""
    return (1 - 1 / bins) ** (samples - 1)
