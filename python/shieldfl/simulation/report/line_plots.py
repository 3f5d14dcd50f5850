"""What models were measured by, over the rounds: few methods in one panel, many in a panel each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from shieldfl.reporting.figure_style import LINE_COLOURS, LINE_MARKERS, Theme, add_grid
from shieldfl.reporting.quantities import metric_text
from shieldfl.simulation.report.drawing import WIDE, Shape, new_plot, percent
from shieldfl.simulation.results import MethodResult
from shieldfl.simulation.run_result import RunResult

__all__ = ["draw_measured"]

_MOST_TOGETHER = 4
"""Methods in one panel: of more, each gets its own, where all others are grey behind it."""
_COLUMNS = {True: 2, False: 4}
_OWN, _OF_CLIENTS = LINE_COLOURS[0], LINE_COLOURS[3]


@dataclass(frozen=True)
class _Line:
    """What one line shows."""

    method: str
    rounds: list[int]
    values: list[float]
    of_clients: bool
    """Whether it is the mean of the clients' own models."""

    @property
    def label(self) -> str:
        return f"{self.method}, personalised" if self.of_clients else self.method

    def covers(self, other: _Line, resolution: float) -> bool:
        """Whether the two could not be told apart where they lie on each other."""
        return self.rounds == other.rounds and all(
            abs(one - two) <= resolution or (math.isnan(one) and math.isnan(two))
            for one, two in zip(self.values, other.values, strict=True)
        )


def draw_measured(result: RunResult, theme: Theme, shape: Shape = WIDE) -> Figure:
    """The first metric over rounds: the global model solid, the mean of the clients' own models dashed."""
    name = result.metrics[0]
    lines = [_lines(method, name) for method in result.methods]
    if len(result.methods) <= _MOST_TOGETHER:
        return _together(name, [line for pair in lines for line in pair], theme, shape)
    return _apart(name, lines, theme, shape)


def _lines(method: MethodResult, name: str) -> list[_Line]:
    rounds = [record.round for record in method.rounds]
    own = [record.measured(name) for record in method.rounds]
    of_clients = [record.measured_by_clients(name) for record in method.rounds]
    line = _Line(method.method, rounds, own, of_clients=False)
    other = _Line(method.method, rounds, of_clients, of_clients=True)
    # A mean of equal numbers may differ from them in its last digits.
    return [line] if line.covers(other, 1e-9 * max(map(abs, own))) else [line, other]


def _range(lines: Sequence[_Line]) -> tuple[float, float]:
    """Return the ends of an axis that holds all values with some room."""
    values = [value for line in lines for value in line.values if math.isfinite(value)] or [0.0, 1.0]
    room = 0.06 * (max(values) - min(values)) or 0.1 * abs(values[0]) or 1.0
    return min(values) - room, max(values) + room


def _set_axes(axes: Axes, name: str, lines: Sequence[_Line], theme: Theme) -> None:
    first = min(line.rounds[0] for line in lines)
    last = max(line.rounds[-1] for line in lines)
    room = 0.04 * (last - first) or 0.5
    axes.set_xlim(first - room, last + room)
    axes.set_ylim(*_range(lines))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, nbins=5))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    if name == "accuracy":
        axes.yaxis.set_major_formatter(percent())
    add_grid(axes, theme, "y")


def _together(name: str, lines: list[_Line], theme: Theme, shape: Shape) -> Figure:
    height = 290.0
    figure, (axes,) = new_plot(theme, shape, height)
    _set_axes(axes, name, lines, theme)
    low, high = axes.get_ylim()
    colours = {
        method: LINE_COLOURS[i] for i, method in enumerate(dict.fromkeys(line.method for line in lines))
    }
    markers = dict(zip(colours, LINE_MARKERS, strict=False))
    groups: list[list[_Line]] = []
    for line in lines:
        near = [group for group in groups if group[0].covers(line, 0.008 * (high - low))]
        if near:
            near[0].append(line)
        else:
            groups.append([line])
    for group in groups:
        for depth, line in enumerate(reversed(group)):
            # Lines on each other are drawn one within the other: the lowest is the widest.
            level = len(group) - 1 - depth
            axes.plot(
                line.rounds,
                line.values,
                label=line.label,
                color=colours[line.method],
                linewidth=2.0 + 3.6 * level,
                linestyle="--" if line.of_clients else "-",
                marker=markers[line.method],
                markersize=4.5 + 4.5 * level,
                markerfacecolor=theme.background if line.of_clients else colours[line.method],
                zorder=3.0 - 0.1 * level,
            )
    axes.set_xlabel("round")
    # Above and not beside the axis, for which a name of one's own may be too long.
    axes.set_title(
        name if shape.narrow else f"{name} on the test set",
        loc="left",
        fontsize=shape.text,
        color=theme.text,
        parse_math=False,
    )
    _label_ends(axes, name, groups, height - 60.0, colours, theme, shape)
    return figure


