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
    """By name; without one it is the accuracy where there is no loss, and ``test_loss`` where there is one."""
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
        return ("accuracy",) if self.loss is None else ("test_loss",)

    def measured(self, model: nn.Module, features: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        """Return every figure of a model on a test set. Raises ParameterError for a metric that gives no number."""
        if not self.metrics and self.loss is None:
            return {"accuracy": evaluate(model, features, targets)}
        outputs = outputs_of(model, features)
        metrics = dict(self.metrics)
        if not metrics and self.loss is not None:
            metrics["test_loss"] = self.loss
        # Copies: what one metric does to them is not for the next.
        return {
            name: _number(name, metric(outputs.clone(), targets.cpu().clone()))
            for name, metric in metrics.items()
        }

    @property
    def kind(self) -> str:
        """How clients train, in words: what decides how long it takes."""
        if self.train is not None:
            return "by a function of the user's"
        return "by SGD" if self.optimizer is None else "by an optimizer of the user's"

    def check_method(self, name: str, scores: str | None, *, trains_privately: bool) -> None:
        """Raise ParameterError for what a method asks of training and this cannot give."""
        if trains_privately and (self.train is not None or self.optimizer is not None):
            raise ParameterError(
                f"{name} trains by DP-SGD, and its epsilon is for those steps alone: leave out the training function, "
                "or the optimizer, of your own"
            )
        if scores == "batch" and self.train is not None:
            raise ParameterError(
                f"{name} scores parameters by the gradients of each training step, which a training function of one's "
                "own does not show: choose another kind of scores, or give an optimizer instead"
            )
        if scores == "label" and self.loss is not None:
            raise ParameterError(
                f"{name} scores parameters by labels, which is defined for the cross-entropy of a classifier: leave "
                "out the method, or the loss"
            )


def _number(name: str, value: float | torch.Tensor) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(f"the metric {name!r} must return one number: {error}") from error
