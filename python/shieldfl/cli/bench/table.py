"""The tables of ``shieldfl bench``: one for each case, one line for each scheme."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from shieldfl.benchmarks.comparison import CaseResult, Comparison
from shieldfl.benchmarks.measurement import Figure

__all__ = ["print_comparison", "print_machine"]

_COLUMNS = ("encrypt", "serialise", "both", "add", "open", "bytes", "× time")


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print every case, then what the names of the schemes stand for."""
    print_machine(comparison.machine, console)
    console.print("Medians, nanoseconds and bytes for each value.")
    for result in comparison.cases:
        console.print()
        console.print(_title(result), style="bold cyan", soft_wrap=True)
        console.print(_table(result))
    settings = {figure.scheme: figure for result in comparison.cases for figure in result.figures}
    for figure in settings.values():
        console.print(f"{figure.scheme}: {figure.setting}", soft_wrap=True)
    console.print(_reading(comparison), soft_wrap=True)
    for line in comparison.missing:
        console.print(line, soft_wrap=True)


def print_machine(machine: dict[str, Any], console: Console) -> None:
    """Print what the run ran on."""
    versions = [
        f"{name} {machine[name]}"
        for name in ("shieldfl", "seal", "tenseal", "gmp", "phe", "gmpy2", "heu", "numpy", "python")
        if machine[name]
    ]
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, instruction set {machine['instruction_set']}, "
        f"Paillier engine {machine['paillier_engine']}, load {machine['load_average']}\n"
        f"{', '.join(versions)}, {machine['date']}",
        soft_wrap=True,
    )


def _title(result: CaseResult) -> str:
    case = result.case
    threads = "1 thread" if case.threads == 1 else f"{case.threads} threads"
    which = "all values" if case.share >= 1.0 else f"a random {case.share:.3g} of them: {result.selected:,}"
    return f"{case.values:,} values, {which}, {threads}"


def _table(result: CaseResult) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("", overflow="fold")
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for figure in result.figures:
        cells = [*_cells(figure), f"{result.times_own(figure):,.1f}"]
        table.add_row(figure.scheme, *cells, style="bold" if figure.own else None)
    return table


def _cells(figure: Figure) -> list[str]:
    stages = ("encrypt", "serialise", "encrypt and serialise", "add", "open")
    return [*(_number(figure.stage_ns[stage]) for stage in stages), f"{figure.bytes_per_value:.2f}"]


def _number(nanoseconds: float) -> str:
    return f"{nanoseconds:,.0f}" if nanoseconds >= 99.5 else f"{nanoseconds:.1f}"


def _reading(comparison: Comparison) -> str:
    text = (
        '"both" is from float32 values to bytes, "add" from bytes into a sum, "open" from a sum to values; '
        f'"× time" compares "both" with that of {comparison.cases[0].figures[0].scheme}. '
        "shieldfl makes its frame while it encrypts, so serialising is nothing more. Every opened sum was checked."
    )
    sampled = {
        figure.values
        for result in comparison.cases
        for figure in result.figures
        if not figure.own and figure.values < result.selected
    }
    if sampled:
        text += f" The others were measured on the first {max(sampled):,} values where there are more."
    return text
