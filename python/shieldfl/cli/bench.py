"""``shieldfl bench``: what encrypted sums cost on this machine, beside other libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from shieldfl.benchmarks.comparison import Case, Comparison, Effort, compare, grid
from shieldfl.build_info import build_info
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import JsonFile, is_stdout, write_json
from shieldfl.errors import ParameterError

__all__ = ["QUICK", "Quick", "Share", "Threads", "Values", "bench", "checked_grid", "compare_with_progress"]

Number = TypeVar("Number", int, float)

# A minute on two cores, TenSEAL included; --quick only shows that everything works.
_SHORT = Effort(seconds=6.0, peer_values=12 * 4096)
QUICK = Effort(seconds=0.0, fewest_repetitions=1, most_repetitions=1, peer_values=4096)
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
Peers = Annotated[
    bool, typer.Option("--peers/--no-peers", help="Measure SEAL and, where it is installed, TenSEAL as well.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="One repetition on few values: shows that it works, not how fast.")
]


def bench(
    values: Values = "1000000",
    share: Share = "1,0.1",
    threads: Threads = None,
    peers: Peers = True,
    quick: Quick = False,
    json_file: JsonFile = None,
) -> None:
    """Measure encrypting, adding and opening on this machine, beside other libraries on the same values.

    Takes about a minute. Each scheme's sums are checked against the plain ones.
    """
    cases = checked_grid(values, share, threads, quick)
    with failures_on_stderr():
        comparison = compare_with_progress(cases, peers, QUICK if quick else _SHORT)
        write_json(comparison.to_json(), json_file)
        if not is_stdout(json_file):
            from shieldfl.cli.bench_table import print_comparison, result_console

            print_comparison(comparison, result_console())


def checked_grid(
    values: tuple[int, ...], shares: tuple[float, ...], threads: tuple[int, ...] | None, quick: bool
) -> list[Case]:
    """Return the cases that the options ask for; a number out of range is wrong usage."""
    if threads is None:
        threads = tuple(dict.fromkeys((1, build_info()["threads"])))
    try:
        return grid(_QUICK_VALUES if quick else values, shares, threads)
    except ParameterError as error:
        raise typer.BadParameter(str(error)) from None


def compare_with_progress(cases: Sequence[Case], peers: bool, effort: Effort) -> Comparison:
    """Measure, with a bar on standard error where that is a terminal."""
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
        task = progress.add_task("", total=len(cases))

        def show(done: int, case: Case) -> None:
            text = f"{case.values:,} values, share {case.share:g}, threads {case.threads}"
            progress.update(task, completed=done, description=text)

        return compare(cases, peers=peers, effort=effort, on_case=show)
