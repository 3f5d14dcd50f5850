"""The tables of ``shieldfl bench``: for each case one line for each scheme, and figures beside their targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from shieldfl.cli.result_console import result_table
from shieldfl.lab.bench.comparison import CaseResult, Comparison, UpdateCase
from shieldfl.lab.bench.measurement import Figure
from shieldfl.lab.bench.target import Target


@dataclass(frozen=True)
class _Layout:
    """What of a case's figures is shown, and how it is to be read."""

    unit: str
    nanoseconds: float
    """In the unit of time."""
    stages: dict[str, str]
    """Column to the stage whose time stands there."""
    tables: dict[str, Callable[[Figure], int]]
    """For what each table is, to how many values that has."""
    cores: bool
    small: Callable[[float], str]
    """Writes times below 100."""
    reading: str


_UPDATES = _Layout(
    "Medians, nanoseconds and bytes for each value.",
    1.0,
    {
        "encrypt": "encrypt",
        "serialise": "serialise",
        "both": "encrypt and serialise",
        "add": "add",
        "close": "close",
        "open": "open",
    },
    {"": lambda figure: 1},
    cores=False,
    small=lambda value: f"{value:.2f}" if value < 9.95 else f"{value:.1f}",
    reading='"both" is from float32 values to bytes, "add" from bytes into a sum, "close" from a sum to the bytes that '
    'leave the aggregator (where clients enrol, with the request for its key), "open" from a sum to values; '
    '"× time" compares "both" with that of {first}. '
    "shieldfl makes its frame while it encrypts, so serialising is nothing more. Every opened sum was checked.",
)
_PAILLIER = _Layout(
    "Medians, microseconds.",
    1e3,
    {
        "encrypt": "encrypt",
        "serialise": "serialise",
        "load": "load",
        "add": "add",
        "add, with plaintext": "add with plaintext",
        "decrypt": "open",
    },
    {
        "for each ciphertext": lambda figure: figure.values_per_ciphertext,
        "for each value": lambda figure: 1,
    },
    cores=True,
    small=lambda value: f"{value:#.3g}",
    reading='"load" is from the bytes that travelled to what "add" takes, "add" adds to a sum, "add, with plaintext" '
    'adds as many values in the clear as well, "decrypt" is from a sum to values; '
    '"× time" compares encrypting and serialising with that of {first}; '
    '"cores" is processor time over time while encrypting. '
    "shieldfl makes its frame while it encrypts, and parses and checks one while it adds. "
    "Every opened sum was checked.",
)


def print_comparison(comparison: Comparison[Any], console: Console) -> None:
    """Print every case, then what the names of the schemes stand for."""
    print_machine(comparison.machine, console)
    layout = _UPDATES if isinstance(comparison.cases[0].case, UpdateCase) else _PAILLIER
    console.print(layout.unit)
    for result in comparison.cases:
        console.print()
        console.print(_title(result), style="bold cyan", soft_wrap=True)
        for what, values_of in layout.tables.items():
            console.print(_table(layout, what, values_of, result))
    # A setting names its key size, so that a scheme has as many settings as there are sizes.
    settings = {figure.setting: figure.scheme for result in comparison.cases for figure in result.figures}
    reading = layout.reading.format(first=comparison.cases[0].figures[0].scheme) + _sampled(comparison)
    names = (f"{scheme}: {setting}" for setting, scheme in settings.items())
    for line in (*names, reading, *comparison.missing):
        console.print(line, soft_wrap=True)
    if comparison.lines:
        console.print()
        print_targets(comparison.lines, console)


def print_machine(machine: dict[str, Any], console: Console) -> None:
    """Print what the run ran on."""
    versions = [
        f"{name} {machine[name]}"
        for name in ("shieldfl", "seal", "tenseal", "gmp", "phe", "gmpy2", "heu", "flwr", "numpy", "python")
        if machine[name]
    ]
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, instruction set {machine['instruction_set']}, "
        f"Paillier engine {machine['paillier_engine']}, load {machine['load_average']}\n"
        f"{', '.join(versions)}, {machine['date']}",
        soft_wrap=True,
    )


def _title(result: CaseResult[Any]) -> str:
    case = result.case
    threads = "1 thread" if case.threads == 1 else f"{case.threads} threads"
    if not isinstance(case, UpdateCase):
        return f"{case.key_bits:,}-bit keys, {threads}"
    which = "all values" if case.share >= 1.0 else f"a random {case.share:.3g} of them: {result.selected:,}"
    return f"{case.values:,} values, {which}, {threads}"


def _table(layout: _Layout, what: str, values_of: Callable[[Figure], int], result: CaseResult[Any]) -> Table:
    def number(value: float) -> str:
        return f"{value:,.0f}" if value >= 99.5 else layout.small(value)

    def time_of(figure: Figure, stage: str) -> str:
        if stage not in figure.stage_ns:
            return "–"
        return number(figure.stage_ns[stage] * values_of(figure) / layout.nanoseconds)

    table = result_table([what, *layout.stages, "bytes", *(["cores"] if layout.cores else []), "× time"])
    for figure in result.figures:
        table.add_row(
            figure.scheme,
            *(time_of(figure, stage) for stage in layout.stages.values()),
            f"{figure.bytes_per_value * values_of(figure):,.2f}",
            *([f"{figure.cores:.2f}"] if layout.cores else []),
            number(result.times_own(figure) * values_of(figure) / values_of(result.figures[0])),
            style="bold" if figure.own else None,
        )
    return table


def _sampled(comparison: Comparison[Any]) -> str:
    """Say on how many values other libraries were measured, where that is not all."""
    sampled = {
        figure.values
        for result in comparison.cases
        for figure in result.figures
        if isinstance(result.case, UpdateCase) and not figure.own and figure.values < result.selected
    }
    return (
        f" The others were measured on the first {max(sampled):,} values where there are more."
        if sampled
        else ""
    )


def print_targets(targets: Sequence[Target], console: Console) -> None:
    """Print one line for each figure, and the notes below; without columns that none of them fills."""
    rows = [
        (
            target.figure,
            "–" if target.measured is None else _number(target.measured, target.unit, "#.3g"),
            *(_limit(target, limit) for limit in (target.target, target.stretch)),
            target.verdict,
        )
        for target in targets
    ]
    heads = ("figure", "measured", "target", "stretch", "")
    filled = [column for column in range(len(heads)) if any(row[column] for row in rows)]
    console.print(
        result_table(
            [heads[column] for column in filled], [[row[column] for column in filled] for row in rows]
        )
    )
    for target in targets:
        if target.note:
            console.print(f"{target.figure}: {target.note}", soft_wrap=True)


def _limit(target: Target, limit: float | None) -> str:
    return "" if limit is None else f"{'≥' if target.at_least else '≤'} {_number(limit, target.unit)}"


def _number(value: float, unit: str, form: str = ".3g") -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:{form}}"
    return f"{text} {unit}"
