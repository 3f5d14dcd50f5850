"""What ``shieldfl run`` does once its options are read: it runs, with progress, then writes and prints."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from shieldfl.authority.role_state import RunFolder
from shieldfl.cli.console import (
    ResultConsole,
    audit_progress,
    is_stdout,
    progress_bar,
    result_table,
    write_json,
)
from shieldfl.cli.options import refused_as
from shieldfl.errors import ShieldError
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
from shieldfl.lab.simulation.compared_runs import ComparedRuns, PaperFigure, compare_figures
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.results import EndedRuns, RoundRecord, RunInterrupted, RunResult
from shieldfl.methods.registry import MethodSettings, checked_methods
from shieldfl.quantities import metric_text

_AUDITED_FEDERATIONS = 5  # of each method, whose four clients are attacked one by one: enough for an interval


@dataclass(frozen=True)
class Session:
    """What runs, once or, with ``seeds``, once for each of them, and where its figures go."""

    config: RunConfig
    methods: Sequence[str]
    settings: MethodSettings
    seeds: Sequence[int]
    papers: Sequence[PaperFigure]
    """Published figures of such runs, printed beside the measured ones."""
    json_file: Path | None
    report: Path | None  # the folder of the page
    all_figures: bool
    audit: bool  # attacks follow the run

    def run(self) -> None:
        """Run the methods, then write and print what they measured, also of a run that has not ended."""
        with refused_as("--method"):
            checked_methods(self.methods)
        folder: AbstractContextManager[None] = nullcontext()
        if self.report is not None:
            # Before the run, so that a missing package or a folder that cannot be made is told at once.
            import_module("shieldfl.lab.report.run_report")
            folder = kept_folder(self.report)
        seeds = tuple(self.seeds) or (self.config.seed,)
        labels = {
            (seed, method): f"{method}, seed {seed}" if self.seeds else method
            for seed, method in product(seeds, self.methods)
        }
        with folder:
            try:
                with round_progress(labels, self.config.rounds) as tell:
                    done = runner.run_seeds(self.config, self.methods, seeds, self.settings, on_round=tell)
            except (RunInterrupted, ShieldError) as error:
                if error.ended is None:
                    raise
                self._keep_ended(error, error.ended, seeds)
            stopped: ShieldError | KeyboardInterrupt | None = None
            if self.audit:
                try:
                    done = replace(done, runs=(replace(done.runs[0], audit=self._audited()),))
                except (ShieldError, KeyboardInterrupt) as error:
                    stopped = error
            self._hand_over(done)
            if stopped is not None:  # the run itself was finished
                raise _ended_by(stopped, "the audit has not ended", self._kept(done.runs)) from stopped

    def _keep_ended(
        self, error: RunInterrupted | ShieldError, ended: EndedRuns, seeds: tuple[int, ...]
    ) -> None:
        runs = (*ended.earlier, *([ended.result] if ended.result.methods else []))
        if runs:
            self._hand_over(ComparedRuns(seeds[: len(runs)], runs), whole=len(ended.earlier))
        elif isinstance(error, ShieldError):
            raise error
        seed = seeds[len(ended.earlier)]
        where = f"{ended.result.interrupted}{f', with seed {seed}' if self.seeds else ''}"
        kept = self._kept(runs)
        checkpoint = runner.config_of_seed(self.config, seed, seeds).checkpoint_folder
        if checkpoint is not None and RunFolder(checkpoint).is_begun:
            kept += "; the same command with --resume continues from the checkpoint"
        raise _ended_by(error, where, kept) from error

    def _hand_over(self, done: ComparedRuns, whole: int | None = None) -> None:
        """Write all that was finished, and print it.

        With several seeds, those that are ``whole``; None for all.
        """
        whole = len(done.runs) if whole is None else whole
        first = done.runs[0]
        ran = {method.method for method in first.methods}
        papers = tuple(one for one in self.papers if {one.method, one.against or one.method} <= ran)
        compared = compare_figures(first, papers if first.interrupted is not None else self.papers)
        facts = done.to_json() if self.seeds else first.to_json()
        if self.papers and not self.seeds:
            facts["paper"] = [figure.to_json() for figure in compared]
        failures = []
        for write in (lambda: write_json(facts, self.json_file), lambda: self._write_report(done)):
            try:
                write()
            except BrokenPipeError:
                raise
            except OSError as error:
                failures.append(error)
        if not is_stdout(self.json_file):
            if not self.seeds:
                _print_run(first, self.all_figures)
            elif whole:
                typer.echo(ComparedRuns(done.seeds[:whole], done.runs[:whole]).table(), nl=False)
            if compared:
                console = ResultConsole()
                console.print(f"Ours beside the paper's{f', of seed {done.seeds[0]}' if self.seeds else ''}")
                heads = ("method", "figure", "ours", "the paper's", "source")
                console.print(result_table(heads, (one.cells() for one in compared), ("figure", "source")))
        if failures:
            raise failures[0]

    def _write_report(self, done: ComparedRuns) -> None:
        if self.report is None:
            return
        if self.seeds:
            done.write(self.report)
        else:
            from shieldfl.lab.report.run_report import write_report

            write_report(done.runs[0], self.report)
        if sys.stderr.isatty():
            typer.echo(f"report: {self.report}", err=True)

    def _kept(self, runs: Sequence[RunResult]) -> str:
        if not runs:
            return "no round was finished, so nothing was written"
        files = [] if self.json_file is None or is_stdout(self.json_file) else [str(self.json_file)]
        if self.report is not None:
            files.append(str(self.report if self.seeds else self.report / "index.html"))
        counts = Counter(one.method for run in runs for one in run.methods for _ in one.rounds)
        done = ", ".join(f"{method} {count}" for method, count in counts.items())
        return f"finished rounds ({done}) are in {' and '.join(files) or 'the output'}"

    def _audited(self) -> dict[str, Any]:
        """Attack what the aggregator receives, as an audit of the run's data, model and methods does."""
        from shieldfl.lab.audit.attack import AuditInterrupted
        from shieldfl.lab.audit.audit_config import AuditConfig
        from shieldfl.lab.audit.session import run_audit
        from shieldfl.learning.networks import default_model

        config = self.config
        audited = AuditConfig(
            **{name: getattr(config, name) for name in ("dataset", "data_dir", "opener", "seed", "threads")},
            model=config.model or default_model(config.dataset),
            trials=_AUDITED_FEDERATIONS,
            workers=1,  # others would take longer to begin than all of it takes
        )
        with audit_progress(audited.budget_minutes) as tell:
            try:
                done = run_audit(audited, self.methods, ("ilrg",), ("aggregator",), self.settings, tell)
            except AuditInterrupted as error:  # what it had not reached is marked as not attacked
                done = error.result
        return done.to_json()


