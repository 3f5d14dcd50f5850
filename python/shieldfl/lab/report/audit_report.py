"""The report of an audit: its cells as JSON and CSV, and one page that holds everything."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
    UNDEFENDED,
    AuditResult,
    Cell,
    Example,
    Verdict,
    usable_attacks,
)
from shieldfl.lab.audit.views.view import PARTIES
from shieldfl.lab.report.figures import (
    LINE_COLOURS,
    LINE_MARKERS,
    NARROW,
    TEXT,
    WIDE,
    Shape,
    add_grid,
    add_legend,
    name_rows,
    new_figure,
    render_row,
)
from shieldfl.lab.report.output_files import csv_text, write_json, write_whole
from shieldfl.lab.report.page import Facts, Images, Section, Table, Terms, Text, inline_drawing, render_page
from shieldfl.lab.report.run_summary import joined
from shieldfl.quantities import MISSING

MEANINGS = {
    "LnAcc": "Label number accuracy: the share of the classes of which the attack says right how many samples there "
    "are, 0 to 1. Chance is the best that one number, the same for every class, comes to, in hindsight.",
    "IIP": "Image identification precision: the share of the recovered images whose nearest, in a pool of the client's "
    "images and public ones, is one of the client's, 0 to 1. Chance is the client's share of that pool.",
    "correlation": "Of the shares of the classes that are predicted of clients with the true ones, both without the "
    "mean of the clients that the attacker learned from, -1 to 1. Chance is 0.",
    "TPR at 1 % FPR": "The share of a model's training samples that are found where one in a hundred others is taken "
    "for one, 0 to 1. Chance is 1 %.",
    "values told": "The share of a client's encrypted values that a lie of the aggregator's tells, to a hundredth of "
    "their root mean square, 0 to 1. Chance is what the mean of all clients tells, as an honest round opens it.",
}
"""What figures are, by name, and chance beside them."""
LIMITS = "An attack that fails proves nothing: a better one may not. What was not attacked is not safe."
_FEW = 10
"""Tries, below which an interval that is bootstrapped is far too narrow."""
_UNITS = {"PSNR": " dB"}


@dataclass(frozen=True)
class AttackTable:
    """The cells of one attack: methods by parties."""

    attack: str
    measured_by: str
    """The name of the figure; empty where there is none."""
    methods: tuple[str, ...]
    parties: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    """By method and party, each pair of them."""

    def of_method(self, method: str) -> list[Cell]:
        """Return a method's cells, party by party."""
        return [self.cells[method, party] for party in self.parties]


def attack_tables(result: AuditResult) -> list[AttackTable]:
    """Return a table for each attack, in the result's order."""
    tables = []
    for attack in dict.fromkeys(cell.attack for cell in result.cells):
        cells = {(cell.method, cell.party): cell for cell in result.cells if cell.attack == attack}
        tables.append(
            AttackTable(
                attack,
                next((cell.measured_by for cell in cells.values() if cell.measured_by), ""),
                tuple(dict.fromkeys(method for method, _ in cells)),
                tuple(dict.fromkeys(party for _, party in cells)),
                cells,
            )
        )
    return tables


def notes_of(result: AuditResult) -> list[str]:
    """Return what the audit noted, and why there is no figure where an attack was not tried, methods together."""
    methods: dict[str, dict[str, None]] = {}
    for cell in result.cells:
        if cell.status in NOT_TRIED:
            methods.setdefault(f"{cell.attack}, {cell.status}: {cell.reason}", {})[cell.method] = None
    return [*result.notes, *(f"{', '.join(names)}: {reason}" for reason, names in methods.items())]


def word(result: AuditResult, cell: Cell) -> str:
    """Say what a cell comes to: its verdict where there is a figure, and else why there is none."""
    return result.verdict(cell) if cell.status == "attacked" else cell.status


