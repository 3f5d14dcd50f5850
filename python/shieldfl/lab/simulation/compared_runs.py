"""What :func:`shieldfl.run` returns, and experiment files, which put figures of papers beside it.

Methods stand side by side, for each seed, as figures, tables, files and models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.array_view import as_unsigned
from shieldfl.build_info import require
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.report.output_files import csv_text, write_json, write_whole
from shieldfl.lab.report.run_summary import describe_run, flat_record
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import NO_RUN, STAGES, ZONES, MethodResult, RoundRecord, RunResult
from shieldfl.methods.registry import BUILT_IN, MethodSettings, checked_methods
from shieldfl.quantities import (
    MISSING,
    accuracy_text,
    bytes_text,
    epsilon_text,
    metric_text,
    ratio_text,
    seconds_text,
    share_text,
)
from shieldfl.settings import Settings, Text, about, parse_toml, read_settings, read_text, table_of, tables_of

__all__ = [
    "FIGURES",
    "ComparedFigure",
    "ComparedRuns",
    "Experiment",
    "PaperFigure",
    "Spread",
    "compare_figures",
    "load_experiment",
    "parse_experiment",
]


if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from shieldfl.lab.simulation.method_run import LastModels


class Spread(NamedTuple):
    """One figure over all seeds."""

    values: NDArray[np.float64]
    """The figure of each seed, in the order of the seeds, (S,)."""

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """Sample standard deviation over the seeds; NaN for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else float("nan")

    @property
    def mean_without_extremes(self) -> float:
        """The mean without the least and largest value, as Alt-FL (section VII) reports ten runs a setting.

        NaN, as of a seed that had not converged, counts as the largest. Raises ParameterError for fewer than
        three seeds.
        """
        if len(self.values) < 3:
            raise ParameterError(
                "without the least and the largest value nothing is left: give at least three seeds"
            )
        return float(np.sort(self.values)[1:-1].mean())

    def text(self, write: Callable[[float], str]) -> str:
        """Write the mean, and after it the deviation where there is one."""
        if len(self.values) == 1 or not np.isfinite(self.values).all():
            return write(self.mean)
        return f"{write(self.mean)} ± {write(self.deviation)}"


class MethodFigure(NamedTuple):
    """How a figure is read off a method's result, and written."""

    label: str
    read: Callable[[MethodResult], float]
    text: Callable[[float], str]


def _of_round(attribute: str) -> Callable[[MethodResult], float]:
    """Return a reader of an attribute's mean over the rounds after the first."""
    return lambda method: fmean(getattr(record, attribute) for record in method.repeated_rounds)


def _until_converged(figure: Callable[[RoundRecord], float]) -> Callable[[MethodResult], float]:
    """Return a reader of a figure's sum over the rounds until convergence; NaN if there was none."""

    def read(method: MethodResult) -> float:
        until = method.converged_in_round
        return math.nan if until is None else float(sum(map(figure, method.rounds[:until])))

    return read


def _seconds(stage: str, of_client: bool) -> Callable[[MethodResult], float]:
    def read(method: MethodResult) -> float:
        begun = fmean(record.participants + record.dropped for record in method.repeated_rounds)
        return method.stage_seconds(stage) / (begun if of_client else 1.0)

    return read


def _bytes(record: RoundRecord) -> float:
    return record.bytes_up + record.bytes_down