def _ended_by(
    stopped: KeyboardInterrupt | ShieldError, where: str, kept: str
) -> KeyboardInterrupt | ShieldError:
    """Return the exception that ends the command, of the kind that stopped the run, with what was kept."""
    if isinstance(stopped, ShieldError):
        return ShieldError(f"{where}: {stopped}; {kept}")
    return KeyboardInterrupt(f"{where}: {kept}")


def _print_run(result: RunResult, all_figures: bool) -> None:
    console = ResultConsole()
    console.say(describe_run(result))
    if result.interrupted is not None:
        console.say(f"Not complete: {result.interrupted}.")
    console.say(*findings(result))
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
        console.say(f"× compares with {result.methods[0].method}.")
    notes = remarks(result) if all_figures else footnotes(result)
    console.say(*(f"{names}: {note}" for names, note in notes))


@contextmanager
def round_progress(
    labels: Mapping[tuple[int, str], str], rounds: int
) -> Iterator[Callable[[int, str, RoundRecord], None]]:
    """Show a bar for each seed and method; yields what moves one on by a finished round's record."""
    figures = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    with progress_bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TextColumn("round"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}", table_column=figures),
        expand=True,
    ) as progress:
        tasks = {
            key: progress.add_task(label, total=rounds, start=False, figures="")
            for key, label in labels.items()
        }
        waiting = iter(tasks.values())
        progress.start_task(next(waiting))

        def tell(seed: int, method: str, record: RoundRecord) -> None:
            progress.update(tasks[seed, method], completed=record.round, figures=_figures(record))
            if record.round == rounds and (following := next(waiting, None)) is not None:
                progress.start_task(following)

        yield tell


def _figures(record: RoundRecord) -> str:
    name = next(iter(record.metrics), "accuracy") if math.isnan(record.accuracy) else "accuracy"
    return f"{name} {metric_text(record.measured(name), name)}"
