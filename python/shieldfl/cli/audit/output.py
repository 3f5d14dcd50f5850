"""What ``shieldfl audit`` shows: a bar while it runs, a table for each attack, and one of epsilons."""

from __future__ import annotations

import time

from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from shieldfl.cli.result_console import result_console, result_table
from shieldfl.cli.terminal_progress import TerminalProgress, progress_on_terminal
from shieldfl.lab.audit.attack import AuditResult, Cell, Verdict
from shieldfl.lab.audit.epsilon import ClaimedEpsilon, EpsilonResult
from shieldfl.lab.report.audit_report import attack_tables, figure_text, notes_of

_HEADS = ("method", "unit", "adversary", "claimed ε", "at δ", "measured ε ≥", "canaries")
_COLOURS: dict[Verdict, str] = {
    "all": "bold red",
    "some": "yellow",
    "chance": "blue",  # green would read as safe
    "too few trials": "dim",
    "not attacked": "dim",
}


class AuditProgress(TerminalProgress):
    """One bar for the whole budget; calling it with a method and a trial's number says what runs."""

    def __init__(self, budget_minutes: float) -> None:
        progress = progress_on_terminal(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn(f"of {budget_minutes:g} min"),
        )
        super().__init__(progress)
        self._task = self._progress.add_task("set-up", total=60 * budget_minutes)
        self._began = time.monotonic()

    def __call__(self, method: str, trial: int) -> None:
        """Show which federation begins."""
        spent = time.monotonic() - self._began
        self._progress.update(self._task, completed=spent, description=f"{method}, trial {trial + 1}")


def print_audit(result: AuditResult) -> None:
    """Print a table for each attack, what its cells mean, and what was left out."""
    console = result_console()
    console.print(f"{result.dataset}; {result.model}; {result.seconds:.0f} s")
    for attack in attack_tables(result):
        measured = attack.measured_by or "no figure"
        console.print(
            f"\n{attack.attack}: {measured} (what a guess without the update has), n tries", soft_wrap=True
        )
        table = result_table(["method", *attack.parties])
        for method in attack.methods:
            table.add_row(method, *(_shown(result, cell) for cell in attack.of_method(method)))
        console.print(table)
    console.print(
        "all: no less than of plain averaging; some: above chance, by the 95 % interval; chance: not above it by this "
        "attack, which proves nothing of others; -: nothing of any update came to this party, so there was nothing "
        "to attack. A figure is that of the strongest of several forms, and so lies above chance by chance as well.",
        soft_wrap=True,
    )
    for note in notes_of(result):
        console.print(f"- {note}", soft_wrap=True)


def _shown(result: AuditResult, cell: Cell) -> Text:
    verdict = result.verdict(cell)
    if cell.status == "nothing received":
        return Text("-", style=_COLOURS["chance"])
    if cell.status != "attacked":
        return Text(cell.status, style=_COLOURS[verdict])
    mark = "too few" if verdict == "too few trials" else verdict
    return Text(f"{figure_text(cell)} n={cell.tries} {mark}", style=_COLOURS[verdict])


def print_epsilons(result: EpsilonResult) -> None:
    """Print what each method claims beside what was measured, and why nothing was."""
    console = result_console()
    rounds, clients = result.federation["rounds"], result.federation["clients"]
    length = "1 round" if rounds == 1 else f"{rounds} rounds"
    console.print(f"federations of {clients} clients, {length}; {result.seconds:.0f} s")
    measured = [claim for claim in result.claims if claim.bound is not None]
    if measured:
        console.print(result_table(_HEADS, map(_row, measured), words=("unit", "adversary")))
        console.print(
            "measured: what ε must at least be, at 95 % confidence, by guesses of the aggregator, or of a "
            "client where that reads ciphertexts alone, which canaries were "
            "there. Where a claim is true, the chance of a figure above it is 5 % at most, for each method. A figure "
            "below a claim proves nothing: a better guess may lie above.",
            soft_wrap=True,
        )
    for claim in result.claims:
        if claim.bound is None:
            console.print(f"- {claim.method}: {claim.status}: {claim.reason}", soft_wrap=True)


def _row(claim: ClaimedEpsilon) -> tuple[str, ...]:
    bound = claim.bound
    assert bound is not None
    figures = (f"{bound.claimed:.2f}", f"{bound.delta:g}", f"{bound.at_least:.2f}", f"{claim.canaries:,}")
    return (claim.method, bound.unit, claim.adversary or "", *figures)
