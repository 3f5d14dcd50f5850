"""Runs methods side by side on the same data, partition and initial model."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from shieldfl.build_info import build_info, processor_name
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.installing import require
from shieldfl.methods.discovery import checked_methods
from shieldfl.methods.model_adaptation import adapt_model, load_privacy_packages
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.registry import make_method
from shieldfl.methods.settings import MethodSettings
from shieldfl.privacy.synthetic_data import load_labelled_samples
from shieldfl.simulation.checkpoint import Checkpoint, digest_of, run_identity
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.data import Dataset, load_dataset
from shieldfl.simulation.method_run import MethodRun
from shieldfl.simulation.partition import IndexArray, deal_out
from shieldfl.simulation.results import MethodResult, RoundRecord
from shieldfl.simulation.run_result import EndedRuns, Failure, Interruption, RunInterrupted, RunResult
from shieldfl.simulation.synthetic_shares import LabelledSamples, check_synthetic_samples
from shieldfl.simulation.task import Task, as_samples
from shieldfl.simulation.task_import import load_task
from shieldfl.simulation.torch_threads import threads_worth, torch_threads
from shieldfl.simulation.training_device import training_device
from shieldfl.simulation.trial import try_model, try_task
from shieldfl.simulation.written_run import WrittenRun
from shieldfl.torch_bridge import flatten, flatten_buffers, parameter_layout
from shieldfl.training.models import build_model, default_model
from shieldfl.training.objective import Objective

__all__ = ["describe_environment", "planned_method", "run_methods"]


def run_methods(
    config: RunConfig,
    methods: Sequence[str],
    settings: MethodSettings | None = None,
    on_round: Callable[[str, RoundRecord], None] | None = None,
    synthetic: LabelledSamples | None = None,
    task: Task | None = None,
    on_finished: Callable[[MethodRun], None] = lambda run: None,
) -> RunResult:
    """Run each method from the same start and return what was measured.

    Parameters
    ----------
    config : data, federation, training.
    methods : names out of ``shieldfl.methods.discovery.method_names()``.
    settings : of the methods; None for their defaults.
    on_round : called with the method's name after each round; where a run goes on from a checkpoint, first for
        the rounds that it had before.
    synthetic : features and labels, of the data set's shapes and classes, for methods that train on synthetic data in
        some rounds; None takes those that the config names, or makes some, see
        :mod:`shieldfl.simulation.synthetic_shares`.
    task : a user's own model, data and objective, in the place of the config's.
    on_finished : called with each method's run once it has ended: it has the models, which the result does not.

    Raises ParameterError, DataError, RangeError (training diverged), RunInterrupted; PolicyError and WireFormatError
    for a checkpoint that it does not go on from. What a run had finished that an error ends is in its ``ended``.
    """
    methods = checked_methods(methods)
    training_device(config.device)  # before anything is read or made
    if config.tensorboard:
        require("tensorboard")
    if task is None and config.task is not None:
        task = load_task(config.task)
    if task is not None and synthetic is not None:
        synthetic = as_samples(synthetic, "synthetic")
    checkpoint = None
    if config.checkpoint is not None:
        require("cryptography")  # else missed when the first round is written down
        checkpoint = Checkpoint(Path(config.checkpoint), resume=config.resume)
    if config.synthetic_data is not None:
        if synthetic is not None:
            raise ParameterError("synthetic data are given twice: as samples, and as a file in the config")
        synthetic = load_labelled_samples(config.synthetic_data)
    if task is None:
        dataset = load_dataset(config.dataset, config.data_dir)
        model = build_model(
            config.model or default_model(dataset.name), dataset.feature_shape, dataset.classes, config.seed
        )
        labels = dataset.train_labels.numpy()
        partition = deal_out(labels, config.clients, config.alpha, config.classes_per_client, config.seed)
    else:
        dataset, model = task.dataset(), task.built(config.seed)
        try_model(model, dataset, task.objective())
        parts = config.clients, config.alpha, config.seed, config.classes_per_client
        partition = task.parts(dataset, *parts)
    trained = _Trained(
        config.model or default_model(dataset.name) if task is None else type(model).__name__,
        model,
        dataset,
        partition,
        Objective() if task is None else task.objective(),
        task is not None,
        config.alpha if task is None else task.concentration(dataset, config.alpha),
    )
    most, dtype = config.threads or torch.get_num_threads(), dataset.train_features.dtype
    threads = threads_worth(model, dataset.feature_shape, config.batch_size, most, dtype)
    with torch_threads(threads):
        return _run_methods(
            config,
            methods,
            settings or MethodSettings(),
            on_round,
            synthetic,
            trained,
            checkpoint,
            on_finished,
            max(1, (config.threads or 0) // threads),
        )


@dataclass(frozen=True)
class _Trained:
    """What all methods start from."""

    name: str
    model: nn.Module
    dataset: Dataset
    partition: list[IndexArray]
    objective: Objective
    is_own: bool
    """Whether it is a user's task, and no data set by name."""
    alpha: float | None
    """Dirichlet concentration of the partition; None for one of the user's own."""

    def identity(self) -> dict[str, str]:
        """Return what makes a user's task the same one; the code of its functions is not looked at, their names are."""
        objective = self.objective
        functions = [objective.loss, objective.optimizer, objective.train, *objective.metrics.values()]
        return {
            "the model": digest_of(*self.model.state_dict().values(), text=repr(self.model)),
            "the partition": digest_of(*map(torch.from_numpy, self.partition)),
            "the metrics": ", ".join(objective.names),
            "the loss, optimizer or training": ", ".join(map(_name_of, functions)),
        }


