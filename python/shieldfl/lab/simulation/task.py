"""What a run learns: a user's own model, data and objective, in place of a data set and a model by name."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

from shieldfl.errors import ArrayTypeError, DataError, ParameterError
from shieldfl.lab.simulation.data import Dataset, IndexArray, check_alike, deal_out
from shieldfl.lab.simulation.results import RoundRecord
from shieldfl.learning.local_trainer import LocalTrainer, MakeOptimizer, Metric, Objective, TrainModel
from shieldfl.learning.local_update import GradientNoise, StartingPoint
from shieldfl.learning.scores import full_batch_gradient, layer_chain, mean_over_samples
from shieldfl.methods.registry import MethodSettings
from shieldfl.models.sample_gradients import (
    Loss,
    batch_gradients,
    check_all_used,
    check_samples_apart,
    first_line,
    mean_loss,
)
from shieldfl.models.torch_bridge import flatten, flatten_buffers
from shieldfl.rounds.method import Method
from shieldfl.settings import TrainingSettings

__all__ = ["Task", "as_samples", "load_task", "try_model", "try_task"]

_TAKEN = {field.name for field in fields(RoundRecord)} - {"accuracy"} | {"seed", "method", "test_loss"}
_TAKEN_HEADS = ("personalised_", "share_", "seconds_")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model, the data of all clients, and what is to be learnt: what :func:`shieldfl.run` takes.

    ``Task(model=make_model, train_data=(features, targets), test_data=(features, targets))``

    Raises ParameterError, ArrayTypeError or DataError for data that do not fit together, and for a partition
    that loses or doubles a sample: the message says which.
    """

    model: Callable[[], nn.Module] | nn.Module
    """A function that returns a new float32 module, or a module.

    The run's seed decides the random numbers of a new module. Every method and seed starts from the
    parameters of a given module.
    """
    train_data: Any
    """Training features and targets: two arrays or tensors of N samples, or a ``Dataset`` of such pairs.

    It may also be a list with one of these for each client.
    """
    test_data: Any
    """Test features and targets, or a ``Dataset``, on which every model is measured."""
    partition: Sequence[Any] | None = None
    """Positions of each client's samples, each sample once.

    None deals samples out by the run's ``alpha`` if targets are classes (whole numbers, one for each sample),
    and evenly otherwise.
    """
    loss: Loss | None = None
    """Function of outputs and targets of a mini-batch that returns the mean loss; None for cross-entropy."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """Functions of outputs and targets of the whole test set, on the CPU, that return a number; by name."""
    optimizer: MakeOptimizer | None = None
    """Function of trained parameters that returns a torch optimizer; None for SGD by the run's settings."""
    train: TrainModel | None = None
    """``train(model, features, targets, seed)`` trains in place in its own way and returns the mean loss.

    None trains on mini-batches.
    """
    name: str = "own task"

    def __post_init__(self) -> None:
        taken = [name for name in self.metrics if name in _TAKEN or name.startswith(_TAKEN_HEADS)]
        if taken:
            raise ParameterError(f"a metric cannot be called {taken[0]!r}, as another figure is: rename it")
        self.objective()
        if isinstance(self.train_data, list) and self.partition is not None:
            raise ParameterError("train_data has a part for each client: leave out partition")

    def objective(self) -> Objective:
        """Return the objective of training.

        Raises ParameterError if one of the functions would not be used.
        """
        return Objective(self.loss, self.metrics, self.optimizer, self.train)

    def built(self, seed: int) -> nn.Module:
        """Return the model that a run starts from. Raises ParameterError for what is none, or not float32."""
        if isinstance(self.model, nn.Module):
            model: Any = deepcopy(self.model)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = self.model()
        if not isinstance(model, nn.Module):
            raise ParameterError(f"model must return a torch module, and gives {type(model).__name__}")
        wrong = [name for name, one in model.named_parameters() if one.dtype != torch.float32]
        if wrong:
            raise ParameterError(
                f"runs train float32 models, and {wrong[0]!r} has another dtype: call model.float()"
            )
        return model

    def dataset(self) -> Dataset:
        """Return the data as tensors: float32, or int64 for whole numbers such as tokens and classes."""
        features, targets, _ = self._train
        test_features, test_targets = self._test
        check_alike(self._test, features, targets, "test_data")
        return Dataset(
            self.name,
            f"{self.name} ({len(targets):,} train / {len(test_targets):,} test)",
            _classes(targets, test_targets) if self.loss is None else 0,
            features,
            targets,
            test_features,
            test_targets,
            None,
        )

    @functools.cached_property
    def _train(self) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        """Features and targets of all clients, and how many samples each has, where they are told apart."""
        data = self.train_data
        if not isinstance(data, list):
            return *as_samples(data, "train_data"), []
        if not data:
            raise ParameterError("train_data is an empty list: give one part for each client")
        pairs = [as_samples(part, f"train_data of client {client}") for client, part in enumerate(data)]
        for client, pair in enumerate(pairs):
            check_alike(pair, *pairs[0], f"train_data of client {client}")
        features, targets = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        return features, targets, [len(targets) for _, targets in pairs]

    @functools.cached_property
    def _test(self) -> tuple[torch.Tensor, torch.Tensor]:
        return as_samples(self.test_data, "test_data")

    def concentration(self, dataset: Dataset, alpha: float) -> float | None:
        """Return the Dirichlet concentration to deal data out by: infinite for evenly, None for own parts."""
        if self.partition is not None or isinstance(self.train_data, list):
            return None
        targets = dataset.train_labels
        return alpha if targets.dtype == torch.int64 and targets.ndim == 1 else math.inf

    def parts(
        self, dataset: Dataset, clients: int, alpha: float, seed: int, classes_per_client: int | None = None
    ) -> list[IndexArray]:
        """Return for each client the positions of its samples.

        Raises ParameterError for a wrong partition.
        """
        count = len(dataset.train_labels)
        by_classes = self.concentration(dataset, 1.0) == 1.0
        if classes_per_client is not None and not by_classes:
            raise ParameterError(
                "classes_per_client assigns samples by class, and this task's targets are no classes, or "
                "its data are already divided: leave it out"
            )
        given = self.partition
        if isinstance(self.train_data, list):
            given = np.split(np.arange(count), np.cumsum(self._train[2])[:-1])
        if given is not None:
            return _checked_partition(given, count, clients)
        labels = dataset.train_labels.numpy() if by_classes else np.zeros(count, np.int64)
        return deal_out(labels, clients, alpha if by_classes else math.inf, seed, classes_per_client)


