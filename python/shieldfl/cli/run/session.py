"""What ``shieldfl run`` does once its options are read: it runs, with progress, then writes and prints."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from shieldfl.authority.role_state import RunFolder
from shieldfl.cli.failures import kind_of_interruption
from shieldfl.cli.json_output import is_stdout, write_json
from shieldfl.cli.result_console import result_console, result_table
from shieldfl.cli.terminal_progress import TerminalProgress, progress_on_terminal
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.lab.report.output_files import kept_folder
from shieldfl.lab.report.run_summary import (
    compared_rows,
    describe_run,
    findings,
    footnotes,
    remarks,
    summarise,
)
from shieldfl.lab.simulation import runner
from shieldfl.lab.simulation.compared_runs import ComparedRuns
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.papers import ComparedFigure, PaperFigure, compare_figures
from shieldfl.lab.simulation.results import RoundRecord
from shieldfl.lab.simulation.run_result import EndedRuns, RunInterrupted, RunResult
from shieldfl.methods.discovery import checked_methods
from shieldfl.methods.settings import MethodSettings
from shieldfl.quantities import metric_text

_AUDITED_FEDERATIONS = 5
"""Of each method, whose four clients are attacked one by one: enough for an interval."""


@dataclass(frozen=True)
class Session:
    """What runs, once or, with ``seeds``, once for each of them, and where its figures go."""

    config: RunConfig
    methods: Sequence[str]
    settings: MethodSettings
    seeds: Sequence[int] = ()
    papers: Sequence[PaperFigure] = ()
    """What was published of such runs: ours are printed beside them."""
    json_file: Path | None = None
    report: Path | None = None
    """Folder of the page."""
    all_figures: bool = False
    audit: bool = False
    """Whether attacks follow the run."""

    def run(self) -> None:
        """Run the methods, then write and print what they measured. Raises ShieldError, OSError, KeyboardInterrupt.

        A run that is interrupted, or that an error ends, writes and prints what was finished, and a file that cannot be
        written does not keep tables from being printed.
        """
        try:
            checked_methods(self.methods)
        except ParameterError as error:
            raise typer.BadParameter(str(error), param_hint="--method") from None
        if self.report is not None:
            # Before the run, so that a missing package or a folder that cannot be made is told at once.
            import_module("shieldfl.lab.report.run_report")
        seeds = tuple(self.seeds) or (self.config.seed,)
        with nullcontext() if self.report is None else kept_folder(self.report):
            try:
                done = self._run(seeds)
            except (RunInterrupted, ShieldError) as error:
                ended = error.ended
                if ended is None:
                    raise
                self._stopped(error, ended, seeds)
            audit, stopped = self._audit() if self.audit else (None, None)
            if audit is not None:
                done = replace(done, runs=(replace(done.runs[0], audit=audit),))
            self._hand_over(done)
            if stopped is not None:  # the run itself was finished
                raise _ended_by(stopped, "the audit has not ended", self._kept(done.runs)) from stopped

    def _run(self, seeds: tuple[int, ...]) -> ComparedRuns:
        labels = {
            (seed, method): f"{method}, seed {seed}" if self.seeds else method
            for seed in seeds
            for method in self.methods
        }
        with RoundProgress(list(labels.values()), self.config.rounds) as progress:

            def tell(seed: int, method: str, record: RoundRecord) -> None:
                progress(labels[seed, method], record)

            return runner.run_seeds(self.config, self.methods, seeds, self.settings, on_round=tell)

    def _stopped(self, error: RunInterrupted | ShieldError, ended: EndedRuns, seeds: tuple[int, ...]) -> None:
        """Write and print what was finished. Raises what the command ends by."""
        runs = (*ended.earlier, *([ended.result] if ended.result.methods else []))
        if runs:
            self._hand_over(ComparedRuns(seeds[: len(runs)], runs), whole=len(ended.earlier))
        elif isinstance(error, ShieldError):
            raise error
        seed = seeds[len(ended.earlier)]
        where = f"{ended.result.interrupted}{f', with seed {seed}' if self.seeds else ''}"
        how, checkpoint = "", runner.config_of_seed(self.config, seed, seeds).checkpoint
        if checkpoint is not None and RunFolder(Path(checkpoint)).is_begun:
            how = "; the same command with --resume goes on from the checkpoint"
        raise _ended_by(error, where, f"{self._kept(runs)}{how}") from error

    def _audit(self) -> tuple[dict[str, Any] | None, ShieldError | KeyboardInterrupt | None]:
        """Return what attacks got, or what ended them."""
        try:
            return _audited(self.config, self.methods, self.settings), None
        except (ShieldError, KeyboardInterrupt) as error:
            return None, error

    def _hand_over(self, done: ComparedRuns, whole: int | None = None) -> None:
        """Write all that was finished, and print it; of several seeds those that are ``whole``, None for all."""
        whole = len(done.runs) if whole is None else whole
        first = done.runs[0]
        ran = {method.method for method in first.methods}
        papers = tuple(one for one in self.papers if {one.method, one.against or one.method} <= ran)
        compared = compare_figures(first, papers if first.interrupted is not None else self.papers)
        failures = []
        for write in (self._write_json, self._write_report):
            try:
                write(done, compared)
            except BrokenPipeError:
                raise
            except OSError as error:
                failures.append(error)
        if not is_stdout(self.json_file):
            if not self.seeds:
                _print_run(first, self.all_figures)
            elif whole:
                typer.echo(ComparedRuns(done.seeds[:whole], done.runs[:whole]).table(), nl=False)
            if compared and self.seeds:
                typer.echo(f"Of seed {done.seeds[0]}:")
            _print_compared(compared)
        if failures:
            raise failures[0]

    def _write_json(self, done: ComparedRuns, compared: Sequence[ComparedFigure]) -> None:
        facts = done.to_json() if self.seeds else done.runs[0].to_json()
        if self.papers and not self.seeds:
            facts["paper"] = [figure.to_json() for figure in compared]
        write_json(facts, self.json_file)

    def _write_report(self, done: ComparedRuns, compared: Sequence[ComparedFigure]) -> None:
        if self.report is None:
            return
        if self.seeds:
            done.write(self.report)
            page = self.report
        else:
            from shieldfl.lab.report.run_report import write_report

            page = write_report(done.runs[0], self.report)[-1]
        if sys.stderr.isatty():
            typer.echo(f"report: {page}", err=True)

    def _kept(self, runs: Sequence[RunResult]) -> str:
        """Say what was kept, and where."""
        if not runs:
            return "no round was finished, so nothing was written"
        files = [] if self.json_file is None or is_stdout(self.json_file) else [str(self.json_file)]
        if self.report is not None:
            files.append(str(self.report if self.seeds else self.report / "index.html"))
        where = _listed(files or ["the output"])
        if self.seeds:
            return f"what ended before is in {where}"
        methods = runs[0].methods
        rounds = [
            f"{len(method.rounds)} finished round{'s' if len(method.rounds) > 1 else ''} of {method.method}"
            for method in methods
        ]
        many = len(rounds) > 1 or len(methods[0].rounds) > 1
        return f"{_listed(rounds)} {'are' if many else 'is'} in {where}"


def _ended_by(
    stopped: KeyboardInterrupt | ShieldError, where: str, kept: str
) -> KeyboardInterrupt | ShieldError:
    """Return what the command ends by: of the kind that stopped the run, with where that was and what was kept."""
    if isinstance(stopped, ShieldError):
        return ShieldError(f"{where}: {stopped}; {kept}")
    return kind_of_interruption(stopped)(f"{where}: {kept}")


def _audited(config: RunConfig, methods: Sequence[str], settings: MethodSettings) -> dict[str, Any]:
    """Attack what the aggregator receives, as an audit of the run's data, model and methods does."""
    from shieldfl.cli.audit.output import AuditProgress
    from shieldfl.lab.audit.audit_config import AuditConfig
    from shieldfl.lab.audit.session import AuditInterrupted, run_audit
    from shieldfl.learning.networks import default_model

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


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _print_run(result: RunResult, all_figures: bool = False) -> None:
    """Print what came out, and the figures side by side, on standard output: those that decide, or all."""
    console = result_console()
    console.print(describe_run(result), soft_wrap=True)
    if result.interrupted is not None:
        console.print(f"Not complete: {result.interrupted}.", soft_wrap=True)
    for sentence in findings(result):
        console.print(sentence, soft_wrap=True)
    table = result_table(["", *(method.method for method in result.methods)])
    if all_figures:
        for section in summarise(result):
            table.add_row(Text(section.title, style="bold cyan"))
            for row in section.rows:
                table.add_row(f"  {row.label}", *row.cells)
            table.add_section()
    else:
        table.columns[0].style = "cyan"
        for row in compared_rows(result):
            table.add_row(row.label, *row.cells)
    console.print(table)
    if len(result.methods) > 1:
        console.print(f"× compares with {result.methods[0].method}.", soft_wrap=True)
    for names, note in remarks(result) if all_figures else footnotes(result):
        console.print(f"{names}: {note}", soft_wrap=True)


