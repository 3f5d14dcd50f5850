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

    The samples, the batch size, the model's mode and the errors are those of
    :func:`shieldfl.sensitivity.per_sample_gradients.mean_over_samples`.

    Returns
    -------
    ndarray of float32, shape (P,)
        Sensitivities, non-negative; zero where a parameter is frozen.
    """
    return mean_over_samples(model, features, labels, batch_size, torch.Tensor.abs_)
