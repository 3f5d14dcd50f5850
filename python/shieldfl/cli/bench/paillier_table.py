"""The tables of ``shieldfl bench --scheme paillier``: for each case one for ciphertexts and one for values."""

from __future__ import annotations

from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from shieldfl.benchmarks.paillier_comparison import PaillierCase, PaillierComparison, PaillierFigure
from shieldfl.cli.bench.table import print_machine

__all__ = ["print_paillier_comparison"]

_STAGES = {
    "encrypt": "encrypt",
    "serialise": "serialise",
    "load": "load",
    "add": "add",
    "add with plaintext": "add, with plaintext",
    "open": "decrypt",
}
_READING = (
    '"load" is from the bytes that travelled to what "add" takes, "add" adds to a sum, "add, with plaintext" '
    "adds as many values in the clear as well, "
    '"decrypt" is from a sum to values; '
    '"× time" compares encrypting and serialising with that of {first}; '
    '"cores" is processor time over time while encrypting. '
    "shieldfl makes its frame while it encrypts, and parses and checks one while it adds. "
    "Every opened sum was checked."
)


def print_paillier_comparison(comparison: PaillierComparison, console: Console) -> None:
    """Print every case, then what the names of the schemes stand for."""
    print_machine(comparison.machine, console)
    console.print("Medians, microseconds.")
    for case, figures in comparison.cases:
        console.print()
        console.print(_title(case), style="bold cyan", soft_wrap=True)
        console.print(_table("for each ciphertext", figures, lambda each: each.values_per_ciphertext))
        console.print(_table("for each value", figures, lambda each: 1))
    # A setting names its key size, so that a scheme has as many settings as there are sizes.
    settings = {
        each.figure.setting: each.figure.scheme for _, figures in comparison.cases for each in figures
    }
    for setting, scheme in settings.items():
        console.print(f"{scheme}: {setting}", soft_wrap=True)
    first = comparison.cases[0][1][0].figure.scheme
    console.print(_READING.format(first=first), soft_wrap=True)
    for line in comparison.missing:
        console.print(line, soft_wrap=True)


def _title(case: PaillierCase) -> str:
    threads = "1 thread" if case.threads == 1 else f"{case.threads} threads"
    return f"{case.key_bits:,}-bit keys, {threads}"


def _table(what: str, figures: list[PaillierFigure], values_of: Callable[[PaillierFigure], int]) -> Table:
    def microseconds(each: PaillierFigure, stage: str) -> float:
        return each.figure.stage_ns[stage] * values_of(each) / 1e3

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column(what, overflow="fold")
    for column in (*_STAGES.values(), "bytes", "cores", "× time"):
        table.add_column(column, justify="right", no_wrap=True)
    both = "encrypt and serialise"
    for each in figures:
        figure = each.figure
        table.add_row(
            figure.scheme,
            *(_number(microseconds(each, stage)) for stage in _STAGES),
            _number(figure.bytes_per_value * values_of(each)),
            f"{figure.cores:.2f}",
            _number(microseconds(each, both) / microseconds(figures[0], both)),
            style="bold" if figure.own else None,
        )
    return table


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 99.5 else f"{number:#.3g}"
