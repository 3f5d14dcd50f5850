"""What papers publish beside runs here: experiment files, figures, and Alt-FL's choice of a configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation.compared_runs import FIGURES, ComparedRuns
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import RunResult
from shieldfl.methods.discovery import BUILT_IN, checked_methods
from shieldfl.methods.settings import MethodSettings
from shieldfl.quantities import MISSING, ratio_text
from shieldfl.settings import (
    NotNegative,
    Probability,
    Settings,
    Text,
    about,
    parse_toml,
    read_settings,
    read_text,
    table_of,
    tables_of,
)

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


SHARES = ("attack_success_rate", "accuracy")
"""Figures of a configuration that are shares of 1."""
COSTS = ("bytes_to_convergence", "seconds_to_convergence", "converged_round")
"""Figures that only a run that has converged has, in the order in which Alt-FL looks at them (section IX)."""


@dataclass(frozen=True, kw_only=True)
class MeasuredConfiguration(Settings):
    """One configuration: a method with its settings, under a name such as ``"PI, rho = 1/2"``.

    A figure is None where there is none, as costs of a run that did not converge are. Raises ParameterError
    for shares and costs out of range.
    """

    name: Text
    attack_success_rate: Probability | None = None
    """The largest over the attacks, in Alt-FL of IIP."""
    accuracy: Probability | None = None
    """On the test set; in Alt-FL of the best round."""
    bytes_to_convergence: NotNegative | None = None
    """What a client sent and received until then; the costs below are of all rounds until then."""
    seconds_to_convergence: NotNegative | None = None
    converged_round: NotNegative | None = None

    def figure(self, name: str) -> float:
        """Return one of :data:`SHARES` or :data:`COSTS` by its name, NaN where there is none."""
        value: float | None = getattr(self, name)
        return math.nan if value is None else value

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
        figures = {"attack_success_rate": attack_success_rate}
        for figure in ("accuracy", *COSTS):
            found = runs.figure(method, "best_accuracy" if figure == "accuracy" else figure)
            # An accuracy that is not known may be any; a cost is the largest: NaN is sorted behind numbers.
            mean = found.mean
            if len(runs.seeds) > 2 and (figure in COSTS or not math.isnan(mean)):
                mean = found.mean_without_extremes
            figures[figure] = None if math.isnan(mean) else mean
        return cls(name=name, **figures)


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
        own = [one for one in audit["cells"] if (one["method"], one["party"]) == (method, party)]
        known = ", ".join(sorted({f"{one['method']} for {one['party']}" for one in audit["cells"]}))
        found = {one["attack"]: one["status"] for one in own if one["attack"] in counted}
        figures = [
            float(one["figure"]) for one in own if one["attack"] in counted and one["status"] == "attacked"
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            "this is no audit: give what `shieldfl audit --json FILE` wrote, read by json"
        ) from error
    if not own:
        raise ParameterError(f"the audit has nothing of {method} for {party}: it has {known}")
    if not counted:
        raise ParameterError(
            f"no attack of the audit is measured by {measured_by}: add one that is, as dlg is by IIP"
        )
    if "nothing received" in found.values():
        figures.append(0.0)
    return None if "not attacked" in found.values() else max(figures, default=None)


@dataclass(frozen=True)
class Threshold(Settings):
    """How much worse than the best a configuration may be in one figure. Raises ParameterError."""

    figure: Annotated[str, about("What is compared.", choices=(*SHARES, *COSTS))]
    tolerance: NotNegative
    """Of a share, added to the least success rate or taken from the largest accuracy: 0.01 is one point. Of a
    cost as a share of the least cost: 0.5 allows for half as much again."""


_ROUNDING = 1e-12


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

    def __str__(self) -> str:
        """Return a line of the limit, and of each that fell out with its figure."""
        write = FIGURES[self.figure].text if self.figure in COSTS else "{:.4g}".format
        best, limit, *fallen = (
            MISSING if math.isnan(value) else write(value)
            for value in (self.best, self.limit, *self.fallen.values())
        )
        side = "at least" if self.figure == "accuracy" else "at most"
        out = ", ".join(f"{name} ({value})" for name, value in zip(self.fallen, fallen, strict=True))
        head = f"{self.figure}: {side} {limit}, the best is {best}; {len(self.left)} left"
        return f"{head}; out: {out}" if out else head


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
        """Return a line for each step, and what is left in the end."""
        return "\n".join([*map(str, self.steps), f"chosen: {', '.join(self.chosen) or 'none'}"])


def cost_thresholds(tolerance: float) -> tuple[Threshold, ...]:
    """Return Alt-FL's t_sc (section IX): of bytes, then seconds, then rounds until convergence."""
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
    not converge meets no threshold of a cost. Configurations are of one privacy level and one partition.

    Raises ParameterError for no configurations or no thresholds, two configurations with one name, and a success rate
    or an accuracy that a threshold needs and a configuration that is left lacks.
    """
    left = {one.name: one for one in configurations}
    if not left or not thresholds:
        raise ParameterError("give at least one configuration, and at least one threshold to choose by")
    if len(left) < len(configurations):
        raise ParameterError("two configurations are called alike: give each a name of its own")
    steps = []
    for threshold in thresholds:
        steps.append(_applied(threshold, {name: one.figure(threshold.figure) for name, one in left.items()}))
        left = {name: left[name] for name in steps[-1].left}
    return Choice(tuple(steps))


def _applied(threshold: Threshold, figures: Mapping[str, float]) -> Step:
    """Tell those that keep to a threshold from the others."""
    missing = [name for name, figure in figures.items() if math.isnan(figure)]
    if missing and threshold.figure in SHARES:
        raise ParameterError(
            f"the threshold of {threshold.figure} needs that of {', '.join(missing)}: measure it, leave "
            "these configurations out, or put a threshold before it that they do not meet"
        )
    known = [figure for figure in figures.values() if not math.isnan(figure)]
    # As costs and success rates, of which less is better.
    sign = -1.0 if threshold.figure == "accuracy" else 1.0
    best = min((sign * figure for figure in known), default=math.nan)
    limit = best + threshold.tolerance * (best if threshold.figure in COSTS else 1.0)
    # What equals a limit keeps to it, whatever way the limit was rounded; NaN never does.
    kept = tuple(
        name
        for name, figure in figures.items()
        if sign * figure < limit or math.isclose(sign * figure, limit, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    )
    fallen = {name: figure for name, figure in figures.items() if name not in kept}
    return Step(threshold.figure, sign * best, sign * limit, kept, fallen)
