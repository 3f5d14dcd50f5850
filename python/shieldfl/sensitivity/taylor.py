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

    The model is evaluated as it is, in evaluation mode, and handed back in the mode it came in, its own
    gradients untouched.

    Parameters
    ----------
    model : nn.Module
        Classifier, features to logits.
    features : float32 tensor, shape (N, ...)
        Samples, on the model's device.
    labels : int64 tensor, shape (N,)
        Class of each sample.
    batch_size : int
        Samples differentiated at once; decides memory, not the result.

    Returns
    -------
    ndarray of float32, shape (P,)
        Scores, non-negative, not normalised; zero where a parameter is zero, frozen or unused.

    Raises
    ------
    ParameterError
        For no samples, a batch size below 1 or lengths that differ.
    RangeError
        If a gradient is NaN or infinite, or its score too large for float32; the message names the layer.
    """
    layout = parameter_layout(model)
    gradients = gradient_by_layer(model, features, labels, batch_size)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    scores = {name: (weights[name] * gradient).abs_() for name, gradient in gradients.items()}
    return flat_by_layer(scores, layout)
