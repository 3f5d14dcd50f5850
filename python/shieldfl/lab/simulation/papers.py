"""What papers publish beside runs here: experiment files, figures, and Alt-FL's choice of a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.report.run_summary import ZONES, mean_over_rounds
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import STAGES, MethodResult
from shieldfl.lab.simulation.run_result import RunResult
from shieldfl.methods.discovery import BUILT_IN, checked_methods
from shieldfl.methods.settings import MethodSettings
from shieldfl.quantities import (
    MISSING,
    accuracy_text,
    bytes_text,
    epsilon_text,
    ratio_text,
    seconds_text,
    share_text,
)
from shieldfl.settings import Settings, Text, about, parse_toml, read_settings, read_text, table_of, tables_of

if TYPE_CHECKING:
    from shieldfl.lab.simulation.compared_runs import ComparedRuns

__all__ = [
    "COSTS",
    "FIGURES",
    "SHARES",
    "Choice",
    "ComparedFigure",
    "Experiment",
    "MeasuredConfiguration",
    "PaperFigure",
    "Step",
    "Threshold",
    "choose_configurations",
    "compare_figures",
    "cost_thresholds",
    "load_experiment",
    "parse_experiment",
    "worst_success_rate",
]


@dataclass(frozen=True)
class Figure:
    """How a figure is read off a result, and written."""

    label: str
    read: Callable[[MethodResult], float]
    text: Callable[[float], str]


def _last(attribute: str) -> Callable[[MethodResult], float]:
    return lambda method: float(getattr(method.last, attribute))


def _of_run(attribute: str) -> Callable[[MethodResult], float]:
    return lambda method: float(getattr(method, attribute))


def _per_round(attribute: str) -> Callable[[MethodResult], float]:
    """A mean over the rounds after the first, as in the table above it."""
    return lambda method: fmean(getattr(record, attribute) for record in method.repeated_rounds)


def _mean_seconds(method: MethodResult, stage: str) -> float:
    return method.mean_stage_seconds()[stage]


def _per_client(method: MethodResult, stage: str) -> float:
    """Seconds of a stage for one client and round."""
    rounds = method.repeated_rounds
    begun = sum(record.participants + record.dropped for record in rounds)
    return sum(record.stage_seconds.get(stage, 0.0) for record in rounds) / begun


FIGURES: dict[str, Figure] = {
    "accuracy": Figure("accuracy", _last("accuracy"), accuracy_text),
    "best_accuracy": Figure("accuracy, best round", _of_run("best_accuracy"), accuracy_text),
    "personalised_accuracy": Figure("accuracy, personalised", _last("personalised_accuracy"), accuracy_text),
    "matched_accuracy": Figure(
        "accuracy, on each client's own labels", _last("matched_accuracy"), accuracy_text
    ),
    "converged_round": Figure("converged in round", _of_run("converged_round"), "{:g}".format),
    "bytes_to_convergence": Figure(
        "up and down, a client until convergence", _of_run("bytes_to_convergence"), bytes_text
    ),
    "seconds_to_convergence": Figure(
        "time until convergence", _of_run("seconds_to_convergence"), seconds_text
    ),
    **{
        f"{zone}_share": Figure(f"{zone} share", partial(mean_over_rounds, zone=zone), share_text)
        for zone in ZONES
    },
    **{
        f"{stage}_seconds": Figure(f"{stage}, a round", partial(_mean_seconds, stage=stage), seconds_text)
        for stage in STAGES
    },
    **{
        f"{stage}_seconds_per_client": Figure(
            f"{stage}, a round and client", partial(_per_client, stage=stage), seconds_text
        )
        for stage in STAGES
    },
    "round_seconds": Figure("whole round", _per_round("seconds"), seconds_text),
    "bytes_up": Figure("up, a round and client", _per_round("bytes_up"), bytes_text),
    "bytes_down": Figure("down, a round and client", _per_round("bytes_down"), bytes_text),
    "total_bytes": Figure(
        "up and down, a client in all rounds",
        lambda method: sum(record.bytes_up + record.bytes_down for record in method.rounds),
        bytes_text,
    ),
    "epsilon": Figure("ε", _last("epsilon"), epsilon_text),
}
"""By the name that experiment files give them."""


@dataclass(frozen=True)
class PaperFigure(Settings):
    """One published figure.

    Raises ParameterError for a figure that is not in :data:`FIGURES`, or numbers that are none. Where ``against`` names
    another method, the figure is that method's, divided by ``method``'s: how many times less it takes.
    """

    source: Annotated[Text, about("Paper and table.")]
    method: str
    figure: Annotated[str, about("What of a run it is.", choices=tuple(FIGURES))]
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
        """What is compared."""
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

    Raises DataError for a file that cannot be read, ParameterError as :func:`parse_experiment`, with the file's name.
    """
    text = read_text(path, "experiment file")
    try:
        return parse_experiment(text)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from None


