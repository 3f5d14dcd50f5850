"""What a client does between two rounds: SGD on its own samples, or another optimizer's steps.

The loop indexes tensors in memory instead of going through a ``DataLoader``, whose per-sample collation
takes longer than the step of a small model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from shieldfl.learning.networks import is_moved_by_steps_alone
from shieldfl.learning.scores import FisherAccumulator, batches_of, check_samples, evaluation_mode
from shieldfl.learning.stages import StageClock
from shieldfl.models.sample_gradients import Loss, mean_loss
from shieldfl.models.torch_bridge import exact_dtype
from shieldfl.settings import TrainingSettings

__all__ = ["EVALUATION_BATCH", "correct_by_class", "evaluate", "outputs_of", "train_locally"]

EVALUATION_BATCH = 1000
"""Samples that a model is measured on at a time."""

_LEAST_TRACED_RATE = 1e-3
"""The smallest learning rate at which the sum of gradients is read off from what they have moved."""

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def train_locally(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    settings: TrainingSettings,
    seed: int,
    gradients: FisherAccumulator | None = None,
    loss: Loss | None = None,
    optimizer: MakeOptimizer | None = None,
    clock: StageClock | None = None,
) -> float:
    """Train a model in place on one client's samples, by mini-batches: by default SGD on the cross-entropy.

    The order of the samples comes from a generator of its own, so the same seed, weights and number of torch
    threads give the same result; layers that draw from torch's global generator (dropout) are outside of
    that. The model is left in training mode, without gradients.

    Parameters
    ----------
    features, labels : samples and targets (N, ...), on the model's device; labels int64 by default.
    settings : with an optimizer of one's own, the number of epochs and the batch size alone.
    gradients : takes up the gradients of all steps: after each backward pass or, where their sum follows from what SGD
        has made of them, once at the end. The latter where all modules are torch's and move no parameter by themselves.
    loss : in the place of the cross-entropy.
    optimizer : takes the trained parameters and returns a torch optimizer, new for each call of this.
    clock : charged with what it takes to take gradients up, as the stage ``score``.

    Returns the mean loss over the samples of the last epoch; NaN or infinity means that training diverged.
    Raises ParameterError for no data, and not as many labels as samples.
    """
    check_samples(features, labels)
    clock = clock or StageClock()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    steps: Any = _Sgd(parameters, settings) if optimizer is None else optimizer(parameters)

    def train(after_backward: Callable[[], None] = lambda: None) -> float:
        return _train(model, features, labels, settings, seed, loss, steps, after_backward)

    if gradients is None:
        return train()

    def take() -> None:
        with clock.stage("score"):
            gradients.update(model)

    # What else moves parameters, as a loss of the user's own may, would be taken for gradients.
    if optimizer is not None or loss is not None or not _tells_sums(model, settings):
        return train(take)
    with clock.stage("score"):
        starts = [parameter.detach().clone() for parameter in parameters]
    mean = train()
    with clock.stage("score"):
        count = settings.local_epochs * math.ceil(len(features) / settings.batch_size)
        gradients.take(model, steps.gradient_sums(starts), count)
    return mean


def _tells_sums(model: nn.Module, settings: TrainingSettings) -> bool:
    """Say whether SGD's moves tell what gradients sum to: smaller steps are lost in the rounding of parameters."""
    long_enough = settings.learning_rate >= _LEAST_TRACED_RATE
    return long_enough and not settings.weight_decay and is_moved_by_steps_alone(model)


def _train(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    settings: TrainingSettings,
    seed: int,
    loss: Loss | None,
    steps: Any,
    after_backward: Callable[[], None],
) -> float:
    samples = len(features)
    generator = torch.Generator().manual_seed(seed)
    steps.zero_grad(set_to_none=True)
    model.train()
    total = torch.zeros((), dtype=exact_dtype(features.device), device=features.device)
    for epochs_left in reversed(range(settings.local_epochs)):
        order = torch.randperm(samples, generator=generator).to(features.device)
        for batch in torch.split(order, settings.batch_size):
            mean = mean_loss(loss, model(features.index_select(0, batch)), labels.index_select(0, batch))
            mean.backward()  # type: ignore[no-untyped-call]
            after_backward()
            steps.step()
            steps.zero_grad(set_to_none=True)
            if not epochs_left:
                total += mean.detach() * len(batch)
    return float(total) / samples


