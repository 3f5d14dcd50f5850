"""The whole experiment: this library beside others on the same values, in one run.

    python bench/baselines.py             # CKKS and kahe beside SEAL, TenSEAL and Flower, every size and share
    python bench/baselines.py --targets   # the figures that these, masks and noise are held to, met or missed
    python bench/baselines.py --values 1e6 --share 1 --threads 1 --json baselines.json
    python bench/baselines.py paillier   # Paillier beside phe and HEU: several minutes
    python bench/baselines.py paillier --targets

``shieldfl bench`` prints the same tables for a user's machine, in a minute. See docs/explanation/benchmarks.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import all_targets
import paillier_targets
from shieldfl.cli import bench
from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import JsonFile, ResultConsole, is_stdout, write_json
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.options import given_settings, with_options
from shieldfl.lab.bench.comparison import describe_machine
from shieldfl.lab.bench.measurement import Effort
from sizes import QUICK, Sizes
from target import Target, print_targets

Seconds = Annotated[float, typer.Option(help="How long each case is measured, all schemes together.")]
Targets = Annotated[bool, typer.Option("--targets", help="Measure the targets instead of the tables.")]


@dataclass(frozen=True)
class WholeGrid(bench.Grid):
    """Every size and share, and the key sizes that the documentation has figures of."""

    values: bench.ValueCounts = (100_000, 1_000_000, 25_000_000)
    share: bench.Shares = (0.01, 0.1, 1.0)
    key_bits: bench.KeySizes = (2048, 3072)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@with_options((WholeGrid, ""), without=("scheme", "key_bits"))
def updates(
    context: typer.Context,
    *,
    seconds: Seconds = 10.0,
    targets_only: Targets = False,
    quick: bench.Quick = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Measure CKKS and key-additive encryption beside others, print the tables, check every sum."""
    cases = bench.given_cases(WholeGrid, context, settings, quick)
    if targets_only:
        _show_targets(lambda: all_targets.measure_all(QUICK if quick else Sizes(), _tell), json_file)
        return
    bench.run_bench(cases, True, _effort(seconds, quick), json_file)


@app.command()
@with_options((WholeGrid, ""), without=("scheme", "values", "share"))
def paillier(
    *,
    seconds: Seconds = 30.0,
    targets_only: Targets = False,
    quick: bench.Quick = False,
    json_file: JsonFile = None,
    **settings: Any,
) -> None:
    """Measure Paillier beside phe and HEU, print the tables, check every sum."""
    cases = given_settings(WholeGrid, {**settings, "scheme": "paillier"}).cases()
    if targets_only:
        sizes = paillier_targets.QUICK if quick else paillier_targets.Sizes()
        _show_targets(lambda: paillier_targets.measure_all(sizes, _tell), json_file)
        return
    bench.run_bench(cases, True, _effort(seconds, quick), json_file)


def _effort(seconds: float, quick: bool) -> Effort:
    return bench.QUICK if quick else Effort(seconds=seconds, fewest_repetitions=5)


def _show_targets(measure_all: Callable[[], list[Target]], json_file: Path | None) -> None:
    with failures_on_stderr():
        machine = describe_machine()
        measured = measure_all()
        if not is_stdout(json_file):
            console = ResultConsole()
            print_machine(machine, console)
            print_targets(measured, console)
        facts: dict[str, Any] = {"machine": machine, "targets": [target.to_json() for target in measured]}
        write_json(facts, json_file)


def _tell(part: str) -> None:
    """Show progress where a person watches."""
    if sys.stderr.isatty():
        print(f"measuring: {part}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] not in (["updates"], ["paillier"], ["--help"]):
        sys.argv.insert(1, "updates")  # what is meant where nothing is said
    app()
