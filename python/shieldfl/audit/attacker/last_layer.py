"""The layer that makes a classifier's logits, and what its gradient says of one sample's label."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shieldfl.audit.views.observed_update import ObservedUpdate

__all__ = ["LastLayer", "last_layer", "logits_layer"]

# One sample's logits may all be positive, so that a ReLU behind them would not show.
_PROBES = 4


@dataclass(frozen=True)
class LastLayer:
    """A Linear whose outputs are the logits of the classes."""

    weight: str
    """Name of the weight, (classes, d), in ``model.named_parameters()``."""
    bias: str | None
    """Name of the bias, (classes,); None where it has none."""

    def gradient(self, observed: ObservedUpdate, name: str) -> NDArray[np.float64]:
        """Return the mean gradient of the weight or of the bias as observed, float64, guesses included."""
        return observed.tensors(observed.gradient)[name].double().numpy()

    def only_label(self, observed: ObservedUpdate) -> int:
        """Return the label of a client's only sample: argmin_i sum_j of the weight's gradient.

        A sample's gradient in row i is (p_i - y_i) times the features below, and negative for its own class alone where
        these are positive, as behind ReLU or a sigmoid (iDLG, section 3.2).
        """
        return int(self.gradient(observed, self.weight).sum(axis=1).argmin())


def last_layer(observed: ObservedUpdate) -> LastLayer | None:
    """Find the last layer; None where what returns the model's outputs is no Linear with one for each class.

    Nor is it one whose weight or bias is computed of other parameters: the attacks' equations are of its gradients.
    """
    name = logits_layer(observed)
    if name is None:
        return None
    layer = observed.model.get_submodule(name)
    prefix = f"{name}." if name else ""
    bias = None if layer.bias is None else f"{prefix}bias"
    parameters = {one for one, _ in observed.model.named_parameters()}
    is_own = parameters >= {f"{prefix}weight"} | ({bias} if bias else set())
    return LastLayer(f"{prefix}weight", bias) if is_own else None


def logits_layer(observed: ObservedUpdate) -> str | None:
    """Return the name of the Linear whose outputs, one for each class, the model returns on noise; None for others.

    What comes after it, other than a change of shape, would make the equations of the attacks false.
    """
    model = deepcopy(observed.model).eval()
    made: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module.out_features == observed.classes:
            module.register_forward_hook(
                lambda _module, _inputs, output, name=name: made.__setitem__(name, output)
            )
    noise = torch.randn(_PROBES, *observed.sample_shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = model(noise)
    for name, logits in made.items():
        if logits.numel() == outputs.numel() and torch.equal(logits.ravel(), outputs.ravel()):
            return name
    return None
