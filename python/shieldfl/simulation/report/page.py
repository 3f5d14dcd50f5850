"""The report of a run: its figures as JSON, plots as PNG, and one page that holds everything."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from shieldfl.errors import ParameterError
from shieldfl.reporting.output_files import write_whole
from shieldfl.reporting.report_page import draw_picture, render_page
from shieldfl.simulation.report.plots import PLOTS
from shieldfl.simulation.report.summary import ZONES, describe_run, remarks, summarise
from shieldfl.simulation.results import STAGES
from shieldfl.simulation.run_result import RunResult

__all__ = ["write_report"]

_TEMPLATE = Path(__file__).with_name("page.html.j2")


def write_report(result: RunResult, directory: str | Path) -> list[Path]:
    """Write ``result.json``, the plots and ``index.html`` to a folder, which is made where it does not exist.

    Files of an earlier report are replaced. The page needs no other file and nothing from a network.
    Raises ParameterError for a result without a round, OSError.
    """
    if not result.methods or any(not method.rounds for method in result.methods):
        raise ParameterError("the run has no finished round: there is nothing to report")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "result.json"]
    write_whole(written[0], json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n")
    pictures = []
    for plot in PLOTS:
        written.append(folder / f"{plot.name}.png")
        draw = partial(plot.draw, result)
        pictures.append(draw_picture(plot.title, plot.explanation, draw, written[-1]))
    page = render_page(
        _TEMPLATE,
        headline=describe_run(result),
        result=result,
        sections=summarise(result),
        remarks=remarks(result),
        pictures=pictures,
        stages=STAGES,
        zones=ZONES,
    )
    written.append(folder / "index.html")
    write_whole(written[-1], page)
    return written
