"""What ``shieldfl run --seeds`` does: everything once for each seed, then means, deviations and differences."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import typer

from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.run.progress import RoundProgress
from shieldfl.cli.run.session import check_named, ended_by, how_to_go_on
from shieldfl.cli.run.table import print_compared
from shieldfl.errors import ShieldError
from shieldfl.methods.settings import MethodSettings
from shieldfl.reporting.output_files import kept_folder
from shieldfl.simulation.compared_runs import ComparedRuns
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.own_run import config_of_seed, run_seeds
from shieldfl.simulation.report.paper_figures import PaperFigure, compare_figures
from shieldfl.simulation.results import RoundRecord
from shieldfl.simulation.run_result import EndedRuns, RunInterrupted

__all__ = ["run_seeded_session"]


def run_seeded_session(
    seeds: Sequence[int],
    config: RunConfig,
    methods: Sequence[str],
    settings: MethodSettings,
    json_file: Path | None,
    report_folder: Path | None,
    papers: tuple[PaperFigure, ...] = (),
) -> None:
    """Run all methods with each seed, then write and print what they measured.

    Raises ShieldError, OSError, KeyboardInterrupt. A run that is interrupted, or that an error ends, writes all rounds
    that were finished, and prints the seeds that were.
    """
    check_named(methods)
    with nullcontext() if report_folder is None else kept_folder(report_folder):
        stopped: RunInterrupted | ShieldError | None = None
        ended: EndedRuns | None = None
        labels = [f"{method}, seed {seed}" for seed in seeds for method in methods]
        try:
            with RoundProgress(labels, config.rounds) as progress:

                def tell(seed: int, method: str, record: RoundRecord) -> None:
                    progress(f"{method}, seed {seed}", record)

                done = run_seeds(config, methods, seeds, settings, on_round=tell)
        except RunInterrupted as error:
            stopped, ended = error, EndedRuns(error.result, error.earlier)
        except ShieldError as error:
            if error.ended is None or not (error.ended.earlier or error.ended.result.methods):
                raise
            stopped, ended = error, error.ended
        if ended is not None:
            partial = [ended.result] if ended.result.methods else []
            done = ComparedRuns(tuple(seeds[: len(ended.earlier) + len(partial)]), (*ended.earlier, *partial))
        if done.runs:
            whole = len(done.runs) if ended is None else len(ended.earlier)
            _hand_over(done, whole, papers, json_file, report_folder)
    if stopped is not None and ended is not None:
        seed = seeds[len(ended.earlier)]
        how = how_to_go_on(config_of_seed(config, seed, seeds))
        where = f"{ended.result.interrupted}, with seed {seed}"
        raise ended_by(stopped, where, f"what ended before is in the output{how}") from stopped


def _hand_over(
    done: ComparedRuns,
    whole: int,
    papers: tuple[PaperFigure, ...],
    json_file: Path | None,
    report_folder: Path | None,
) -> None:
    if whole and not is_stdout(json_file):
        typer.echo(ComparedRuns(done.seeds[:whole], done.runs[:whole]).table(), nl=False)
        compared = compare_figures(done.runs[0], papers)
        if compared:
            typer.echo(f"Of seed {done.seeds[0]}:")
            print_compared(compared)
    write_json(done.to_json(), json_file)
    if report_folder is not None:
        done.write(report_folder)
        if sys.stderr.isatty():
            typer.echo(f"reports: {report_folder}", err=True)
