"""Each sample's own gradient in a chain of ordinary layers, which mixes no samples, by each layer's own algebra.

A linear layer's gradient for one sample is the outer product of what came in and of the loss's slope at what came
out. Its absolute value, or its square, is the product of theirs, so that the sum over samples is one product of
matrices, and no sample's gradient is ever written down. A convolution's is a sum over pixels, and is made for each
sample, as one product of matrices. torch.func, which takes any model, is several times as slow on both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import unfold

from shieldfl.losses import summed_loss

__all__ = ["LayerChain", "Score", "is_altered"]

Score = Callable[[torch.Tensor], torch.Tensor]
"""Element by element, into a new tensor, and of a product that of its factors': ``torch.abs`` or ``torch.square``."""

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


class LayerChain:
    """A model that is an ``nn.Sequential``, nested or not, of layers whose algebra is known; made by :meth:`of`."""

    def __init__(self, layers: list[tuple[str, nn.Module]]) -> None:
        self._layers = layers

    @classmethod
    def of(cls, model: nn.Module) -> LayerChain | None:
        """Return the chain that a model is; None for any other model, and where a layer or parameter is shared.

        A subclass of a layer is another model: it may compute something else.
        """
        layers = _layers_of(model, "")
        if layers is None or len({id(layer) for _, layer in layers}) < len(layers):
            return None
        every = [one for _, layer in layers for one in layer._parameters.values() if one is not None]
        return None if len({id(one) for one in every}) < len(every) else cls(layers)

    def summed_scores(
        self, features: torch.Tensor, labels: torch.Tensor, score: Score
    ) -> dict[str, torch.Tensor]:
        """Sum over samples of the score of each sample's gradient of the cross-entropy, by parameter, unfrozen ones.

        Parameters
        ----------
        features : tensor, shape (B, ...); the model is in evaluation mode.
        labels : tensor of int64, shape (B,).
        score : of the parameters' elements.

        Returns
        -------
        dict of str to tensor
            Float32, of the parameter's shape.
        """
        seen: list[tuple[str, nn.Module, torch.Tensor, torch.Tensor]] = []
        values = features
        for name, layer in self._layers:
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
                if getattr(layer, parameter).requires_grad:
                    found[f"{name}.{parameter}"] = total
        return found


def _layers_of(model: nn.Module, name: str) -> list[tuple[str, nn.Module]] | None:
    """Return the layers by their names, in order; None where one is of no known kind."""
    if is_altered(model):
        return None
    if type(model) is not nn.Sequential:
        return [(name, model)] if name and _is_known(model) else None
    layers: list[tuple[str, nn.Module]] = []
    for part, layer in model.named_children():
        inner = _layers_of(layer, f"{name}.{part}" if name else part)
        if inner is None:
            return None
        layers += inner
    # One that stands in it twice is named once.
    return layers if len(model) == len(list(model.named_children())) else None


def is_altered(layer: nn.Module) -> bool:
    """Say whether somebody has put another way forward in the place of a module's own, or hooks beside it."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    return "forward" in vars(layer) or any(hooks)


def _is_known(layer: Any) -> bool:
    kind = type(layer)
    own = {name for name, one in layer._parameters.items() if one is not None}
    if layer._modules or own not in ({"weight", "bias"}, {"weight"}, set()):
        return False
    if own and kind in _WITHOUT_PARAMETERS:
        return False
    if kind is nn.Flatten:
        return bool(layer.start_dim == 1)
    if kind is nn.Conv2d:
        return (
            bool(own)
            and layer.groups == 1
            and layer.padding_mode == "zeros"
            and not isinstance(layer.padding, str)
        )
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d):
        # Without statistics of its own it takes the batch's, also in evaluation mode.
        return isinstance(layer.running_mean, torch.Tensor)
    return (kind is nn.Linear and bool(own)) or kind in _WITHOUT_PARAMETERS


def _summed(layer: Any, came_in: torch.Tensor, slope: torch.Tensor, score: Score) -> dict[str, torch.Tensor]:
    """Return the sums of a layer's parameters: of what came in and the loss's slope at what came out, (B, ...) each."""
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
    """Sum what comes after sample and channel."""
    return values.flatten(2).sum(dim=2) if values.dim() > 2 else values
