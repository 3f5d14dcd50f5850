"""One pass over each sample's own gradient of the cross-entropy, many samples at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from shieldfl.sensitivity.gradient import FloatVector, check_samples, evaluation_mode, flat_by_layer
from shieldfl.torch_bridge import parameter_layout

__all__ = ["label_sensitivity", "mean_over_samples"]


def mean_over_samples(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int,
    score: Callable[[torch.Tensor], torch.Tensor],
) -> FloatVector:
    """Mean over samples of ``score`` of each sample's gradient.

    The model is evaluated as it is, in evaluation mode (BatchNorm uses its running statistics, since a
    statistic of the batch would mix samples), and handed back in the mode it came in.

    Parameters
    ----------
    model, features, labels
        As for :func:`shieldfl.sensitivity.gradient.full_batch_gradient`.
    batch_size : int
        Samples differentiated at once; memory grows by P floats for each.
    score : callable
        Takes and returns a float32 tensor, element by element; may work in place.

    Returns
    -------
    ndarray of float32, shape (P,)
        Zero where a parameter is frozen.

    Raises
    ------
    ParameterError
        For no samples, a batch size below 1 or lengths that differ.
    RangeError
        If a mean is NaN, infinite or too large for float32; the message names the layer.
    """
    layout = parameter_layout(model)
    check_samples(features, labels, batch_size)
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    fixed = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    fixed.update(model.named_buffers())

    def loss(parameters: dict[str, torch.Tensor], sample: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        logits = functional_call(model, {**parameters, **fixed}, (sample.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, label.unsqueeze(0))

    sample_gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    sums = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in trained.items()}
    # vmap has no rule for fused attention: it warns, and goes through the samples one by one.
    with evaluation_mode(model), sdpa_kernel(SDPBackend.MATH):
        for batch, targets in zip(
            torch.split(features, batch_size), torch.split(labels, batch_size), strict=True
        ):
            for name, gradient in sample_gradients(trained, batch, targets).items():
                sums[name] += score(gradient).sum(dim=0)
    return flat_by_layer({name: total / len(features) for name, total in sums.items()}, layout)


def label_sensitivity(
    model: nn.Module, features: torch.Tensor, labels: torch.Tensor, batch_size: int = 32
) -> FloatVector:
    """Mean over samples of the absolute value of the sample's gradient (FedML-HE's privacy map).

    Source: Jin et al. 2023, "FedML-HE". The sensitivity of w_m is |d/dy (dl/dw_m)|. The cross-entropy
    l = -sum_k y_k log p_k is linear in the label vector y, so that the component of the true class c is
    |dl/dw_m| at the one-hot y itself: d/dy_c (dl/dw_m) = -d(log p_c)/dw_m. What is defined by second derivatives, one
    backward pass for each parameter, is thus the sample's own gradient, and all parameters take one pass.

    The samples, the batch size, the model's mode and the errors are those of
    :func:`mean_over_samples`.

    Returns
    -------
    ndarray of float32, shape (P,)
        Sensitivities, non-negative; zero where a parameter is frozen.
    """
    return mean_over_samples(model, features, labels, batch_size, torch.Tensor.abs_)