def _print_compared(figures: Sequence[ComparedFigure]) -> None:
    """Print a row for each figure on standard output; nothing where there are none."""
    if not figures:
        return
    heads = ("method", "figure", "ours", "the paper's", "source")
    table = result_table(heads, (figure.cells() for figure in figures), ("figure", "source"))
    console = result_console()
    console.print("Ours beside the paper's")
    console.print(table)


_SHORT_NAMES = {"encrypted": "enc", "personalised": "pers"}


class RoundProgress(TerminalProgress):
    """One bar for each method; calling it with a method's name and a round's record moves one on."""

    def __init__(self, methods: Sequence[str], rounds: int) -> None:
        progress = progress_on_terminal(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("round"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn(
                "{task.fields[figures]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
            ),
            expand=True,
        )
        super().__init__(progress)
        self._rounds = rounds
        self._waiting = [
            (name, self._progress.add_task(name, total=rounds, start=False, figures="")) for name in methods
        ]
        self._tasks = dict(self._waiting)
        self._start_next()

    def __call__(self, method: str, record: RoundRecord) -> None:
        """Show a finished round."""
        self._progress.update(self._tasks[method], completed=record.round, figures=_figures(record))
        if record.round == self._rounds:
            self._start_next()

    def _start_next(self) -> None:
        if self._waiting:
            self._progress.start_task(self._waiting.pop(0)[1])


def _figures(record: RoundRecord) -> str:
    """Two short lines, which fit beside the bar on a terminal of 80 columns."""
    name = next(iter(record.metrics), "accuracy") if math.isnan(record.accuracy) else "accuracy"
    measured = metric_text(record.measured(name), name)
    if record.measured_by_clients(name) != record.measured(name):
        measured += f", own {metric_text(record.measured_by_clients(name), name)}"
    if name != "accuracy":
        measured = f"{name} {measured}"
    zones = [
        f"{_SHORT_NAMES.get(zone, zone)} {share:.1%}"
        for zone, share in record.zone_shares.items()
        if share > 0.0
    ]
    return f"{measured}\n{' '.join(zones)}"
