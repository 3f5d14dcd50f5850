"""What training makes small: a loss of outputs and targets, by default the cross-entropy of a classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["Loss", "mean_loss", "separate_loss", "summed_loss"]

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Takes a model's outputs (N, ...) and targets (N, ...); returns the mean over the N samples, a tensor of one value."""


def mean_loss(loss: Loss | None, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over the samples; of the cross-entropy for None."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets) if loss is None else loss(outputs, targets)


def separate_loss(loss: Loss | None, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean of the losses that each sample has alone; of the cross-entropy for None, which mixes none."""
    import torch

    if loss is None:
        return torch.nn.functional.cross_entropy(outputs, targets)
    each = zip(torch.split(outputs, 1), torch.split(targets, 1), strict=True)
    return torch.stack([loss(output, target) for output, target in each]).mean()


def summed_loss(loss: Loss | None, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the sum over the samples; of the cross-entropy for None.

    Of a loss that weighs samples by each other, it is of those that come together here.
    """
    from torch.nn.functional import cross_entropy

    if loss is None:
        return cross_entropy(outputs, targets, reduction="sum")
    return loss(outputs, targets) * len(targets)
