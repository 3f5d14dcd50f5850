"""What a client does between two rounds: SGD on its own samples.

The loop indexes tensors in memory instead of going through a ``DataLoader``, whose per-sample collation
takes longer than the step of a small model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.settings import TrainingSettings

__all__ = ["evaluate", "train_locally"]


def train_locally(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    settings: TrainingSettings,
    seed: int,
    on_backward: Callable[[nn.Module], None] | None = None,
) -> float:
    """Train a model in place on one client's samples, by mini-batch SGD on the cross-entropy.

    The order of the samples comes from a generator of its own, so the same seed, weights and number of torch
    threads give the same result; layers that draw from torch's global generator (dropout) are outside of
    that. The model is left in training mode, without gradients.

    Parameters
    ----------
    model : nn.Module
        Classifier, features to logits; is changed.
    features : float32 tensor, shape (N, ...)
        Samples, on the model's device.
    labels : int64 tensor, shape (N,)
        Class of each sample, same device.
    settings : TrainingSettings
        Hyperparameters.
    seed : int
        Decides the order of the samples in every epoch.
    on_backward : callable, optional
        Called with the model after each backward pass, before the step that uses the gradients. It may read
        them, as :meth:`shieldfl.sensitivity.fisher.FisherAccumulator.update` does.

    Returns
    -------
    float
        Mean loss over the samples of the last epoch. NaN or infinity means that training diverged.

    Raises
    ------
    ParameterError
        If the client has no data, or not as many labels as samples.
    """
    samples = _count(features, labels)
    generator = torch.Generator().manual_seed(seed)
    optimizer = _Sgd(model, settings)
    model.train()
    total = torch.zeros((), dtype=torch.float64)
    for _ in range(settings.local_epochs):
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        order = torch.randperm(samples, generator=generator).to(features.device)
        for batch in torch.split(order, settings.batch_size):
            logits = model(features.index_select(0, batch))
            loss = nn.functional.cross_entropy(logits, labels.index_select(0, batch))
            loss.backward()  # type: ignore[no-untyped-call]
            if on_backward is not None:
                on_backward(model)
            optimizer.step()
            total += loss.detach() * len(batch)
    return float(total) / samples


class _Sgd:
    """``torch.optim.SGD``, bit for bit, without the cost of its dispatch.

    On a small model that dispatch takes a sixth of a training step; a test holds the two equal.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._settings = settings
        self._velocities = [torch.zeros_like(p) for p in self._parameters] if settings.momentum else []
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient, and clear the gradient."""
        settings = self._settings
        for index, parameter in enumerate(self._parameters):
            direction = parameter.grad
            if direction is None:
                continue
            if settings.weight_decay:
                direction = direction.add(parameter, alpha=settings.weight_decay)
            if settings.momentum:
                direction = self._velocities[index].mul_(settings.momentum).add_(direction)
            parameter.add_(direction, alpha=-settings.learning_rate)
            parameter.grad = None


def evaluate(model: nn.Module, features: torch.Tensor, labels: torch.Tensor, batch_size: int = 1000) -> float:
    """Return the share of samples that the model classifies correctly, in [0, 1].

    Evaluated in evaluation mode without gradients; the model is handed back in the mode it came in.
    ``ParameterError`` for no samples, a number of labels that differs, or a batch size below 1.
    """
    samples = _count(features, labels)
    if batch_size < 1:
        raise ParameterError(f"batch_size must be at least 1, got {batch_size}")
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    correct = 0
    try:
        with torch.inference_mode():
            for batch, target in zip(
                torch.split(features, batch_size), torch.split(labels, batch_size), strict=True
            ):
                correct += int((model(batch).argmax(dim=1) == target).sum())
    finally:
        for module, training in modes:
            module.training = training
    return correct / samples


def _count(features: torch.Tensor, labels: torch.Tensor) -> int:
    if len(features) == 0:
        raise ParameterError("client has no data: give it at least one sample or leave it out of the round")
    if len(labels) != len(features):
        raise ParameterError(f"{len(features)} samples but {len(labels)} labels")
    return len(features)
