"""What ``shieldfl run --seeds`` does: everything once for each seed, then means, deviations and differences."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import typer

from shieldfl.cli.failures import Terminated
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.run.progress import RoundProgress
from shieldfl.cli.run.session import check_named, how_to_go_on
from shieldfl.cli.run.table import print_compared
from shieldfl.methods.settings import MethodSettings
from shieldfl.reporting.output_files import kept_folder
from shieldfl.simulation.compared_runs import ComparedRuns
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.driver import RunInterrupted
from shieldfl.simulation.own_run import config_of_seed, run_seeds
from shieldfl.simulation.report.paper_figures import PaperFigure, compare_figures
from shieldfl.simulation.results import RoundRecord

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

    Raises ShieldError, OSError, KeyboardInterrupt. A run that is interrupted writes all rounds that were finished, and
    prints the seeds that were.
    """
    check_named(methods)
    with nullcontext() if report_folder is None else kept_folder(report_folder):
        stopped: RunInterrupted | None = None
        labels = [f"{method}, seed {seed}" for seed in seeds for method in methods]
        try:
            with RoundProgress(labels, config.rounds) as progress:

                def tell(seed: int, method: str, record: RoundRecord) -> None:
                    progress(f"{method}, seed {seed}", record)

                done = run_seeds(config, methods, seeds, settings, on_round=tell)
        except RunInterrupted as error:
            stopped = error
            partial = [error.result] if error.result.methods else []
            done = ComparedRuns(tuple(seeds[: len(error.earlier) + len(partial)]), (*error.earlier, *partial))
        if done.runs:
            whole = len(done.runs) if stopped is None else len(stopped.earlier)
            _hand_over(done, whole, papers, json_file, report_folder)
    if stopped is not None:
        seed = seeds[len(stopped.earlier)]
        how = how_to_go_on(config_of_seed(config, seed, seeds))
        raise _kind_of(stopped)(
            f"{stopped}, with seed {seed}: what ended before is in the output{how}"
        ) from stopped


def _kind_of(stopped: RunInterrupted) -> type[KeyboardInterrupt]:
    cause: BaseException | None = stopped
    while cause is not None:
        if isinstance(cause, Terminated):
            return Terminated
        cause = cause.__cause__
    return KeyboardInterrupt


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