def parse_experiment(text: str) -> Experiment:
    """Make an experiment of the text of an experiment file.

    ``methods`` lists names of methods, or is ``"all"`` for those of this package. ``title`` may say what it is.
    ``[run]`` may have the settings of :class:`shieldfl.lab.simulation.config.RunConfig`, ``[settings.METHOD]`` that
    method's, and each ``[[paper]]`` has those of :class:`PaperFigure`.

    Raises ParameterError that names the table and the key: for text that is not TOML, unknown or missing keys,
    unknown methods, and values of another type or out of range.
    """
    document = parse_toml(text, _SECTIONS, "the file")
    methods = _methods(document)
    settings = MethodSettings()
    tables = table_of(document, "settings")
    for name in tables:
        try:
            settings = settings.changed(name, table_of(tables, name, "settings."))
        except ParameterError as error:
            raise ParameterError(f"[settings.{name}] {error}") from None
    title = document.get("title", "")
    if not isinstance(title, str):
        raise ParameterError(f"title must be a text, not {title!r}")
    return Experiment(
        title=title,
        config=read_settings(RunConfig, table_of(document, "run"), "[run]"),
        methods=methods,
        settings=settings,
        paper=tuple(
            _paper(table, f"[[paper]] {number}", methods)
            for number, table in enumerate(tables_of(document, "paper"), start=1)
        ),
    )


def _methods(document: Mapping[str, Any]) -> tuple[str, ...]:
    methods = document.get("methods")
    if methods == "all":
        return tuple(BUILT_IN)
    if not isinstance(methods, list) or not methods:
        raise ParameterError('the file lacks methods: write methods = ["fedavg", ...] above the first table')
    return checked_methods(methods)


def _paper(table: Mapping[str, Any], where: str, methods: tuple[str, ...]) -> PaperFigure:
    paper = read_settings(PaperFigure, table, where)
    for name in (paper.method, paper.against):
        if name is not None and name not in methods:
            raise ParameterError(f"{where} is about the method {name!r}, which methods does not name")
    return paper


SHARES = ("attack_success_rate", "accuracy")
"""Figures of a configuration that are shares of 1."""
COSTS = ("bytes_to_convergence", "seconds_to_convergence", "converged_round")
"""Figures that only a run that has converged has, in the order in which Alt-FL looks at them (section IX)."""


@dataclass(frozen=True, kw_only=True)
class MeasuredConfiguration:
    """One configuration: a method with its settings. A figure is None, or NaN, where there is none.

    Raises ParameterError for a share outside [0, 1], and for a cost that is negative or infinite.
    """

    name: str
    """What it is called in a choice, such as ``"PI, rho = 1/2"``."""
    attack_success_rate: float | None = None
    """A share of 1: the largest over the attacks, in Alt-FL of IIP. None where none was run."""
    accuracy: float | None = None
    """On the test set, a share of 1; in Alt-FL of the best round."""
    bytes_to_convergence: float | None = None
    """What a client sent and received until then. None, as both costs below, where it did not converge."""
    seconds_to_convergence: float | None = None
    """Of all rounds until then."""
    converged_round: float | None = None
    """Rounds until then."""

    def __post_init__(self) -> None:
        for name in (*SHARES, *COSTS):
            value = self.figure(name)
            if name in SHARES and not (math.isnan(value) or 0.0 <= value <= 1.0):
                raise ParameterError(f"{self.name}: {name} is a share from 0 to 1, not {value:g}")
            if name in COSTS and not (math.isnan(value) or 0.0 <= value < math.inf):
                raise ParameterError(
                    f"{self.name}: {name} is a number of at least 0, not {value:g}; None where it did not converge"
                )

    def figure(self, name: str) -> float:
        """Return one of :data:`SHARES` or :data:`COSTS` by its name, NaN where there is none."""
        value: float | None = getattr(self, name)
        return math.nan if value is None else float(value)

    @classmethod
    def of_runs(
        cls, name: str, runs: ComparedRuns, method: str, attack_success_rate: float | None = None
    ) -> MeasuredConfiguration:
        """Return the figures of a method's runs, one for each seed, as Alt-FL's section VII reports them.

        The accuracy is that of each run's best round. Of three runs or more each figure is the mean without the least
        and the largest, of fewer the mean. A run that did not converge counts as the largest. Where a run ended before
        its last round there is no accuracy. ``attack_success_rate`` may be :func:`worst_success_rate` of an audit.

        Raises ParameterError for a method that was not run.
        """
        several = len(runs.seeds) > 2
        best = runs.figure(method, "best_accuracy")
        costs = {cost: runs.figure(method, cost) for cost in COSTS}
        return cls(
            name=name,
            attack_success_rate=attack_success_rate,
            # An accuracy that is not known may be any, so that no mean is without the extremes.
            accuracy=best.mean_without_extremes if several and not math.isnan(best.mean) else best.mean,
            # NaN is sorted behind all numbers, as the largest.
            **{cost: one.mean_without_extremes if several else one.mean for cost, one in costs.items()},
        )


