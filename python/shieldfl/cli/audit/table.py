"""What ``shieldfl audit`` prints: a table for each attack, methods by parties."""

from __future__ import annotations

from rich.text import Text

from shieldfl.audit.report.reading import attack_tables, figure_text, notes_of
from shieldfl.audit.result import AuditResult, Cell, Verdict
from shieldfl.cli.result_console import result_console, result_table

__all__ = ["print_audit"]

_COLOURS: dict[Verdict, str] = {
    "all": "bold red",
    "some": "yellow",
    "chance": "blue",  # green would read as safe
    "too few trials": "dim",
    "not attacked": "dim",
}


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
