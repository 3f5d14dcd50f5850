"""Bars for each method: what its parameters' protection is, and what its rounds cost."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from shieldfl.reporting.figure_style import STAGE_COLOURS, Theme, add_legend, set_title
from shieldfl.reporting.quantities import bytes_text, seconds_text, share_text
from shieldfl.simulation.report.drawing import (
    WIDE,
    Shape,
    bar_rows,
    label_bars,
    label_dots,
    new_plot,
    percent,
    quantity,
    spread_widely,
)
from shieldfl.simulation.report.summary import ZONES, compared_texts, mean_over_rounds
from shieldfl.simulation.report.timing import compare_timings
from shieldfl.simulation.results import STAGES, MethodResult
from shieldfl.simulation.run_result import RunResult

__all__ = ["draw_bytes", "draw_stages", "draw_zones", "zone_text"]

_ZONE_COLOURS = {"encrypted": "#0072B2", "personalised": "#E69F00", "noise": "#56B4E9"}


def zone_text(method: MethodResult) -> str:
    """Say how large each zone is that a method has, as a mean over its rounds."""
    shares = {zone: mean_over_rounds(method, zone) for zone in ZONES}
    return ", ".join(f"{zone} {share_text(share)}" for zone, share in shares.items() if share > 0.0)


def draw_zones(result: RunResult, theme: Theme, shape: Shape = WIDE) -> Figure:
    """A bar for each method, of all parameters, whose parts are the zones."""
    methods = result.methods
    texts = [_wrapped(zone_text(method), shape) for method in methods]
    present = [zone for zone in ZONES if any(mean_over_rounds(method, zone) > 0.0 for method in methods)]
    lines = 1 + (max(text.count("\n") + 1 for text in texts) if shape.narrow else 0)
    row = 24.0 + 15.0 * lines
    figure, (axes,) = new_plot(theme, shape, 62.0 + row * len(methods))
    for index, (method, text) in enumerate(zip(methods, texts, strict=True)):
        floor = 0.0
        for zone in present:
            share = mean_over_rounds(method, zone)
            # Each zone has a bar in each row, for the legend; one of no length is not seen.
            colour = _ZONE_COLOURS.get(zone, theme.neutral)
            axes.barh(index, share, 12.0 / row, floor, color=colour, label=zone)
            floor += share
        place: dict[str, Any] = {"textcoords": "offset points", "va": "bottom", "fontsize": shape.text}
        place |= {"color": theme.text, "parse_math": False}
        side = "left" if shape.narrow else "right"
        above = 4.0 + (15.0 * (text.count("\n") + 1) if shape.narrow else 0.0)
        top = index - 6.0 / row
        axes.annotate(method.method, (0.0, top), xytext=(0.0, above), fontweight="bold", **place)
        axes.annotate(text, (0.0 if shape.narrow else 1.0, top), xytext=(0.0, 4.0), ha=side, **place)
    axes.set_yticks([])
    axes.set_ylim(len(methods) - 1 + 12.0 / row, 16.0 / row - 1.0)
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
    axes.xaxis.set_major_formatter(percent())
    add_legend(
        figure, "outside lower center", [axes], theme, columns=2 if shape.narrow else 4, size=shape.text
    )
    return figure


def _wrapped(text: str, shape: Shape) -> str:
    """Break a line between the zones where it is wider than the drawing."""
    lines = [""]
    for part in text.split(", "):
        longer = ", ".join(filter(None, [lines[-1], part]))
        if shape.width_of(longer) > shape.width and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def draw_stages(result: RunResult, theme: Theme, shape: Shape = WIDE) -> Figure:
    """Seconds a round: with training, timed once for all that train alike, and without it."""
    methods, timings = result.methods, compare_timings(result.methods)
    figure, panels, room = _two_panels(methods, theme, shape, legend=72.0)
    colours = {"train": theme.neutral, **STAGE_COLOURS, "other": theme.faint}
    means = [
        timing.stage_seconds | {"train": timing.train_seconds, "other": timing.other_seconds}
        for timing in timings
    ]
    present = [stage for stage in (*STAGES, "other") if any(mean.get(stage, 0.0) > 0.0 for mean in means)]
    whole = [timing.round_seconds for timing in timings]
    apart = spread_widely(whole)
    for axes, title, stages in (
        (panels[0], "whole round", present),
        (panels[1], "all but training", [stage for stage in present if stage != "train"]),
    ):
        totals = [sum(mean.get(stage, 0.0) for stage in stages) for mean in means]
        texts = compared_texts(totals, seconds_text)
        if apart and axes is panels[0]:
            label_dots(axes, totals, texts, room, shape, theme, STAGE_COLOURS["encrypt"])
            set_title(axes, f"{title}, logarithmic", theme, shape.text)
            axes.xaxis.set_major_formatter(quantity(seconds_text))
            continue
        scales = [total or 1.0 for total in totals] if apart else [1.0] * len(methods)
        start = [0.0] * len(methods)
        for stage in stages:
            widths = [mean.get(stage, 0.0) / scale for mean, scale in zip(means, scales, strict=True)]
            axes.barh(range(len(methods)), widths, _height(shape), start, label=stage, color=colours[stage])
            start = [low + width for low, width in zip(start, widths, strict=True)]
        label_bars(axes, start, texts, room, shape, theme)
        set_title(axes, f"{title}, each as 100 %" if apart else title, theme, shape.text)
        axes.xaxis.set_major_formatter(percent() if apart else quantity(seconds_text))
        if apart:
            axes.xaxis.set_major_locator(FixedLocator([0.0, 0.5, 1.0]))
    columns = 3 if shape.narrow else math.ceil(len(present) / 2) if len(present) > 6 else None
    add_legend(
        figure, "outside lower center", [panels[1], panels[0]], theme, columns=columns, size=shape.text
    )
    return figure


def draw_bytes(result: RunResult, theme: Theme, shape: Shape = WIDE) -> Figure:
    """Bytes that a client sends and receives in a round."""
    methods = result.methods
    figure, panels, room = _two_panels(methods, theme, shape, legend=0.0)
    for axes, title, field, colour in (
        (panels[0], "up: client to aggregator", "bytes_up", "#0072B2"),
        (panels[1], "down: to the client", "bytes_down", "#56B4E9"),
    ):
        sizes = [float(getattr(timing, field)) for timing in compare_timings(methods)]
        texts = compared_texts(sizes, bytes_text)
        apart = spread_widely(sizes)
        if apart:
            label_dots(axes, sizes, texts, room, shape, theme, colour)
        else:
            axes.barh(range(len(methods)), sizes, _height(shape), color=colour)
            label_bars(axes, sizes, texts, room, shape, theme)
        axes.xaxis.set_major_formatter(quantity(bytes_text))
        set_title(axes, f"{title}, logarithmic" if apart else title, theme, shape.text)
    return figure


def _height(shape: Shape) -> float:
    return 0.4 if shape.narrow else 0.62


def _two_panels(
    methods: list[MethodResult], theme: Theme, shape: Shape, legend: float
) -> tuple[Figure, list[Axes], float]:
    """Return a figure, its panels, beside each other where there is room, and how long their axes are, about."""
    names = [method.method for method in methods]
    if shape.narrow:
        height = 2 * (56.0 + 40.0 * len(methods)) + legend
        figure, panels = new_plot(theme, shape, height, rows=2)
        room = shape.width - 24.0
    else:
        figure, panels = new_plot(theme, shape, 64.0 + 28.0 * len(methods) + legend, columns=2)
        room = 0.5 * (shape.width - max(map(shape.width_of, names)) - 48.0)
    for axes, named in zip(panels, (True, False), strict=True):
        bar_rows(axes, names, shape, theme, named)
    return figure, panels, room
