"""A client's training and what is measured of a model: a classifier's by default, or the user's own.

The loop of SGD indexes tensors in memory instead of going through a ``DataLoader``, whose per-sample
collation takes longer than the step of a small model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from shieldfl.array_view import FloatVector
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.learning.local_update import (
    GradientNoise,
    LocalUpdate,
    PrivateSteps,
    StageClock,
    StartingPoint,
    samples_beside,
)
from shieldfl.learning.networks import is_moved_by_steps_alone
from shieldfl.learning.scores import (
    FisherAccumulator,
    batches_of,
    check_samples,
    evaluation_mode,
    full_batch_fisher,
    full_batch_gradient,
    label_sensitivity,
    normalise_per_layer,
    per_sample_fisher,
    taylor_sensitivity,
)
from shieldfl.models.sample_gradients import Loss, first_line, mean_loss, where_raised
from shieldfl.models.torch_bridge import (
    exact_dtype,
    flatten,
    flatten_buffers,
    load_flat,
    load_flat_buffers,
    parameter_layout,
)
from shieldfl.settings import TrainingSettings

__all__ = [
    "EVALUATION_BATCH",
    "LocalTrainer",
    "Metric",
    "Objective",
    "TrainModel",
    "correct_by_class",
    "evaluate",
    "outputs_of",
    "train_locally",
]


EVALUATION_BATCH = 250
"""Number of samples that a model is measured on at a time."""

_LEAST_TRACED_RATE = 1e-3
"""Smallest learning rate at which the sum of gradients is computed from how far they moved parameters."""

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
    settings : with an ``optimizer``, only the number of epochs and the batch size count.
    gradients : takes up the gradients of all steps: after each backward pass or, where their sum follows from
        what SGD has made of them, once at the end. The latter where all modules are torch's and move no
        parameter by themselves.
    loss : instead of the cross-entropy.
    optimizer : takes the trained parameters and returns a torch optimizer, new for each call of this.
    clock : charged with the time that it takes to take up gradients, as the stage ``score``.

    Returns the mean loss over the samples of the last epoch; NaN or infinity means that training diverged.
    Raises ParameterError for no data, and not as many labels as samples.
    """
    check_samples(features, labels)
    clock = clock or StageClock()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    steps: Any = _Sgd(parameters, settings) if optimizer is None else optimizer(parameters)

    def train(after_backward: Callable[[], None] = lambda: None) -> float:
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

    if gradients is None:
        return train()

    def take() -> None:
        with clock.stage("score"):
            gradients.update(model)

    # What else moves parameters, as a loss of the user's own may, would be taken for gradients, and smaller
    # steps are lost in the rounding of parameters.
    untold = settings.weight_decay or settings.learning_rate < _LEAST_TRACED_RATE
    if optimizer is not None or loss is not None or untold or not is_moved_by_steps_alone(model):
        return train(take)
    with clock.stage("score"):
        starts = [parameter.detach().clone() for parameter in parameters]
    mean = train()
    with clock.stage("score"):
        count = settings.local_epochs * math.ceil(len(features) / settings.batch_size)
        gradients.take(model, steps.gradient_sums(starts), count)
    return mean


class _Sgd:
    """``torch.optim.SGD``, bit for bit, without the cost of its dispatch.

    On a small model that dispatch takes a sixth of a training step; a test holds the two equal.
    """

    def __init__(self, parameters: list[nn.Parameter], settings: TrainingSettings) -> None:
        self._parameters = parameters
        self._settings = settings
        self._velocities: dict[int, torch.Tensor] = {}
        """Velocities of parameters that have been moved, by place in the list; empty without momentum."""

    def zero_grad(self, set_to_none: bool) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        settings = self._settings
        places = [place for place, one in enumerate(self._parameters) if one.grad is not None]
        parameters: list[torch.Tensor] = list(map(self._parameters.__getitem__, places))
        directions: list[Any] = [one.grad for one in parameters]
        if settings.weight_decay:
            directions = list(torch._foreach_add(directions, parameters, alpha=settings.weight_decay))
        if settings.momentum:
            directions = self._velocities_after(directions, places)
        torch._foreach_add_(parameters, directions, alpha=-settings.learning_rate)

    def _velocities_after(self, directions: list[torch.Tensor], places: list[int]) -> list[torch.Tensor]:
        """Return the velocities that these directions give at these places.

        A parameter's first direction is its first velocity: a copy of it, since gradients of several
        parameters may lie in one memory; what weight decay has made of one does not.
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
        """Return the sums of the gradients of all steps since the parameters were ``starts``.

        With velocities v_t = m v_(t-1) + g_t, from zero, and steps of -r v_t, T of them have moved a
        parameter by -r (v_1 + ... + v_T), and g_1 + ... + g_T = (1 - m) (v_1 + ... + v_T) + m v_T.
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

    Targets are those of samples, or of their pixels. The model is in evaluation mode, without gradients, and
    is handed back in the mode it came in. ParameterError for no samples.
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
    """Return how many samples of each class the model gets right, (classes,), as :func:`evaluate` counts.

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
    """Return a model's outputs of all samples (N, ...), in evaluation mode, without gradients, on the CPU."""
    with evaluation_mode(model), torch.inference_mode():
        return torch.cat([model(batch).cpu() for batch in torch.split(features, EVALUATION_BATCH)])


