"""Figures that papers publish, and the same figures of a run here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Annotated, Any

from msgspec import Meta

from shieldfl.errors import ParameterError
from shieldfl.reporting.quantities import (
    MISSING,
    accuracy_text,
    bytes_text,
    epsilon_text,
    ratio_text,
    seconds_text,
    share_text,
)
from shieldfl.settings import Settings, Text, about
from shieldfl.simulation.report.summary import ZONES, mean_over_rounds
from shieldfl.simulation.results import STAGES, MethodResult
from shieldfl.simulation.run_result import RunResult

__all__ = ["FIGURES", "ComparedFigure", "PaperFigure", "compare_figures"]


@dataclass(frozen=True)
class Figure:
    """How a figure is read off a result, and written."""

    label: str
    read: Callable[[MethodResult], float]
    text: Callable[[float], str]


def _per_round(method: MethodResult, attribute: str) -> float:
    """A mean over the rounds after the first, as in the table above it."""
    return fmean(getattr(record, attribute) for record in method.repeated_rounds)


def _per_client(method: MethodResult, stage: str) -> float:
    """Seconds of a stage for one client and round."""
    rounds = method.repeated_rounds
    begun = sum(record.participants + record.dropped for record in rounds)
    return sum(record.stage_seconds.get(stage, 0.0) for record in rounds) / begun


def _stage(stage: str) -> dict[str, Figure]:
    return {
        f"{stage}_seconds": Figure(
            f"{stage}, a round", lambda method: method.mean_stage_seconds()[stage], seconds_text
        ),
        f"{stage}_seconds_per_client": Figure(
            f"{stage}, a round and client", lambda method: _per_client(method, stage), seconds_text
        ),
    }


def _zone(zone: str) -> Figure:
    return Figure(f"{zone} share", lambda method: mean_over_rounds(method, zone), share_text)


FIGURES: dict[str, Figure] = {
    "accuracy": Figure("accuracy", lambda method: method.last.accuracy, accuracy_text),
    "best_accuracy": Figure("accuracy, best round", lambda method: method.best_accuracy, accuracy_text),
    "personalised_accuracy": Figure(
        "accuracy, personalised", lambda method: method.last.personalised_accuracy, accuracy_text
    ),
    "matched_accuracy": Figure(
        "accuracy, on each client's own labels", lambda method: method.last.matched_accuracy, accuracy_text
    ),
    "converged_round": Figure("converged in round", lambda method: method.converged_round, "{:g}".format),
    "bytes_to_convergence": Figure(
        "up and down, a client until convergence", lambda method: method.bytes_to_convergence, bytes_text
    ),
    "seconds_to_convergence": Figure(
        "time until convergence", lambda method: method.seconds_to_convergence, seconds_text
    ),
    **{f"{zone}_share": _zone(zone) for zone in ZONES},
    **{name: figure for stage in STAGES for name, figure in _stage(stage).items()},
    "round_seconds": Figure("whole round", lambda method: _per_round(method, "seconds"), seconds_text),
    "bytes_up": Figure("up, a round and client", lambda method: _per_round(method, "bytes_up"), bytes_text),
    "bytes_down": Figure(
        "down, a round and client", lambda method: _per_round(method, "bytes_down"), bytes_text
    ),
    "total_bytes": Figure(
        "up and down, a client in all rounds",
        lambda method: sum(record.bytes_up + record.bytes_down for record in method.rounds),
        bytes_text,
    ),
    "epsilon": Figure("ε", lambda method: method.last.epsilon, epsilon_text),
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


def compare_figures(result: RunResult, papers: tuple[PaperFigure, ...]) -> tuple[ComparedFigure, ...]:
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