def worst_success_rate(
    audit: Mapping[str, Any], method: str, party: str = "aggregator", measured_by: str = "IIP"
) -> float | None:
    """Return how far a party's strongest attack on a method got, by what ``shieldfl audit --json`` wrote.

    A share of 1 of the figure ``measured_by``, IIP being Alt-FL's, of images; 0 where nothing came to the party.
    Attacks that do not apply count for nothing. None where one was not come to, or none applies. An attack's figure is
    that of the round in which it gets most; Alt-FL attacks PI in rounds of both kinds, in proportion, and has the mean.

    Raises DataError for what no audit wrote, ParameterError for a method, party or figure that the audit lacks.
    """
    try:
        # A cell without a figure does not say what its attack is measured by; plain averaging's, which is there, does.
        counted = {one["attack"] for one in audit["cells"] if one["measured_by"] == measured_by}
        known = {(one["method"], one["party"]) for one in audit["cells"]}
        found = [
            (one["status"], 0.0 if one["status"] == "nothing received" else one["figure"])
            for one in audit["cells"]
            if (one["method"], one["party"]) == (method, party) and one["attack"] in counted
        ]
        figures = [float(figure) for status, figure in found if status in ("nothing received", "attacked")]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            "this is no audit: give what `shieldfl audit --json FILE` wrote, read by json"
        ) from error
    if (method, party) not in known:
        names = ", ".join(sorted(f"{of} for {who}" for of, who in known))
        raise ParameterError(f"the audit has nothing of {method} for {party}: it has {names}")
    if not counted:
        raise ParameterError(
            f"no attack of the audit is measured by {measured_by}: audit with one that is, as --attack dlg for IIP"
        )
    return None if "not attacked" in dict(found) else max(figures, default=None)