def as_samples(data: Any, what: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of features and targets, float32 or int64; errors call them ``what``.

    Raises ParameterError, ArrayTypeError or DataError for anything else.
    """
    if isinstance(data, tuple) and len(data) == 2:
        features, targets = data
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if not len(data):
            raise ParameterError(f"{what} has no samples")
        samples = [data[index] for index in range(len(data))]
        if not all(isinstance(one, tuple) and len(one) == 2 for one in samples):
            raise ParameterError(f"samples of {what} must be pairs of features and target")
        for one in chain.from_iterable(samples):
            _check_unmasked(one, f"samples of {what}")
        try:
            features, targets = (
                torch.stack([torch.as_tensor(one) for one in column]) for column in zip(*samples, strict=True)
            )
        except (RuntimeError, TypeError, ValueError) as error:
            raise ParameterError(f"samples of {what} cannot be put into one tensor: {error}") from error
    else:
        raise ArrayTypeError(
            f"{what} must be a pair of features and targets, or a torch Dataset, not {type(data).__name__}"
        )
    tensors = _tensor(features, f"features of {what}"), _tensor(targets, f"targets of {what}")
    if not len(tensors[0]) == len(tensors[1]) > 0:
        raise ParameterError(f"{what} has {len(tensors[0])} features and {len(tensors[1])} targets")
    return tensors


def _check_unmasked(values: Any, what: str) -> None:
    if isinstance(values, np.ma.MaskedArray):
        raise ArrayTypeError(
            f"{what} are a masked array, whose mask would be lost: pass .filled(...) of it, or leave samples "
            "out"
        )


def _tensor(values: Any, what: str) -> torch.Tensor:
    _check_unmasked(values, what)
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArrayTypeError(f"{what} are no array of numbers: {error}") from error
    if tensor.ndim == 0:
        raise ArrayTypeError(f"{what} are a single number: give one for each sample")
    if tensor.is_complex():
        raise ArrayTypeError(f"{what} are complex: give real numbers")
    tensor = tensor.float() if tensor.is_floating_point() else tensor.long()
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise DataError(f"{what} have NaN or infinite values: mend or drop those samples")
    # A copy, so that the user's changes and a metric's do not reach each other's data.
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _classes(*targets: torch.Tensor) -> int:
    """Return how many classes there are.

    Raises ParameterError for targets that the cross-entropy cannot take.
    """
    if any(one.dtype != torch.int64 for one in targets):
        raise ParameterError(
            "targets are no classes, for which the loss is the cross-entropy by default: give a loss, such "
            "as torch.nn.MSELoss()"
        )
    lowest, highest = map(int, torch.cat(targets).aminmax())
    if lowest < 0:
        raise ParameterError(f"classes are counted from 0, and there is a target {lowest}")
    return highest + 1


def _checked_partition(given: Sequence[Any], count: int, clients: int) -> list[IndexArray]:
    for part in given:
        _check_unmasked(part, "positions of samples")
    parts = [np.asarray(part) for part in given]
    if len(parts) != clients:
        raise ParameterError(f"there are {len(parts)} parts of the data, and {clients} clients")
    for client, part in enumerate(parts):
        if part.ndim != 1 or part.dtype.kind not in "iu" or not part.size:
            raise ParameterError(f"the part of client {client} must be positions of samples, at least one")
    every = np.concatenate(parts).astype(np.int64)
    if every.min() < 0 or every.max() >= count:
        raise ParameterError(f"a part has a position outside of the {count:,} samples")
    times = np.bincount(every, minlength=count)
    lost, doubled = (times == 0).sum(), (times > 1).sum()
    if lost or doubled:
        raise ParameterError(
            f"the partition has {lost:,} of {count:,} samples at no client and {doubled:,} at several: each "
            "belongs to one. Leave samples out of train_data, not out of the partition"
        )
    return [np.sort(part).astype(np.int64) for part in parts]


def load_task(path: str) -> Task:
    """Return the task that ``module:name`` names, or what the function of that name returns.

    The module is also looked for in the current folder. Errors of the module itself pass through. Raises
    ParameterError for a path that leads to nothing, or to no task.
    """
    module_name, _, name = path.partition(":")
    if not (module_name and name):
        raise ParameterError(f"{path!r} is no MODULE:NAME: write my_app:task for what my_app.py calls task")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module_name), name, None)
    except ModuleNotFoundError as error:
        # Not for what the module itself imports.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ParameterError(f"there is no module {module_name!r}, neither installed nor in {here}") from None
    if found is None:
        raise ParameterError(f"the module {module_name!r} has no {name!r}")
    task = found() if callable(found) else found
    if not isinstance(task, Task):
        raise ParameterError(
            f"{path} is no task, but {type(task).__name__}: make a shieldfl.Task, or a function that returns "
            "one"
        )
    return task


def try_task(
    methods: Mapping[str, Method],
    models: Mapping[str, nn.Module],
    settings: MethodSettings,
    dataset: Dataset,
    objective: Objective,
) -> None:
    """Raise ParameterError where a method asks for what the task, or its model, cannot give."""
    features, targets = dataset.train_features[:3], dataset.train_labels[:3]
    once = TrainingSettings(local_epochs=1, batch_size=len(features))
    for name, method in methods.items():
        private = type(method).trains_privately(name, settings.of(name))
        objective.check_method(name, method.scores, trains_privately=private)
        try:
            with torch.random.fork_rng(devices=[]):
                if method.scores in ("per-sample", "label"):
                    scored = deepcopy(models[name]).eval()
                    check_samples_apart(scored, features, targets, objective.loss)
                    if objective.loss is None and layer_chain(scored) is not None:
                        # Scored by the layers' own algebra, and not by torch.func.
                        found = mean_over_samples(scored, features, targets, score=torch.clone)
                        expected = full_batch_gradient(scored, features, targets)
                        if np.linalg.norm(found - expected) > 1e-3 * np.linalg.norm(expected):
                            raise ParameterError(
                                "the gradients of single samples do not add up to that of the batch"
                            )
                if objective.train is not None:
                    continue
                model = deepcopy(models[name]).train()
                gradients, _ = batch_gradients(model, features, targets, objective.loss)
                if method.trained is not None or all(gradient is None for gradient in gradients.values()):
                    check_all_used(gradients)
                noise = GradientNoise(noise_multiplier=0.0, max_grad_norm=1.0) if private else None
                vectors = flatten(models[name]), flatten_buffers(models[name])
                start = StartingPoint(*vectors, scores=method.scores, noise=noise)
                model = deepcopy(models[name])
                LocalTrainer(model, features, targets, once, objective=objective).train(start, seed=0)
        except ParameterError as error:
            raise ParameterError(f"{name} cannot train this model: {error}") from error


def try_model(model: nn.Module, dataset: Dataset, objective: Objective) -> None:
    """Go forward and backward once, as mini-batches do; with a training function, only forward.

    Raises ParameterError with the kinds of the data if that fails. The model is not changed.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise ParameterError(
            "the model is scripted, and torch's copies of such a module cannot be trained: pass the module "
            "that it was scripted from"
        )
    try:
        copy = deepcopy(model).eval()
    except RuntimeError as error:
        raise ParameterError(
            f"torch cannot copy the model ({first_line(error)}): let it keep no tensor that it has computed, "
            "as torch.nn.utils.weight_norm does and torch.nn.utils.parametrizations.weight_norm does not"
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
            f"the model or its loss fails on two samples, features {_kind(features)} and targets "
            f"{_kind(targets)}: {first_line(error)}. Whole numbers come as int64, all others as float32: "
            "convert what should be the other"
        ) from error


def _kind(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
