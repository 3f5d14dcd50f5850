"""Pictures of simulated fleets: who a round waits for, and what budgets and heterogeneity do to it.

matplotlib is imported when the first one is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.fleet.costs import CostModel
from shieldfl.fleet.encryption_plan import MaskSettings, plan_encryption
from shieldfl.fleet.fleet import Fleet, FloatVector
from shieldfl.fleet.round_simulation import STAGES, FleetRounds, stage_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BUDGETS",
    "SEGMENTS",
    "Timelines",
    "draw_gantt",
    "draw_round_times",
    "draw_straggler_index",
    "straggler_index_by_budget",
    "timelines",
    "write_png",
]

SEGMENTS = (*STAGES, "wait", "download")
"""What a client's round consists of, in order."""

BUDGETS = tuple(float(share) for share in np.linspace(0.0, 1.0, 41))
"""Shares of the parameters that a straggler index is computed for."""

_MOST_CLIENTS = 20
# Okabe and Ito's colours, which colour-blind readers can tell apart; waiting and training are not the point.
_SEGMENT_COLOURS = {
    "train": "#b4bac2",
    "score": "#F0E442",
    "select": "#E69F00",
    "encrypt": "#0072B2",
    "upload": "#56B4E9",
    "wait": "#eceef1",
    "download": "#009E73",
}
_LINE_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Timelines:
    """Some clients' ways through one round, the slowest first."""

    clients: tuple[str, ...]
    seconds: dict[str, FloatVector]
    """Of each of ``SEGMENTS``, shape (clients,)."""
    dropped: NDArray[np.bool_]
    left_out: int
    """Clients that were faster than all of these."""


def timelines(rounds: FleetRounds, number: int = 0, most: int = _MOST_CLIENTS) -> Timelines:
    """Return the timelines of the ``most`` slowest clients in round ``number``, from 0.

    A client that drops out neither waits nor downloads. Raises ParameterError for a round that there is not.
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
        method = "mask-crypt" if budget > 0.0 else "plaintext"
        uniform = replace(chosen, uniform_ratio=budget or None)
        plan = plan_encryption(method, fleet, costs.scheme, uniform)
        seconds = np.sum(list(stage_seconds(fleet, costs, plan).values()), axis=0)
        indices.append(float(seconds.max() / np.median(seconds)))
    return np.array(indices)


def draw_gantt(runs: Sequence[FleetRounds], number: int = 0) -> Figure:
    """Draw one round of each run, a panel for each method and a bar for each client, on one axis of seconds."""
    ways = [timelines(rounds, number) for rounds in runs]
    figure, panels = _figure(height=1.0 + sum(0.5 + 0.17 * len(way.clients) for way in ways), rows=len(ways))
    for axes, way, rounds in zip(panels, ways, runs, strict=True):
        rows = np.arange(len(way.clients))
        begin = np.zeros(rows.size)
        for segment in SEGMENTS:
            width = way.seconds[segment]
            axes.barh(rows, width, 0.72, begin, color=_SEGMENT_COLOURS[segment], label=segment)
            begin = begin + width
        lost = way.dropped
        if lost.any():
            axes.plot(begin[lost], rows[lost], "x", color="#D55E00", label="dropped out")
        title = rounds.plan.method + (f", the {rows.size} slowest clients" if way.left_out else "")
        axes.set_title(title, loc="left", fontsize=10.5)
        axes.set_yticks(rows, way.clients, fontsize=8)
        axes.set_ylim(rows.size - 0.4, -0.6)
        axes.sharex(panels[-1])
        axes.tick_params(labelbottom=axes is panels[-1])
    panels[-1].xaxis.set_major_formatter("{x:,g}")
    panels[-1].set_xlabel("seconds from the start of the round")
    named = dict(
        pair[::-1] for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)
    )
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=len(named), frameon=False)
    return figure


def draw_straggler_index(indices: Mapping[str, FloatVector], budgets: Sequence[float] = BUDGETS) -> Figure:
    """Draw what :func:`straggler_index_by_budget` returned, a line for each name."""
    figure, (axes,) = _figure(height=4.0)
    for line, (name, index) in enumerate(indices.items()):
        axes.plot(
            100.0 * np.asarray(budgets), index, label=name, color=_LINE_COLOURS[line % 6], linewidth=2.0
        )
    axes.set_xlabel("encrypted by every client, % of the parameters")
    axes.set_ylabel("straggler index (slowest / median)")
    axes.set_ylim(bottom=1.0)
    return _with_legend(figure, axes)


def draw_round_times(fleets: Sequence[str], seconds: Mapping[str, Sequence[float]]) -> Figure:
    """Draw mean seconds of a round over fleets of rising heterogeneity, a line for each name."""
    figure, (axes,) = _figure(height=4.0)
    for line, (name, times) in enumerate(seconds.items()):
        style = {"color": _LINE_COLOURS[line % 6], "marker": _MARKERS[line % 6], "linewidth": 2.0}
        axes.plot(range(len(fleets)), times, label=name, **style)
    axes.set_xticks(range(len(fleets)), fleets)
    axes.set_xlim(-0.4, len(fleets) - 0.6)
    axes.set_ylabel("seconds a round")
    axes.set_ylim(0.0, 1.1 * max(max(times) for times in seconds.values()))
    axes.yaxis.set_major_formatter("{x:,g}")
    return _with_legend(figure, axes)


def write_png(figure: Figure, path: str | Path) -> None:
    """Write a figure, with nothing in the file that changes from run to run. Raises OSError."""
    from shieldfl.simulation.plots import render_png

    Path(path).write_bytes(render_png(figure))


def _figure(height: float, rows: int = 1) -> tuple[Figure, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, height), facecolor="white", layout="constrained")
    panels = list(figure.subplots(rows, 1, squeeze=False).flat)
    for axes in panels:
        axes.set_axisbelow(True)
        axes.grid(axis="both" if rows == 1 else "x", color="#d8dce1", linewidth=0.8)
        axes.tick_params(length=0)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
    return figure, panels


def _with_legend(figure: Figure, axes: Axes) -> Figure:
    axes.legend(frameon=False, fontsize=9.5)
    return figure
