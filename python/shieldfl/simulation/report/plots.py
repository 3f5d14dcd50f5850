"""Plots of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from shieldfl.reporting.figure_style import (
    LINE_COLOURS,
    LINE_MARKERS,
    STAGE_COLOURS,
    Theme,
    add_grid,
    add_legend,
    new_figure,
    set_title,
)
from shieldfl.reporting.quantities import bytes_text, seconds_text, share_text
from shieldfl.simulation.report.summary import ZONES, compared_texts, mean_over_rounds
from shieldfl.simulation.report.timing import compare_timings
from shieldfl.simulation.results import STAGES, MethodResult
from shieldfl.simulation.run_result import RunResult

__all__ = ["PLOTS", "Plot"]

_ZONE_COLOURS = {"encrypted": "#0072B2", "personalised": "#E69F00", "noise": "#56B4E9"}


@dataclass(frozen=True)
class Plot:
    """One picture of the report."""

    name: str
    """Of its file, without the ending."""
    title: str
    explanation: str
    draw: Callable[[RunResult, Theme], Figure]


def draw_measured(result: RunResult, theme: Theme) -> Figure:
    """The first metric over rounds: the global model solid, the mean of the clients' own models dashed."""
    name = result.metrics[0]
    figure, (axes,) = new_figure(theme, height=4.2)
    personalised = False
    for index, method in enumerate(result.methods):
        colour = LINE_COLOURS[index % len(LINE_COLOURS)]
        style: dict[str, Any] = {
            "color": colour,
            "marker": LINE_MARKERS[index % len(LINE_MARKERS)],
            "markersize": 4.5,
        }
        rounds = [record.round for record in method.rounds]
        measured = [record.measured(name) for record in method.rounds]
        own = [record.measured_by_clients(name) for record in method.rounds]
        axes.plot(rounds, measured, label=method.method, linewidth=2.0, **style)
        if own != measured:
            personalised = True
            axes.plot(
                rounds,
                own,
                label=f"{method.method}, personalised",
                linewidth=1.5,
                linestyle="--",
                markerfacecolor=theme.background,
                **style,
            )
    axes.set_xlabel("round")
    axes.set_ylabel(f"{name} on the test set")
    if name == "accuracy":
        axes.yaxis.set_major_formatter(_percent())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if all(len(method.rounds) == 1 for method in result.methods):
        axes.set_xlim(0.5, 1.5)
    add_grid(axes, theme, "y")
    if personalised or len(result.methods) > 1:
        _legend(axes, theme, outside=len(result.methods) > 4)
    return figure


def draw_zones(result: RunResult, theme: Theme) -> Figure:
    """Share of the parameters in each zone, stacked per round; a panel per method that has several."""
    zoned = [method for method in result.methods if _single_zone(method) is None] or result.methods
    figure, panels = new_figure(theme, height=1.2 + 2.1 * len(zoned), rows=len(zoned))
    for axes, method in zip(panels, zoned, strict=True):
        _stack_zones(axes, method, theme)
    panels[-1].set_xlabel("round")
    uniform = [method for method in result.methods if method not in zoned]
    if uniform:
        text = ", ".join(f"{method.method}: all {_single_zone(method)}" for method in uniform)
        figure.supxlabel(text, x=0.01, ha="left", fontsize=9.5, color=theme.text)
    return figure


def _single_zone(method: MethodResult) -> str | None:
    used = [zone for zone in ZONES if mean_over_rounds(method, zone) > 0.0]
    return used[0] if len(used) == 1 else None


def _stack_zones(axes: Axes, method: MethodResult, theme: Theme) -> None:
    rounds = [record.round for record in method.rounds]
    floor = [0.0] * len(rounds)
    protected = 0.0
    for zone in ZONES:
        shares = [record.zone_shares.get(zone, 0.0) for record in method.rounds]
        if not any(shares):
            continue
        label = f"{zone}  {share_text(mean_over_rounds(method, zone))}"
        colour = _ZONE_COLOURS.get(zone, theme.neutral)
        axes.bar(rounds, shares, width=0.82, bottom=floor, label=label, color=colour)
        floor = [low + share for low, share in zip(floor, shares, strict=True)]
        if zone in ("encrypted", "personalised"):
            protected = max(floor)
    # Zones of a few percent would be slivers on a full scale; a stack may be cut at the top, never at zero.
    top = math.ceil(150.0 * protected) / 100.0
    cut = 0.0 < top < 0.8
    axes.set_ylim(0.0, top if cut else 1.0)
    axes.yaxis.set_major_formatter(_percent())
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlim(rounds[0] - 0.6, rounds[-1] + 0.6)
    scale = f"  (bars go on to 100 %, the scale ends at {top * 100:.0f} %)" if cut else ""
    set_title(axes, method.method + scale, theme)
    _legend(axes, theme, outside=True, reverse=True)


