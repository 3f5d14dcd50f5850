"""What all scores made of gradients share: the checks before, the mode during, the flat vector after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from shieldfl.errors import ParameterError, RangeError
from shieldfl.torch_bridge import ParameterLayout

__all__ = ["FloatVector", "check_samples", "evaluation_mode", "flat_scores", "reject_non_finite"]

FloatVector = npt.NDArray[np.float32]


def check_samples(features: torch.Tensor, labels: torch.Tensor, batch_size: int) -> None:
    """Raise ParameterError for no samples, lengths that differ or a batch size below 1."""
    if len(features) == 0:
        raise ParameterError("client has no data: a sensitivity needs at least one sample")
    if len(labels) != len(features):
        raise ParameterError(f"{len(features)} samples but {len(labels)} labels")
    if batch_size < 1:
        raise ParameterError(f"batch_size must be at least 1, got {batch_size}")


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode; afterwards each is in the mode it came in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def flat_scores(scores_by_name: Mapping[str, torch.Tensor], layout: ParameterLayout) -> FloatVector:
    """Put scores by parameter name into one float32 vector of shape (P,); zero for names that are missing.

    Raises RangeError as :func:`reject_non_finite` does.
    """
    scores = np.zeros(layout.size, dtype=np.float32)
    for name, piece in layout.slices():
        if name in scores_by_name:
            with np.errstate(over="ignore"):
                scores[piece] = scores_by_name[name].reshape(-1).cpu().numpy()
    reject_non_finite(scores, layout)
    return scores


def reject_non_finite(scores: FloatVector, layout: ParameterLayout) -> None:
    """Raise RangeError, which names the layer, where a score is NaN or infinite."""
    if np.isfinite(scores).all():
        return
    for name, piece in layout.slices():
        if not np.isfinite(scores[piece]).all():
            raise RangeError(
                f"a gradient of layer {name!r} is NaN, infinite or too large to be scored in float32: "
                "lower the learning rate or check this client's data"
            )
