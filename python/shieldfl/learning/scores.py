"""Scores of parameters, from gradients of single samples: diagonal Fisher information, and their mean sizes.

A linear layer's gradient for one sample is the outer product of what came in and of the loss's slope at what
came out. Its absolute value, or its square, is the product of theirs, so that the sum over samples is one
product of matrices, and no sample's gradient is ever written down. A convolution's is a sum over pixels, and
is made for each sample, as one product of matrices. torch.func, which takes any model, is several times as
slow on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import unfold

from shieldfl.array_view import FloatVector, as_count
from shieldfl.errors import ParameterError, RangeError
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.models.sample_gradients import Loss, gradients_of_samples, named_failures, summed_loss
from shieldfl.models.torch_bridge import exact_dtype, parameter_layout

Score = Callable[[torch.Tensor], torch.Tensor]
"""Works on a tensor element by element, into a new one: ``torch.abs`` or ``torch.square``.

The score of a product is the product of its factors' scores.
"""

_WITHOUT_PARAMETERS = (
    nn.AdaptiveAvgPool2d,
    nn.AvgPool2d,
    nn.Dropout,
    nn.Flatten,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.MaxPool2d,
    nn.ReLU,
    nn.Sigmoid,
    nn.SiLU,
    nn.Tanh,
)


Layers = list[tuple[str, nn.Module]]


def layer_chain(model: nn.Module) -> Layers | None:
    """Return the layers, by name, of an ``nn.Sequential``, nested or not, of layers whose algebra is known.

    None for any other model, and where a layer or parameter is shared. A subclass of a layer is another
    model: it may compute something else.
    """
    modules = list(model.named_modules(remove_duplicate=False))
    layers = [(name, one) for name, one in modules if type(one) is not nn.Sequential]
    if type(model) is not nn.Sequential or any(is_altered(one) for _, one in modules):
        return None
    every = [held for _, one in layers for held in (one, *one._parameters.values()) if held is not None]
    shared = len({id(one) for one in every}) < len(every)
    return None if shared or not all(_is_known(one) for _, one in layers) else layers


def summed_scores(
    layers: Layers, features: torch.Tensor, labels: torch.Tensor, score: Score
) -> dict[str, torch.Tensor]:
    """Sum over samples (B, ...) the score of each one's gradient of cross-entropy, float32 by parameter.

    The model is in evaluation mode; frozen parameters are left out.
    """
    seen: list[tuple[str, nn.Module, torch.Tensor, torch.Tensor]] = []
    values = features
    for name, layer in layers:
        # In-place layers would write over what the gradients are of.
        output = layer(values.clone() if getattr(layer, "inplace", False) else values)
        if any(parameter.requires_grad for parameter in layer.parameters()):
            seen.append((name, layer, values.detach(), output))
        values = output
    if not seen:
        return {}
    slopes = torch.autograd.grad(summed_loss(None, values, labels), [output for *_, output in seen])
    found: dict[str, torch.Tensor] = {}
    for (name, layer, came_in, _), slope in zip(seen, slopes, strict=True):
        for parameter, total in _summed(layer, came_in, slope, score).items():
            if layer.get_parameter(parameter).requires_grad:
                found[f"{name}.{parameter}"] = total
    return found


def is_altered(layer: nn.Module) -> bool:
    """Say whether a module's own ``forward`` was replaced, or has hooks beside it."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    return "forward" in vars(layer) or any(hooks)


def _is_known(layer: Any) -> bool:
    kind = type(layer)
    own = set(dict(layer.named_parameters(recurse=False)))
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d):
        # Without statistics of its own it takes the batch's, also in evaluation mode.
        known = isinstance(layer.running_mean, torch.Tensor)
    elif kind is nn.Conv2d:
        known = layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    else:
        plain = kind in _WITHOUT_PARAMETERS and not own and getattr(layer, "start_dim", 1) == 1
        known = kind is nn.Linear or plain
    return known and not layer._modules and own in ({"weight", "bias"}, {"weight"}, set())


