"""One client's data and training, for any method's client steps."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from torch import nn

from shieldfl.errors import ParameterError, ShieldError
from shieldfl.profiling.stages import StageClock
from shieldfl.sample_gradients import first_line, where_raised
from shieldfl.sensitivity.fisher import (
    FisherAccumulator,
    full_batch_fisher,
    normalise_per_layer,
    per_sample_fisher,
)
from shieldfl.sensitivity.gradient import full_batch_gradient, taylor_sensitivity
from shieldfl.sensitivity.per_sample_gradients import label_sensitivity
from shieldfl.settings import TrainingSettings
from shieldfl.torch_bridge import flatten, flatten_buffers, load_flat, load_flat_buffers, parameter_layout
from shieldfl.training.local_update import (
    FloatVector,
    GradientNoise,
    LocalUpdate,
    PrivateSteps,
    StartingPoint,
    samples_beside,
)
from shieldfl.training.objective import Objective, TrainModel
from shieldfl.training.sgd import train_locally

__all__ = ["LocalTrainer"]


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
        """How many the client has."""
        return len(self._real[0] if self._samples is None else self._samples)

    def train(self, start: StartingPoint, seed: int) -> tuple[LocalUpdate, float]:
        """Train from ``start`` and as it asks; return the update and the mean loss of the last epoch.

        torch draws by the seed while it trains: layers such as dropout are repeatable. Raises ParameterError where it
        asks for synthetic data and there is none, for an unknown kind of scores, and where a training function of the
        user's own has changed the layout, or returns no number.
        """
        on = self._real[0].device
        if on.type == "cpu" and self._objective.train is None:
            # All that draws here; torch's own way seeds every accelerator too, which takes as long as small steps do.
            generator = torch.default_generator
            before = generator.get_state()
            try:
                generator.manual_seed(seed)
                return self._train(start, seed)
            finally:
                generator.set_state(before)
        with torch.random.fork_rng(devices=[on.index or 0] if on.type == "cuda" else []):
            torch.manual_seed(seed)
            return self._train(start, seed)

    def _own_samples(self) -> tuple[torch.Tensor, torch.Tensor]:
        features, labels = self._real
        if self._samples is None:
            return features, labels
        return features.index_select(0, self._samples), labels.index_select(0, self._samples)

    def _samples_of(self, start: StartingPoint) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what a round trains on."""
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
        try:
            return float(torch.as_tensor(loss).detach()), model
        except (TypeError, ValueError, RuntimeError) as error:
            raise ParameterError(
                f"the training function must return its mean loss, and gives {type(loss).__name__}"
            ) from error

    def _train_privately(
        self, noise: GradientNoise, features: torch.Tensor, labels: torch.Tensor
    ) -> tuple[float, PrivateSteps]:
        from shieldfl.privacy.dp_sgd import train_privately

        done = train_privately(
            self._model,
            features,
            labels,
            self.settings,
            noise_multiplier=noise.noise_multiplier,
            max_grad_norm=noise.max_grad_norm,
            loss=self._objective.loss,
        )
        return done.mean_loss, PrivateSteps(done.steps, done.sample_rate)


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
    """Return the seed of one client's training in one round."""
    return int(np.random.SeedSequence([seed, round_number, client]).generate_state(1, np.uint32)[0])
