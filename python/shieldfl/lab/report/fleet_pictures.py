"""Pictures of simulated fleets: who a round waits for, and what budgets and heterogeneity do to it.

matplotlib is imported when the first one is drawn.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_model import CostModel
from shieldfl.lab.fleet.encryption_plan import MaskSettings, plan_encryption
from shieldfl.lab.fleet.fleet import Fleet, FloatVector
from shieldfl.lab.fleet.round_simulation import STAGES, FleetRounds, stage_seconds
from shieldfl.lab.report.figures import (
    LINE_COLOURS,
    WIDE,
    Line,
    Shape,
    add_grid,
    add_legend,
    draw_bars,
    draw_lines,
    name_rows,
    new_figure,
    set_title,
)
from shieldfl.quantities import seconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEGMENTS = (*STAGES, "wait", "download")

BUDGETS = tuple(float(share) for share in np.linspace(0.0, 1.0, 41))
"""Shares of the parameters that a straggler index is computed for."""

_MOST_CLIENTS = 20
_LONGEST_NAME = 24
"""Characters; pictures shorten longer ones."""


@dataclass(frozen=True)
class Timelines:
    clients: tuple[str, ...]
    seconds: dict[str, FloatVector]
    dropped: NDArray[np.bool_]
    left_out: int


def timelines(rounds: FleetRounds, number: int = 0, most: int = _MOST_CLIENTS) -> Timelines:
    """Return the timelines of the slowest clients. Raises ParameterError for a round that there is not.

    A client that drops out neither waits nor downloads.
    """
    if not 0 <= number < rounds.dropped.shape[0]:
        raise ParameterError(f"there is no round {number}: choose one of {rounds.dropped.shape[0]}, from 0")
    order = np.argsort(-rounds.client_seconds[number], kind="stable")[:most]
    seconds = {name: rounds.stages[name][number, order] for name in STAGES}
    seconds |= {"wait": rounds.idle[number, order], "download": rounds.download[number, order]}
    return Timelines(
        clients=tuple(rounds.fleet.client_names[client] for client in order),
        seconds=seconds,
        dropped=rounds.dropped[number, order],
        left_out=rounds.fleet.size - order.size,
    )


def straggler_index_by_budget(
    fleet: Fleet, costs: CostModel, settings: MaskSettings | None = None, budgets: Sequence[float] = BUDGETS
) -> FloatVector:
    """Return slowest over median client time when every client encrypts the same share, for each share.

    Nobody drops out, and clients score and select as under MaskCrypt; a share of 0 is plain averaging.
    """
    chosen = settings or MaskSettings()
    indices = []
    for budget in budgets:
        method = "mask-crypt" if budget > 0.0 else "fedavg"
        uniform = replace(chosen, uniform_ratio=budget or None)
        plan = plan_encryption(method, fleet, costs.scheme, uniform)
        seconds = np.sum(list(stage_seconds(fleet, costs, plan).values()), axis=0)
        indices.append(float(seconds.max() / np.median(seconds)))
    return np.array(indices)


def draw_gantt(runs: Sequence[FleetRounds], number: int = 0, shape: Shape = WIDE) -> Figure:
    ways = [timelines(rounds, number) for rounds in runs]
    height = 110.0 + sum(56.0 + 16.0 * len(way.clients) for way in ways)
    figure, panels = new_figure(shape, height, rows=len(ways))
    separator = ",\n" if shape.narrow else ", "
    for axes, way, rounds in zip(panels, ways, runs, strict=True):
        name_rows(axes, [_short(one, shape) for one in way.clients], shape, 0.72, above=False)
        ends = draw_bars(axes, way.seconds, 0.72)
        if (lost := way.dropped).any():
            rows = np.flatnonzero(lost)
            axes.plot(ends[lost], rows, "x", color=LINE_COLOURS[3], label="dropped out", clip_on=False)
        title = f"{rounds.plan.method}, {seconds_text(float(rounds.round_seconds[number]))}"
        if way.left_out:
            title += f"{separator}the {lost.size} slowest of {rounds.fleet.size:,} clients"
        set_title(axes, title, shape)
        axes.sharex(panels[-1])
        axes.tick_params(labelbottom=axes is panels[-1])
    longest = max(float(np.sum(list(way.seconds.values()), axis=0).max()) for way in ways)
    panels[-1].set_xlim(0.0, 1.04 * longest or 1.0)
    panels[-1].xaxis.set_major_formatter("{x:,g}")
    panels[-1].set_xlabel("seconds from the start of the round")
    add_legend(figure, panels, shape, columns=3 if shape.narrow else 6)
    return figure


def draw_straggler_index(
    indices: Mapping[str, FloatVector], budgets: Sequence[float] = BUDGETS, shape: Shape = WIDE
) -> Figure:
    shares = [100.0 * budget for budget in budgets]
    figure, axes = _lines({name: (shares, index.tolist()) for name, index in indices.items()}, shape)
    axes.set_xlabel("encrypted by every client, % of the parameters")
    set_title(axes, "straggler index (slowest / median)", shape)
    # A scale of thousandths would make mountains of clients that are all alike.
    above = max(0.2, 1.05 * (max(float(index.max()) for index in indices.values()) - 1.0))
    axes.set_ylim(1.0 - 0.03 * above, 1.0 + above)
    return figure


def draw_round_times(
    fleets: Sequence[str], seconds: Mapping[str, Sequence[float]], shape: Shape = WIDE
) -> Figure:
    places = range(len(fleets))
    figure, axes = _lines({name: (places, times) for name, times in seconds.items()}, shape)
    # Names of more fleets than these would run into each other side by side.
    slant: dict[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}
    crowded = len(fleets) > (2 if shape.narrow else 4)
    axes.set_xticks(
        places, [_short(name, shape) for name in fleets], parse_math=False, **(slant if crowded else {})
    )
    axes.set_xlim(-0.4, len(fleets) - 0.6)
    set_title(axes, "seconds a round", shape)
    top = 1.1 * max(max(times) for times in seconds.values()) or 1.0
    axes.set_ylim(-0.03 * top, top)
    axes.yaxis.set_major_formatter("{x:,g}")
    return figure


def _lines(named: Mapping[str, tuple[Sequence[float], Sequence[float]]], shape: Shape) -> tuple[Figure, Axes]:
    figure, (axes,) = new_figure(shape, 320.0)
    lines = zip(named.items(), itertools.cycle(LINE_COLOURS), strict=False)
    draw_lines(axes, [Line(name, x, y, colour) for (name, (x, y)), colour in lines])
    add_grid(axes, "both")
    add_legend(figure, [axes], shape, columns=2 if shape.narrow else 5)
    return figure, axes


def _short(name: str, shape: Shape) -> str:
    longest = _LONGEST_NAME // 2 if shape.narrow else _LONGEST_NAME
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