@dataclass(frozen=True)
class Threshold:
    """How much worse than the best a configuration may be in one figure.

    Raises ParameterError for a figure that a configuration does not have, and a tolerance that is negative, infinite or
    NaN.
    """

    figure: str
    """One of :data:`SHARES` or :data:`COSTS`."""
    tolerance: float
    """Of a success rate or an accuracy as a share of 1, added to the least or taken from the largest: 0.01 is one
    point. Of a cost as a share of the least cost: 0.5 allows for half as much again."""

    def __post_init__(self) -> None:
        known = (*SHARES, *COSTS)
        if self.figure not in known:
            raise ParameterError(f"there is no figure {self.figure!r}: choose from {', '.join(known)}")
        if not 0.0 <= self.tolerance < math.inf:
            raise ParameterError(
                f"the threshold of {self.figure} must be a number of at least 0, got {self.tolerance}"
            )

    def applied(self, configurations: Sequence[MeasuredConfiguration]) -> Step:
        """Tell those that keep to it from the others. Raises ParameterError for a share that is missing."""
        figures = {one.name: one.figure(self.figure) for one in configurations}
        known = [figure for figure in figures.values() if not math.isnan(figure)]
        if len(known) < len(figures) and self.figure in SHARES:
            missing = ", ".join(name for name, figure in figures.items() if math.isnan(figure))
            raise ParameterError(
                f"the threshold of {self.figure} needs that of {missing}: measure it, leave these configurations out, "
                "or put a threshold before it that they do not meet"
            )
        is_accuracy = self.figure == "accuracy"
        best = (max if is_accuracy else min)(known, default=math.nan)
        limit = best - self.tolerance if is_accuracy else best + self.tolerance
        if self.figure in COSTS:
            limit = best * (1.0 + self.tolerance)

        def keeps(figure: float) -> bool:
            # What equals a limit keeps to it, whatever way the limit was rounded; NaN never does.
            if math.isclose(figure, limit, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
                return True
            return figure > limit if is_accuracy else figure < limit

        left = tuple(name for name, figure in figures.items() if keeps(figure))
        fallen = {name: figure for name, figure in figures.items() if name not in left}
        return Step(self.figure, best, limit, left, fallen)


_ROUNDING = 1e-12
_TEXTS = {"bytes_to_convergence": bytes_text, "seconds_to_convergence": seconds_text}


@dataclass(frozen=True)
class Step:
    """One threshold applied to the configurations that those before it had left."""

    figure: str
    best: float
    """The best figure among these configurations; NaN where none has one."""
    limit: float
    """The most, or of an accuracy the least, that was allowed; NaN where there is no best."""
    left: tuple[str, ...]
    """Names of those that keep to it, in the order in which they were given."""
    fallen: dict[str, float]
    """The others' figures, in the same order; NaN for a cost of a run that did not converge."""

    def why(self, name: str) -> str:
        """Say in a line why a configuration fell out."""
        value = self.fallen[name]
        if math.isnan(value):
            return f"{name}: no {self.figure}, since it did not converge"
        side = "below" if self.figure == "accuracy" else "above"
        return f"{name}: {self.figure} {self._text(value)} is {side} {self._text(self.limit)}"

    def __str__(self) -> str:
        """Return a line of the limit, and one for each that fell out."""
        side = "at least" if self.figure == "accuracy" else "at most"
        head = f"{self.figure}: {side} {self._text(self.limit)}, the best is {self._text(self.best)}"
        return "\n  ".join([f"{head}; {len(self.left)} left", *map(self.why, self.fallen)])

    def _text(self, value: float) -> str:
        if math.isnan(value):
            return MISSING
        return _TEXTS[self.figure](value) if self.figure in _TEXTS else f"{value:.4g}"


@dataclass(frozen=True)
class Choice:
    """What was chosen, step by step; ``print(choice)`` shows it."""

    steps: tuple[Step, ...]
    """In the order of the thresholds."""

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of those that meet all thresholds; none where at a cost no configuration had converged."""
        return self.steps[-1].left

    def __str__(self) -> str:
        """Return a line for each step, each that fell out in it, and what is left in the end."""
        return "\n".join([*map(str, self.steps), f"chosen: {', '.join(self.chosen) or 'none'}"])


def cost_thresholds(tolerance: float) -> tuple[Threshold, ...]:
    """Return Alt-FL's t_sc (section IX): of bytes, then seconds, then rounds until convergence.

    Raises ParameterError as :class:`Threshold` does.
    """
    return tuple(Threshold(cost, tolerance) for cost in COSTS)


def choose_configurations(
    configurations: Sequence[MeasuredConfiguration], thresholds: Sequence[Threshold]
) -> Choice:
    """Apply thresholds one after another, each to the configurations that those before it have left.

    Source: Alt-FL, sections VIII to X. What a configuration must reach is measured from the best that was observed: a
    success rate of attacks of at most the least one plus t_asr, an accuracy of at least the largest less t_acc, costs
    of at most 1 + t_sc times the least. Table III is ``[Threshold("attack_success_rate", 0.005)]``; table IV
    ``[Threshold("attack_success_rate", 0.01), Threshold("accuracy", 0.04), *cost_thresholds(0.5)]``; table V
    ``[Threshold("accuracy", 0.1), Threshold("attack_success_rate", 0.005), *cost_thresholds(0.5)]``.

    The paper does not say among which configurations the best is looked for once some have fallen out. Here it is
    looked for among those that are left: else the order of the thresholds, by which the paper prefers accuracy to
    costs, would change nothing, and all could fall out though each threshold allows for some. A configuration that did
    not converge meets no threshold of a cost.

    Parameters
    ----------
    configurations : of one privacy level and one partition, as the paper compares them, each with a name of its own.
    thresholds : in their order, which decides where figures disagree.

    Raises ParameterError for no configurations or no thresholds, two configurations with one name, and a success rate
    or an accuracy that a threshold needs and a configuration that is left lacks.
    """
    if not configurations:
        raise ParameterError("there is nothing to choose from: give at least one configuration")
    if not thresholds:
        raise ParameterError("nothing says what to choose by: give at least one threshold")
    names = [one.name for one in configurations]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"two configurations are called {name!r}: give each a name of its own")
    steps, left = [], list(configurations)
    for threshold in thresholds:
        steps.append(threshold.applied(left))
        left = [one for one in left if one.name in steps[-1].left]
    return Choice(tuple(steps))
