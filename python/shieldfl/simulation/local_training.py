"""One client's data and training, for any method's client steps."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from shieldfl.methods.method import FloatVector, LocalUpdate, StartingPoint
from shieldfl.profiling.stages import StageClock
from shieldfl.sensitivity.fisher import (
    FisherAccumulator,
    full_batch_fisher,
    normalise_per_layer,
    per_sample_fisher,
)
from shieldfl.sensitivity.taylor import taylor_sensitivity
from shieldfl.simulation.training import TrainingSettings, train_locally
from shieldfl.torch_bridge import flatten, flatten_buffers, load_flat, load_flat_buffers, parameter_layout

__all__ = ["LocalTrainer"]


class LocalTrainer:
    """Trains on one client's samples.

    Parameters
    ----------
    model : a module that is overwritten; several trainers may share one.
    features, labels : the client's samples.
    settings : of local training.
    sensitivity : which scores to bring along, or None (see :class:`shieldfl.methods.method.Method`).
    clock : where the time goes: stages ``train`` and ``score``.
    """

    def __init__(
        self,
        model: nn.Module,
        features: torch.Tensor,
        labels: torch.Tensor,
        settings: TrainingSettings,
        sensitivity: str | None,
        clock: StageClock,
    ) -> None:
        self._model = model
        self._layout = parameter_layout(model)
        self._features = features
        self._labels = labels
        self._settings = settings
        self._sensitivity = sensitivity
        self._clock = clock

    def train(self, start: StartingPoint, seed: int) -> tuple[LocalUpdate, float]:
        """Train from ``start``; return the update and the mean loss of the last epoch."""
        fisher = FisherAccumulator(self._layout) if self._sensitivity == "batch" else None

        def accumulate(model: nn.Module) -> None:
            assert fisher is not None
            with self._clock.stage("score"):
                fisher.update(model)

        with self._clock.stage("train"):
            load_flat(self._model, start.parameters)
            load_flat_buffers(self._model, start.buffers)
        raw = None
        if self._sensitivity == "full-batch":
            with self._clock.stage("score"):
                raw = full_batch_fisher(self._model, self._features, self._labels)
        with self._clock.stage("train"):
            hook = None if fisher is None else accumulate
            loss = train_locally(self._model, self._features, self._labels, self._settings, seed, hook)
            parameters, buffers = flatten(self._model), flatten_buffers(self._model)
        scores = None
        if self._sensitivity == "taylor":
            with self._clock.stage("score"):
                scores = taylor_sensitivity(self._model, self._features, self._labels)
        elif self._sensitivity is not None:
            with self._clock.stage("score"):
                scores = normalise_per_layer(self._raw_scores(raw, fisher), self._layout)
        return LocalUpdate(parameters, buffers, scores), loss

    def _raw_scores(self, at_start: FloatVector | None, fisher: FisherAccumulator | None) -> FloatVector:
        if at_start is not None:
            return at_start
        if fisher is not None:
            return fisher.scores()
        return per_sample_fisher(self._model, self._features, self._labels)


def training_seed(seed: int, round_number: int, client: int) -> int:
    """Return the seed of one client's training in one round."""
    return int(np.random.SeedSequence([seed, round_number, client]).generate_state(1, np.uint32)[0])