def decimal(value: float) -> str:
    """Return a figure from 0 to 1 with the digits that a table has room for."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def interval_text(cell: Cell) -> str:
    """Return between what a figure lies: ``"0.80 to 0.95"``."""
    return f"{decimal(cell.low)} to {decimal(cell.high)}" if math.isfinite(cell.low) else MISSING


def figure_text(cell: Cell) -> str:
    """Return the figure and chance of a cell that was attacked: ``"0.85 (0.55)"``."""
    return f"{decimal(cell.figure)} ({decimal(cell.chance)})"


def others_text(cell: Cell) -> str:
    """Return the further figures of a cell: ``"PSNR 12.3 dB"``."""
    return ", ".join(f"{name} {value:.3g}{_UNITS.get(name, '')}" for name, value in cell.others.items())


def above_chance(cell: Cell) -> float:
    """Return how much an attack got of what chance leaves, at most 1: 0 is chance, below it less than that.

    So cells of different chance are put in an order; a complete success comes before all others.
    """
    return (cell.figure - cell.chance) / (1.0 - cell.chance) if cell.chance < 1.0 else 0.0


def findings(result: AuditResult) -> list[str]:
    """Say what each attack got at most and of plain averaging, what was not tried, and what all of it does not say."""
    found = [f"{_most(result, table)} {_undefended(result, table)}" for table in attack_tables(result)]
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


def _most(result: AuditResult, table: AttackTable) -> str:
    """Say of whom the most was recovered."""
    protected = [cell for cell in table.cells.values() if cell.method != UNDEFENDED]
    above = [cell for cell in protected if result.verdict(cell) in ("some", "all")]
    if not above:
        if "chance" in [result.verdict(cell) for cell in protected if cell.status == "attacked"]:
            return f"{table.attack} got nothing above chance of any protected method."
        return f"{table.attack} was tried on no protected update often enough to tell."
    top = max(above, key=above_chance)
    parties = [
        f"the {cell.party}"
        for cell in above
        if cell.method == top.method and figure_text(cell) == figure_text(top)
    ]
    return (
        f"{table.attack} recovered most for {joined(parties)} under {top.method}: {top.measured_by} "
        f"{top.figure:.2f} where chance has {top.chance:.2f}."
    )


def _undefended(result: AuditResult, table: AttackTable) -> str:
    """Say what the attack is worth, by what it gets of plain averaging."""
    cell = result.undefended(table.attack)
    if cell is None:
        return "There is no figure of it of plain averaging, so nothing says how good it is."
    got = f"Of plain averaging, which protects nothing, the aggregator gets {cell.figure:.2f}"
    weak = "; so weak an attack tells nothing of a method" if result.verdict(cell) == "chance" else ""
    return f"{got} (chance {cell.chance:.2f}){weak}."


_CLASSES: dict[Verdict, str] = {
    "all": "all",
    "some": "some",
    "chance": "nothing",
    "too few trials": "unknown",
    "not attacked": "unknown",
}
"""How the page colours a cell."""
_CELLS = (
    "A cell says how far an attack came on what a party gets under a method, its figure, in brackets what chance has, "
    "which is a guess without the update, and by how many tries n. Figures are means over the tries, of the strongest "
    "of several forms of the attack, and so lie above chance by chance as well."
)
_WORDS = Terms(
    {
        "all": "No less than the same attack gets for the aggregator under plain averaging, which protects nothing, by "
        "95 % intervals that overlap. It need not be all data.",
        "some": "Above chance: the 95 % interval of the figure begins above it.",
        "chance": "This attack got no more than a guess. That proves nothing of other attacks.",
        "nothing received": "No value of a client's update, and no sum with it, came to this party: there was nothing "
        "to attack.",
        "too few trials, does not apply, not attacked": "Nothing is known. It is not safe.",
    },
    {
        "all": "verdict all",
        "some": "verdict some",
        "chance": "verdict nothing",
        "nothing received": "verdict nothing",
        "too few trials, does not apply, not attacked": "verdict unknown",
    },
)
_INTERVALS = (
    "Intervals are bootstrapped over the tries. Of few tries they are too narrow: of two they end at the two "
    "values."
)
_CHART = (
    "For the aggregator and, below it, for the party with the most above chance where that is another. A figure is "
    "above chance where its interval begins to the right of the upright line."
)
_IMAGES = (
    "Of the first try, for the party that the most was recovered for. “Recovered most” is by the share of what chance "
    "leaves. Each image stands above the client's image that it is paired with, and above the public image nearest to "
    "that, which whoever does not know the client's may take for a success. Values beyond the data's range are drawn "
    "as its ends; figures are means over all tries."
)
_AGGREGATOR = "aggregator"
_PIXELS_A_GAP = 16
"""An image has one pixel of the gap to the next for so many of its own."""


def write_report(result: AuditResult, directory: str | Path) -> list[Path]:
    """Write ``audit.json``, ``cells.csv`` and ``index.html`` to a folder and return the paths, the page's last.

    The folder is made where it does not exist; files of an earlier report are replaced. The page needs no other file
    and nothing from a network. Raises ParameterError for a result without a cell, OSError.
    """
    if not result.cells:
        raise ParameterError("nothing was audited: name a method, an attack and a party")
    folder = Path(directory)
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
    page = render_page(
        "What attacks recovered of clients' data",
        findings(result),
        _describe(result),
        [*sections, Section("Who looks", [parties])],
        beside=[
            Section("Audit", [Facts(result.config)]),
            Section("Environment", [Facts(result.environment)]),
        ],
        files=written,
    )
    written.append(folder / "index.html")
    write_whole(written[-1], page)
    return written


def _describe(result: AuditResult) -> str:
    """Say in one line what was attacked."""
    parts = [result.dataset, result.model]
    for name, words in (("clients", "clients"), ("samples", "samples of each"), ("trials", "trials at most")):
        if name in result.config:
            parts.append(f"{result.config[name]} {words}")
    return ", ".join([*parts, f"{result.seconds:.0f} s"])


def _section(result: AuditResult, table: AttackTable, number: int) -> Section:
    """Return all of one attack."""
    attack, measured = table.attack, table.measured_by

    def seen(cell: Cell) -> Text:
        figures = f"{figure_text(cell)} n={cell.tries}" if cell.status == "attacked" else ""
        return Text(figures, word(result, cell), f"verdict {_CLASSES[result.verdict(cell)]}")

    heads: list[str | Text] = ["method", *(Text(party, css="left wraps") for party in table.parties)]
    rows: list[list[str | Text]] = [[method, *map(seen, table.of_method(method))] for method in table.methods]
    blocks: list[object] = []
    if source := _source(attack):
        blocks.append(f"Source: {source}.")
    if measured in MEANINGS:
        blocks.append(MEANINGS[measured])
    blocks.append(Table(f"{attack}: methods by parties", heads, rows))
    if measured:
        shapes = {"wide": draw_chart(table, WIDE), "narrow": draw_chart(table, NARROW)}
        title, said = f"{attack}: {measured} beside chance", f"{measured} (chance): {_said(table)}."
        chart = inline_drawing(f"chart-{number}", title, _CHART, said, shapes)
        blocks.append(Section("Beside chance", [chart]))
    if images := _images(result, table):
        blocks.append(Section("Recovered images", [_IMAGES, *images]))
    blocks.append(Section(f"Every cell of {attack}", [_every_cell(result, table)], folded=True))
    return Section(f"{attack}: {measured} (chance) and tries" if measured else attack, blocks)


def _every_cell(result: AuditResult, table: AttackTable) -> Table:
    def row(cell: Cell) -> list[str | Text]:
        words = [Text(text, css="left") for text in (cell.party, word(result, cell))]
        figures = [decimal(cell.figure), interval_text(cell), decimal(cell.chance), str(cell.tries)]
        last = [Text(text, css="left wraps") for text in (cell.form or cell.reason, others_text(cell) or "–")]
        return [cell.method, *words, *figures, *last]

    heads: list[str | Text] = ["method", Text("party", css="left"), Text("what came out", css="left")]
    heads += [table.measured_by or "figure", "95 % interval", "chance", "n"]
    heads += [
        Text(text, css="left wraps")
        for text in ("strongest on, or why there is no figure", "further figures")
    ]
    return Table(f"Every cell of {table.attack}", heads, list(map(row, table.cells.values())))


def _source(attack: str) -> str:
    """Return where an attack comes from, as its class says; nothing of one that is not installed any more."""
    try:
        usable = usable_attacks([attack])
    except ParameterError:
        return ""
    return usable.on_updates[0].source if usable.on_updates else usable.on_methods[0].source


def _lanes(table: AttackTable, method: str) -> tuple[str, list[Cell | None]]:
    """Return what the aggregator and the strongest party got of a method, in words, and what of it is drawn."""
    known = [cell for cell in table.of_method(method) if cell.status == "attacked"]
    aggregator = table.cells.get((method, _AGGREGATOR))
    strongest = max(known, key=above_chance, default=None)
    first = aggregator if aggregator in known else None
    if first is not None:
        told = f"{_AGGREGATOR} {figure_text(first)}"
    else:
        told = f"{_AGGREGATOR}: {'not looked at' if aggregator is None else aggregator.status}"
    if strongest is None:
        return f"{told}; no figure of any party", [first, None]
    if first is not None and above_chance(first) == above_chance(strongest):
        return f"{told}; nobody got more", [first, None]
    return f"{told}; {strongest.party} {figure_text(strongest)}", [first, strongest]


def _said(table: AttackTable) -> str:
    return ". ".join(f"{method}: {_lanes(table, method)[0]}" for method in table.methods)


def draw_chart(table: AttackTable, shape: Shape = WIDE) -> Figure:
    """A row for each method: the figure of the aggregator and below it that of the party with the most above chance."""
    lanes = [_lanes(table, method) for method in table.methods]
    separator = ":\n" if shape.narrow else ": "
    names = [
        f"{method}{separator}{text.replace('; ', ';' + separator[1:]) if shape.narrow else text}"
        for method, (text, _) in zip(table.methods, lanes, strict=True)
    ]
    row = 42.0 + 15.0 * (names[0].count("\n") + 1)
    figure, (axes,) = new_figure(shape, row * len(names) + 80.0)
    name_rows(axes, names, shape, 28.0 / row, above=True)
    for number, (_, cells) in enumerate(lanes):
        for cell, place in zip(cells, (-7.0, 7.0), strict=True):
            if cell is None:
                continue
            height, colour, marker = number + place / row, *_look(place)
            if math.isfinite(cell.low) and math.isfinite(cell.high):
                axes.hlines(height, cell.low, cell.high, color=colour, linewidth=1.8)
            axes.plot(cell.chance, height, "|", color=TEXT, markersize=11.0, markeredgewidth=1.6)
            axes.plot(cell.figure, height, marker, color=colour, markersize=7.0)
    # What the legend names may be in no lane.
    for place, kind in ((-7.0, _AGGREGATOR), (7.0, "strongest party")):
        colour, marker = _look(place)
        axes.plot([], [], marker, color=colour, label=kind, markersize=7.0)
    axes.plot([], [], color=TEXT, linewidth=1.6, label="95 % interval")
    axes.plot([], [], "|", color=TEXT, markersize=11.0, markeredgewidth=1.6, label="chance")
    ends = (value for cell in table.cells.values() for value in (cell.low, cell.figure))
    lowest = min(filter(math.isfinite, ends), default=0.0)  # a correlation may be negative
    axes.set_xlim(min(lowest, 0.0) - 0.02, 1.02)
    axes.xaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
    axes.set_xlabel(f"{table.measured_by}, mean over the tries")
    add_grid(axes, "x")
    add_legend(figure, [axes], shape, 2 if shape.narrow else 4)
    return figure


def _look(place: float) -> tuple[str, str]:
    return (LINE_COLOURS[0], LINE_MARKERS[0]) if place < 0.0 else (LINE_COLOURS[3], LINE_MARKERS[1])


def _images(result: AuditResult, table: AttackTable) -> list[Images]:
    """Return for each method the images of the party for whom the attack got most; methods without any are left out."""
    shown = []
    for method in table.methods:
        cells = [cell for cell in table.of_method(method) if cell.example is not None]
        best = max(cells, key=above_chance, default=None)
        if best is None or best.example is None:
            continue
        rows = _rows(best.example)
        alike = joined([cell.party for cell in cells if cell.example is best.example])
        figures = [f"{best.measured_by} {figure_text(best)}", *filter(None, [others_text(best)])]
        caption = f"{alike}: {word(result, best)}; {best.form}; {', '.join(figures)}, n={best.tries}"
        if rows:
            shown.append(Images(f"{table.attack} on {method}", caption, len(best.example.true), rows))
    return shown


def _rows(example: Example) -> dict[str, bytes]:
    """Return the rows of an example, none where its samples are no images."""
    images = {
        "recovered": example.recovered,
        "the client's": example.true,
        "nearest public": example.neighbour,
    }
    pixels = {label: _pixels(one, example.value_range) for label, one in images.items()}
    return {
        label: render_row(one, -(-one.shape[2] // _PIXELS_A_GAP))
        for label, one in pixels.items()
        if one is not None
    }


def _pixels(images: torch.Tensor, value_range: tuple[float, float]) -> NDArray[np.uint8] | None:
    """Return samples as uint8 (k, height, width, 3): what lies outside the range, or is no number, as its ends.

    Samples are (height, width), (1, height, width) or (3, height, width); of any other shape None is returned.
    """
    low, high = value_range
    values = images.detach().cpu().unsqueeze(1) if images.ndim == 3 else images.detach().cpu()
    if values.ndim != 4 or values.shape[1] not in (1, 3) or not values.numel() or not high > low:
        return None
    shares = ((values - low) / (high - low)).nan_to_num(nan=0.0, posinf=1.0, neginf=0.0).clamp(0.0, 1.0)
    coloured = shares.expand(-1, 3, -1, -1).permute(0, 2, 3, 1)
    pixels: NDArray[np.uint8] = (coloured * 255.0).round().to(torch.uint8).numpy()
    return pixels
