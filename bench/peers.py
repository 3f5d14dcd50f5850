"""The whole experiment: this library beside SEAL and TenSEAL on the same values, in one process and one run.

    python bench/peers.py            # every size, share and number of threads: about a quarter of an hour
    python bench/peers.py --bars     # the figures that the library is held to, met or missed
    python bench/peers.py --values 1e6 --share 1 --threads 1 --json peers.json

``shieldfl bench`` prints the same tables for a user's machine, in a minute. See docs/benchmarks.md.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import bars
from shieldfl.benchmarks import Effort
from shieldfl.benchmarks.machine import describe_machine
from shieldfl.cli import bench
from shieldfl.cli.bench_table import print_comparison, print_machine, result_console
from shieldfl.cli.failures import failures_on_stderr
from shieldfl.cli.json_output import JsonFile, is_stdout, write_json

Seconds = Annotated[float, typer.Option(help="How long each case is measured, all schemes together.")]
Bars = Annotated[bool, typer.Option("--bars", help="Measure the bars instead of the tables.")]


def tell(part: str) -> None:
    """Show progress where a person watches."""
    if sys.stderr.isatty():
        print(f"measuring: {part}", file=sys.stderr)


def main(
    values: bench.Values = "1e5,1e6,2.5e7",
    share: bench.Share = "0.01,0.1,1",
    threads: bench.Threads = None,
    seconds: Seconds = 10.0,
    bars_only: Bars = False,
    quick: bench.Quick = False,
    json_file: JsonFile = None,
) -> None:
    """Measure this library beside SEAL and TenSEAL, print the tables, check every sum."""
    cases = bench.checked_grid(values, share, threads, quick)
    console = result_console()
    facts: dict[str, Any]
    with failures_on_stderr():
        if bars_only:
            machine = describe_machine()
            measured = bars.measure_all(bars.QUICK if quick else bars.Sizes(), tell)
            facts = {"machine": machine, "bars": [bar.to_json() for bar in measured]}
            if not is_stdout(json_file):
                print_machine(machine, console)
                bars.print_bars(measured, console)
        else:
            effort = bench.QUICK if quick else Effort(seconds=seconds, fewest_repetitions=5)
            comparison = bench.compare_with_progress(cases, peers=True, effort=effort)
            facts = comparison.to_json()
            if not is_stdout(json_file):
                print_comparison(comparison, console)
        write_json(facts, json_file)


if __name__ == "__main__":
    typer.run(main)
