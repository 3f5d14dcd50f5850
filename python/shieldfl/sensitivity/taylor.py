"""Weight times gradient: how much the loss would change if a parameter were zero, to first order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from shieldfl.sensitivity.gradient import flat_by_layer, gradient_by_layer
from shieldfl.torch_bridge import parameter_layout

__all__ = ["taylor_sensitivity"]


def taylor_sensitivity(
    model: nn.Module, features: torch.Tensor, labels: torch.Tensor, batch_size: int = 1000
) -> npt.NDArray[np.float32]:
    """``|w * gradient|`` of the mean cross-entropy over all samples (SenseCrypt, eq. 2).

    The samples, the batch size, the model's mode and the errors are those of
    :func:`shieldfl.sensitivity.gradient.full_batch_gradient`. Too large for float32 may be the score alone.

    Returns
    -------
    ndarray of float32, shape (P,)
        Scores, non-negative, not normalised; zero where a parameter is zero, frozen or unused.
    """
    layout = parameter_layout(model)
    gradients = gradient_by_layer(model, features, labels, batch_size)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    scores = {name: (weights[name] * gradient).abs_() for name, gradient in gradients.items()}
    return flat_by_layer(scores, layout)
