"""What ``shieldfl run`` does once its options are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.paper_table import print_compared
from shieldfl.cli.run_progress import RoundProgress
from shieldfl.cli.run_table import print_run
from shieldfl.methods.registry import METHOD_NAMES
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation import driver
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.paper_figures import PaperFigure, compare_figures

__all__ = ["run_session"]


def run_session(
    config: RunConfig,
    methods: Sequence[str],
    settings: MethodSettings,
    json_file: Path | None,
    report_folder: Path | None,
    papers: tuple[PaperFigure, ...] = (),
) -> None:
    """Run the methods, then write and print what they measured. Raises ShieldError, OSError.

    ``papers`` are what was published of such runs: ours are printed beside them.
    """
    unknown = [name for name in methods if name not in METHOD_NAMES]
    if unknown:
        raise typer.BadParameter(
            f"unknown method {unknown[0]!r}: choose from {', '.join(METHOD_NAMES)}", param_hint="--method"
        )
    if report_folder is not None:
        # Before the run, so that a missing package or a folder that cannot be made is told at once.
        from shieldfl.simulation.report import write_report

        report_folder.mkdir(parents=True, exist_ok=True)
    with RoundProgress(methods, config.rounds) as progress:
        result = driver.run_methods(config, methods, settings, progress)
    compared = compare_figures(result, papers)
    paper_facts = {"paper": [figure.to_json() for figure in compared]} if papers else {}
    write_json(result.to_json() | paper_facts, json_file)
    if report_folder is not None:
        page = write_report(result, report_folder)[-1]
        if sys.stderr.isatty():
            typer.echo(f"report: {page}", err=True)
    if not is_stdout(json_file):
        print_run(result)
        print_compared(compared)