Metric = Callable[[torch.Tensor, torch.Tensor], float | torch.Tensor]
"""Takes a model's outputs on the whole test set and the targets, on the CPU; returns one number."""

TrainModel = Callable[[nn.Module, torch.Tensor, torch.Tensor, int], float]
"""Trains a module in place on features and targets, with a seed.

It returns the module's mean loss, which is only shown in the table.
"""


@dataclass(frozen=True)
class Objective:
    """How a client trains, and what a model is measured by.

    Raises ParameterError for a training function beside an optimizer, which it would not use.
    """

    loss: Loss | None = None
    """Loss of training; None for the cross-entropy of a classifier."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """Metrics by name. Empty for the accuracy, or ``test_loss`` if there is a loss."""
    optimizer: MakeOptimizer | None = None
    """Takes the trained parameters and returns a torch optimizer; None for SGD as the settings have it."""
    train: TrainModel | None = None
    """Trains a module instead of mini-batches with loss and optimizer; None for these."""

    def __post_init__(self) -> None:
        if self.train is not None and self.optimizer is not None:
            raise ParameterError(
                "a training function makes its own steps: give it, or an optimizer, and not both"
            )

    @property
    def names(self) -> tuple[str, ...]:
        if self.metrics:
            return tuple(self.metrics)
        return ("accuracy",) if self.loss is None else ("test_loss",)

    def measured(self, model: nn.Module, features: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        if not self.metrics and self.loss is None:
            return {"accuracy": evaluate(model, features, targets)}
        outputs = outputs_of(model, features)
        metrics: Mapping[str, Any] = self.metrics or {"test_loss": self.loss}
        # Copies: what one metric does to them is not for the next.
        return {
            name: _number(f"the metric {name!r}", metric(outputs.clone(), targets.cpu().clone()))
            for name, metric in metrics.items()
        }

    @property
    def kind(self) -> str:
        if self.train is not None:
            return "by a function of the user's"
        return "by SGD" if self.optimizer is None else "by an optimizer of the user's"

    def check_method(self, name: str, scores: str | None, *, trains_privately: bool) -> None:
        if trains_privately and (self.train is not None or self.optimizer is not None):
            raise ParameterError(
                f"{name} trains by DP-SGD, and its epsilon is for those steps alone: leave out the training "
                "function, or the optimizer, of your own"
            )
        if scores == "batch" and self.train is not None:
            raise ParameterError(
                f"{name} scores parameters by the gradients of each training step, which your training "
                "function does not expose: choose other scores, or pass an optimizer instead"
            )
        if scores == "label" and self.loss is not None:
            raise ParameterError(
                f"{name} scores parameters by labels, which is defined for the cross-entropy of a "
                "classifier: leave out the method, or the loss"
            )


def _number(what: str, value: float | torch.Tensor) -> float:
    try:
        return float(torch.as_tensor(value).detach())
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(f"{what} must return one number, and gives {type(value).__name__}") from error


class LocalTrainer:
    """Trains on one client's samples.

    Parameters
    ----------
    model : a module that is overwritten; several trainers may share one.
    features, labels : the client's samples, or those of all; then ``samples`` says which are the client's.
    settings : those of local training.
    synthetic : features and labels for rounds that train on synthetic data; None where there are none.
    objective : what training makes small, and how; None for a classifier's.
    samples : positions of the client's samples, int64, on the same device, which are copied while it trains;
        None for all.
    """

    def __init__(
        self,
        model: nn.Module,
        features: torch.Tensor,
        labels: torch.Tensor,
        settings: TrainingSettings,
        synthetic: tuple[torch.Tensor, torch.Tensor] | None = None,
        objective: Objective | None = None,
        samples: torch.Tensor | None = None,
    ) -> None:
        self._model = model
        self._layout = parameter_layout(model)
        self._real = (features, labels)
        self._samples = samples
        self._synthetic = synthetic
        self.settings = settings
        self._objective = objective or Objective()
        self.clock = StageClock()
        """Seconds of the stages ``train`` and ``score``."""
        self.kinds: set[str] = set()
        """Ways in which it has trained so far, such as ``"by SGD"``: they decide how long training takes."""

    @property
    def samples(self) -> int:
        return len(self._real[0] if self._samples is None else self._samples)

    def train(self, start: StartingPoint, seed: int) -> tuple[LocalUpdate, float]:
        """Train from ``start`` and as it asks; return the update and the mean loss of the last epoch.

        torch draws by the seed while it trains: layers such as dropout are repeatable. Raises ParameterError
        where it asks for synthetic data and there is none, for an unknown kind of scores, and where a
        training function of the user's own has changed the layout, or returns no number.
        """
        on = self._real[0].device
        # All that draws here; torch's own way seeds every accelerator too, which takes as long as small steps
        # do.
        here = on.type == "cpu" and self._objective.train is None
        with torch.random.fork_rng(devices=[on.index or 0] if on.type == "cuda" else []):
            (torch.default_generator if here else torch).manual_seed(seed)
            return self._train(start, seed)

    def _own_samples(self) -> tuple[torch.Tensor, torch.Tensor]:
        features, labels = self._real
        if self._samples is None:
            return features, labels
        return features.index_select(0, self._samples), labels.index_select(0, self._samples)

    def _samples_of(self, start: StartingPoint) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0.0 <= start.synthetic_share < 1.0:
            raise ParameterError(f"synthetic_share must lie in [0, 1), got {start.synthetic_share}")
        if not start.synthetic and not start.synthetic_share:
            return self._own_samples()
        if self._synthetic is None or not len(self._synthetic[0]):
            raise ParameterError("this round trains on synthetic data: give the trainer some")
        if start.synthetic:
            return self._synthetic
        features, labels = self._own_samples()
        count = samples_beside(len(features), start.synthetic_share)
        beside = torch.arange(count, device=features.device) % len(self._synthetic[0])
        made = (one.index_select(0, beside) for one in self._synthetic)
        return torch.cat([features, next(made)]), torch.cat([labels, next(made)])

    def _train(self, start: StartingPoint, seed: int) -> tuple[LocalUpdate, float]:
        samples = self._samples_of(start)
        kind = self._objective.kind if start.noise is None else "by DP-SGD"
        self.kinds.add(f"{kind} on synthetic data" if start.synthetic else kind)
        fisher = FisherAccumulator(self._layout) if start.scores == "batch" else None
        with self.clock.stage("train"):
            load_flat(self._model, start.parameters)
            load_flat_buffers(self._model, start.buffers)
        scores = None
        if start.scores == "full-batch":
            with self.clock.stage("score"):
                scores = full_batch_fisher(self._model, *samples, loss=self._objective.loss)
        steps, trained = None, self._model
        with self.clock.stage("train"):
            if start.noise is not None:
                loss, steps = self._train_privately(start.noise, *samples)
            elif self._objective.train is not None:
                # Its own module: what a function leaves on one, the next client must not find.
                trained = deepcopy(self._model).train()
                told = self._objective.train(trained, *samples, seed)
                if parameter_layout(trained) != self._layout:
                    raise ParameterError(
                        "the training function has changed the model's parameters or their shapes"
                    )
                loss = _number("the training function", told)
            else:
                try:
                    loss = train_locally(
                        self._model,
                        *samples,
                        self.settings,
                        seed,
                        fisher,
                        self._objective.loss,
                        self._objective.optimizer,
                        self.clock,
                    )
                except ShieldError:
                    raise
                except (RuntimeError, ValueError, IndexError) as error:
                    raise ParameterError(
                        f"{where_raised(error, self._model)}, or the loss, fails on a client's batch "
                        f"({first_line(error)}): each client's last batch has what is left of its samples, "
                        "down to one"
                    ) from error
            parameters, buffers = flatten(trained), flatten_buffers(trained)
        if start.scores is not None:
            with self.clock.stage("score"):
                if fisher is not None:
                    scores = fisher.scores()
                elif scores is None:
                    if start.scores not in _AFTER_TRAINING:
                        raise ParameterError(f"there are no scores of the kind {start.scores!r}")
                    scores = _AFTER_TRAINING[start.scores](trained, *samples, loss=self._objective.loss)
                if start.scores in _NORMALISED:
                    scores = normalise_per_layer(scores, self._layout)
        return start.trained(parameters, buffers, scores, steps), loss

    def _train_privately(
        self, noise: GradientNoise, features: torch.Tensor, labels: torch.Tensor
    ) -> tuple[float, PrivateSteps]:
        from shieldfl.privacy.dp_sgd import train_privately

        loss, steps, sample_rate = train_privately(
            self._model,
            features,
            labels,
            self.settings,
            noise_multiplier=noise.noise_multiplier,
            max_grad_norm=noise.max_grad_norm,
            loss=self._objective.loss,
        )
        return loss, PrivateSteps(steps, sample_rate)


_NORMALISED = ("full-batch", "batch", "per-sample")
_AFTER_TRAINING: dict[str, Callable[..., FloatVector]] = {
    "per-sample": per_sample_fisher,
    "taylor": taylor_sensitivity,
    "label": label_sensitivity,
    "gradient": full_batch_gradient,
}


def training_seed(seed: int, round_number: int, client: int) -> int:
    return int(np.random.SeedSequence([seed, round_number, client]).generate_state(1, np.uint32)[0])