FIGURES = {
    "accuracy": MethodFigure("accuracy", attrgetter("last.accuracy"), accuracy_text),
    "best_accuracy": MethodFigure("accuracy, best round", attrgetter("best_accuracy"), accuracy_text),
    "personalised_accuracy": MethodFigure(
        "accuracy, personalised",
        attrgetter("last.personalised_accuracy"),
        accuracy_text,
    ),
    "matched_accuracy": MethodFigure(
        "accuracy, on each client's own labels",
        attrgetter("last.matched_accuracy"),
        accuracy_text,
    ),
    "converged_round": MethodFigure("converged in round", _until_converged(lambda _: 1.0), "{:g}".format),
    "bytes_to_convergence": MethodFigure(
        "up and down, a client until convergence", _until_converged(_bytes), bytes_text
    ),
    "seconds_to_convergence": MethodFigure(
        "time until convergence",
        _until_converged(lambda record: record.seconds),
        seconds_text,
    ),
    **{
        f"{zone}_share": MethodFigure(
            f"{zone} share", partial(MethodResult.zone_share, zone=zone), share_text
        )
        for zone in ZONES
    },
    **{
        f"{one}_seconds": MethodFigure(f"{one}, a round", _seconds(one, False), seconds_text)
        for one in STAGES
    },
    **{
        f"{one}_seconds_per_client": MethodFigure(
            f"{one}, a round and client", _seconds(one, True), seconds_text
        )
        for one in STAGES
    },
    "round_seconds": MethodFigure("whole round", _of_round("seconds"), seconds_text),
    "bytes_up": MethodFigure("up, a round and client", _of_round("bytes_up"), bytes_text),
    "bytes_down": MethodFigure("down, a round and client", _of_round("bytes_down"), bytes_text),
    "total_bytes": MethodFigure(
        "up and down, a client in all rounds",
        lambda one: sum(map(_bytes, one.rounds)),
        bytes_text,
    ),
    "epsilon": MethodFigure("ε", attrgetter("last.epsilon"), epsilon_text),
}
"""Figures of a method's result, by their names in experiment files."""
_OF_RUNS = {name: one for name, one in FIGURES.items() if name != "accuracy"}
_OF_RUNS["seconds"] = FIGURES["round_seconds"]
_HEADS = {"bytes_up": "bytes up", "bytes_down": "bytes down", "seconds": "time", "epsilon": "ε"}


