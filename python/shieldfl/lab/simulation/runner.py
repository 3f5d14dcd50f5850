"""``shieldfl.run``: methods side by side, for each seed from the same data, partition and initial model."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from shieldfl.array_view import as_unsigned
from shieldfl.authority.role_state import RunFolder
from shieldfl.build_info import build_info, processor_name, require
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.lab.simulation.compared_runs import ComparedRuns
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import (
    Dataset,
    LabelledSamples,
    check_synthetic_samples,
    deal_out,
    load_dataset,
)
from shieldfl.lab.simulation.federation import threads_worth, torch_threads, training_device
from shieldfl.lab.simulation.method_run import LastModels, MethodRun
from shieldfl.lab.simulation.results import EndedRuns, Interruption, RoundRecord, RunInterrupted, RunResult
from shieldfl.lab.simulation.task import Task, as_samples, load_task, try_model, try_task
from shieldfl.lab.simulation.written_run import Checkpoint, WrittenRun, digest_of, run_identity
from shieldfl.learning.local_trainer import Objective
from shieldfl.learning.networks import build_model, default_model
from shieldfl.methods.registry import (
    MethodSettings,
    adapt_model,
    checked_methods,
    load_privacy_packages,
    make_method,
)
from shieldfl.models.torch_bridge import flatten, flatten_buffers, parameter_layout
from shieldfl.privacy.synthetic_data import load_labelled_samples
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan

__all__ = ["config_of_seed", "describe_environment", "planned_method", "run", "run_seeds"]

Told = Callable[[int, str, RoundRecord], None]
"""Callback after each round, with the seed, the method's name and the round's record."""


def run(
    task: Task | str = "digits",
    methods: str | Sequence[str] = "full-he",
    *,
    seeds: int | Sequence[int] = 0,
    settings: MethodSettings | Mapping[str, Mapping[str, Any]] | None = None,
    synthetic: LabelledSamples | None = None,
    on_round: Told | None = None,
    **config: Any,
) -> ComparedRuns:
    """Train a federation of clients in this process under each method, once for each seed, and compare them.

    Parameters
    ----------
    task : the user's own model and data; or the name of a data set, ``"digits"``, which needs no files, or
        another of :data:`shieldfl.lab.simulation.DATASETS`; or ``"module:name"`` of a task.
    methods : a name, or several, of ``shieldfl.methods.registry.method_names()``.
    seeds : one or several; each is a run of all methods with a partition, initial model and order of samples
        of its own, the same for all methods. They are never seeds of noise or keys.
    settings : of methods, by name: ``{"selective-shield": {"noise_multiplier": 0.5}}``.
    synthetic : features and targets for methods that train on synthetic data, as the task's own data are
        given.
    on_round : called with the seed, the method's name and its record after each round.
    config : of :class:`shieldfl.lab.simulation.config.RunConfig`, such as ``rounds=10, clients=20,
        batch_size=32, learning_rate=0.01``. ``clients`` is by default as many as the task's data have parts
        for. With several seeds, a ``folder`` or ``checkpoint`` has a folder for each.

    Raises ParameterError for what does not fit together, DataError, RangeError where training diverges, and
    RunInterrupted at Ctrl-C, whose ``result`` has what was finished of the seed that ran, and ``earlier`` the
    seeds before. If another error of shieldfl ends a run that has begun, its ``ended`` has both.
    """
    if isinstance(task, str) and ":" in task:
        task, config = load_task(task), {**config, "task": task}
    if not isinstance(settings, MethodSettings):
        given, settings = settings or {}, MethodSettings()
        for name, values in given.items():
            settings = settings.changed(name, values)
    return run_seeds(
        _config(task, config),
        (methods,) if isinstance(methods, str) else methods,
        _listed(seeds),
        settings,
        synthetic,
        task if isinstance(task, Task) else None,
        on_round,
    )


def run_seeds(
    config: RunConfig,
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: MethodSettings | None = None,
    synthetic: LabelledSamples | None = None,
    task: Task | None = None,
    on_round: Told | None = None,
) -> ComparedRuns:
    """Do what :func:`run` does, with settings already read; the config's own seed is not used.

    If a run resumes from a checkpoint, ``on_round`` is first called for its earlier rounds. ``synthetic`` may
    be None if the config names a file, or if synthetic data are to be made.
    """
    seeds = tuple(as_unsigned(seed, "a seed") for seed in seeds)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ParameterError("give at least one seed, and each once")
    methods = checked_methods(methods)
    training_device(config.device)  # before anything is read or made
    if config.tensorboard:
        require("tensorboard")
    if task is None and config.task is not None:
        task = load_task(config.task)
    if config.synthetic_data is not None:
        if synthetic is not None:
            raise ParameterError("synthetic data are given twice: as samples, and as a file in the config")
        synthetic = load_labelled_samples(config.synthetic_data)
    elif synthetic is not None and task is not None:
        synthetic = as_samples(synthetic, "synthetic")
    results: list[RunResult] = []
    models: dict[tuple[int, str], LastModels] = {}
    for seed in seeds:
        begun = _SeedRun(config_of_seed(config, seed, seeds), methods, on_round)
        try:
            begun.prepare(task)
            with torch_threads(begun.threads):
                result = begun.begin(settings or MethodSettings(), synthetic)
                for name in methods[len(result.methods) :]:
                    method_run = begun.method_run(result, name, synthetic)
                    method_run.run(begun.tell, partial(begun.keep, result, method_run))
                    models[seed, name] = begun.ended(result, method_run)
            begun.finish(result)
            results.append(result)
        except BaseException as error:
            begun.stop(error, tuple(results))
            raise
    return ComparedRuns(seeds, tuple(results), models)


def config_of_seed(config: RunConfig, seed: int, seeds: Sequence[int]) -> RunConfig:
    """Return the configuration of one seed; with several seeds, each has a folder of its own."""
    if len(seeds) == 1:
        return config if seed == config.seed else replace(config, seed=seed)
    folder, checkpoint = (
        None if place is None else str(Path(place) / f"seed-{seed}")
        for place in (config.folder, config.checkpoint)
    )
    own = replace(config, seed=seed, folder=folder, checkpoint=checkpoint, resume=False)
    # A seed that had not begun when the run was cut off begins now.
    begun = own.checkpoint_folder is not None and RunFolder(own.checkpoint_folder).is_begun
    return replace(own, resume=config.resume and begun)


def _listed(seeds: Any) -> list[Any]:
    try:
        return list(seeds)
    except TypeError:  # one, also in an array without dimensions
        return [seeds]


def _config(task: Task | str, given: Mapping[str, Any]) -> RunConfig:
    known = [field.name for field in fields(RunConfig)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ParameterError(f"a run has no setting {unknown[0]!r}: choose from {', '.join(known)}")
    if "seed" in given:
        raise ParameterError("a run takes seeds, one or several: pass seeds instead of seed")
    if isinstance(task, str):
        if given.get("dataset", task) != task:
            raise ParameterError(f"the data set is {task!r} as task and {given['dataset']!r} as dataset")
        return RunConfig(**{**given, "dataset": task})
    own = [name for name in ("dataset", "data_dir", "model") if name in given]
    if own:
        raise ParameterError(f"{own[0]} is of data sets by name: the task has data and a model of its own")
    parts = task.train_data if isinstance(task.train_data, list) else task.partition
    return RunConfig(**{**({} if parts is None else {"clients": len(parts)}), **given})


class _SeedRun:
    def __init__(self, config: RunConfig, names: Sequence[str], on_round: Told | None) -> None:
        self._config = config
        self._names = names
        self._on_round = on_round
        self._checkpoint: Checkpoint | None = None
        self._own: dict[str, str] = {}
        """Digests and names that identify a user's task, by what they are about; empty without a task."""
        self._place = 0
        """Index of the current method in the names."""
        self._run: MethodRun | None = None
        self._round = 0
        """Round of a method that has not begun or has ended; 0 before the first method."""
        self._seconds = dict.fromkeys(names, 0.0)
        """Seconds of set-up, by method."""
        self._written: WrittenRun | None = None
        self._result: RunResult | None = None
        """Results that were finished; None until the methods fit the data."""

    def prepare(self, task: Task | None) -> None:
        config = self._config
        if config.checkpoint_folder is not None:
            require("cryptography")  # else missed when the first round is written down
            self._checkpoint = Checkpoint(config.checkpoint_folder, resume=config.resume)
        dealt = (config.clients, config.alpha, config.seed, config.classes_per_client)
        self._task = task
        if task is None:
            self._objective = Objective()
            self._alpha: float | None = config.alpha
            self._dataset = dataset = load_dataset(config.dataset, config.data_dir)
            self._model_name = config.model or default_model(dataset.name)
            model = build_model(self._model_name, dataset.feature_shape, dataset.classes, config.seed)
            self._parts = deal_out(dataset.train_labels.numpy(), *dealt)
        else:
            self._objective = task.objective()
            self._dataset = dataset = task.dataset()
            self._alpha = task.concentration(dataset, config.alpha)
            model = task.built(config.seed)
            self._model_name = type(model).__name__
            try_model(model, dataset, self._objective)
            self._parts = task.parts(dataset, *dealt)
            self._own = _identity(model, self._parts, self._objective)
        self._model = model
        most = config.threads or torch.get_num_threads()
        self.threads = threads_worth(model, dataset.train_features, config.batch_size, most)

    def begin(self, settings: MethodSettings, synthetic: LabelledSamples | None) -> RunResult:
        """Make methods, checkpoint and folder: what a method cannot take ends the run before any trains."""
        config, checkpoint, dataset = self._config, self._checkpoint, self._dataset
        self._weights = tuple(map(len, self._parts)) if config.weighting == "samples" else None
        self._methods: dict[str, Method] = {}
        self._modules: dict[str, nn.Module] = {}
        for name in self._names:
            load_privacy_packages(name, settings)
        for name in self._names:
            with self._timed(name):
                module = self._modules[name] = adapt_model(name, deepcopy(self._model), settings)
                self._methods[name] = planned_method(name, config, settings, dataset, module, self._weights)
        if self._task is not None:
            try_task(self._methods, self._modules, settings, dataset, self._objective)
        check_synthetic_samples(synthetic, self._methods.values(), dataset, config.clients)
        if checkpoint is not None:
            checkpoint.begin(run_identity(config, dataset, self._methods, synthetic, self._own))
        alpha = None if config.classes_per_client else self._alpha
        result = RunResult(
            dataset.description,
            self._model_name,
            asdict(config) | {"dataset": dataset.name, "alpha": alpha},
            describe_environment(),
            parameter_layout(self._model).size,
            metrics=self._objective.names,
        )
        if config.folder is not None:
            stated = {name: one.own_settings for name, one in self._methods.items()}
            self._written = WrittenRun(config, stated, result.environment)
        self._result = result
        for method in () if checkpoint is None else checkpoint.finished:
            result.methods.append(method)
            for record in method.rounds:
                self.tell(method.method, record)
        return result

    def method_run(self, result: RunResult, name: str, synthetic: LabelledSamples | None) -> MethodRun:
        config, checkpoint = self._config, self._checkpoint
        self._place = len(result.methods)
        kept = None
        if checkpoint is not None:
            kept, checkpoint.running = checkpoint.running, None
        self._round = 1 if kept is None else len(kept.records) + 1
        with self._timed(name):
            self._run = MethodRun(
                # Taken out, so that a method's clients do not outlive its run.
                self._methods.pop(name),
                config,
                self._dataset,
                self._modules.pop(name),
                self._parts,
                self._weights,
                synthetic,
                kept,
                self._objective,
                processes=max(1, (config.threads or 0) // self.threads),
            )
        if kept is not None:
            self._seconds[name] = kept.setup_seconds
        return self._run

    def keep(self, result: RunResult, run: MethodRun) -> None:
        if self._checkpoint is not None:
            kept = run.kept(self._checkpoint.key, self._seconds[run.name])
            self._checkpoint.keep_round(result.methods, run.name, kept)

    def ended(self, result: RunResult, run: MethodRun) -> LastModels:
        """Add a method's result to the run's, and return its newest models."""
        finished, models = run.result(self._seconds[run.name]), run.last_models()
        if self._checkpoint is not None:
            self._checkpoint.keep_finished([*result.methods, finished])
        result.methods.append(finished)
        self._run, self._round = None, self._config.rounds
        return models

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - start

    def tell(self, method: str, record: RoundRecord) -> None:
        if self._written is not None:
            self._written.tell(method, record)
        if self._on_round is not None:
            self._on_round(self._config.seed, method, record)

    def finish(self, result: RunResult) -> None:
        written, self._written = self._written, None
        if written is not None:
            written.finish(result)

    def stop(self, error: BaseException, earlier: tuple[RunResult, ...]) -> None:
        """Write down what was finished. Raises RunInterrupted with it instead of Ctrl-C."""
        kept = self._result
        if isinstance(error, KeyboardInterrupt | ShieldError) and (earlier or self._round):
            kept = self._until(error, earlier)
        if kept is None:
            return
        try:
            self.finish(kept)
        except ShieldError as another:  # such as the full disk that ended the run
            error.add_note(str(another))
        if kept.interrupted is None:
            return
        ended = EndedRuns(kept, earlier)
        if isinstance(error, KeyboardInterrupt):
            raise RunInterrupted(ended) from error
        assert isinstance(error, ShieldError)
        error.ended = ended
        error.add_note(f"{kept.interrupted}, with seed {self._config.seed}")

    def _until(self, error: KeyboardInterrupt | ShieldError, earlier: tuple[RunResult, ...]) -> RunResult:
        result = replace(earlier[-1], methods=[]) if self._result is None else self._result
        name, number, later = self._names[self._place], self._round, tuple(self._names[self._place + 1 :])
        if self._run is not None:
            number = self._run.round_number
            if self._run.records:
                result.methods.append(self._run.result(self._seconds[name]))
        said = None if isinstance(error, KeyboardInterrupt) else str(error)
        stopped = Interruption(name, max(number, int(said is None)), later, said)
        return replace(result, interrupted=stopped)


def _identity(model: nn.Module, parts: Sequence[np.ndarray], objective: Objective) -> dict[str, str]:
    """Return what identifies a user's task; its functions count by their names, not their code."""

    def named(function: Any) -> str:
        if isinstance(function, nn.Module):
            return repr(function)
        return str(getattr(function, "__qualname__", None) or type(function).__qualname__)

    functions = [objective.loss, objective.optimizer, objective.train, *objective.metrics.values()]
    return {
        "the model": digest_of(*model.state_dict().values(), text=repr(model)),
        "the partition": digest_of(*map(torch.from_numpy, parts)),
        "the metrics": ", ".join(objective.names),
        "the loss, optimizer or training": ", ".join(map(named, functions)),
    }


def planned_method(
    name: str,
    config: RunConfig,
    settings: MethodSettings,
    dataset: Dataset,
    model: nn.Module,
    weights: Sequence[int] | None,
) -> Method:
    """Return a run's method as configured, for clients of these weights (None: all alike) and this model.

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