def _name_of(function: Any) -> str:
    if isinstance(function, nn.Module):
        return repr(function)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _run_methods(
    config: RunConfig,
    names: Sequence[str],
    settings: MethodSettings,
    on_round: Callable[[str, RoundRecord], None] | None,
    synthetic: LabelledSamples | None,
    trained: _Trained,
    checkpoint: Checkpoint | None,
    on_finished: Callable[[MethodRun], None],
    processes: int,
) -> RunResult:
    dataset, model, partition = trained.dataset, trained.model, trained.partition
    weights = tuple(map(len, partition)) if config.weighting == "samples" else None
    # Before any of them trains: of the same weights, and what one of them cannot take ends the run at once.
    modules: dict[str, nn.Module] = {}
    made: dict[str, Method] = {}
    seconds = dict.fromkeys(names, 0.0)
    for name in names:
        load_privacy_packages(name, settings)
    for name in names:
        with _added_to(seconds, name):
            modules[name] = adapt_model(name, deepcopy(model), settings)
            made[name] = planned_method(name, config, settings, dataset, modules[name], weights)
    _check_data(made, modules, settings, synthetic, trained, config.clients)
    if checkpoint is not None:
        checkpoint.begin(
            run_identity(config, dataset, made, synthetic, trained.identity() if trained.is_own else {})
        )
    result = RunResult(
        dataset.description,
        trained.name,
        asdict(config)
        | {"dataset": dataset.name, "alpha": None if config.classes_per_client else trained.alpha},
        describe_environment(),
        parameter_layout(model).size,
        metrics=trained.objective.names,
    )
    with _written(config, {name: one.own_settings for name, one in made.items()}, result, on_round) as tell:
        if checkpoint is not None:
            result.methods.extend(checkpoint.finished)
            _tell_again(checkpoint.finished, tell)
        for place, name in enumerate(names):
            if place < len(result.methods):
                continue
            run: MethodRun | None = None
            kept = None if checkpoint is None else checkpoint.take_running()
            try:
                with _added_to(seconds, name):
                    # Taken out, so that a method's clients do not outlive its run.
                    run = MethodRun(
                        made.pop(name),
                        config,
                        dataset,
                        modules.pop(name),
                        partition,
                        weights,
                        synthetic,
                        kept,
                        trained.objective,
                        processes=processes,
                    )
                if kept is not None:
                    seconds[name] = kept.setup_seconds
                if checkpoint is None:
                    run.run(tell)
                else:
                    run.run(tell, partial(_keep, checkpoint, result, seconds[name]))
                    checkpoint.keep_finished([*result.methods, run.result(seconds[name])])
            except (KeyboardInterrupt, ShieldError) as error:
                if run is not None and run.records:
                    result.methods.append(run.result(seconds[name]))
                number = run.round_number if run is not None else 1 if kept is None else len(kept.records) + 1
                _keep_ended(error, result, name, number, tuple(names[place + 1 :]))
                raise
            result.methods.append(run.result(seconds[name]))
            on_finished(run)
    return result


