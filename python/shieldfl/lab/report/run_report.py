"""The report of a run: its figures as JSON and CSV, plots as files, and one page that holds everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from shieldfl.errors import ParameterError
from shieldfl.lab.report.output_files import write_json, write_whole
from shieldfl.lab.report.page import (
    LINE_COLOURS,
    NARROW,
    NEUTRAL,
    WIDE,
    Line,
    Section,
    Shape,
    Table,
    Terms,
    Text,
    add_legend,
    draw_bars,
    draw_lines,
    inline_drawing,
    name_rows,
    new_figure,
    percent,
    set_title,
    wrapped,
    write_figure,
    write_page,
)
from shieldfl.lab.report.run_summary import (
    compared_rows,
    describe_run,
    findings,
    footnotes,
    rounds_csv,
    summary_csv,
)
from shieldfl.lab.simulation.results import (
    STAGES,
    ZONES,
    MethodResult,
    RunResult,
    compare_timings,
    has_own_figures,
)
from shieldfl.quantities import metric_text, seconds_text, share_text

_MOST_TOGETHER = 4
"""Most methods in one panel; more methods have a panel each, with all others in grey behind."""


@dataclass(frozen=True)
class Plot:
    name: str
    title: str
    explanation: str
    draw: Callable[..., Figure]
    """Function of the run, and of a shape other than a wide screen, that draws the plot."""


def _draw_measured(result: RunResult, shape: Shape = WIDE) -> Figure:
    """Draw the first metric over rounds: the global model solid, the mean of clients' own models dashed."""
    name, count = result.metrics[0], len(result.methods)
    lines = [_lines(method, name, number) for number, method in enumerate(result.methods)]
    together = count <= _MOST_TOGETHER
    columns = 1 if together else 2 if shape.narrow else 4
    rows = 1 if together else -(-count // columns)
    legend = sum(map(len, lines)) / (1 if shape.narrow else 2)
    height = 290.0 + 18.0 * legend if together else 30.0 + 128.0 * rows
    figure, panels = new_figure(shape, height, rows, columns)
    low, high = _range([one for pair in lines for one in pair])
    first = min(method.rounds[0].round for method in result.methods)
    last = max(method.last.round for method in result.methods)
    room = 0.04 * (last - first) or 0.5
    for index, axes in enumerate(panels):
        if index >= count:
            axes.set_axis_off()
            continue
        axes.set_xlim(first - room, last + room)
        axes.set_ylim(low, high)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, nbins=5))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        if name == "accuracy":
            axes.yaxis.set_major_formatter(percent)
        axes.grid(axis="y")
        if together:
            draw_lines(axes, [one for pair in lines for one in pair])
            # Above and not beside the axis, for which a user's own name may be too long.
            set_title(axes, name if shape.narrow else f"{name} on the test set", shape)
        else:
            for other, *_ in lines:
                axes.plot(other.x, other.y, color=NEUTRAL, linewidth=0.8, zorder=1.5)
            draw_lines(axes, lines[index])
            set_title(axes, lines[index][0].label.replace("  ", "\n"), shape)
        lowest = together or index + columns >= count
        axes.tick_params(labelleft=not index % columns, labelbottom=lowest)
        axes.set_xlabel("round" if lowest else "")
    if together:
        add_legend(figure, panels, shape, columns=1 if shape.narrow else 2)
    return figure


def _lines(method: MethodResult, name: str, number: int) -> list[Line]:
    rounds = [record.round for record in method.rounds]
    own = [record.measured(name) for record in method.rounds]
    of_clients = [record.measured_by_clients(name) for record in method.rounds]
    together = number % len(LINE_COLOURS)
    label = f"{method.method}  {metric_text(own[-1], name)}"
    line = Line(label, rounds, own, LINE_COLOURS[together])
    if not has_own_figures(method.rounds, name):
        return [line]
    label = f"{method.method}, personalised  {metric_text(of_clients[-1], name)}"
    return [line, Line(label, rounds, of_clients, line.colour, dashed=True)]


def _range(lines: Sequence[Line]) -> tuple[float, float]:
    values = [value for line in lines for value in line.y if math.isfinite(value)] or [0.0, 1.0]
    room = 0.06 * (max(values) - min(values)) or 0.1 * abs(values[0]) or 1.0
    return min(values) - room, max(values) + room


def _draw_zones(result: RunResult, shape: Shape = WIDE) -> Figure:
    shares = [{zone: one.zone_share(zone) for zone in ZONES} for one in result.methods]
    texts = [
        ", ".join(f"{zone} {share_text(share)}" for zone, share in one.items() if share > 0.0)
        for one in shares
    ]
    return _draw_shares(result, texts, shares, shape)


def _draw_stages(result: RunResult, shape: Shape = WIDE) -> Figure:
    """Draw shares of a round's time: training, timed once for methods that train alike, and protection."""
    texts, shares = [], []
    for one in compare_timings(result.methods):
        whole, own = one.round_seconds, one.protection_seconds
        texts.append(f"{seconds_text(whole)}, of which {seconds_text(own)} are not training")
        parts = {"train": one.train_seconds, **one.stage_seconds, "other": one.other_seconds}
        scale = sum(parts.values()) or 1.0
        shares.append({stage: parts.get(stage, 0.0) / scale for stage in (*STAGES, "other")})
    return _draw_shares(result, texts, shares, shape)