def _summed(layer: Any, came_in: torch.Tensor, slope: torch.Tensor, score: Score) -> dict[str, torch.Tensor]:
    """Return the sums of a layer's parameters: of inputs and the loss's slope at outputs, (B, ...) each."""
    if isinstance(layer, nn.Linear) and came_in.dim() == 2:
        weight, bias = score(slope).T @ score(came_in), slope
    elif isinstance(layer, nn.Linear):
        weight = score(slope.flatten(1, -2).mT @ came_in.flatten(1, -2)).sum(dim=0)
        bias = slope.flatten(1, -2).sum(dim=1)
    elif isinstance(layer, nn.Conv2d):
        sizes: tuple[Any, ...] = (layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        patches = unfold(came_in, *sizes)
        pixels = slope.flatten(2)
        weight = score(pixels @ patches.mT).sum(dim=0).reshape(layer.weight.shape)
        bias = pixels.sum(dim=2)
    else:
        normalised = nn.functional.batch_norm(came_in, layer.running_mean, layer.running_var, eps=layer.eps)
        weight, bias = score(_over_pixels(slope * normalised)).sum(dim=0), _over_pixels(slope)
    return {"weight": weight} | ({} if layer.bias is None else {"bias": score(bias).sum(dim=0)})


def _over_pixels(values: torch.Tensor) -> torch.Tensor:
    return values.flatten(2).sum(dim=2) if values.dim() > 2 else values


def full_batch_gradient(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 250,
    loss: Loss | None = None,
    score: Callable[[torch.Tensor, torch.Tensor], object] | None = None,
) -> FloatVector:
    """Return the signed gradient (P,) of the mean loss over all samples, the cross-entropy by default.

    Zero where a parameter is frozen or unused. The model is evaluated as it is, in evaluation mode, and
    handed back in the mode it came in. ``batch_size`` decides memory, time and rounding: convolutions of
    1,000 samples take twice as long as of 250. ``score`` takes a parameter and its gradient, float64 where
    the device has that, and writes what is wanted over it. Raises ParameterError for no samples and lengths
    that differ; RangeError, which names the layer, for what float32 cannot hold.
    """
    check_samples(features, labels)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sums: dict[str, torch.Tensor] = {}
    with evaluation_mode(model):
        for batch, targets in batches_of(features, labels, batch_size):
            total = summed_loss(loss, model(batch), targets)
            if not trained:
                break  # every parameter is frozen: nothing to differentiate
            gradients = torch.autograd.grad(total, list(trained.values()), materialize_grads=True)
            # In place: new memory takes longer here than the arithmetic.
            for name, gradient in zip(trained, gradients, strict=True):
                if name in sums:
                    sums[name] += gradient
                else:
                    sums[name] = gradient.to(exact_dtype(gradient.device), copy=True)
    for name, total in sums.items():
        total.div_(len(features))
        if score is not None:
            score(trained[name].detach(), total)
    return _flat_by_layer(sums, parameter_layout(model))


def batches_of(
    features: torch.Tensor, labels: torch.Tensor, batch_size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return samples and their labels, so many at once, in order; the last are what is left.

    Raises ParameterError.
    """
    size = as_count(batch_size, "batch_size")
    return zip(torch.split(features, size), torch.split(labels, size), strict=True)


def check_samples(features: torch.Tensor, labels: torch.Tensor) -> None:
    if len(features) == 0:
        raise ParameterError("client has no data: give it at least one sample or leave it out of the round")
    if len(labels) != len(features):
        raise ParameterError(f"{len(features)} samples but {len(labels)} labels")


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _flat_by_layer(values_by_name: Mapping[str, torch.Tensor], layout: ParameterLayout) -> FloatVector:
    """Lay values out as one float32 vector (P,), zero for the names that are missing."""
    flat = np.zeros(layout.size, dtype=np.float32)
    for name, piece in layout.slices():
        if name in values_by_name:
            with np.errstate(over="ignore"):
                flat[piece] = values_by_name[name].reshape(-1).cpu().numpy()
    _reject_non_finite(flat, layout)
    return flat


def _reject_non_finite(values: FloatVector, layout: ParameterLayout) -> None:
    for name, piece in layout.slices():
        if not np.isfinite(values[piece]).all():
            raise RangeError(
                f"a gradient of layer {name!r}, or a score made of it, is NaN, infinite or too large for "
                "float32: lower the learning rate or check this client's data"
            )


taylor_sensitivity = partial(full_batch_gradient, score=lambda weight, gradient: gradient.mul_(weight).abs_())
"""Return ``|w * gradient|`` (P,) of the mean loss over all samples (SenseCrypt, eq. 2).

That is how much the loss would change if a parameter were zero, to first order.
"""

full_batch_fisher = partial(full_batch_gradient, score=lambda _, gradient: gradient.square_())
"""Return the square (P,) of the gradient of the mean loss over all samples (SelectiveShield, eq. 12)."""


def mean_over_samples(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 32,
    loss: Loss | None = None,
    *,
    score: Score,
) -> FloatVector:
    """Return the mean (P,) over samples of ``score`` of each sample's gradient.

    Zero where a parameter is frozen. In a :func:`layer_chain` under the cross-entropy it costs little more
    than one backward pass, in other models several, by torch.func. BatchNorm uses its running statistics,
    since a statistic of the batch would mix samples. Memory grows by P floats for each of the ``batch_size``
    samples that are differentiated at once. Raises as :func:`full_batch_gradient`, and ParameterError for a
    model that cannot be differentiated so.
    """
    check_samples(features, labels)
    chain = layer_chain(model) if loss is None and labels.dim() == 1 else None
    gradients_of = gradients_of_samples(model, loss)
    sums: dict[str, torch.Tensor] = {}
    with evaluation_mode(model), torch.enable_grad():
        for batch, targets in batches_of(features, labels, batch_size):
            if chain is None:
                each = gradients_of(batch, targets)[0]
                totals = {name: score(gradient).sum(dim=0) for name, gradient in each.items()}
            else:
                with named_failures(model, batch, targets, None):
                    totals = summed_scores(chain, batch, targets, score)
            for name, total in totals.items():
                sums[name] = sums[name] + total if name in sums else total.to(exact_dtype(total.device))
    means = {name: total / len(features) for name, total in sums.items()}
    return _flat_by_layer(means, parameter_layout(model))


per_sample_fisher = partial(mean_over_samples, score=torch.square)
"""Return the mean (P,) of per-sample squared gradients of the loss (SelectiveShield, eq. 3)."""


def label_sensitivity(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 32,
    loss: Loss | None = None,
) -> FloatVector:
    """Return the mean (P,) over samples of the sample's absolute gradient (FedML-HE's privacy map).

    Source: Jin et al. 2023, "FedML-HE". The sensitivity of w_m is |d/dy (dl/dw_m)|. The cross-entropy l =
    -sum_k y_k log p_k is linear in the label vector y, so that the component of the true class c is |dl/dw_m|
    at the one-hot y itself: d/dy_c (dl/dw_m) = -d(log p_c)/dw_m. What is defined by second derivatives, one
    backward pass for each parameter, is thus the sample's own gradient. Raises as :func:`mean_over_samples`,
    and ParameterError for another loss than the cross-entropy.
    """
    if loss is not None:
        raise ParameterError(
            "scores by label are defined for the cross-entropy of a classifier: choose another kind of scores"
        )
    return mean_over_samples(model, features, labels, batch_size, score=torch.abs)


class FisherAccumulator:
    """Square of the mean mini-batch gradient of a training run (SelectiveShield, eq. 12).

    Call :meth:`update` after each ``backward()`` and before the gradients are cleared, or :meth:`take` with
    the sum of all of them. Accumulation is in float32, on the model's device, one fused pass over the
    gradients.
    """

    def __init__(self, layout: ParameterLayout) -> None:
        self._layout = layout
        self._sums: list[torch.Tensor] = []
        self._updates = 0

    def update(self, model: nn.Module) -> None:
        """Add the gradients that the model holds: none, of a frozen or unused parameter, counts as zero."""
        held = {one: one.grad for one in model.parameters() if one.grad is not None}
        self.take(model, held, 1)

    def take(self, model: nn.Module, sums: Mapping[nn.Parameter, torch.Tensor], updates: int) -> None:
        """Add the sums of the gradients of several updates, by parameter; other parameters had none.

        NaN and infinity are found by :meth:`scores`: no sum ever loses them again. Raises ParameterError for
        a model without any gradient.
        """
        if not sums:
            raise ParameterError("the model holds no gradient: nothing of it is trained")
        parameters = list(model.parameters())
        if not self._updates:
            self._sums = [torch.zeros(one.shape, device=one.device) for one in parameters]
        pairs = [(own, sums[one]) for own, one in zip(self._sums, parameters, strict=True) if one in sums]
        # The multi-tensor kernel that torch.optim is built on: one call instead of one per tensor.
        torch._foreach_add_([own for own, _ in pairs], [gradient for _, gradient in pairs])
        self._updates += updates

    def scores(self) -> FloatVector:
        """Return the square of the mean over all updates, float32 (P,). Raises ParameterError, RangeError."""
        if self._updates == 0:
            raise ParameterError("no gradient was accumulated: call update() after each backward()")
        flat = torch.cat([one.reshape(-1) for one in self._sums])
        scores: FloatVector = (flat / self._updates).square().cpu().numpy()
        _reject_non_finite(scores, self._layout)
        return scores


def normalise_per_layer(scores: FloatVector, layout: ParameterLayout) -> FloatVector:
    """Min-max scores (P,) by layer (parameter tensor) to [0, 1], in a new array (SelectiveShield, eq. 13).

    A layer whose scores are all equal becomes all zeros, so that nothing of it is selected. Raises
    RangeError, which names the layer, for NaN or infinity.
    """
    _reject_non_finite(scores, layout)
    normalised = np.zeros_like(scores)
    for _, piece in layout.slices():
        layer, own = scores[piece], normalised[piece]
        if layer.size and (highest := layer.max()) > (lowest := layer.min()):
            np.subtract(layer, lowest, out=own)
            own /= highest - lowest
    return normalised
