"""What ``shieldfl doctor`` found, and how it reads: a line for each fact, cut to the width, and a table of trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shieldfl.cli.doctor.machine import (
    InstructionSets,
    Part,
    installation,
    instruction_sets,
    parts,
    warnings_of,
)
from shieldfl.cli.doctor.self_test import Check, self_test
from shieldfl.cli.result_console import result_console, result_table

_HEAD, _FINE, _BAD, _DOUBTFUL = "bold cyan", "green", "bold red", "yellow"
_LABEL_COLUMNS = 20

Line = tuple[str, Text]
"""A label and what it says."""


@dataclass(frozen=True)
class Diagnosis:
    """Facts of an installation and its machine, and whether the two go together."""

    installation: dict[str, Any]
    sets: InstructionSets
    parts: list[Part]
    checks: list[Check]
    warnings: list[str]

    @property
    def problems(self) -> list[str]:
        """What does not work, most general first; empty where all does."""
        stated = [self.sets.error] if self.sets.error else []
        failed = [check for check in self.checks if check.problem]
        return stated + [f"{check.name} with {check.instruction_set}: {check.problem}" for check in failed]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "works": not self.problems,
            "problems": self.problems,
            "warnings": self.warnings,
            "installation": self.installation,
            "instruction_sets": self.sets.to_json(),
            "packages": [part.to_json() for part in self.parts],
            "self_test": [asdict(check) for check in self.checks],
        }


def diagnose() -> Diagnosis:
    """Gather facts and run the self-test."""
    facts, sets = installation(), instruction_sets()
    return Diagnosis(facts, sets, parts(), self_test(sets.usable), warnings_of(facts, sets))


def print_diagnosis(found: Diagnosis) -> None:
    """Print it on standard output."""
    console = result_console()
    _print_lines(console, "installation", _installation(found))
    _print_lines(console, "instruction sets", _sets(found.sets))
    _print_lines(console, "packages", map(_part, found.parts))
    console.print(Text("self-test: three clients' values encrypted, added and opened", style=_HEAD))
    console.print(_table(found.checks, found.sets))
    for why in dict.fromkeys(check.skipped for check in found.checks if check.skipped):
        console.print(Text(f"Not tried: {why}.", style=_DOUBTFUL))
    for warning in found.warnings:
        console.print(Text(warning, style=_DOUBTFUL))
    for problem in found.problems:
        console.print(Text(f"Does not work: {problem}", style=_BAD))
    if not found.problems:
        console.print(Text("What was tried works.", style=_FINE))


def _print_lines(console: Console, title: str, lines: Iterable[Line]) -> None:
    console.print(Text(title, style=_HEAD))
    for label, said in lines:
        # By hand, since a grid fills its lines with blanks.
        first, *rest = said.wrap(console, max(console.width - _LABEL_COLUMNS - 2, 20))
        console.print(Text(f"  {label:<{_LABEL_COLUMNS}}") + first)
        for part in rest:
            console.print(Text(" " * (_LABEL_COLUMNS + 2)) + part)
    console.print()


def _installation(found: Diagnosis) -> list[Line]:
    facts = found.installation
    memory, limit = facts["memory_bytes"], facts["memory_limit_bytes"]
    size = "not known" if memory is None else f"{memory / 2**30:,.1f} GiB"
    if limit is not None:
        size += f", of which a limit leaves {limit / 2**30:,.1f} GiB"
    stated = {
        "shieldfl": facts["shieldfl"],
        "core": f"SEAL {facts['seal']}, GMP {facts['gmp']}, Paillier by {facts['paillier_engine']}",
        "Python": f"{facts['python']}, NumPy {facts['numpy']}",
        "platform": facts["platform"],
        "processor": facts["processor"],
        "cores to use": str(facts["cores"]),
        "memory": size,
    }
    return [(label, Text(said)) for label, said in stated.items()]


def _sets(sets: InstructionSets) -> list[Line]:
    if sets.error:
        chosen = Text(f"SHIELDFL_SIMD={sets.forced} is refused: {sets.error}", style=_BAD)
    elif sets.forced:
        chosen = Text(f"{sets.in_use}, which SHIELDFL_SIMD forces", style=_DOUBTFUL)
    else:
        chosen = Text(f"{sets.in_use}, the best that both have")
    return [
        ("machine", Text(", ".join(sets.machine))),
        ("core", Text(", ".join(sets.core))),
        ("in use", chosen),
    ]


def _part(part: Part) -> Line:
    there = Text(", ".join(f"{name} {version}" for name, version in part.installed.items()))
    if not part.missing:
        return part.name, there
    said = Text(f"missing, if you need it: {part.install}", style=_DOUBTFUL)
    return part.name, said + Text(f"\nthere: {there.plain}", style="none") if part.installed else said


def _table(checks: Sequence[Check], sets: InstructionSets) -> Table:
    """Return a row for each thing that was tried and a column for each set, the one in use first."""
    names = [sets.in_use, *(name for name in reversed(sets.usable) if name != sets.in_use)]
    cells = {(check.name, check.instruction_set): _cell(check) for check in checks}
    table = result_table(["", *names])
    for tried in dict.fromkeys(check.name for check in checks):
        table.add_row(tried, *(cells.get((tried, name), Text("–")) for name in names))
    return table


def _cell(check: Check) -> Text:
    if check.problem:
        return Text("WRONG", style=_BAD)
    if check.milliseconds is None:
        return Text("not tried", style=_DOUBTFUL)
    return Text(f"{check.milliseconds:,.1f} ms", style=_FINE)
