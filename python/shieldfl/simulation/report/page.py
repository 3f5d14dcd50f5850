"""The report of a run: its figures as JSON and CSV, plots as files, and one page that holds everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shieldfl.errors import ParameterError
from shieldfl.reporting.figure_style import LIGHT
from shieldfl.reporting.output_files import write_whole
from shieldfl.reporting.report_page import Drawing, inline_drawing, render_page, write_figure
from shieldfl.simulation.report.csv_tables import rounds_csv, summary_csv
from shieldfl.simulation.report.drawing import NARROW, WIDE
from shieldfl.simulation.report.findings import findings
from shieldfl.simulation.report.plots import PLOTS, Plot
from shieldfl.simulation.report.summary import ZONES, Section, describe_run, remarks, summarise
from shieldfl.simulation.results import STAGES
from shieldfl.simulation.run_result import RunResult

__all__ = ["write_report"]

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_MOST_COLUMNS = 7
"""Of a table that holds several sections; a section with more has a table of its own."""
_OVERVIEW = ("seconds_round", "bytes_up", "bytes_down", "hidden_share", "epsilon")
"""Figures of the first table, beside what models were measured by."""


def write_report(result: RunResult, directory: str | Path) -> list[Path]:
    """Write figures, plots and ``index.html`` to a folder, which is made where it does not exist, and return the paths.

    ``result.json`` has everything, ``summary.csv`` a line for each method, ``rounds.csv`` one for each method and
    round; plots are SVG, PDF and PNG files. Files of an earlier report are replaced. The page, the last of the paths,
    needs no other file and nothing from a network. Raises ParameterError for a result without a round, OSError.
    """
    if not result.methods or any(not method.rounds for method in result.methods):
        raise ParameterError("the run has no finished round: there is nothing to report")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in ("result.json", "summary.csv", "rounds.csv")]
    write_whole(written[0], json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n")
    sections = summarise(result)
    write_whole(written[1], summary_csv(result, sections))
    write_whole(written[2], rounds_csv(result))
    drawings = []
    for plot in PLOTS:
        drawing, files = _drawing(plot, result, folder)
        drawings.append(drawing)
        written += files
    page = render_page(
        _TEMPLATE,
        findings=findings(result),
        headline=describe_run(result),
        result=result,
        overview=_overview(result, sections),
        tables=_tables(sections),
        remarks=remarks(result),
        drawings=drawings,
        files=[path.name for path in written],
        stages=STAGES,
        zones=ZONES,
    )
    written.append(folder / "index.html")
    write_whole(written[-1], page)
    return written


def _drawing(plot: Plot, result: RunResult, folder: Path) -> tuple[Drawing, list[Path]]:
    wide = plot.draw(result, LIGHT, WIDE)
    files = write_figure(wide, folder / plot.name)
    shapes = {"wide": wide, "narrow": plot.draw(result, LIGHT, NARROW)}
    return inline_drawing(plot.name, plot.title, plot.explanation, plot.say(result), shapes), files


def _overview(result: RunResult, sections: Sequence[Section]) -> list[Section]:
    """Return the few figures that a reader looks for first, under the titles of their sections."""
    wanted = {*_OVERVIEW, *result.metrics}
    for name in result.metrics:
        (global_models, of_clients) = (
            next(row.cells for one in sections for row in one.rows if row.name == key)
            for key in (name, f"personalised_{name}")
        )
        wanted |= {f"personalised_{name}"} if global_models != of_clients else set()
    kept = [replace(one, rows=tuple(row for row in one.rows if row.name in wanted)) for one in sections]
    return [section for section in kept if section.rows]


def _tables(sections: Sequence[Section]) -> list[list[Section]]:
    """Put sections that follow each other into one table while there is room for their columns."""
    tables: list[list[Section]] = []
    for section in sections:
        columns = sum(len(one.rows) for one in tables[-1]) if tables else _MOST_COLUMNS
        if columns + len(section.rows) <= _MOST_COLUMNS:
            tables[-1].append(section)
        else:
            tables.append([section])
    return tables