def draw_stages(result: RunResult, theme: Theme) -> Figure:
    """Seconds a round: with training, timed once for all that train alike, on the left, without it on the right."""
    methods = result.methods
    figure, (whole, added) = new_figure(theme, height=1.9 + 0.5 * len(methods), columns=2)
    colours = {"train": theme.neutral, **STAGE_COLOURS, "other": theme.faint}
    timings = compare_timings(methods)
    means = [
        timing.stage_seconds | {"train": timing.train_seconds, "other": timing.other_seconds}
        for timing in timings
    ]
    for axes, stages in ((whole, (*STAGES, "other")), (added, (*STAGES[1:], "other"))):
        start = [0.0] * len(methods)
        for stage in stages:
            seconds = [mean.get(stage, 0.0) for mean in means]
            axes.barh(range(len(methods)), seconds, height=0.6, left=start, label=stage, color=colours[stage])
            start = [low + width for low, width in zip(start, seconds, strict=True)]
        _label_bars(axes, start, [seconds_text(total) for total in start], theme)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g} s"))
    _method_rows(whole, added, methods)
    set_title(whole, "all stages", theme)
    set_title(added, "without training", theme)
    add_legend(figure, "outside lower center", [whole], theme)
    return figure


def draw_bytes(result: RunResult, theme: Theme) -> Figure:
    """Bytes that a client sends and receives in a round."""
    methods = result.methods
    figure, panels = new_figure(theme, height=1.5 + 0.5 * len(methods), columns=2)
    for axes, title, field, colour in (
        (panels[0], "up: client to aggregator", "bytes_up", "#0072B2"),
        (panels[1], "down: to the client", "bytes_down", "#56B4E9"),
    ):
        sizes = [float(getattr(timing, field)) for timing in compare_timings(methods)]
        axes.barh(range(len(methods)), sizes, height=0.6, color=colour)
        _label_bars(axes, sizes, compared_texts(sizes, bytes_text), theme)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: bytes_text(size)))
        set_title(axes, title, theme)
    _method_rows(panels[0], panels[1], methods)
    return figure


PLOTS = (
    Plot(
        "accuracy",
        "Models on the test set",
        "Solid: the global model. Dashed: the mean of the clients' own merged models.",
        draw_measured,
    ),
    Plot(
        "zones",
        "Zones",
        "How the parameters are protected in each round; figures are means over the rounds.",
        draw_zones,
    ),
    Plot(
        "stages",
        "Time per stage",
        "Seconds of a round after the first. Client stages are sums over the clients.",
        draw_stages,
    ),
    Plot(
        "bytes",
        "Bytes per client",
        "What one client sends and receives in a round after the first.",
        draw_bytes,
    ),
)


def _percent() -> FuncFormatter:
    return FuncFormatter(lambda share, _: f"{share * 100:g} %")


def _legend(axes: Axes, theme: Theme, outside: bool, reverse: bool = False) -> None:
    place = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if outside else {"loc": "best"}
    axes.legend(
        frameon=False,
        fontsize=9.5,
        labelcolor=theme.text,
        reverse=reverse,
        handlelength=1.4 if outside else 2.2,
        **place,
    )


def _method_rows(left: Axes, right: Axes, methods: Sequence[MethodResult]) -> None:
    left.set_yticks(range(len(methods)), [method.method for method in methods])
    right.set_yticks([])
    for axes in (left, right):
        axes.set_ylim(len(methods) - 0.4, -0.6)


def _label_bars(axes: Axes, lengths: Sequence[float], texts: Sequence[str], theme: Theme) -> None:
    longest = max(lengths)
    axes.set_xlim(0.0, longest * 1.5 if longest > 0.0 else 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    add_grid(axes, theme, "x")
    for row, (length, text) in enumerate(zip(lengths, texts, strict=True)):
        axes.annotate(
            text,
            (length, row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=theme.text,
        )
