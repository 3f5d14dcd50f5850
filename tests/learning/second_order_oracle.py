"""FedML-HE's sensitivity as it is defined: second derivatives, one backward pass for each parameter and sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn


def second_order_sensitivity(
    model: nn.Module, features: torch.Tensor, labels: torch.Tensor, positions: Sequence[int] | None = None
) -> np.ndarray:
    """Mean over samples of |d/dy_c (dl/dw_m)|, c the true class, y a label vector that is free to move.

    l = -sum_k y_k log p_k at the one-hot y. The gradient dl/dw_m is differentiated again, with respect to y, by
    autograd. ``positions`` are those of m in the flat vector, by default all; the result is float64 in their
    order. The model must be in evaluation mode.
    """
    parameters = list(model.parameters())
    ends = np.cumsum([parameter.numel() for parameter in parameters])
    wanted = range(ends[-1]) if positions is None else positions
    total = np.zeros(len(wanted))
    for sample, label in zip(features, labels, strict=True):
        y = nn.functional.one_hot(label, model(sample.unsqueeze(0)).shape[1]).float().requires_grad_()
        loss = -(y * nn.functional.log_softmax(model(sample.unsqueeze(0))[0], dim=0)).sum()
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        for row, position in enumerate(wanted):
            layer = int(np.searchsorted(ends, position, side="right"))
            gradient = gradients[layer].reshape(-1)[position - ends[layer]]  # counted from the layer's end
            (slope,) = torch.autograd.grad(gradient, y, retain_graph=True)
            total[row] += abs(float(slope[label]))
    return total / len(features)
