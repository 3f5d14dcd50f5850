"""Whether methods can train a user's task: tried on a few samples, before anything of a run is done."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.losses import mean_loss
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.settings import MethodSettings
from shieldfl.sample_gradients import batch_gradients, check_all_used, check_samples_apart, first_line
from shieldfl.sensitivity.gradient import full_batch_gradient
from shieldfl.sensitivity.layer_chains import LayerChain
from shieldfl.sensitivity.per_sample_gradients import mean_over_samples
from shieldfl.settings import TrainingSettings
from shieldfl.simulation.data import Dataset
from shieldfl.torch_bridge import flatten, flatten_buffers
from shieldfl.training.local_trainer import LocalTrainer
from shieldfl.training.local_update import GradientNoise, StartingPoint
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
    features, targets = dataset.train_features[:3], dataset.train_labels[:3]
    for name, method in methods.items():
        private = type(method).trains_privately(name, settings.of(name))
        objective.check_method(name, method.scores, trains_privately=private)
        try:
            with torch.random.fork_rng(devices=[]):
                if method.scores in _BY_SAMPLE:
                    _try_scores(deepcopy(models[name]).eval(), features, targets, objective)
                if objective.train is None:
                    _try_training(deepcopy(models[name]), method, features, targets, objective, private)
        except ParameterError as error:
            raise ParameterError(f"{name} cannot train this model: {error}") from error


def _try_scores(
    model: nn.Module, features: torch.Tensor, targets: torch.Tensor, objective: Objective
) -> None:
    check_samples_apart(model, features, targets, objective.loss)
    if objective.loss is None and LayerChain.of(model) is not None:
        # Scored by the layers' own algebra, and not by torch.func.
        found = mean_over_samples(model, features, targets, len(features), torch.clone)
        expected = full_batch_gradient(model, features, targets)
        if np.linalg.norm(found - expected) > 1e-3 * np.linalg.norm(expected):
            raise ParameterError("the gradients of single samples do not add up to that of the batch")


def _try_training(
    model: nn.Module,
    method: Method,
    features: torch.Tensor,
    targets: torch.Tensor,
    objective: Objective,
    private: bool,
) -> None:
    """Take a step of the method's own kind."""
    gradients, _ = batch_gradients(deepcopy(model).train(), features, targets, objective.loss)
    if method.trained is not None or all(gradient is None for gradient in gradients.values()):
        check_all_used(gradients)
    start = StartingPoint(
        flatten(model),
        flatten_buffers(model),
        scores=method.scores,
        noise=GradientNoise(noise_multiplier=0.0, max_grad_norm=1.0) if private else None,
    )
    settings = TrainingSettings(local_epochs=1, batch_size=len(features))
    LocalTrainer(model, features, targets, settings, objective=objective).train(start, seed=0)


def try_model(model: nn.Module, dataset: Dataset, objective: Objective) -> None:
    """Go forward and backward once, as mini-batches do; a training function does it in its own way.

    Raises ParameterError where that fails, which says of what kind the data are. The model is not changed.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise ParameterError(
            "the model is scripted, and torch's copies of such a module cannot be trained: pass the module that it was "
            "scripted from"
        )
    try:
        copy = deepcopy(model).eval()
    except RuntimeError as error:
        raise ParameterError(
            f"torch cannot copy the model ({first_line(error)}): let it keep no tensor that it has computed. "
            "torch.nn.utils.parametrizations.weight_norm keeps none, torch.nn.utils.weight_norm does"
        ) from error
    features, targets = dataset.train_features[:2], dataset.train_labels[:2]
    try:
        outputs = copy(features)
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
            f"{first_line(error)}. Whole numbers come as int64, all others as float32: convert what should be the other"
        ) from error


def _kind(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
