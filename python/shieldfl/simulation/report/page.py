"""The report of a run: its figures as JSON and CSV, plots as files, and one page that holds everything."""

from __future__ import annotations

import json
from pathlib import Path

from shieldfl.errors import ParameterError
from shieldfl.reporting.figure_style import LIGHT
from shieldfl.reporting.output_files import write_whole
from shieldfl.reporting.report_page import Drawing, inline_drawing, render_page, write_figure
from shieldfl.simulation.report.comparison import compared_rows, footnotes
from shieldfl.simulation.report.csv_tables import rounds_csv, summary_csv
from shieldfl.simulation.report.drawing import NARROW, WIDE
from shieldfl.simulation.report.findings import findings
from shieldfl.simulation.report.plots import PLOTS, Plot
from shieldfl.simulation.report.summary import describe_run, summarise
from shieldfl.simulation.run_result import RunResult

__all__ = ["write_report"]

_TEMPLATE = Path(__file__).with_name("page.html.j2")


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
    write_whole(written[1], summary_csv(result, summarise(result)))
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
        rows=compared_rows(result),
        footnotes=footnotes(result),
        drawings=drawings,
        files=[path.name for path in written],
    )
    written.append(folder / "index.html")
    write_whole(written[-1], page)
    return written


def _drawing(plot: Plot, result: RunResult, folder: Path) -> tuple[Drawing, list[Path]]:
    wide = plot.draw(result, LIGHT, WIDE)
    files = write_figure(wide, folder / plot.name)
    shapes = {"wide": wide, "narrow": plot.draw(result, LIGHT, NARROW)}
    return inline_drawing(plot.name, plot.title, plot.explanation, plot.say(result), shapes), files
