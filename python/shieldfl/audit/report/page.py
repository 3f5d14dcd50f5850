"""The report of an audit: its cells as JSON and CSV, and one page that holds everything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from shieldfl.audit.attacks.offered import usable_attacks
from shieldfl.audit.report.chart import draw_chart, say_chart
from shieldfl.audit.report.csv_tables import cells_csv
from shieldfl.audit.report.examples import ShownExample, shown_examples
from shieldfl.audit.report.findings import findings
from shieldfl.audit.report.reading import (
    MEANINGS,
    AttackTable,
    attack_tables,
    decimal,
    figure_text,
    interval_text,
    notes_of,
    others_text,
    word,
)
from shieldfl.audit.result import AuditResult
from shieldfl.audit.views.view import PARTIES
from shieldfl.errors import ParameterError
from shieldfl.reporting.figure_style import LIGHT
from shieldfl.reporting.output_files import write_whole
from shieldfl.reporting.report_page import Drawing, inline_drawing, render_page
from shieldfl.simulation.report.drawing import NARROW, WIDE

__all__ = ["write_report"]

_TEMPLATE = Path(__file__).with_name("page.html.j2")


@dataclass(frozen=True)
class _AttackPart:
    """A section of the page."""

    table: AttackTable
    source: str
    """Where the attack comes from, as its class says; empty for one that is not installed any more."""
    meaning: str
    chart: Drawing | None
    """None where the attack has no figure of anything."""
    examples: list[ShownExample]


def write_report(result: AuditResult, directory: str | Path) -> list[Path]:
    """Write ``audit.json``, ``cells.csv`` and ``index.html`` to a folder and return the paths, the page's last.

    The folder is made where it does not exist; files of an earlier report are replaced. The page needs no other file
    and nothing from a network. Raises ParameterError for a result without a cell, OSError.
    """
    if not result.cells:
        raise ParameterError("nothing was audited: name a method, an attack and a party")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in ("audit.json", "cells.csv", "index.html")]
    write_whole(written[0], json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n")
    write_whole(written[1], cells_csv(result))
    tables = attack_tables(result)
    looking = {cell.party for cell in result.cells}
    page = render_page(
        _TEMPLATE,
        result=result,
        findings=findings(result),
        headline=_describe(result),
        parts=[_part(result, table, number) for number, table in enumerate(tables)],
        notes=notes_of(result),
        parties=[party for party in PARTIES if party.name in looking],
        word=lambda cell: word(result, cell),
        figure=figure_text,
        decimal=decimal,
        interval=interval_text,
        others=others_text,
        files=[path.name for path in written[:-1]],
    )
    write_whole(written[-1], page)
    return written


def _describe(result: AuditResult) -> str:
    """Say in one line what was attacked."""
    parts = [result.dataset, result.model]
    for name, words in (("clients", "clients"), ("samples", "samples of each"), ("trials", "trials at most")):
        if name in result.config:
            parts.append(f"{result.config[name]} {words}")
    return ", ".join([*parts, f"{result.seconds:.0f} s"])


def _part(result: AuditResult, table: AttackTable, number: int) -> _AttackPart:
    chart = None
    if table.measured_by:
        shapes = {"wide": draw_chart(table, LIGHT, WIDE), "narrow": draw_chart(table, LIGHT, NARROW)}
        title = f"{table.attack}: {table.measured_by} beside chance"
        chart = inline_drawing(f"chart-{number}", title, "", say_chart(table), shapes)
    meaning = MEANINGS.get(table.measured_by, "")
    return _AttackPart(table, _source(table.attack), meaning, chart, shown_examples(result, table))


def _source(attack: str) -> str:
    try:
        usable = usable_attacks([attack])
    except ParameterError:
        return ""
    return usable.on_updates[0].source if usable.on_updates else usable.on_methods[0].source