def _keep_ended(
    error: KeyboardInterrupt | ShieldError, result: RunResult, name: str, number: int, later: tuple[str, ...]
) -> None:
    """Put into an error what was finished before it. Raises RunInterrupted, which has that, in the place of Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        raise RunInterrupted(replace(result, interrupted=Interruption(name, number, later))) from error
    error.ended = EndedRuns(replace(result, interrupted=Failure(name, number, later, str(error))))


@contextmanager
def _written(
    config: RunConfig,
    methods: Mapping[str, Any],
    result: RunResult,
    on_round: Callable[[str, RoundRecord], None] | None,
) -> Iterator[Callable[[str, RoundRecord], None] | None]:
    """Yield what is told of rounds: with a folder, that they come into it, as all does that was measured in the end."""
    if config.folder is None:
        yield on_round
        return
    written = WrittenRun(config, methods, result.environment)

    def tell(method: str, record: RoundRecord) -> None:
        written.tell(method, record)
        if on_round is not None:
            on_round(method, record)

    try:
        yield tell
    except BaseException as error:
        kept = error if isinstance(error, RunInterrupted) else getattr(error, "ended", None)
        try:
            written.finish(result if kept is None else kept.result)
        except ShieldError as another:  # such as the full disk that ended the run
            error.add_note(str(another))
        raise
    written.finish(result)


def _check_data(
    methods: dict[str, Method],
    modules: dict[str, nn.Module],
    settings: MethodSettings,
    synthetic: LabelledSamples | None,
    trained: _Trained,
    clients: int,
) -> None:
    """Raise where a method cannot train on the data, before any of them does."""
    if trained.is_own:
        try_task(methods, modules, settings, trained.dataset, trained.objective)
    check_synthetic_samples(synthetic, methods.values(), trained.dataset, clients)


def _tell_again(
    finished: Iterable[MethodResult], on_round: Callable[[str, RoundRecord], None] | None
) -> None:
    if on_round is not None:
        for method in finished:
            for record in method.rounds:
                on_round(method.method, record)


def _keep(checkpoint: Checkpoint, result: RunResult, setup_seconds: float, run: MethodRun) -> None:
    checkpoint.keep_round(result.methods, run.name, run.kept(checkpoint.key, setup_seconds))


@contextmanager
def _added_to(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] += time.perf_counter() - start


def planned_method(
    name: str,
    config: RunConfig,
    settings: MethodSettings,
    dataset: Dataset,
    model: nn.Module,
    weights: Sequence[int] | None,
) -> Method:
    """Return a method as a run's configuration has it, for clients of these weights (None: all alike) and this model.

    Raises ParameterError as :func:`shieldfl.methods.registry.make_method` does.
    """
    plan = FederationPlan.for_weights(
        weights,
        clients=config.clients,
        rounds=config.rounds,
        min_clients=config.min_clients,
        server_learning_rate=config.server_learning_rate,
        parameters=flatten(model).size,
        buffers=flatten_buffers(model).size,
        layer_offsets=parameter_layout(model).offsets,
        samples=len(dataset.train_labels),
        opener=config.opener,
        max_clients=config.max_clients,
    )
    return make_method(name, settings, plan)


def describe_environment() -> dict[str, Any]:
    """Return versions, processor and threads: nothing that names the machine or its user."""
    return dict(build_info()) | {
        "processor": processor_name(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": str(torch.__version__),
        "torch_threads": torch.get_num_threads(),
    }