class _Sgd:
    """``torch.optim.SGD``, bit for bit, without the cost of its dispatch.

    On a small model that dispatch takes a sixth of a training step; a test holds the two equal.
    """

    def __init__(self, parameters: list[nn.Parameter], settings: TrainingSettings) -> None:
        self._parameters = parameters
        self._settings = settings
        self._velocities: dict[int, torch.Tensor] = {}
        """With momentum, of the parameters that have been moved, by their places."""

    def zero_grad(self, set_to_none: bool) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        settings = self._settings
        places = [place for place, one in enumerate(self._parameters) if one.grad is not None]
        parameters: list[torch.Tensor] = [self._parameters[place] for place in places]
        directions: list[Any] = [one.grad for one in parameters]
        if settings.weight_decay:
            directions = list(torch._foreach_add(directions, parameters, alpha=settings.weight_decay))
        if settings.momentum:
            directions = self._velocities_after(directions, places)
        torch._foreach_add_(parameters, directions, alpha=-settings.learning_rate)

    def _velocities_after(self, directions: list[torch.Tensor], places: list[int]) -> list[torch.Tensor]:
        """Return the velocities that these directions give at these places.

        A parameter's first direction is its first velocity: a copy of it, since gradients of several parameters may lie
        in one memory; what weight decay has made of one does not.
        """
        known = [place in self._velocities for place in places]
        velocities = [self._velocities[place] for place in compress(places, known)]
        if velocities:
            torch._foreach_mul_(velocities, self._settings.momentum)
            torch._foreach_add_(velocities, list(compress(directions, known)))
        for one, place in zip(directions, places, strict=True):
            if place not in self._velocities:
                self._velocities[place] = one if self._settings.weight_decay else one.clone()
        return list(map(self._velocities.__getitem__, places))

    @torch.no_grad()
    def gradient_sums(self, starts: list[torch.Tensor]) -> dict[nn.Parameter, torch.Tensor]:
        """Return what the gradients of all steps since the parameters were ``starts`` sum to.

        With velocities v_t = m v_(t-1) + g_t, from zero, and steps of -r v_t, T of them have moved a parameter by
        -r (v_1 + ... + v_T), and g_1 + ... + g_T = (1 - m) (v_1 + ... + v_T) + m v_T.
        """
        momentum = self._settings.momentum
        sums = list(torch._foreach_sub(starts, [parameter.detach() for parameter in self._parameters]))
        torch._foreach_mul_(sums, (1.0 - momentum) / self._settings.learning_rate)
        if momentum:
            moved = [sums[place] for place in self._velocities]
            torch._foreach_add_(moved, list(self._velocities.values()), alpha=momentum)
        return dict(zip(self._parameters, sums, strict=True))


def evaluate(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of targets that the model classifies correctly, in [0, 1].

    Of samples, or of their pixels. In evaluation mode without gradients; the model is handed back in the mode
    it came in. ParameterError for no samples.
    """
    check_samples(features, labels)
    correct = 0
    with evaluation_mode(model), torch.inference_mode():
        for batch, target in batches_of(features, labels, EVALUATION_BATCH):
            correct += int((model(batch).argmax(dim=1) == target).sum())
    return correct / labels.numel()


def correct_by_class(
    model: nn.Module, features: torch.Tensor, labels: torch.Tensor, classes: int
) -> npt.NDArray[np.int64]:
    """Return how many samples of each class the model classifies correctly, (classes,), as :func:`evaluate` counts.

    ``labels`` are one class in 0..classes-1 for each sample.
    """
    check_samples(features, labels)
    found = np.zeros(classes, np.int64)
    with evaluation_mode(model), torch.inference_mode():
        for batch, target in batches_of(features, labels, EVALUATION_BATCH):
            right = target[model(batch).argmax(dim=1) == target]
            found += torch.bincount(right, minlength=classes).cpu().numpy()
    return found


def outputs_of(model: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Return what a model makes of all samples (N, ...), in evaluation mode, without gradients, on the CPU."""
    with evaluation_mode(model), torch.inference_mode():
        return torch.cat([model(batch).cpu() for batch in torch.split(features, EVALUATION_BATCH)])
