"""The report of an audit: its cells as JSON and CSV, and one page that holds everything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attack import (
    NOT_TRIED,
    AuditResult,
    Cell,
    Example,
    usable_attacks,
)
from shieldfl.lab.audit.views.view import PARTIES
from shieldfl.lab.report.output_files import csv_text, write_json, write_whole
from shieldfl.lab.report.page import (
    LINE_COLOURS,
    LINE_MARKERS,
    NARROW,
    TEXT,
    WIDE,
    Images,
    Section,
    Shape,
    Table,
    Terms,
    Text,
    add_legend,
    inline_drawing,
    name_rows,
    new_figure,
    render_row,
    write_page,
)
from shieldfl.quantities import MISSING

MEANINGS = {
    "LnAcc": "Label number accuracy: share of the classes whose number of samples the attack states "
    "correctly, 0 to 1. Chance is the best result, in hindsight, of stating one number for all classes.",
    "IIP": "Image identification precision: the share of the recovered images whose nearest, in a pool of "
    "the client's images and public ones, is one of the client's, 0 to 1. Chance is the client's share of "
    "that pool.",
    "correlation": "Of the shares of the classes that are predicted of clients with the true ones, both "
    "without the mean of the clients that the attacker learned from, -1 to 1. Chance is 0.",
    "TPR at 1 % FPR": "The share of a model's training samples that are found where one in a hundred others "
    "is taken for one, 0 to 1. Chance is 1 %.",
    "values told": "The share of a client's encrypted values that a lie of the aggregator's tells, to a "
    "hundredth of their root mean square, 0 to 1. Chance is what the mean of all clients tells, as an honest "
    "round opens it.",
}
"""Meanings of figures and of chance, by name of the figure."""
LIMITS = "An attack that fails proves nothing: a better one may not. What was not attacked is not safe."
_FEW = 10
"""Number of tries below which a bootstrapped interval is far too narrow."""
_UNITS = {"PSNR": " dB"}


@dataclass(frozen=True)
class AttackTable:
    attack: str
    measured_by: str
    methods: tuple[str, ...]
    parties: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]

    def of_method(self, method: str) -> list[Cell]:
        return [self.cells[method, party] for party in self.parties]


def attack_tables(result: AuditResult) -> list[AttackTable]:
    tables = []
    for attack in dict.fromkeys(cell.attack for cell in result.cells):
        cells = {(cell.method, cell.party): cell for cell in result.cells if cell.attack == attack}
        measured_by = next((cell.measured_by for cell in cells.values() if cell.measured_by), "")
        methods, parties = (tuple(dict.fromkeys(names)) for names in zip(*cells, strict=True))
        tables.append(AttackTable(attack, measured_by, methods, parties, cells))
    return tables


def notes_of(result: AuditResult) -> list[str]:
    """Return the audit's notes, and each reason why an attack was not tried, with its methods."""
    methods: dict[str, dict[str, None]] = {}
    for cell in result.cells:
        if cell.status in NOT_TRIED:
            methods.setdefault(f"{cell.attack}, {cell.status}: {cell.reason}", {})[cell.method] = None
    return [*result.notes, *(f"{', '.join(names)}: {reason}" for reason, names in methods.items())]


def word(result: AuditResult, cell: Cell) -> str:
    return result.verdict(cell) if cell.status == "attacked" else cell.status