def _label_ends(
    axes: Axes,
    name: str,
    groups: list[list[_Line]],
    height: float,
    colours: dict[str, str],
    theme: Theme,
    shape: Shape,
) -> None:
    """Write beside the last round which line ends there, and where it ends, one label below the other."""
    low, high = axes.get_ylim()
    finite = [group for group in groups if any(map(math.isfinite, group[0].values))]
    ends = {id(group): [value for value in group[0].values if math.isfinite(value)][-1] for group in finite}
    ranked = sorted(finite, key=lambda group: -ends[id(group)])
    line_height = 1.3 * shape.text / height
    rows = [
        [part for line in group for part in _broken(line.label, shape)] + [metric_text(ends[id(group)], name)]
        for group in ranked
    ]
    if not shape.narrow:
        rows = [[*lines[:-2], f"{lines[-2]}  {lines[-1]}"] for lines in rows]
    wanted = [(ends[id(group)] - low) / (high - low) for group in ranked]
    for group, words, middle, at in zip(
        ranked, rows, wanted, _spread(wanted, [line_height * (len(one) + 0.4) for one in rows]), strict=True
    ):
        axes.annotate(
            "\n".join(words),
            (1.0, middle),
            xycoords="axes fraction",
            xytext=(1.05, at),
            textcoords="axes fraction",
            va="center",
            fontsize=shape.text,
            color=theme.text,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": colours[group[0].method], "shrinkA": 1, "shrinkB": 0},
        )


def _broken(label: str, shape: Shape) -> list[str]:
    return label.replace(", ", ",\n").split("\n") if shape.narrow else [label]


def _spread(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Return middles near the wanted ones, from the highest to the lowest, that keep their sizes apart, in [0, 1]."""
    places = list(wanted)
    for i in range(len(places)):
        upper = 1.04 if i == 0 else places[i - 1] - 0.5 * sizes[i - 1]
        places[i] = min(places[i], upper - 0.5 * sizes[i])
    for i in reversed(range(len(places))):
        lower = -0.1 if i == len(places) - 1 else places[i + 1] + 0.5 * sizes[i + 1]
        places[i] = max(places[i], lower + 0.5 * sizes[i])
    return places


def _apart(name: str, lines: list[list[_Line]], theme: Theme, shape: Shape) -> Figure:
    columns = _COLUMNS[shape.narrow]
    rows = -(-len(lines) // columns)
    figure, panels = new_plot(theme, shape, 30.0 + 128.0 * rows, rows, columns)
    everything = [line for pair in lines for line in pair]
    for index, axes in enumerate(panels):
        if index >= len(lines):
            axes.set_axis_off()
            continue
        _set_axes(axes, name, everything, theme)
        for other in lines:
            axes.plot(other[0].rounds, other[0].values, color=theme.neutral, linewidth=0.8, zorder=1.5)
        for line in lines[index]:
            style: dict[str, Any] = {"linestyle": "--"} if line.of_clients else {"linestyle": "-"}
            axes.plot(
                line.rounds,
                line.values,
                label=line.label,
                color=_OF_CLIENTS if line.of_clients else _OWN,
                linewidth=2.2,
                marker="o",
                markersize=3.5,
                **style,
            )
        last = metric_text(lines[index][0].values[-1], name)
        axes.set_title(
            f"{lines[index][0].method}\n{last}",
            loc="left",
            fontsize=shape.text,
            color=theme.text,
            parse_math=False,
        )
        if index % columns:
            axes.set_yticklabels([])
        if index + columns < len(lines):
            axes.set_xticklabels([])
        else:
            axes.set_xlabel("round")
    return figure
