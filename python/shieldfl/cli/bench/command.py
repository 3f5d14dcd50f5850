"""``shieldfl bench``: what encrypted sums cost on this machine, beside other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from click import Choice
from msgspec import Meta

from shieldfl.build_info import build_info
from shieldfl.cli.failures import failures_on_stderr, interruptible
from shieldfl.cli.json_output import JsonFile, is_stdout, write_json
from shieldfl.cli.setting_options import given_settings, is_given, where_not_given, with_options
from shieldfl.encryption.registry import KeyBits
from shieldfl.lab.bench.comparison import (
    UPDATE_SCHEMES,
    Case,
    PaillierCase,
    UpdateCase,
    Values,
    compare,
    grid,
)
from shieldfl.lab.bench.measurement import Ciphertexts, Effort
from shieldfl.settings import Settings, Share, ThreadCounts, about

# A minute on two cores, TenSEAL included; --quick only shows that everything works.
_SHORT = Effort(seconds=6.0, baseline_values=12 * 4096)
QUICK = Effort(
    0.0,
    1,
    1,
    baseline_values=4096,
    ciphertexts=Ciphertexts(fast=16, medium=8, slow=2),
    mask_positions=100_000,
)
_QUICK_GRID = {"values": (10_000,)}


@dataclass(frozen=True)
class _ThreadCounts(Settings):
    threads: Annotated[ThreadCounts | None, about("Threads; by default one, and all cores.")] = None

    def thread_counts(self) -> tuple[int, ...]:
        """Return them, each once."""
        return tuple(dict.fromkeys(self.threads or (1, build_info()["threads"])))


ValueCounts = Annotated[tuple[Values, ...], Meta(min_length=1), about("Values of an update.")]
Shares = Annotated[
    tuple[Share, ...],
    Meta(min_length=1),
    about("Shares of them that are encrypted; below 1 a random mask picks the positions."),
]
KeySizes = Annotated[tuple[KeyBits, ...], Meta(min_length=1), about("Paillier's key sizes.")]


@dataclass(frozen=True)
class UpdateGrid(_ThreadCounts):
    """Which cases of whole updates are measured: every combination."""

    values: ValueCounts = (1_000_000,)
    share: Shares = (1.0, 0.1)
    schemes: tuple[str, ...] = UPDATE_SCHEMES

    def cases(self) -> list[UpdateCase]:
        """Return them, by values first."""
        return grid(UpdateCase, self.values, self.share, self.thread_counts(), [self.schemes])


@dataclass(frozen=True)
class PaillierGrid(_ThreadCounts):
    """Which cases of Paillier are measured: every combination."""

    key_bits: KeySizes = (2048,)

    def cases(self) -> list[PaillierCase]:
        """Return them, by key sizes first."""
        return grid(PaillierCase, self.key_bits, self.thread_counts())


Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="One repetition, on few values unless --values says how many: shows that it works, not how fast.",
    ),
]


_PAILLIER = "paillier"
_SCHEMES = (*UPDATE_SCHEMES, _PAILLIER)
# Options that mean nothing for Paillier, and those that mean something for it alone.
_FOR_UPDATES, _FOR_PAILLIER = ("values", "share"), ("key_bits",)


@with_options((UpdateGrid, ""), (PaillierGrid, ""))
def bench(
    context: typer.Context,
    *,
    scheme: Annotated[
        str | None,
        typer.Option(
            click_type=Choice(_SCHEMES),
            metavar="|".join(_SCHEMES),
            help=f"Which encryption is measured; by default {', '.join(UPDATE_SCHEMES)} side by side.",
        ),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines/--no-baselines",
            help="Measure others as well, where they are installed: SEAL, TenSEAL, Flower's secure aggregation and a "
            "plain copy, or phe and HEU.",
        ),
    ] = True,
    quick: Quick = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Measure encrypting, adding and opening on this machine, beside other libraries on the same values.

    Takes about a minute. Each scheme's sums are checked against the plain ones.
    """
    paillier = scheme == _PAILLIER
    for option in _FOR_UPDATES if paillier else _FOR_PAILLIER:
        if is_given(context, option):
            name = option.replace("_", "-")
            raise typer.BadParameter(f"--{name} is {'not ' if paillier else ''}for --scheme {_PAILLIER}")
    effort = QUICK if quick else _SHORT
    if paillier:
        run_bench(given_settings(PaillierGrid, settings).cases(), baselines, effort, json_file)
    else:
        named = {} if scheme is None else {"schemes": (scheme,)}
        run_bench(given_grid(context, settings | named, quick).cases(), baselines, effort, json_file)


def given_grid(context: typer.Context, settings: Mapping[str, Any], quick: bool) -> UpdateGrid:
    """Return the cases that the options ask for; a quick run has few values unless somebody said how many."""
    few = where_not_given(context, _QUICK_GRID) if quick else {}
    return given_settings(UpdateGrid, {**settings, **few})


def run_bench(cases: Sequence[Case], baselines: bool, effort: Effort, json_file: Path | None) -> None:
    """Measure, with a bar on standard error where that is a terminal, and print what came out."""
    with interruptible(), failures_on_stderr():
        with progress_of(len(cases)) as show:
            comparison = compare(
                cases, baselines=baselines, effort=effort, on_case=lambda done, case: show(done, str(case))
            )
        write_json(comparison.to_json(), json_file)
        if not is_stdout(json_file):
            from shieldfl.cli.bench.table import print_comparison
            from shieldfl.cli.result_console import result_console

            print_comparison(comparison, result_console())


@contextmanager
def progress_of(cases: int) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on standard error where that is a terminal; yields what moves it to the case that begins."""
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn

    from shieldfl.cli.terminal_progress import progress_on_terminal

    with progress_on_terminal(
        SpinnerColumn(),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=cases)
        yield lambda done, text: progress.update(task, completed=done, description=text)
