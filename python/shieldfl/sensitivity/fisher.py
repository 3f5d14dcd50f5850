"""Diagonal Fisher information: which parameters a client's data bends most.

Source: SelectiveShield, section 4.1. Three readings:

- :func:`full_batch_fisher`, the default: the square of the gradient of the client's whole data at the model
  that it starts the round from ("at the beginning of each round", eq. 12).
- :class:`FisherAccumulator`: the square of the gradient accumulated over the mini-batches of the round, which
  training computes anyway: under SGD it follows from how far each parameter has moved, for next to nothing.
- :func:`per_sample_fisher`: the mean of per-sample squares (eq. 3).

In the first two the square is outside the sum: noise of single samples cancels. In the third it is inside and
the noise adds up, so that the scores have a far lighter tail and the same threshold chooses ten times as many
positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from shieldfl.errors import ArrayTypeError, ParameterError
from shieldfl.losses import Loss
from shieldfl.sensitivity.gradient import FloatVector, flat_by_layer, gradient_by_layer, reject_non_finite
from shieldfl.sensitivity.per_sample_gradients import mean_over_samples
from shieldfl.torch_bridge import ParameterLayout, parameter_layout

__all__ = [
    "FisherAccumulator",
    "full_batch_fisher",
    "normalise_per_layer",
    "per_sample_fisher",
]


class FisherAccumulator:
    """Square of the mean mini-batch gradient of a training run (SelectiveShield, eq. 12).

    Call :meth:`update` after each ``backward()`` and before the gradients are cleared, or :meth:`take` with what
    all of them sum to. Accumulation is in float32, on the model's device, one fused pass over the gradients.

    Parameters
    ----------
    layout : ParameterLayout
        Layout of the models that will be passed to :meth:`update`.
    """

    def __init__(self, layout: ParameterLayout) -> None:
        self._layout = layout
        self._flat = torch.zeros(layout.size, dtype=torch.float32)
        self._views = self._make_views()
        self._updates = 0

    @property
    def updates(self) -> int:
        """Number of mini-batches accumulated so far."""
        return self._updates

    def update(self, model: nn.Module) -> None:
        """Add the gradients that the model holds now.

        A parameter without a gradient (frozen, or unused in this batch) counts as gradient zero. NaN and
        infinity are found by :meth:`scores`: no sum ever loses them again, so looking once is enough.

        Raises
        ------
        ParameterError
            If the model has another layout than the accumulator, or holds no gradient at all.
        """
        pairs = [(view, one.grad) for view, one in self._views_of(model) if one.grad is not None]
        if not pairs:
            raise ParameterError("the model holds no gradient: call update() after backward()")
        # The multi-tensor kernel that torch.optim is built on: one call instead of one per tensor.
        torch._foreach_add_([view for view, _ in pairs], [gradient for _, gradient in pairs])
        self._updates += 1

    def take(self, model: nn.Module, sums: Mapping[nn.Parameter, torch.Tensor], updates: int) -> None:
        """Add what the gradients of several updates sum to, by parameter; others had none.

        Raises ParameterError as :meth:`update` does.
        """
        pairs = [(view, sums[one]) for view, one in self._views_of(model) if one in sums]
        if not pairs:
            raise ParameterError("the model has no parameter that is trained")
        torch._foreach_add_([view for view, _ in pairs], [gradient for _, gradient in pairs])
        self._updates += updates

    def scores(self) -> FloatVector:
        """Return the square of the mean over all updates, float32 of shape (P,), non-negative.

        Raises
        ------
        ParameterError
            If there was no update.
        RangeError
            If a gradient was NaN or infinite, or its square too large for float32; the message names the
            layer.
        """
        if self._updates == 0:
            raise ParameterError("no gradient was accumulated: call update() after each backward()")
        scores: FloatVector = (self._flat / self._updates).square().cpu().numpy()
        reject_non_finite(scores, self._layout)
        return scores

    def _views_of(self, model: nn.Module) -> list[tuple[torch.Tensor, nn.Parameter]]:
        """Return the model's parameters, each beside where its gradients are added up."""
        parameters = list(model.parameters())
        if len(parameters) != len(self._views):
            raise ParameterError(
                f"the layout has {len(self._views)} parameter tensors, the model {len(parameters)}"
            )
        if parameters[0].device != self._flat.device:
            self._flat = self._flat.to(parameters[0].device)
            self._views = self._make_views()
        if any(one.shape != view.shape for one, view in zip(parameters, self._views, strict=True)):
            raise ParameterError("a parameter has another shape than the layout says: pass the same model")
        return list(zip(self._views, parameters, strict=True))

    def _make_views(self) -> list[torch.Tensor]:
        slices = (piece for _, piece in self._layout.slices())
        return [
            self._flat[piece].view(shape) for piece, shape in zip(slices, self._layout.shapes, strict=True)
        ]


def full_batch_fisher(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 1000,
    loss: Loss | None = None,
) -> FloatVector:
    """Square of the gradient of the mean cross-entropy over all samples (SelectiveShield, eq. 12).

    The samples, the batch size, the loss, the model's mode and the errors are those of
    :func:`shieldfl.sensitivity.gradient.full_batch_gradient`. Too large for float32 may be the square alone.

    Returns
    -------
    ndarray of float32, shape (P,)
        Scores, non-negative; zero where a parameter is frozen or unused.
    """
    layout = parameter_layout(model)
    gradients = gradient_by_layer(model, features, labels, batch_size, loss)
    squares = {name: gradient.square() for name, gradient in gradients.items()}
    return flat_by_layer(squares, layout)


def per_sample_fisher(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 32,
    loss: Loss | None = None,
) -> FloatVector:
    """Mean of per-sample squared gradients of the cross-entropy (SelectiveShield, eq. 3).

    The samples, the batch size, the loss, the model's mode and the errors are those of
    :func:`shieldfl.sensitivity.per_sample_gradients.mean_over_samples`.

    Returns
    -------
    ndarray of float32, shape (P,)
        Scores, non-negative; zero where a parameter is frozen.
    """
    return mean_over_samples(model, features, labels, batch_size, torch.square, loss)


def normalise_per_layer(scores: FloatVector, layout: ParameterLayout) -> FloatVector:
    """Min-max each layer (parameter tensor) to [0, 1] (SelectiveShield, eq. 13).

    A layer whose scores are all equal becomes all zeros, so that nothing of it is selected.

    Parameters
    ----------
    scores : ndarray of float32, shape (P,)
        Non-negative sensitivities.
    layout : ParameterLayout
        Says where each layer lies.

    Returns
    -------
    ndarray of float32, shape (P,)
        A new array; the input is unchanged.

    Raises
    ------
    ArrayTypeError
        If the scores are not float32 of one dimension.
    ParameterError
        If their number is not that of the layout.
    RangeError
        If a layer holds NaN or infinity; the message names it.
    """
    if scores.dtype != np.float32 or scores.ndim != 1:
        raise ArrayTypeError(f"expected a float32 vector, got {scores.dtype} of rank {scores.ndim}")
    if scores.size != layout.size:
        raise ParameterError(f"the layout has {layout.size} parameters, the scores {scores.size}")
    reject_non_finite(scores, layout)
    normalised = np.zeros_like(scores)
    for _, piece in layout.slices():
        layer = scores[piece]
        if layer.size == 0:
            continue
        low, high = layer.min(), layer.max()
        if high > low:
            normalised[piece] = (layer - low) / (high - low)
    return normalised
