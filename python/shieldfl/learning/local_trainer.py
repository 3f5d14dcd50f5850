"""A client's training and what is measured of a model: a classifier's by default, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from shieldfl.errors import ParameterError, ShieldError
from shieldfl.learning.local_update import (
    FloatVector,
    GradientNoise,
    LocalUpdate,
    PrivateSteps,
    StartingPoint,
    samples_beside,
)
from shieldfl.learning.scores import (
    FisherAccumulator,
    full_batch_fisher,
    full_batch_gradient,
    label_sensitivity,
    normalise_per_layer,
    per_sample_fisher,
    taylor_sensitivity,
)
from shieldfl.learning.sgd import MakeOptimizer, evaluate, outputs_of, train_locally
from shieldfl.learning.stages import StageClock
from shieldfl.models.sample_gradients import Loss, first_line, where_raised
from shieldfl.models.torch_bridge import (
    flatten,
    flatten_buffers,
    load_flat,
    load_flat_buffers,
    parameter_layout,
)
from shieldfl.settings import TrainingSettings

__all__ = [
    "LocalTrainer",
    "Metric",
    "Objective",
    "TrainModel",
]


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
        if self.metrics:
            return tuple(self.metrics)
        return ("accuracy",) if self.loss is None else ("test_loss",)

    def measured(self, model: nn.Module, features: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        if not self.metrics and self.loss is None:
            return {"accuracy": evaluate(model, features, targets)}
        outputs = outputs_of(model, features)
        metrics = dict(self.metrics)
        if not metrics and self.loss is not None:
            metrics["test_loss"] = self.loss
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


def _number(what: str, value: float | torch.Tensor) -> float:
    try:
        return float(torch.as_tensor(value).detach())
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(f"{what} must return one number: {error}") from error


class LocalTrainer:
    """Trains on one client's samples.

    Parameters
    ----------
    model : a module that is overwritten; several trainers may share one.
    features, labels : the client's samples, or those of all, of which ``samples`` says which are the client's.
    settings : of local training.
    synthetic : features and labels for rounds that train on synthetic data; None where there are none.
    objective : what training makes small, and how; None for a classifier's.
    samples : positions of the client's samples, int64, on the same device, which are copied while it trains; None for
        all.
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
        """How it has trained so far, of what decides how long that takes."""

    @property
    def samples(self) -> int:
        return len(self._real[0] if self._samples is None else self._samples)

    def train(self, start: StartingPoint, seed: int) -> tuple[LocalUpdate, float]:
        """Train from ``start`` and as it asks; return the update and the mean loss of the last epoch.

        torch draws by the seed while it trains: layers such as dropout are repeatable. Raises ParameterError where it
        asks for synthetic data and there is none, for an unknown kind of scores, and where a training function of the
        user's own has changed the layout, or returns no number.
        """
        on = self._real[0].device
        # All that draws here; torch's own way seeds every accelerator too, which takes as long as small steps do.
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
                loss, trained = self._train_by_own(self._objective.train, *samples, seed)
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
                        f"({first_line(error)}): each client's last batch has what is left of its samples, down to one"
                    ) from error
            parameters, buffers = flatten(trained), flatten_buffers(trained)
        if start.scores is not None:
            with self.clock.stage("score"):
                if fisher is not None:
                    scores = fisher.scores()
                elif scores is None:
                    scores = _scores_after(start.scores)(trained, *samples, loss=self._objective.loss)
                if start.scores in _NORMALISED:
                    scores = normalise_per_layer(scores, self._layout)
        return start.trained(parameters, buffers, scores, steps), loss

    def _train_by_own(
        self, train: TrainModel, features: torch.Tensor, targets: torch.Tensor, seed: int
    ) -> tuple[float, nn.Module]:
        # Its own module: what a function leaves on one, the next client must not find.
        model = deepcopy(self._model).train()
        loss = train(model, features, targets, seed)
        if parameter_layout(model) != self._layout:
            raise ParameterError("the training function has changed the model's parameters or their shapes")
        return _number("the training function", loss), model

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


def _scores_after(kind: str) -> Callable[..., FloatVector]:
    if kind not in _AFTER_TRAINING:
        raise ParameterError(f"there are no scores of the kind {kind!r}")
    return _AFTER_TRAINING[kind]


def training_seed(seed: int, round_number: int, client: int) -> int:
    return int(np.random.SeedSequence([seed, round_number, client]).generate_state(1, np.uint32)[0])
