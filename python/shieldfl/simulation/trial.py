"""Whether methods can train a user's task: tried on two samples, before anything of a run is done."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.losses import mean_loss
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.settings import MethodSettings
from shieldfl.sensitivity.per_sample_gradients import mean_over_samples
from shieldfl.simulation.data import Dataset
from shieldfl.training.objective import Objective

__all__ = ["try_model", "try_task"]

_BY_SAMPLE = ("per-sample", "label")


def try_task(
    methods: Mapping[str, Method],
    models: Mapping[str, nn.Module],
    settings: MethodSettings,
    dataset: Dataset,
    objective: Objective,
) -> None:
    """Raise ParameterError where a method asks for what the task, or its model, cannot give."""
    features, targets = dataset.train_features[:2], dataset.train_labels[:2]
    for name, method in methods.items():
        private = type(method).trains_privately(name, settings.of(name))
        objective.check_method(name, method.scores, trains_privately=private)
        if method.scores in _BY_SAMPLE:
            with torch.random.fork_rng(devices=[]):
                mean_over_samples(models[name], features, targets, 2, torch.abs, objective.loss)


def try_model(model: nn.Module, dataset: Dataset, objective: Objective) -> None:
    """Go forward and backward once, as mini-batches do; a training function does it in its own way.

    Raises ParameterError where that fails, which says of what kind the data are. The model is not changed.
    """
    features, targets = dataset.train_features[:2], dataset.train_labels[:2]
    try:
        outputs = deepcopy(model).eval()(features)
        if objective.train is not None:
            return
        loss = mean_loss(objective.loss, outputs, targets)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise ParameterError("the loss must return one number, the mean over the samples, as a tensor")
        loss.backward()  # type: ignore[no-untyped-call]
    except ParameterError:
        raise
    except Exception as error:  # whatever a user's model or loss raises
        raise ParameterError(
            f"the model or its loss fails on two samples, features {_kind(features)} and targets {_kind(targets)}: "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}. Whole numbers come as int64, all "
            "others as float32: convert what should be the other"
        ) from error


def _kind(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