def decimal(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def figure_text(cell: Cell) -> str:
    return f"{decimal(cell.figure)} ({decimal(cell.chance)})"


def others_text(cell: Cell) -> str:
    return ", ".join(f"{name} {value:.3g}{_UNITS.get(name, '')}" for name, value in cell.others.items())


def above_chance(cell: Cell) -> float:
    """Return the figure's share of the range above chance, at most 1, to order cells of different chances."""
    return (cell.figure - cell.chance) / (1.0 - cell.chance) if cell.chance < 1.0 else 0.0


def findings(result: AuditResult) -> list[str]:
    found = []
    for attack in dict.fromkeys(cell.attack for cell in result.cells):
        plain = result.undefended(attack)
        if plain is None:
            found.append(
                f"There is no figure of {attack} of plain averaging, so nothing says how good it is."
            )
        elif result.verdict(plain) == "chance":
            found.append(
                f"{attack} gets nothing of plain averaging: so weak an attack tells nothing of a method."
            )
    verdicts = [result.verdict(cell) for cell in result.cells]
    untried, few = verdicts.count("not attacked"), verdicts.count("too few trials")
    if untried or few:
        found.append(
            f"Of {len(verdicts)} cells {untried} were not attacked and {few} too few times to tell anything."
        )
    most = max(cell.tries for cell in result.cells)
    if 0 < most < _FEW:
        found.append(f"No cell has more tries than {most}: intervals of so few are too narrow.")
    return [*found, LIMITS]


_CELLS = (
    "A cell says how far an attack came on what a party gets under a method: its figure, in brackets chance, "
    "a guess without the update, and by how many tries n. Figures are means over the tries, of the strongest "
    "of several forms of the attack, and so lie above chance by chance as well."
)
_WORDS = Terms(
    {
        "all": "No less than the same attack gets for the aggregator under plain averaging, which protects "
        "nothing, by 95 % intervals that overlap. It need not be all data.",
        "some": "Above chance: the 95 % interval of the figure begins above it.",
        "chance": "This attack found no more than a guess. That proves nothing about other attacks.",
        "nothing received": "This party received no value of a client's update, and no sum that contains "
        "it: there was nothing to attack.",
        "too few trials, does not apply, not attacked": "Nothing is known. It is not safe.",
    },
    "verdict",
)
_INTERVALS = "Intervals are bootstrapped over the tries. Of few tries they are too narrow."
_CHART = (
    "For the aggregator and, below it, for the party with the most above chance where that is another. A "
    "figure is above chance where its interval begins to the right of the upright line."
)
_IMAGES = (
    "Of the first try, for the party that the most was recovered for, by the share of what chance leaves. "
    "Each image stands above the client's image that it is paired with, and above the public image nearest "
    "to that, which whoever does not know the client's may take for a success. Values beyond the data's "
    "range are drawn as its ends."
)
_AGGREGATOR = "aggregator"
_LOOKS = {-7.0: (LINE_COLOURS[0], LINE_MARKERS[0]), 7.0: (LINE_COLOURS[3], LINE_MARKERS[1])}
"""Colour and marker of the aggregator and of the strongest party, by offset below the row's middle."""
_PIXELS_A_GAP = 16
"""Pixels of an image's width for each pixel of the gap to the next image."""


def write_report(result: AuditResult, folder: Path) -> list[Path]:
    """Write the files and return their paths, the page's last. Raises ParameterError for no cell, OSError."""
    if not result.cells:
        raise ParameterError("nothing was audited: name a method, an attack and a party")
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in ("audit.json", "cells.csv")]
    facts = result.to_json()
    write_json(written[0], facts)
    # Further figures have columns of their own names, behind all others.
    write_whole(
        written[1],
        csv_text({k: v for k, v in one.items() if k != "others"} | one["others"] for one in facts["cells"]),
    )
    sections = [Section("How to read the cells", [_CELLS, _WORDS, _INTERVALS])]
    sections += [_section(result, table, number) for number, table in enumerate(attack_tables(result))]
    if notes := notes_of(result):
        sections.append(Section("Not attacked, and other notes", notes))
    looking = {cell.party for cell in result.cells}
    parties = Terms({party.name: party.meaning for party in PARTIES if party.name in looking})
    parts = [result.dataset, result.model]
    for name, words in (("clients", "clients"), ("samples", "samples of each"), ("trials", "trials at most")):
        if name in result.config:
            parts.append(f"{result.config[name]} {words}")
    return write_page(
        written,
        "What attacks recovered of clients' data",
        findings(result),
        ", ".join([*parts, f"{result.seconds:.0f} s"]),
        [*sections, Section("Who looks", [parties])],
        beside=[
            Section("Audit", [result.config]),
            Section("Environment", [result.environment]),
        ],
    )


def _section(result: AuditResult, table: AttackTable, number: int) -> Section:
    attack, measured = table.attack, table.measured_by

    def seen(cell: Cell) -> Text:
        figures = f"{figure_text(cell)} n={cell.tries}" if cell.status == "attacked" else ""
        return Text(figures, word(result, cell), f"verdict {result.verdict(cell).replace(' ', '-')}")

    heads = ["method", *table.parties]
    rows: list[list[str | Text]] = [[method, *map(seen, table.of_method(method))] for method in table.methods]
    blocks: list[object] = []
    with suppress(ParameterError):  # of one that is not installed any more
        source = usable_attacks([attack])[0][0].source
        blocks += [f"Source: {source}."] if source else []
    if measured in MEANINGS:
        blocks.append(MEANINGS[measured])
    blocks.append(Table(f"{attack}: methods by parties", heads, rows, words=range(1, len(heads))))
    if measured:
        title, figures = (
            f"{attack}: {measured} beside chance",
            (draw_chart(table, WIDE), draw_chart(table, NARROW)),
        )
        chart = inline_drawing(f"chart-{number}", title, _CHART, *figures)
        blocks.append(Section("Beside chance", [chart]))
    if images := _images(result, table):
        blocks.append(Section("Recovered images", [_IMAGES, *images]))
    blocks.append(Section(f"Every cell of {attack}", [_every_cell(result, table)], folded=True))
    return Section(f"{attack}: {measured} (chance) and tries" if measured else attack, blocks)


