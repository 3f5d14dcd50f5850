"""Label sensitivity: how far a label moves a parameter's gradient (FedML-HE's privacy map).

Source: Jin et al. 2023, "FedML-HE". The sensitivity of w_m is |d/dy (dl/dw_m)|. The cross-entropy
l = -sum_k y_k log p_k is linear in the label vector y, so that the component of the true class c is
|dl/dw_m| at the one-hot y itself: d/dy_c (dl/dw_m) = -d(log p_c)/dw_m. What is defined by second derivatives, one
backward pass for each parameter, is thus the sample's own gradient, and all parameters take one pass.
"""

from __future__ import annotations

import torch
from torch import nn

from shieldfl.sensitivity.gradient import FloatVector
from shieldfl.sensitivity.per_sample_gradients import mean_over_samples

__all__ = ["label_sensitivity"]


def label_sensitivity(
    model: nn.Module, features: torch.Tensor, labels: torch.Tensor, batch_size: int = 32
) -> FloatVector:
    """Mean over samples of the absolute value of the sample's gradient (FedML-HE).

    The model is evaluated as it is, in evaluation mode (BatchNorm uses its running statistics, since a
    statistic of the batch would mix samples), and handed back in the mode it came in.

    Parameters
    ----------
    model : nn.Module
        Classifier, features to logits; the loss is the cross-entropy.
    features : float32 tensor, shape (N, ...)
        Samples, on the model's device.
    labels : int64 tensor, shape (N,)
        Class of each sample.
    batch_size : int
        Samples differentiated at once; memory grows by P floats for each.

    Returns
    -------
    ndarray of float32, shape (P,)
        Sensitivities, non-negative; zero where a parameter is frozen.

    Raises
    ------
    ParameterError
        For no samples, a batch size below 1 or lengths that differ.
    RangeError
        If a gradient is NaN, infinite or too large for float32; the message names the layer.
    """
    return mean_over_samples(model, features, labels, batch_size, torch.Tensor.abs_)
