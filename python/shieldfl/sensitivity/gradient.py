"""The gradient of a client's whole data, what several sensitivities are made of, and weight times gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from shieldfl.array_view import as_count
from shieldfl.errors import ParameterError, RangeError
from shieldfl.losses import Loss, summed_loss
from shieldfl.torch_bridge import ParameterLayout, exact_dtype, parameter_layout

__all__ = [
    "FloatVector",
    "batches_of",
    "check_samples",
    "evaluation_mode",
    "flat_by_layer",
    "full_batch_gradient",
    "gradient_by_layer",
    "reject_non_finite",
    "taylor_sensitivity",
]

FloatVector = npt.NDArray[np.float32]


def full_batch_gradient(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 1000,
    loss: Loss | None = None,
) -> FloatVector:
    """Gradient of the mean cross-entropy over all samples, signed.

    The model is evaluated as it is, in evaluation mode, and handed back in the mode it came in, its own
    gradients untouched.

    Parameters
    ----------
    model : nn.Module
        Features to outputs; a classifier, to logits, where no loss is given.
    features : tensor, shape (N, ...)
        Samples, on the model's device.
    labels : tensor, shape (N, ...)
        Targets: the class of each sample, int64, where no loss is given.
    batch_size : int
        Samples differentiated at once; decides memory, not the result.
    loss : callable, optional
        In the place of the cross-entropy.

    Returns
    -------
    ndarray of float32, shape (P,)
        In the order of the flat vector; zero where a parameter is frozen or unused.

    Raises
    ------
    ParameterError
        For no samples, a batch size below 1 or lengths that differ.
    RangeError
        If a gradient is NaN, infinite or too large for float32; the message names the layer.
    """
    layout = parameter_layout(model)
    return flat_by_layer(gradient_by_layer(model, features, labels, batch_size, loss), layout)


def gradient_by_layer(
    model: nn.Module, features: torch.Tensor, labels: torch.Tensor, batch_size: int, loss: Loss | None = None
) -> dict[str, torch.Tensor]:
    """Return what :func:`full_batch_gradient` does, as tensors by name, without frozen parameters.

    They are float64 where the device has that. NaN and infinity pass through: whoever makes scores of them calls
    :func:`flat_by_layer`, which finds them.
    """
    check_samples(features, labels)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sums = {name: torch.zeros_like(p, dtype=exact_dtype(p.device)) for name, p in trained.items()}
    with evaluation_mode(model):
        for batch, targets in batches_of(features, labels, batch_size):
            total = summed_loss(loss, model(batch), targets)
            if not trained:
                break  # every parameter is frozen: nothing to differentiate
            gradients = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
            for name, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:
                    sums[name] += gradient
    return {name: total / len(features) for name, total in sums.items()}


def batches_of(
    features: torch.Tensor, labels: torch.Tensor, batch_size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return samples and their labels, so many at once, in order; the last are what is left. Raises ParameterError."""
    size = as_count(batch_size, "batch_size")
    return zip(torch.split(features, size), torch.split(labels, size), strict=True)


def check_samples(features: torch.Tensor, labels: torch.Tensor) -> None:
    """Raise ParameterError for no samples, or lengths that differ."""
    if len(features) == 0:
        raise ParameterError("client has no data: sensitivity needs at least one sample")
    if len(labels) != len(features):
        raise ParameterError(f"{len(features)} samples but {len(labels)} labels")


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and every module back into its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def flat_by_layer(values_by_name: Mapping[str, torch.Tensor], layout: ParameterLayout) -> FloatVector:
    """Lay values out as one float32 vector (P,), zero for the names that are missing.

    Raises RangeError, which names the layer, if a value is NaN, infinite or too large for float32.
    """
    flat = np.zeros(layout.size, dtype=np.float32)
    for name, piece in layout.slices():
        if name in values_by_name:
            with np.errstate(over="ignore"):
                flat[piece] = values_by_name[name].reshape(-1).cpu().numpy()
    reject_non_finite(flat, layout)
    return flat


def reject_non_finite(values: FloatVector, layout: ParameterLayout) -> None:
    """Raise RangeError, which names the layer, if a gradient or score (P,) is NaN or infinite."""
    if np.isfinite(values).all():
        return
    for name, piece in layout.slices():
        if not np.isfinite(values[piece]).all():
            raise RangeError(
                f"a gradient of layer {name!r}, or a score made of it, is NaN, infinite or too large for "
                "float32: lower the learning rate or check this client's data"
            )


def taylor_sensitivity(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 1000,
    loss: Loss | None = None,
) -> npt.NDArray[np.float32]:
    """``|w * gradient|`` of the mean cross-entropy over all samples (SenseCrypt, eq. 2).

    How much the loss would change if a parameter were zero, to first order. The samples, the batch size, the loss, the
    model's mode and the errors are those of :func:`full_batch_gradient`. Too large for float32 may be the score alone.

    Returns
    -------
    ndarray of float32, shape (P,)
        Scores, non-negative, not normalised; zero where a parameter is zero, frozen or unused.
    """
    layout = parameter_layout(model)
    gradients = gradient_by_layer(model, features, labels, batch_size, loss)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    scores = {name: (weights[name] * gradient).abs_() for name, gradient in gradients.items()}
    return flat_by_layer(scores, layout)