def _every_cell(result: AuditResult, table: AttackTable) -> Table:
    def row(cell: Cell) -> list[str]:
        interval = f"{decimal(cell.low)} to {decimal(cell.high)}" if math.isfinite(cell.low) else MISSING
        figures = [decimal(cell.figure), interval, decimal(cell.chance), str(cell.tries)]
        last = cell.form or cell.reason, others_text(cell) or MISSING
        return [cell.method, cell.party, word(result, cell), *figures, *last]

    heads = [
        "method",
        "party",
        "what came out",
        table.measured_by or "figure",
        "95 % interval",
        "chance",
        "n",
    ]
    heads += ["strongest on, or why there is no figure", "further figures"]
    rows = list(map(row, table.cells.values()))
    return Table(f"Every cell of {table.attack}", heads, rows, words=(1, 2, 7, 8))


def _lanes(table: AttackTable, method: str) -> tuple[Cell | None, Cell | None]:
    known = [cell for cell in table.of_method(method) if cell.status == "attacked"]
    first = next((cell for cell in known if cell.party == _AGGREGATOR), None)
    strongest = max(known, key=above_chance, default=None)
    if first is not None and strongest is not None and above_chance(first) == above_chance(strongest):
        strongest = None
    return first, strongest


def draw_chart(table: AttackTable, shape: Shape = WIDE) -> Figure:
    """Draw a row for each method: the aggregator's figure and, below, the party's most above chance."""
    row = 57.0
    figure, (axes,) = new_figure(shape, row * len(table.methods) + 80.0)
    name_rows(axes, table.methods, shape, 28.0 / row)
    for number, method in enumerate(table.methods):
        for cell, (place, look) in zip(_lanes(table, method), _LOOKS.items(), strict=True):
            if cell is None:
                continue
            height, (colour, marker) = number + place / row, look
            if math.isfinite(cell.low) and math.isfinite(cell.high):
                axes.hlines(height, cell.low, cell.high, color=colour, linewidth=1.8)
            axes.plot(cell.chance, height, "|", color=TEXT, markersize=11.0, markeredgewidth=1.6)
            axes.plot(cell.figure, height, marker, color=colour, markersize=7.0)
    # What the legend names may be in no lane.
    for (colour, marker), kind in zip(_LOOKS.values(), (_AGGREGATOR, "strongest party"), strict=True):
        axes.plot([], [], marker, color=colour, label=kind, markersize=7.0)
    axes.plot([], [], color=TEXT, linewidth=1.6, label="95 % interval")
    axes.plot([], [], "|", color=TEXT, markersize=11.0, markeredgewidth=1.6, label="chance")
    ends = (value for cell in table.cells.values() for value in (cell.low, cell.figure))
    lowest = min(filter(math.isfinite, ends), default=0.0)  # a correlation may be negative
    axes.set_xlim(min(lowest, 0.0) - 0.02, 1.02)
    axes.xaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
    axes.set_xlabel(f"{table.measured_by}, mean over the tries")
    axes.grid(axis="x")
    add_legend(figure, [axes], shape, 2 if shape.narrow else 4)
    return figure


def _images(result: AuditResult, table: AttackTable) -> list[Images]:
    shown = []
    for method in table.methods:
        cells = [cell for cell in table.of_method(method) if cell.example is not None]
        best = max(cells, key=above_chance, default=None)
        if best is None or best.example is None:
            continue
        rows = _rows(best.example)
        alike = " and ".join(cell.party for cell in cells if cell.example is best.example)
        figures = [f"{best.measured_by} {figure_text(best)}", *filter(None, [others_text(best)])]
        caption = f"{alike}: {word(result, best)}; {best.form}; {', '.join(figures)}, n={best.tries}"
        if rows:
            shown.append(Images(f"{table.attack} on {method}", caption, len(best.example.true), rows))
    return shown


def _rows(example: Example) -> dict[str, bytes]:
    images = {
        "recovered": example.recovered,
        "the client's": example.true,
        "nearest public": example.neighbour,
    }
    rows = {}
    for label, one in images.items():
        if (pixels := _pixels(one, example.value_range)) is not None:
            rows[label] = render_row(pixels, -(-pixels.shape[2] // _PIXELS_A_GAP))
    return rows


def _pixels(images: torch.Tensor, value_range: tuple[float, float]) -> NDArray[np.uint8] | None:
    """Return samples as uint8 (k, height, width, 3), bounded by the range; None if they are not images."""
    low, high = value_range
    values = images.detach().cpu().unsqueeze(1) if images.ndim == 3 else images.detach().cpu()
    if values.ndim != 4 or values.shape[1] not in (1, 3) or not values.numel() or not high > low:
        return None
    shares = ((values - low) / (high - low)).nan_to_num(nan=0.0, posinf=1.0, neginf=0.0).clamp(0.0, 1.0)
    coloured = shares.expand(-1, 3, -1, -1).permute(0, 2, 3, 1)
    pixels: NDArray[np.uint8] = (coloured * 255.0).round().to(torch.uint8).numpy()
    return pixels