@dataclass(frozen=True)
class ComparedRuns:
    """One run for each seed; all methods of a run had its data, partition and initial model.

    ``print(result)`` shows a table. A round's figures are in ``runs``.
    """

    seeds: tuple[int, ...]
    runs: tuple[RunResult, ...]
    """Result of each seed, in the order of ``seeds``."""
    models: Mapping[tuple[int, str], LastModels] = field(default_factory=dict, repr=False)
    """Last models by seed and method, of runs that ended in this process."""

    def __str__(self) -> str:
        """Return :meth:`table`."""
        return self.table()

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, in their order."""
        return tuple(method.method for method in self.runs[0].methods)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what models were measured by on the test set."""
        return self.runs[0].metrics

    def figure(self, method: str, name: str) -> Spread:
        """Return a figure of a method over the seeds.

        Parameters
        ----------
        method : one of :attr:`methods`.
        name : one of :attr:`metrics`, of the global model after the last round; ``"best_accuracy"`` of all
            rounds; ``"matched_accuracy"``; ``"bytes_up"`` or ``"bytes_down"``, of a client in a round;
            ``"seconds"`` of a round; ``"epsilon"``; ``"converged_round"``, ``"bytes_to_convergence"`` of a
            client and ``"seconds_to_convergence"``, NaN for a seed that had not converged; or another one of
            experiment files.

        A seed whose run of the method ended before its last round has NaN. Raises ParameterError for another
        method or name.
        """
        if name not in self.metrics and name not in _OF_RUNS:
            known = ", ".join([*self.metrics, *_OF_RUNS])
            raise ParameterError(f"there is no figure {name!r}: choose from {known}")
        values = []
        for run in self.runs:
            result = self._result(run, method)
            read = result.last.measured(name) if name in self.metrics else _OF_RUNS[name].read(result)
            values.append(math.nan if _is_short(run, result) else read)
        return Spread(np.array(values))

    def difference(self, method: str, base: str, name: str) -> Spread:
        """Return a figure of a method less that of another one, seed by seed. Raises as :meth:`figure`."""
        return Spread(self.figure(method, name).values - self.figure(base, name).values)

    def _result(self, run: RunResult, method: str) -> MethodResult:
        for result in run.methods:
            if result.method == method:
                return result
        raise ParameterError(f"there is no method {method!r} in this run: {', '.join(self.methods)}")

    def state_dict(
        self, method: str, seed: int | None = None, *, client: int | None = None, cluster: int | None = None
    ) -> dict[str, torch.Tensor]:
        """Return a copy of a last model, for ``module.load_state_dict``.

        By default the global one of the first seed.

        Its names are those of the model that the method trained, which may have other layers than the given
        one. ``client``, a number from 0, asks for its merged model, which has the values that it keeps;
        ``cluster`` for the model of a cluster, whose number may be left out where there is one.

        Raises ParameterError where there is no such model, where clusters or clients have models of their own
        and neither is named, and where the method ended in another process.
        """
        seed = self.seeds[0] if seed is None else as_unsigned(seed, "seed")
        if seed not in self.seeds:
            known = ", ".join(map(str, self.seeds))
            raise ParameterError(f"there is no seed {seed} in this run: choose from {known}")
        self._result(self.runs[self.seeds.index(seed)], method)
        models = self.models.get((seed, method))
        if models is None:
            raise ParameterError(
                f"there are no models of {method} with seed {seed}: its run ended in an earlier process, or "
                "was read from a file; run it again to have them"
            )
        return models.state(client, cluster)

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict for each seed, method and round, as ``pandas.DataFrame`` takes them."""
        return [
            {"seed": seed, "method": method.method, **flat_record(record)}
            for seed, run in zip(self.seeds, self.runs, strict=True)
            for method in run.methods
            for record in method.rounds
        ]

    def to_csv(self) -> str:
        """Return :meth:`records` as text, a line for each, under a line of names."""
        return csv_text(self.records())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: the seeds, and each one's run as :meth:`RunResult.to_json` writes it."""
        return {"seeds": list(self.seeds), "runs": [run.to_json() for run in self.runs]}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> ComparedRuns:
        """Return what :meth:`to_json` or ``shieldfl run --json`` wrote of one or more seeds, without models.

        Raises DataError for anything else.
        """
        try:
            read = tuple(map(RunResult.from_json, facts.get("runs", [facts])))
            seeds = tuple(map(int, facts.get("seeds") or [run.config["seed"] for run in read]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(NO_RUN) from error
        if not read or len(seeds) != len(read):
            raise DataError(NO_RUN)
        return cls(seeds, read)

    def table(self) -> str:
        """Return a table as text: a row for each method; means over the seeds, ± their standard deviation.

        The last column compares the first metric with the first method's, seed by seed. Notes stand below.
        """
        lead, base = self.metrics[0], self.methods[0]
        writing: dict[str, Callable[[float], str]] = {
            name: partial(metric_text, name=name) for name in self.metrics
        }
        writing |= {name: _OF_RUNS[name].text for name in _HEADS}
        compares = [f"{lead} less {base}'s"] if len(self.methods) > 1 else []
        rows = [["method", *self.metrics, *_HEADS.values(), *compares]]
        for method in self.methods:
            cells = [self.figure(method, name).text(write) for name, write in writing.items()]
            if compares:
                other = self.difference(method, base, lead)
                cells.append("" if method == base else other.text(writing[lead]))
            rows.append([method, *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ["─" * width for width in widths])
        several = len(self.seeds) > 1
        notes: dict[str, None] = {}
        for seed, run in zip(self.seeds, self.runs, strict=True):
            for one in run.methods:
                if _is_short(run, one):
                    ended = f"ended after {len(one.rounds)} rounds: no figures of it"
                    notes[f"{one.method} with seed {seed} {ended}"] = None
                notes |= dict.fromkeys(f"{one.method}: {note}" for note in one.notes[1:])
        lines = [
            f"{describe_run(self.runs[0])}, seed{'s' * several} {', '.join(map(str, self.seeds))}",
            *("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
            "Bytes are a client's in a round, time is a whole round's"
            f"{'; ± is the standard deviation over the seeds' * several}.",
            *notes,
        ]
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Figure]:
        """Draw the report's plots of the first seed's run, by name.

        Raises ModuleNotFoundError without matplotlib.
        """
        require("matplotlib")
        from shieldfl.lab.report.run_report import PLOTS

        return {plot.name: plot.draw(self.runs[0]) for plot in PLOTS}

    def write(self, folder: str | Path) -> list[Path]:
        """Write ``rounds.csv``, ``runs.json``, and a report for each seed, in ``seed-N``. Raises OSError."""
        require("matplotlib")
        require("jinja2")
        from shieldfl.lab.report.run_report import write_report

        whole = Path(folder)
        whole.mkdir(parents=True, exist_ok=True)
        written = [whole / "rounds.csv", whole / "runs.json"]
        write_whole(written[0], self.to_csv())
        write_json(written[1], self.to_json())
        for seed, run in zip(self.seeds, self.runs, strict=True):
            written += write_report(run, whole / f"seed-{seed}")
        return written


def _is_short(run: RunResult, result: MethodResult) -> bool:
    return bool(len(result.rounds) < run.config["rounds"])


@dataclass(frozen=True)
class PaperFigure(Settings):
    """One published figure.

    Raises ParameterError for a figure that is not in :data:`FIGURES`, or numbers that are none. Where
    ``against`` names another method, the figure is that method's, divided by ``method``'s: how many times
    less it takes.
    """

    source: Annotated[Text, about("Paper and table of the figure.")]
    method: str
    figure: Annotated[str, about("Figure of a run that it is compared with.", choices=tuple(FIGURES))]
    value: Annotated[
        tuple[float, ...], Meta(min_length=1, max_length=2), about("A number, or the two ends of a range.")
    ]
    against: str | None = None
    note: Annotated[str, about("How the paper's setting differs from the one here.")] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value[0] > self.value[-1]:
            raise ParameterError("a paper's value is a number, or two with the smaller one first")

    @property
    def label(self) -> str:
        """Name of what is compared."""
        label = FIGURES[self.figure].label
        return label if self.against is None else f"{label}: {self.against} / {self.method}"

    def text(self, value: float) -> str:
        """Write a value of this figure."""
        return FIGURES[self.figure].text(value) if self.against is None else ratio_text(value, 1.0) or MISSING


@dataclass(frozen=True)
class ComparedFigure:
    """A published figure and ours; NaN where the run has none."""

    paper: PaperFigure
    ours: float

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return method, figure, ours, the paper's and its source, as text."""
        paper = self.paper
        stated = [paper.text(value) for value in dict.fromkeys(paper.value)]
        source = f"{paper.source}; {paper.note}" if paper.note else paper.source
        return paper.method, paper.label, paper.text(self.ours), " to ".join(stated), source

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        stated = asdict(self.paper)
        value = stated.pop("value")
        ours = self.ours if math.isfinite(self.ours) else None
        return stated | {"least": value[0], "most": value[-1], "ours": ours}


def compare_figures(result: RunResult, papers: Sequence[PaperFigure]) -> tuple[ComparedFigure, ...]:
    """Read each figure off the run. Raises ParameterError for a method that did not run."""
    methods = {method.method: method for method in result.methods}
    compared = []
    for paper in papers:
        for name in (paper.method, paper.against):
            if name is not None and name not in methods:
                raise ParameterError(f"{paper.source}: the run has no method {name!r}")
        read = FIGURES[paper.figure].read
        ours = read(methods[paper.method])
        if paper.against is not None:
            ours = read(methods[paper.against]) / ours if ours else math.nan
        compared.append(ComparedFigure(paper, ours))
    return tuple(compared)


_SECTIONS = ("title", "methods", "run", "settings", "paper")


@dataclass(frozen=True)
class Experiment:
    """What an experiment file says."""

    title: str
    config: RunConfig
    methods: tuple[str, ...]
    settings: MethodSettings
    paper: tuple[PaperFigure, ...] = ()


def load_experiment(path: str | Path) -> Experiment:
    """Read an experiment file.

    Raises DataError for a file that cannot be read, ParameterError as :func:`parse_experiment`, with the
    file's name.
    """
    text = read_text(path, "experiment file")
    try:
        return parse_experiment(text)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from None


def parse_experiment(text: str) -> Experiment:
    """Make an experiment of the text of an experiment file.

    ``methods`` lists names of methods, or is ``"all"`` for those of this package. ``title`` may say what it
    is. ``[run]`` may have the settings of :class:`shieldfl.lab.simulation.config.RunConfig`,
    ``[settings.METHOD]`` that method's, and each ``[[paper]]`` has those of :class:`PaperFigure`.

    Raises ParameterError that names the table and the key: for text that is not TOML, unknown or missing
    keys, unknown methods, and values of another type or out of range.
    """
    document = parse_toml(text, _SECTIONS, "the file")
    methods, title = document.get("methods"), document.get("title", "")
    if methods != "all" and (not isinstance(methods, list) or not methods):
        raise ParameterError('the file lacks methods: write methods = ["fedavg", ...] above the first table')
    if not isinstance(title, str):
        raise ParameterError(f"title must be a text, not {title!r}")
    named = tuple(BUILT_IN) if methods == "all" else checked_methods(methods)
    settings, tables = MethodSettings(), table_of(document, "settings")
    for name in tables:
        try:
            settings = settings.changed(name, table_of(tables, name, "settings."))
        except ParameterError as error:
            raise ParameterError(f"[settings.{name}] {error}") from None
    config = read_settings(RunConfig, table_of(document, "run"), "[run]")
    papers = []
    for number, table in enumerate(tables_of(document, "paper"), start=1):
        where = f"[[paper]] {number}"
        papers.append(read_settings(PaperFigure, table, where))
        for one in (papers[-1].method, papers[-1].against):
            if one is not None and one not in named:
                raise ParameterError(f"{where} is about the method {one!r}, which methods does not name")
    return Experiment(title, config, named, settings, tuple(papers))
