"""What ``shieldfl run`` does once its options are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from shieldfl.cli.failures import kind_of_interruption
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.run.output import Output
from shieldfl.cli.run.progress import RoundProgress
from shieldfl.cli.run.table import print_compared, print_run
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.methods.discovery import checked_methods
from shieldfl.methods.settings import MethodSettings
from shieldfl.reporting.output_files import kept_folder
from shieldfl.roles.run_folder import RunFolder
from shieldfl.simulation import driver
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.report.paper_figures import compare_figures
from shieldfl.simulation.run_result import RunInterrupted, RunResult

__all__ = ["check_named", "ended_by", "how_to_go_on", "run_session"]

_AUDITED_FEDERATIONS = 5
"""Of each method, whose four clients are attacked one by one: enough for an interval."""


def run_session(
    config: RunConfig,
    methods: Sequence[str],
    settings: MethodSettings,
    output: Output,
) -> None:
    """Run the methods, then write and print what they measured. Raises ShieldError, OSError, KeyboardInterrupt.

    A run that is interrupted, or that an error ends, writes and prints the rounds that were finished, and a file that
    cannot be written does not keep the table from being printed.
    """
    check_named(methods)
    report_folder = output.report
    if report_folder is not None:
        # Before the run, so that a missing package or a folder that cannot be made is told at once.
        import_module("shieldfl.simulation.report.page")
    with nullcontext() if report_folder is None else kept_folder(report_folder):
        stopped: RunInterrupted | ShieldError | None = None
        try:
            with RoundProgress(methods, config.rounds) as progress:
                result = driver.run_methods(config, methods, settings, progress)
            if output.audit:
                try:
                    result = replace(result, audit=_audit(config, methods, settings))
                except (ShieldError, KeyboardInterrupt) as error:  # the run itself was finished
                    _hand_over(result, output)
                    kept = _what_was_kept(result, output.json_file, report_folder)
                    raise ended_by(error, "the audit has not ended", kept) from error
        except RunInterrupted as error:
            stopped, result = error, error.result
        except ShieldError as error:
            if error.ended is None:
                raise
            stopped, result = error, error.ended.result
        if result.methods:
            _hand_over(result, output)
        elif isinstance(stopped, ShieldError):
            raise stopped
    if stopped is not None:
        kept = _what_was_kept(result, output.json_file, report_folder)
        raise ended_by(stopped, str(result.interrupted), f"{kept}{how_to_go_on(config)}") from stopped


def ended_by(
    stopped: KeyboardInterrupt | ShieldError, where: str, kept: str
) -> KeyboardInterrupt | ShieldError:
    """Return what the command ends by: of the kind that stopped the run, with where that was and what was kept."""
    if isinstance(stopped, ShieldError):
        return ShieldError(f"{where}: {stopped}; {kept}")
    return kind_of_interruption(stopped)(f"{where}: {kept}")


def check_named(methods: Sequence[str]) -> None:
    """Raise typer.BadParameter for a method that there is not."""
    try:
        checked_methods(methods)
    except ParameterError as error:
        raise typer.BadParameter(str(error), param_hint="--method") from None


def _audit(config: RunConfig, methods: Sequence[str], settings: MethodSettings) -> dict[str, Any]:
    """Attack what the aggregator receives, as an audit of the run's data, model and methods does."""
    from shieldfl.audit.audit_config import AuditConfig
    from shieldfl.audit.session import AuditInterrupted, run_audit
    from shieldfl.cli.audit.output import AuditProgress
    from shieldfl.training.models import default_model

    audited = AuditConfig(
        dataset=config.dataset,
        data_dir=config.data_dir,
        model=config.model or default_model(config.dataset),
        opener=config.opener,
        seed=config.seed,
        threads=config.threads,
        trials=_AUDITED_FEDERATIONS,
        workers=1,  # others would take longer to begin than all of it takes
    )
    with AuditProgress(audited.budget_minutes) as progress:
        try:
            return run_audit(audited, methods, ("ilrg",), ("aggregator",), settings, progress).to_json()
        except AuditInterrupted as error:  # what it had not reached is marked as not attacked
            return error.result.to_json()


def _hand_over(result: RunResult, output: Output) -> None:
    papers, json_file = output.papers, output.json_file
    ran = {method.method for method in result.methods}
    if result.interrupted is not None:
        papers = tuple(paper for paper in papers if {paper.method, paper.against or paper.method} <= ran)
    compared = compare_figures(result, papers)
    paper_facts = {"paper": [figure.to_json() for figure in compared]} if papers else {}
    failures = [
        error
        for error in (
            _failure_of(lambda: write_json(result.to_json() | paper_facts, json_file)),
            _failure_of(lambda: _write_report(result, output.report)),
        )
        if error is not None
    ]
    if not is_stdout(json_file):
        print_run(result, output.all_figures)
        print_compared(compared)
    if failures:
        raise failures[0]


def _failure_of(write: Callable[[], None]) -> OSError | None:
    try:
        write()
    except BrokenPipeError:
        raise
    except OSError as error:
        return error
    return None


def _write_report(result: RunResult, folder: Path | None) -> None:
    if folder is None:
        return
    from shieldfl.simulation.report.page import write_report

    page = write_report(result, folder)[-1]
    if sys.stderr.isatty():
        typer.echo(f"report: {page}", err=True)


def _what_was_kept(result: RunResult, json_file: Path | None, report_folder: Path | None) -> str:
    if not result.methods:
        return "no round was finished, so nothing was written"
    rounds = [
        f"{len(method.rounds)} finished round{'s' if len(method.rounds) > 1 else ''} of {method.method}"
        for method in result.methods
    ]
    files = [str(json_file)] if json_file is not None and not is_stdout(json_file) else []
    if report_folder is not None:
        files.append(str(report_folder / "index.html"))
    many = len(rounds) > 1 or len(result.methods[0].rounds) > 1
    return f"{_listed(rounds)} {'are' if many else 'is'} in {_listed(files or ['the output'])}"


def how_to_go_on(config: RunConfig) -> str:
    """Return what is said of a run that was stopped and has a checkpoint; nothing of others."""
    if config.checkpoint is None or not RunFolder(Path(config.checkpoint)).is_begun:
        return ""
    return "; the same command with --resume goes on from the checkpoint"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
