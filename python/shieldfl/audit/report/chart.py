"""A chart of an attack's figures beside chance, with intervals: the aggregator's and the strongest party's."""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from shieldfl.audit.report.reading import AttackTable, above_chance, figure_text
from shieldfl.audit.result import Cell
from shieldfl.reporting.figure_style import LINE_COLOURS, LINE_MARKERS, Theme, add_grid, add_legend
from shieldfl.simulation.report.drawing import WIDE, Shape, new_plot

__all__ = ["draw_chart", "say_chart"]

_AGGREGATOR = "aggregator"
_STRONGEST = "strongest party"
_LANE = 13.0
"""Between the two parties of a method, in units of the drawing."""
_LINE = 16.0
"""Of text."""
_SPACE = 12.0
"""Between a method and the next."""


@dataclass(frozen=True)
class _Lane:
    """Of a method: what one party got."""

    text: str
    cell: Cell | None = None
    """None where there is no figure to draw, or where it is drawn in the other lane."""


def draw_chart(table: AttackTable, theme: Theme, shape: Shape = WIDE) -> Figure:
    """A row for each method: the figure of the aggregator and below it that of the party with the most above chance."""
    lanes = {method: _lanes(table, method) for method in table.methods}
    head = _LINE * (3 if shape.narrow else 1) + 4.0
    row = head + 2 * _LANE + _SPACE
    figure, (axes,) = new_plot(theme, shape, row * len(lanes) + 78.0)
    for number, (method, (first, second)) in enumerate(lanes.items()):
        top = row * number
        _write(axes, method, first, second, top, shape, theme)
        for place, lane in enumerate((first, second)):
            _draw(axes, lane, top + head + _LANE * (place + 0.5), place, theme)
    # What the legend names may be in no lane.
    for place, kind in enumerate((_AGGREGATOR, _STRONGEST)):
        axes.plot([], [], LINE_MARKERS[place], color=_colour(place), label=kind, markersize=7.0)
    axes.plot([], [], color=theme.text, linewidth=1.6, label="95 % interval")
    axes.plot([], [], "|", color=theme.text, markersize=11.0, markeredgewidth=1.6, label="chance")
    axes.set_yticks([])
    axes.set_ylim(row * len(lanes), -2.0)
    ends = (value for cell in table.cells.values() for value in (cell.low, cell.figure))
    lowest = min(filter(math.isfinite, ends), default=0.0)  # a correlation may be negative
    axes.set_xlim(min(lowest, 0.0) - 0.02, 1.02)
    axes.xaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
    axes.set_xlabel(f"{table.measured_by}, mean over the tries")
    add_grid(axes, theme, "x")
    add_legend(figure, "outside lower center", [axes], theme, 2 if shape.narrow else None, shape.text)
    return figure


def say_chart(table: AttackTable) -> str:
    """Return the chart's figures in words."""
    each = (f"{method}: {_told(*_lanes(table, method))}" for method in table.methods)
    return f"{table.measured_by} (chance): {'. '.join(each)}."


def _lanes(table: AttackTable, method: str) -> tuple[_Lane, _Lane]:
    known = [cell for cell in table.of_method(method) if cell.status == "attacked"]
    aggregator = table.cells.get((method, _AGGREGATOR))
    strongest = max(known, key=above_chance, default=None)
    if aggregator is None:
        first = _Lane(f"{_AGGREGATOR}: not looked at")
    elif aggregator not in known:
        first = _Lane(f"{_AGGREGATOR}: {aggregator.status}")
    else:
        first = _Lane(f"{_AGGREGATOR} {figure_text(aggregator)}", aggregator)
    if strongest is None:
        return first, _Lane("no figure of any party")
    if aggregator in known and above_chance(aggregator) == above_chance(strongest):
        return first, _Lane("nobody got more")
    return first, _Lane(f"{strongest.party} {figure_text(strongest)}", strongest)


def _told(first: _Lane, second: _Lane) -> str:
    return f"{first.text}; {second.text}"


def _write(
    axes: Axes, method: str, first: _Lane, second: _Lane, top: float, shape: Shape, theme: Theme
) -> None:
    """Write the method above its lanes, and what they say beside it, or below it where there is no room."""
    lines = [method, first.text, second.text] if shape.narrow else [method, _told(first, second)]
    for number, text in enumerate(lines):
        beside = number == 1 and not shape.narrow
        axes.annotate(
            text,
            (1.0 if beside else 0.0, top + _LINE * (0.8 + (number if shape.narrow else 0))),
            xycoords=("axes fraction", "data"),
            ha="right" if beside else "left",
            va="baseline",
            fontsize=shape.text,
            fontweight="bold" if number == 0 else "normal",
            color=theme.text,
            parse_math=False,
            bbox={"facecolor": theme.background, "edgecolor": "none", "pad": 1.0},
        )


def _draw(axes: Axes, lane: _Lane, height: float, place: int, theme: Theme) -> None:
    if lane.cell is None:
        return
    cell = lane.cell
    if math.isfinite(cell.low) and math.isfinite(cell.high):
        axes.hlines(height, cell.low, cell.high, color=_colour(place), linewidth=1.8)
    axes.plot(cell.chance, height, "|", color=theme.text, markersize=11.0, markeredgewidth=1.6)
    axes.plot(cell.figure, height, LINE_MARKERS[place], color=_colour(place), markersize=7.0)


def _colour(place: int) -> str:
    return (LINE_COLOURS[0], LINE_COLOURS[3])[place]
