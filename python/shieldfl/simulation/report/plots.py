"""Plots of a run, and what each shows in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from matplotlib.figure import Figure

from shieldfl.reporting.figure_style import Theme
from shieldfl.reporting.quantities import bytes_text, metric_text, seconds_text
from shieldfl.simulation.report.bar_plots import draw_bytes, draw_stages, draw_zones, zone_text
from shieldfl.simulation.report.drawing import Shape
from shieldfl.simulation.report.line_plots import draw_measured
from shieldfl.simulation.report.timing import compare_timings
from shieldfl.simulation.results import MethodResult
from shieldfl.simulation.run_result import RunResult

__all__ = ["PLOTS", "Plot"]


class Draw(Protocol):
    """Draws a plot for a theme; for a wide screen unless a shape says otherwise."""

    def __call__(self, result: RunResult, theme: Theme, shape: Shape = ...) -> Figure:
        """Return the figure."""


@dataclass(frozen=True)
class Plot:
    """One picture of the report."""

    name: str
    """Of its files, without the ending."""
    title: str
    explanation: str
    draw: Draw
    say: Callable[[RunResult], str]
    """Its figures, for those who do not see it."""


def _say_measured(result: RunResult) -> str:
    name = result.metrics[0]

    def told(method: MethodResult) -> str:
        first, last = (metric_text(record.measured(name), name) for record in (method.rounds[0], method.last))
        of_clients = metric_text(method.last.measured_by_clients(name), name)
        own = "" if of_clients == last else f", its clients' own models to {of_clients}"
        return f"{method.method} from {first} to {last}{own}"

    return f"Lines of {name} from the first round to the last: {'; '.join(map(told, result.methods))}."


def _say_zones(result: RunResult) -> str:
    return (
        f"Bars of shares: {'; '.join(f'{method.method} {zone_text(method)}' for method in result.methods)}."
    )


def _say_stages(result: RunResult) -> str:
    timings = zip(result.methods, compare_timings(result.methods), strict=True)
    each = [
        f"{method.method} {seconds_text(timing.round_seconds)}, of which {seconds_text(timing.protection_seconds)} "
        "are not training"
        for method, timing in timings
    ]
    return f"Bars of a round's time: {'; '.join(each)}."


def _say_bytes(result: RunResult) -> str:
    timings = zip(result.methods, compare_timings(result.methods), strict=True)
    each = [
        f"{method.method} {bytes_text(timing.bytes_up)} up and {bytes_text(timing.bytes_down)} down"
        for method, timing in timings
    ]
    return f"Bars of a client's bytes in a round: {'; '.join(each)}."


PLOTS = (
    Plot(
        "accuracy",
        "Models on the test set",
        "Solid: the global model. Dashed: the mean of the clients' own merged models, where it differs. Lines that "
        "lie on each other are drawn one within the other, or each in its own panel, where grey is all the others.",
        draw_measured,
        _say_measured,
    ),
    Plot(
        "zones",
        "Zones",
        "How the parameters are protected: means over the rounds, each of which is in rounds.csv.",
        draw_zones,
        _say_zones,
    ),
    Plot(
        "stages",
        "Time per stage",
        "Of a round after the first. Client stages are sums over the clients.",
        draw_stages,
        _say_stages,
    ),
    Plot(
        "bytes",
        "Bytes per client",
        "What one client sends and receives in a round after the first.",
        draw_bytes,
        _say_bytes,
    ),
)
