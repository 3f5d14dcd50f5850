"""Experiment files: which methods run, under which settings, and which figures papers publish beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.compared_runs import FIGURES
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import RunResult
from shieldfl.methods.registry import BUILT_IN, MethodSettings, checked_methods
from shieldfl.quantities import MISSING, ratio_text
from shieldfl.settings import (
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
    "FIGURES",
    "ComparedFigure",
    "Experiment",
    "PaperFigure",
    "compare_figures",
    "load_experiment",
    "parse_experiment",
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