def _draw_shares(
    result: RunResult, texts: Sequence[str], shares: Sequence[Mapping[str, float]], shape: Shape
) -> Figure:
    names = [wrapped(f"{one.method}: {text}", shape) for one, text in zip(result.methods, texts, strict=True)]
    parts = {name: [one[name] for one in shares] for name in shares[0]}
    row = 28.0 + 15.0 * max(name.count("\n") + 1 for name in names)
    legend = 18.0 * (len(parts) // (2 if shape.narrow else 4))
    figure, (axes,) = new_figure(shape, 48.0 + legend + row * len(names))
    name_rows(axes, names, shape, 14.0 / row)
    draw_bars(axes, {name: one for name, one in parts.items() if any(one)}, 14.0 / row)
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
    axes.xaxis.set_major_formatter(percent)
    add_legend(figure, [axes], shape, columns=2 if shape.narrow else 4)
    return figure


PLOTS = (
    Plot(
        "accuracy",
        "Models on the test set",
        "Solid: the global model. Dashed: the mean of the clients' own merged models, where it differs. Of "
        "many methods each has its own panel, where grey is all the others.",
        _draw_measured,
    ),
    Plot("zones", "Zones", "How the parameters are protected: means over the rounds.", _draw_zones),
    Plot(
        "stages",
        "Time per stage",
        "Shares of a round after the first. Client stages are sums over the clients.",
        _draw_stages,
    ),
)


_TERMS = {
    "Accuracy": "On the test set, twice: of the global model, and as the mean over all clients of their "
    "merged models, in which a client keeps its own values on its personalised positions. Both are the same "
    "where nothing is personalised.",
    "Zones": "Every parameter of a client is in one zone. Encrypted values are summed under encryption, and "
    "only sums of several clients are ever opened. Personalised values stay with the client. Noise values "
    "are sent with noise added, clear ones as they are. Personalised and noise zones differ between clients, "
    "so shares are means over the clients of a round.",
    "Time": "What a stage took all roles together: the work of the clients is added up, though in a real "
    "federation they work at the same time, each on its own machine. Methods that train alike share one "
    "figure for training, the median of theirs, so that what differs between them is protection. “Time a "
    "round” is wall-clock time on this machine with all roles in one process, without evaluation and without "
    "a network. Both are means over the rounds after the first. Where kinds of rounds alternate, the first "
    "counts like the others.",
    "Bytes": "All messages of a round that one client sends and receives, as they would travel, headers "
    "included; a mean over the clients of a round, and over the rounds after the first.",
    "ε and δ": "Privacy loss over all rounds so far, for a whole client or for one sample, and against whom, "
    "as the table says; a method's note says what it counts. Figures for different units cannot be compared. "
    "∞ means that values, or a mask that follows from them, or, where the aggregator opens sums, a sum were "
    "readable without noise, or that something was sent that depends on a sum opened without noise. – means "
    "that nothing readable was sent: encryption has no ε.",
    "Hidden from the aggregator": "The share that is encrypted of all parameters' values that were sent, and "
    "what else is readable, such as a mask. Values with noise, and updates from synthetic data, are not "
    "hidden.",
}


def write_report(result: RunResult, folder: Path) -> list[Path]:
    """Write the files, return paths, the page's last. Raises ParameterError for no round, OSError."""
    if not result.methods or any(not method.rounds for method in result.methods):
        raise ParameterError("the run has no finished round: there is nothing to report")
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in ("result.json", "summary.csv", "rounds.csv")]
    write_json(written[0], result.to_json())
    write_whole(written[1], summary_csv(result))
    write_whole(written[2], rounds_csv(result))
    names = [method.method for method in result.methods]
    rows = [(row.label, *row.cells) for row in compared_rows(result)]
    note = f"× compares with {names[0]}." if len(names) > 1 else ""
    sections = [Section("At a glance", [Table("Figures by method", ["figure", *names], rows, note)])]
    for plot in PLOTS:
        wide, narrow = plot.draw(result, WIDE), plot.draw(result, NARROW)
        written += write_figure(wide, folder / plot.name)
        drawing = inline_drawing(plot.name, plot.title, plot.explanation, wide, narrow)
        sections.append(Section(plot.title, [drawing]))
    if notes := footnotes(result):
        sections.append(Section("Notes", [Text(note, of) for of, note in notes]))
    return write_page(
        written,
        " and ".join(names) if len(names) < 3 else f"{len(names)} methods side by side",
        findings(result),
        describe_run(result),
        [*sections, Section("How to read this", [Terms(_TERMS)])],
        beside=[
            Section("Run", [result.config]),
            Section("Environment", [result.environment]),
            *(Section(f"Settings of {one.method}", [one.settings]) for one in result.methods if one.settings),
        ],
        warning=str(result.interrupted or ""),
    )
