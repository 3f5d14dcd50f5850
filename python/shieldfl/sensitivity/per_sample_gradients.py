"""Each sample's own gradient of the loss, many samples at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.losses import Loss
from shieldfl.sample_gradients import gradients_of_samples, named_failures
from shieldfl.sensitivity.gradient import (
    FloatVector,
    batches_of,
    check_samples,
    evaluation_mode,
    flat_by_layer,
)
from shieldfl.sensitivity.layer_chains import LayerChain, Score
from shieldfl.torch_bridge import exact_dtype, parameter_layout

__all__ = ["each_gradient", "label_sensitivity", "mean_over_samples"]


def mean_over_samples(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int,
    score: Score,
    loss: Loss | None = None,
) -> FloatVector:
    """Mean over samples of ``score`` of each sample's gradient.

    In a chain of ordinary layers under the cross-entropy (:class:`shieldfl.sensitivity.layer_chains.LayerChain`) it
    costs little more than one backward pass, in other models several, by torch.func.

    The model is evaluated as it is, in evaluation mode (BatchNorm uses its running statistics, since a
    statistic of the batch would mix samples), and handed back in the mode it came in.

    Parameters
    ----------
    model, features, labels
        As for :func:`shieldfl.sensitivity.gradient.full_batch_gradient`.
    batch_size : int
        Samples differentiated at once; memory grows by P floats for each.
    score : callable
        ``torch.abs`` or ``torch.square``: of a product it is the product of its factors' scores.
    loss : callable, optional
        In the place of the cross-entropy.

    Returns
    -------
    ndarray of float32, shape (P,)
        Zero where a parameter is frozen.

    Raises
    ------
    ParameterError
        For no samples, a batch size below 1, lengths that differ, labels that the model has no outputs for, and a
        model that cannot be differentiated so.
    RangeError
        If a mean is NaN, infinite or too large for float32; the message names the layer.
    """
    layout = parameter_layout(model)
    chain = LayerChain.of(model) if loss is None and labels.dim() == 1 else None
    batches = (
        _scores_of_each(model, features, labels, batch_size, score, loss)
        if chain is None
        else _scores_of_chain(chain, model, features, labels, batch_size, score)
    )
    sums: dict[str, torch.Tensor] = {}
    for totals in batches:
        for name, total in totals.items():
            sums[name] = sums[name] + total if name in sums else total.to(exact_dtype(total.device))
    return flat_by_layer({name: total / len(features) for name, total in sums.items()}, layout)


def _scores_of_each(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int,
    score: Score,
    loss: Loss | None,
) -> Iterator[dict[str, torch.Tensor]]:
    for gradients in each_gradient(model, features, labels, batch_size, loss):
        yield {name: score(gradient).sum(dim=0) for name, gradient in gradients.items()}


def _scores_of_chain(
    chain: LayerChain,
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int,
    score: Score,
) -> Iterator[dict[str, torch.Tensor]]:
    check_samples(features, labels)
    with evaluation_mode(model), torch.enable_grad():
        for batch, targets in batches_of(features, labels, batch_size):
            with named_failures(model, batch, targets, None):
                yield chain.summed_scores(batch, targets, score)


def each_gradient(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int,
    loss: Loss | None = None,
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the gradients of one batch of samples after the other, float32 (B, *shape) by the name of each parameter.

    Frozen parameters are left out. Arguments and ParameterErrors are those of :func:`mean_over_samples`; the model
    is in evaluation mode until all is yielded.
    """
    check_samples(features, labels)
    gradients = gradients_of_samples(model, loss)
    with evaluation_mode(model):
        for batch, targets in batches_of(features, labels, batch_size):
            yield gradients(batch, targets)[0]


def label_sensitivity(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 32,
    loss: Loss | None = None,
) -> FloatVector:
    """Mean over samples of the absolute value of the sample's gradient (FedML-HE's privacy map).

    Source: Jin et al. 2023, "FedML-HE". The sensitivity of w_m is |d/dy (dl/dw_m)|. The cross-entropy
    l = -sum_k y_k log p_k is linear in the label vector y, so that the component of the true class c is
    |dl/dw_m| at the one-hot y itself: d/dy_c (dl/dw_m) = -d(log p_c)/dw_m. What is defined by second derivatives, one
    backward pass for each parameter, is thus the sample's own gradient, and all parameters take one pass.

    The samples, the batch size, the model's mode and the errors are those of
    :func:`mean_over_samples`. Raises ParameterError for another loss than the cross-entropy, too.

    Returns
    -------
    ndarray of float32, shape (P,)
        Sensitivities, non-negative; zero where a parameter is frozen.
    """
    if loss is not None:
        raise ParameterError(
            "scores by label are defined for the cross-entropy of a classifier: choose another kind of scores"
        )
    return mean_over_samples(model, features, labels, batch_size, torch.abs)
