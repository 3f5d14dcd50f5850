"""What clients make small and what is measured of a model: a classifier's by default, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.losses import Loss
from shieldfl.training.sgd import MakeOptimizer, evaluate, outputs_of

__all__ = ["Metric", "Objective", "TrainModel"]

Metric = Callable[[torch.Tensor, torch.Tensor], float | torch.Tensor]
"""Takes a model's outputs on the whole test set and the targets, on the CPU; returns one number."""

TrainModel = Callable[[nn.Module, torch.Tensor, torch.Tensor, int], float]
"""Trains a module in place on features and targets, with a seed; returns its mean loss, for the table alone."""


@dataclass(frozen=True)
class Objective:
    """How a client trains, and what a model is measured by.

    Raises ParameterError where a training function comes with a loss or an optimizer that it would not use.
    """

    loss: Loss | None = None
    """None for the cross-entropy of a classifier."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """By name; without one it is the accuracy where there is no loss, and the loss where there is one."""
    optimizer: MakeOptimizer | None = None
    """Takes the trained parameters and returns a torch optimizer; None for SGD as the settings have it."""
    train: TrainModel | None = None
    """In the place of mini-batches, loss and optimizer; None for those."""

    def __post_init__(self) -> None:
        if self.train is not None and self.optimizer is not None:
            raise ParameterError(
                "a training function makes its own steps: give it, or an optimizer, and not both"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured: the first one stands for the model where there is room for one figure."""
        if self.metrics:
            return tuple(self.metrics)
        return ("accuracy",) if self.loss is None else ("loss",)

    def measured(self, model: nn.Module, features: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Return every figure of a model on a test set. Raises ParameterError for a metric that gives no number."""
        if not self.metrics and self.loss is None:
            return {"accuracy": evaluate(model, features, targets)}
        outputs, expected = outputs_of(model, features), targets.cpu()
        metrics = dict(self.metrics)
        if not metrics and self.loss is not None:
            metrics["loss"] = self.loss
        return {name: _number(name, metric(outputs, expected)) for name, metric in metrics.items()}


def _number(name: str, value: float | torch.Tensor) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(f"the metric {name!r} must return one number: {error}") from error
