"""``shieldfl bench``: what encrypted sums cost on this machine, beside other libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Meta
from rich.table import Table

from shieldfl.build_info import build_info
from shieldfl.cli.console import JsonFile, ResultConsole, progress_of, result_table, write_json
from shieldfl.cli.failures import failures_on_stderr, interruptible
from shieldfl.cli.options import given_settings, refuse_given, where_not_given, with_options
from shieldfl.encryption.registry import KeyBits
from shieldfl.lab.bench.comparison import (
    UPDATE_SCHEMES,
    Case,
    CaseResult,
    Comparison,
    PaillierCase,
    UpdateCase,
    Values,
    compare,
    grid,
)
from shieldfl.lab.bench.measurement import Effort
from shieldfl.settings import Settings, Share, ThreadCounts, about

# A minute on two cores, TenSEAL included; --quick only shows that everything works.
_SHORT = Effort(seconds=6.0, baseline_values=12 * 4096)
QUICK = Effort(0.0, 1, 1, baseline_values=4096, fast_ciphertexts=16, medium_ciphertexts=8, slow_ciphertexts=2)


ValueCounts = Annotated[tuple[Values, ...], Meta(min_length=1), about("Number of values in an update.")]
Shares = Annotated[
    tuple[Share, ...],
    Meta(min_length=1),
    about("Share of the values that is encrypted; below 1 a random mask picks the positions."),
]
KeySizes = Annotated[tuple[KeyBits, ...], Meta(min_length=1), about("Paillier key sizes, in bits.")]


@dataclass(frozen=True)
class Grid(Settings):
    """The measured cases: every combination, of Paillier's keys or of whole updates under other schemes."""

    scheme: Annotated[
        str | None,
        about(
            "Encryption scheme to measure. Default: all but Paillier, side by side.",
            choices=(*UPDATE_SCHEMES, "paillier"),
        ),
    ] = None
    threads: Annotated[
        ThreadCounts | None, about("Thread counts to measure. Default: 1, and the number of cores.")
    ] = None
    values: ValueCounts = (1_000_000,)
    share: Shares = (1.0, 0.1)
    key_bits: KeySizes = (2048,)

    def cases(self) -> list[Any]:
        threads = tuple(dict.fromkeys(self.threads or (1, build_info()["threads"])))
        if self.scheme == "paillier":
            return grid(PaillierCase, self.key_bits, threads)
        schemes = UPDATE_SCHEMES if self.scheme is None else (self.scheme,)
        return grid(UpdateCase, self.values, self.share, threads, [schemes])


Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Measure once, on few values unless --values is given. This shows that everything works, not "
        "how fast.",
    ),
]


@with_options((Grid, ""))
def bench(
    context: typer.Context,
    *,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines/--no-baselines",
            help="Also measure other libraries if they are installed: SEAL, TenSEAL, Flower's secure "
            "aggregation and a plain copy; for Paillier, phe and HEU.",
        ),
    ] = True,
    quick: Quick = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Measure encrypting, adding and opening on this machine, beside other libraries on the same values.

    The command takes about a minute. It checks each scheme's sums against the plain sums.
    """
    if settings["scheme"] == "paillier":
        refuse_given(context, ("values", "share"), "it is not for --scheme paillier")
    else:
        refuse_given(context, ("key_bits",), "it is for --scheme paillier")
    effort = QUICK if quick else _SHORT
    run_bench(given_cases(Grid, context, settings, quick), baselines, effort, json_file)


def given_cases(
    kind: type[Grid], context: typer.Context, settings: Mapping[str, Any], quick: bool
) -> list[Any]:
    few = where_not_given(context, {"values": (10_000,)}) if quick else {}
    return given_settings(kind, {**settings, **few}).cases()


def run_bench(cases: Sequence[Case], baselines: bool, effort: Effort, json_file: Path | None) -> None:
    """Measure, with a bar on standard error if that is a terminal, and print the results."""
    with interruptible(), failures_on_stderr():
        with progress_of(len(cases)) as show:
            comparison = compare(
                cases, baselines=baselines, effort=effort, on_case=lambda done, case: show(done, str(case))
            )
        if write_json(comparison.to_json(), json_file):
            _print_comparison(comparison, ResultConsole())


_ENCRYPTING = {"encrypt": "encrypt", "serialise": "serialise"}
"""Stages by column, for all schemes; those of each kind of scheme follow."""
_STAGES = {**_ENCRYPTING, "both": "encrypt and serialise", "add": "add", "close": "close", "open": "open"}
_STAGES_OF_PAILLIER = {
    **_ENCRYPTING,
    "load": "load",
    "add": "add",
    "add, with plaintext": "add with plaintext",
    "decrypt": "open",
}
_READING = (
    '"both" is from float32 values to bytes, "close" to the bytes that leave the aggregator (where clients '
    'enrol: with the request for its key); "× time" compares "both" with that of {first}. shieldfl makes its '
    "frame while it encrypts, so serialising is nothing more. Every opened sum was checked. The others are "
    "measured on the first values alone where there are many."
)
_READING_OF_PAILLIER = (
    '"load" is from bytes to what "add" takes, "add, with plaintext" adds as many values in the clear as '
    'well; "× time" compares encrypting and serialising with that of {first}. shieldfl makes its frame while '
    "it encrypts, and parses and checks one while it adds. Every opened sum was checked."
)


def _print_comparison(comparison: Comparison, console: ResultConsole) -> None:
    print_machine(comparison.machine, console)
    of_updates = isinstance(comparison.cases[0].case, UpdateCase)
    settings: dict[str, str] = {}
    console.print(f"Medians of each value, in {'nanoseconds' if of_updates else 'microseconds'}, and bytes.")
    for result in comparison.cases:
        console.print()
        console.print(str(result.case), style="bold cyan", soft_wrap=True)
        console.print(_table(result, *((_STAGES, 1.0) if of_updates else (_STAGES_OF_PAILLIER, 1e3))))
        for figure in result.figures:
            # A setting names its key size, so that a scheme has as many settings as there are sizes.
            settings[figure.setting] = f"{figure.scheme}: {figure.setting}"
    reading = _READING if of_updates else _READING_OF_PAILLIER
    reading = reading.format(first=comparison.cases[0].figures[0].scheme)
    console.say(*settings.values(), reading, *comparison.missing)


def print_machine(machine: Mapping[str, Any], console: ResultConsole) -> None:
    facts = (f"{name.replace('_', ' ')} {fact}" for name, fact in machine.items() if fact is not None)
    console.say(", ".join(facts))


def _table(result: CaseResult, stages: Mapping[str, str], nanoseconds: float) -> Table:
    def number(value: float | None) -> str:
        if value is None:
            return "–"
        return f"{value:,.0f}" if value >= 99.5 else f"{value:#.3g}"

    table = result_table(["", *stages, "bytes", "× time"])
    for figure in result.figures:
        times = (figure.stage_ns.get(stage) for stage in stages.values())
        table.add_row(
            figure.scheme,
            *(number(None if one is None else one / nanoseconds) for one in times),
            f"{figure.bytes_per_value:,.2f}",
            number(result.times_own(figure)),
            style="bold" if figure.own else None,
        )
    return table
