"""``shieldfl bench``: what encrypted sums cost on this machine, beside other libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from shieldfl.benchmarks.comparison import Case, CkksCase, PaillierCase, compare, grid
from shieldfl.benchmarks.measurement import Ciphertexts, Effort
from shieldfl.build_info import build_info
from shieldfl.cli.failures import failures_on_stderr, interruptible
from shieldfl.cli.json_output import JsonFile, is_stdout, write_json
from shieldfl.cli.setting_options import is_given
from shieldfl.errors import ParameterError
from shieldfl.scheme.registry import KEY_SIZES

__all__ = [
    "QUICK",
    "KeyBits",
    "Quick",
    "Share",
    "Threads",
    "Values",
    "bench",
    "checked_grid",
    "progress_of",
    "quick_values",
    "run_bench",
]

_KEY_SIZES = ", ".join(map(str, KEY_SIZES))
Number = TypeVar("Number", int, float)

# A minute on two cores, TenSEAL included; --quick only shows that everything works.
_SHORT = Effort(seconds=6.0, peer_values=12 * 4096)
QUICK = Effort(0.0, 1, 1, peer_values=4096, ciphertexts=Ciphertexts(fast=16, medium=8, slow=2))
_QUICK_VALUES = (10_000,)


def parse_counts(text: str) -> tuple[int, ...]:
    """Read whole numbers with commas between; 1e6 is one of them."""
    return _parse(text, _whole)


def parse_shares(text: str) -> tuple[float, ...]:
    """Read numbers with commas between."""
    return _parse(text, float)


def _parse(text: str, convert: Callable[[str], Number]) -> tuple[Number, ...]:
    numbers = []
    for part in str(text).split(","):
        try:
            numbers.append(convert(part))
        except (ValueError, OverflowError):
            raise typer.BadParameter(f"{part!r} is not such a number") from None
    return tuple(numbers)


def _whole(text: str) -> int:
    number = float(text)
    if number != int(number):
        raise ValueError
    return int(number)


# typer takes no tuples of any length, so what has a parser is typed Any.
Values = Annotated[
    Any,
    typer.Option(metavar="INT,...", parser=parse_counts, help="Values of an update."),
]
Share = Annotated[
    Any,
    typer.Option(
        metavar="FLOAT,...",
        parser=parse_shares,
        help="Shares of them that are encrypted; below 1 a random mask picks the positions.",
    ),
]
Threads = Annotated[
    Any,
    typer.Option(
        metavar="INT,...",
        parser=parse_counts,
        help="Threads; by default one, and all cores.",
        show_default=False,
    ),
]
KeyBits = Annotated[
    Any,
    typer.Option(
        metavar="INT,...",
        parser=parse_counts,
        help=f"Paillier's key sizes: {_KEY_SIZES}.",
    ),
]
Peers = Annotated[
    bool,
    typer.Option(
        "--peers/--no-peers",
        help="Measure other libraries as well: SEAL and TenSEAL, or phe and HEU, where they are installed.",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="One repetition, on few values unless --values says how many: shows that it works, not how fast.",
    ),
]


class SchemeName(StrEnum):
    """What is measured."""

    CKKS = "ckks"
    PAILLIER = "paillier"


# Options that mean something for one scheme only.
_ONLY_FOR = {"values": SchemeName.CKKS, "share": SchemeName.CKKS, "key_bits": SchemeName.PAILLIER}


def bench(
    context: typer.Context,
    scheme: Annotated[SchemeName, typer.Option(help="Which encryption is measured.")] = SchemeName.CKKS,
    values: Values = "1000000",
    share: Share = "1,0.1",
    key_bits: KeyBits = "2048",
    threads: Threads = None,
    peers: Peers = True,
    quick: Quick = False,
    json_file: JsonFile = None,
) -> None:
    """Measure encrypting, adding and opening on this machine, beside other libraries on the same values.

    Takes about a minute. Each scheme's sums are checked against the plain ones.
    """
    for option, only_for in _ONLY_FOR.items():
        if only_for != scheme and is_given(context, option):
            raise typer.BadParameter(f"--{option.replace('_', '-')} is for --scheme {only_for}")
    effort = QUICK if quick else _SHORT
    if scheme is SchemeName.PAILLIER:
        run_bench(checked_grid(PaillierCase, key_bits, threads=threads), peers, effort, json_file)
    else:
        values = quick_values(context, values, quick)
        run_bench(checked_grid(CkksCase, values, share, threads=threads), peers, effort, json_file)


def quick_values(context: typer.Context, values: tuple[int, ...], quick: bool) -> tuple[int, ...]:
    """Return how many values are measured: few in a quick run, unless somebody said how many."""
    return values if not quick or is_given(context, "values") else _QUICK_VALUES


def checked_grid(
    case: Callable[..., Case], *axes: Sequence[float], threads: tuple[int, ...] | None
) -> list[Case]:
    """Return the cases that the options ask for; a number out of range is wrong usage."""
    if threads is None:
        threads = tuple(dict.fromkeys((1, build_info()["threads"])))
    try:
        return grid(case, *axes, threads)
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from None


def run_bench(cases: Sequence[Case], peers: bool, effort: Effort, json_file: Path | None) -> None:
    """Measure, with a bar on standard error where that is a terminal, and print what came out."""
    with interruptible(), failures_on_stderr():
        with progress_of(len(cases)) as show:
            comparison = compare(
                cases, peers=peers, effort=effort, on_case=lambda done, case: show(done, str(case))
            )
        write_json(comparison.to_json(), json_file)
        if not is_stdout(json_file):
            from shieldfl.cli.bench.table import print_comparison
            from shieldfl.cli.result_console import result_console

            print_comparison(comparison, result_console())


@contextmanager
def progress_of(cases: int) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on standard error where that is a terminal; yields what moves it to the case that begins."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    with Progress(
        SpinnerColumn(),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
        # Not the console's own opinion: FORCE_COLOR asks for colours, not for a moving cursor in a file.
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("", total=cases)
        yield lambda done, text: progress.update(task, completed=done, description=text)
