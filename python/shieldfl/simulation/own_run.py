"""``shieldfl.run``: a task, methods, seeds; nothing else is needed to compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.methods.settings import MethodSettings
from shieldfl.roles.run_folder import RunFolder
from shieldfl.simulation.compared_runs import ComparedRuns
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.driver import run_methods
from shieldfl.simulation.last_models import LastModels
from shieldfl.simulation.results import RoundRecord
from shieldfl.simulation.run_result import EndedRuns, Failure, Interruption, RunInterrupted, RunResult
from shieldfl.simulation.synthetic_shares import LabelledSamples
from shieldfl.simulation.task import Task
from shieldfl.simulation.task_import import load_task

__all__ = ["config_of_seed", "run", "run_seeds"]

_OF_DATA_SETS = ("dataset", "data_dir", "model")


def run(
    task: Task | str = "digits",
    methods: str | Sequence[str] = "full-he",
    *,
    seeds: int | Sequence[int] = 0,
    settings: MethodSettings | Mapping[str, Mapping[str, Any]] | None = None,
    synthetic: LabelledSamples | None = None,
    on_round: Callable[[int, str, RoundRecord], None] | None = None,
    **config: Any,
) -> ComparedRuns:
    """Train a federation of clients in this process under each method, once for each seed, and compare them.

    Parameters
    ----------
    task : the user's own model and data; or the name of a data set, ``"digits"``, which needs no files, or another of
        :data:`shieldfl.simulation.DATASETS`; or ``"module:name"`` of a task.
    methods : a name, or several, of ``shieldfl.methods.discovery.method_names()``.
    seeds : one or several; each is a run of all methods with a partition, initial model and order of samples of its
        own, the same for all methods. Never of noise or keys.
    settings : of methods, by name: ``{"selective-shield": {"noise_multiplier": 0.5}}``.
    synthetic : features and targets for methods that train on synthetic data, as the task's own data are given.
    on_round : called with the seed, the method's name and its record after each round.
    config : of :class:`shieldfl.simulation.config.RunConfig`, such as ``rounds=10, clients=20, batch_size=32,
        learning_rate=0.01``. ``clients`` is by default as many as the task's data have parts for. With several seeds,
        a ``folder`` or ``checkpoint`` has a folder for each.

    Raises ParameterError for what does not fit together, DataError, RangeError where training diverges, and
    RunInterrupted at Ctrl-C, whose ``result`` has what was finished of the seed that ran, and ``earlier`` the seeds
    before. Of any other of shieldfl's errors that ends a run that has begun, ``ended`` has both.
    """
    if isinstance(task, str) and ":" in task:
        task, config = load_task(task), {**config, "task": task}
    return run_seeds(
        _config(task, config),
        (methods,) if isinstance(methods, str) else methods,
        _listed(seeds),
        settings if isinstance(settings, MethodSettings) else _settings(settings or {}),
        synthetic,
        task if isinstance(task, Task) else None,
        on_round,
    )


def run_seeds(
    config: RunConfig,
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: MethodSettings,
    synthetic: LabelledSamples | None = None,
    task: Task | None = None,
    on_round: Callable[[int, str, RoundRecord], None] | None = None,
) -> ComparedRuns:
    """Do what :func:`run` does, whose settings are read already; the config's own seed stands for none."""
    listed = tuple(as_unsigned(seed, "a seed") for seed in seeds)
    if task is None and config.task is not None:
        task = load_task(config.task)
    if not listed or len(set(listed)) < len(listed):
        raise ParameterError("give at least one seed, and each once")
    results: list[RunResult] = []
    models: dict[tuple[int, str], LastModels] = {}
    for seed in listed:

        def tell(method: str, record: RoundRecord, seed: int = seed) -> None:
            if on_round is not None:
                on_round(seed, method, record)

        of_seed = config_of_seed(config, seed, listed)
        if of_seed.checkpoint is not None and len(listed) > 1:
            folder = Path(of_seed.checkpoint)
            folder.parent.mkdir(parents=True, exist_ok=True)
            # A seed that had not begun when the run was cut off begins now.
            of_seed = replace(of_seed, resume=config.resume and RunFolder(folder).is_begun)
        found: dict[str, LastModels] = {}
        try:
            results.append(
                run_methods(
                    of_seed,
                    methods,
                    settings,
                    tell,
                    synthetic,
                    task,
                    lambda run, found=found: found.update({run.name: run.last_models()}),  # type: ignore[misc]
                )
            )
        except RunInterrupted as error:
            raise RunInterrupted(error.result, tuple(results)) from error
        except KeyboardInterrupt as error:  # before a method of this seed was begun
            if not results:
                raise
            stop = Interruption(methods[0], 1, tuple(methods[1:]))
            raise RunInterrupted(
                replace(results[-1], methods=[], interrupted=stop), tuple(results)
            ) from error
        except ShieldError as error:
            ended = error.ended
            if ended is None:  # before a method of this seed was begun
                if not results:
                    raise
                failure = Failure(methods[0], 0, tuple(methods[1:]), str(error))
                ended = EndedRuns(replace(results[-1], methods=[], interrupted=failure))
            error.ended = replace(ended, earlier=tuple(results))
            error.add_note(f"{ended.result.interrupted}, with seed {seed}")
            raise
        models |= {(seed, name): left for name, left in found.items()}
    return ComparedRuns(listed, tuple(results), models)


def config_of_seed(config: RunConfig, seed: int, seeds: Sequence[int]) -> RunConfig:
    """Return what one of several seeds is run by: where there are several, each has a folder of its own."""
    if len(seeds) == 1:
        return replace(config, seed=seed)
    folder, checkpoint = (
        None if place is None else str(Path(place) / f"seed-{seed}")
        for place in (config.folder, config.checkpoint)
    )
    if config.folder is not None and checkpoint == str(Path(config.folder) / "checkpoint" / f"seed-{seed}"):
        checkpoint = None  # in the seed's folder, as that of a run of one seed is
    return replace(config, seed=seed, folder=folder, checkpoint=checkpoint)


def _config(task: Task | str, given: Mapping[str, Any]) -> RunConfig:
    known = [field.name for field in fields(RunConfig)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ParameterError(f"a run has no setting {unknown[0]!r}: choose from {', '.join(known)}")
    if "seed" in given:
        raise ParameterError("give seeds, one or several, in the place of seed")
    if isinstance(task, str):
        if given.get("dataset", task) != task:
            raise ParameterError(f"the data set is {task!r} as task and {given['dataset']!r} as dataset")
        return RunConfig(**{**given, "dataset": task})
    own = [name for name in _OF_DATA_SETS if name in given]
    if own:
        raise ParameterError(f"{own[0]} is of data sets by name: the task has data and a model of its own")
    parts = task.train_data if isinstance(task.train_data, list) else task.partition
    return RunConfig(**{**({} if parts is None else {"clients": len(parts)}), **given})


def _listed(seeds: Any) -> list[Any]:
    try:
        return list(seeds)
    except TypeError:  # one, also in an array without dimensions
        return [seeds]


def _settings(given: Mapping[str, Mapping[str, Any]]) -> MethodSettings:
    settings = MethodSettings()
    for name, values in given.items():
        settings = settings.changed(name, values)
    return settings
