"""A last layer whose weight is computed of other parameters, and its gradient as far as theirs tell it.

Where W follows from parameters t, such as W0 + D T with a small table T, an update shows J^T G of the weight's gradient
G alone, J being what W changes by with t: fewer numbers than G has, unless there are as many directions as classes.
This is an addition of this project.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsqr
from torch import nn

from shieldfl.audit.attacker.last_layer import logits_layer
from shieldfl.audit.views.observed_update import ObservedUpdate

__all__ = ["ComputedLayer", "computed_last_layer"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ComputedLayer:
    """A Linear whose outputs are the logits, with a bias of its own and a weight that others make."""

    name: str
    """Of the module."""
    of: tuple[str, ...]
    """Names of the parameters that the weight follows from."""

    @property
    def bias(self) -> str:
        """Name of the bias, (classes,), in ``model.named_parameters()``."""
        return f"{self.name}.bias" if self.name else "bias"

    def weight_gradient(self, observed: ObservedUpdate) -> Floats:
        """Return the mean gradient of the weight (classes, d) that fits best what is shown of it.

        First one h for all classes, as if a batch's features were all the same: each class's row is its bias gradient
        times h. Then the least change by which the parameters' gradients are those that are observed, and the classes'
        rows sum to zero, as those of softmax and cross-entropy do. With as many directions as classes it is the
        gradient itself.
        """
        module = deepcopy(observed.model).double()
        gradients = observed.tensors(observed.gradient)
        shown = np.concatenate([gradients[name].double().numpy().ravel() for name in self.of])
        biases = gradients[self.bias].double().numpy()
        layer = module.get_submodule(self.name)
        assert isinstance(layer, nn.Linear)
        weight = layer.weight
        parameters = dict(module.named_parameters())
        told, back = _told_of(weight, [parameters[name] for name in self.of])
        features = weight.shape[1]

        def solved(
            make: Callable[[Floats], Floats], read: Callable[[Floats], Floats], of: Floats, size: int
        ) -> Floats:
            operator = LinearOperator((of.size, size), matvec=make, rmatvec=read, dtype=np.float64)
            found: Floats = lsqr(operator, of, atol=1e-10, btol=1e-10)[0]
            return found

        target = np.concatenate([shown, np.zeros(features)])
        common = solved(lambda h: told(np.outer(biases, h)), lambda y: biases @ back(y), target, features)
        first = np.outer(biases, common)
        change = solved(
            lambda g: told(g.reshape(first.shape)),
            lambda y: back(y).ravel(),
            target - told(first),
            first.size,
        )
        return first + change.reshape(first.shape)


def _told_of(
    weight: torch.Tensor, parameters: list[nn.Parameter]
) -> tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]:
    """Return what a gradient (classes, d) of the weight shows, and the transpose of that.

    That are the gradients of the parameters, in a row, and the sums over classes (d,).
    """
    # Differentiated by its own factor, a gradient gives the product with J itself.
    factor = torch.zeros_like(weight, requires_grad=True)
    gradients = torch.autograd.grad(weight, parameters, factor, create_graph=True)
    flat = torch.cat([one.reshape(-1) for one in gradients])

    def told(gradient: Floats) -> Floats:
        of = torch.from_numpy(np.ascontiguousarray(gradient))
        parts = torch.autograd.grad(weight, parameters, of, retain_graph=True)
        return np.concatenate([*(one.numpy().ravel() for one in parts), gradient.sum(axis=0)])

    def back(values: Floats) -> Floats:
        own = torch.from_numpy(np.ascontiguousarray(values[: flat.numel()]))
        (moved,) = torch.autograd.grad(flat, factor, own, retain_graph=True)
        return np.asarray(moved.numpy() + values[flat.numel() :], dtype=np.float64)

    return told, back


def computed_last_layer(observed: ObservedUpdate) -> ComputedLayer | None:
    """Find such a layer; None where the logits are no Linear's, where it has no bias, or a weight of its own."""
    name = logits_layer(observed)
    parameters = dict(observed.model.named_parameters())
    prefix = f"{name}." if name else ""
    if name is None or f"{prefix}weight" in parameters or f"{prefix}bias" not in parameters:
        return None
    weight = observed.model.get_submodule(name).weight
    if not isinstance(weight, torch.Tensor) or not weight.requires_grad:
        return None
    gradients = torch.autograd.grad(weight.sum(), list(parameters.values()), allow_unused=True)
    of = tuple(one for one, gradient in zip(parameters, gradients, strict=True) if gradient is not None)
    return ComputedLayer(name, of)
