"""Simulations of very many clients, of whom a share takes part in each round: how fast they go, what memory they take.

python bench/many_clients.py                              # fedavg and full-he, 1,000 clients, a tenth in each round
python bench/many_clients.py --threads 2                  # with two clients training at a time
python bench/many_clients.py --against ../other-checkout  # the same by turns with another checkout's package
python bench/many_clients.py --methods fedavg,sense-crypt/kahe  # another scheme than the method's default
python bench/many_clients.py --methods fedavg,pfl,flower  # beside other simulators, where they are installed

Every run is a process of its own; figures are medians of several, taken by turns. Seconds are those of ``sf.run``:
reading the data, setting up, all rounds, each with its evaluation; imports are in the memory alone, which is that of
the first process. Of Flower's simulation only the time on the clock is whole: its clients are Ray's processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from many_clients_peers import missing
from many_clients_run import PEERS
from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import ResultConsole, result_table
from shieldfl.lab.bench.comparison import describe_machine

ROOT = Path(__file__).parents[1]
_HEADS = ("package", "method", "rounds/min", "wall, s", "user, s", "system, s", "peak, MB", "result")


@dataclass(frozen=True)
class Task:
    """What is simulated."""

    dataset: str = "mnist"
    model: str = "mlp"
    clients: int = 1_000
    share: float = 0.1
    rounds: int = 20
    local_epochs: int = 5
    threads: int = 1
    """Of this package, which trains as many clients at a time."""

    def as_arguments(self) -> list[str]:
        """Return it as the arguments of :mod:`many_clients_run`."""
        return [str(value) for value in vars(self).values()]


@dataclass(frozen=True)
class Run:
    """What one process took."""

    wall: float
    user: float
    system: float
    peak_bytes: int
    result: str
    """The last round's figures: the same where the same was computed."""
    stages: dict[str, float]
    """Milliseconds of each stage of a client's round, on the clock, whatever runs beside; none of other simulators."""


def measured(checkout: Path, method: str, task: Task) -> Run:
    """Run one method once in a process of its own, by the package of a checkout. Raises RuntimeError if it fails."""
    script = Path(__file__).with_name("many_clients_run.py")
    found = subprocess.run(
        [sys.executable, str(script), str(checkout / "python"), method, *task.as_arguments()],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise RuntimeError(f"{method} of {checkout} failed: {found.stderr[-2000:]}")
    return Run(**json.loads(found.stdout.splitlines()[-1]))


def by_turns(
    checkouts: Sequence[Path], methods: Sequence[str], task: Task, repetitions: int
) -> dict[tuple[Path, str], list[Run]]:
    """Return all runs of each checkout and method."""
    found: dict[tuple[Path, str], list[Run]] = {}
    for _ in range(repetitions):
        for method in methods:
            for checkout in checkouts:
                if checkout == ROOT or method not in PEERS:
                    found.setdefault((checkout, method), []).append(measured(checkout, method, task))
    return found


def rows(found: dict[tuple[Path, str], list[Run]], rounds: int) -> Iterator[list[str]]:
    """Yield a line for each checkout and method: medians, and whether all that ran a method came to the same."""
    results: dict[str, set[str]] = {}
    for (_, method), runs in found.items():
        results.setdefault(method, set()).update(run.result for run in runs)
    for (checkout, method), runs in found.items():
        wall = median(run.wall for run in runs)
        yield [
            "this" if checkout == ROOT else str(checkout),
            method,
            f"{60 * rounds / wall:.1f}",
            f"{wall:.2f}",
            *(f"{median(getattr(run, name) for run in runs):.2f}" for name in ("user", "system")),
            f"{median(run.peak_bytes for run in runs) / 1e6:,.0f}",
            "the same" if len(results[method]) == 1 else "differs",
        ]


def table(found: dict[tuple[Path, str], list[Run]], rounds: int) -> Table:
    """Return what was measured."""
    return result_table(_HEADS, rows(found, rounds), words={"package", "method", "result"})


def stages_table(found: dict[tuple[Path, str], list[Run]]) -> Table:
    """Return where a client's round goes: medians, in milliseconds."""
    ours = {place: runs for place, runs in found.items() if runs[0].stages}
    names = sorted({stage for runs in ours.values() for stage in runs[0].stages})
    lines = (
        [
            "this" if checkout == ROOT else str(checkout),
            method,
            *(f"{median(run.stages.get(name, 0.0) for run in runs):.2f}" for name in names),
        ]
        for (checkout, method), runs in ours.items()
    )
    return result_table(("package", "method", *names), lines, words={"package", "method"})


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own: dict[str, Any] = vars(Task())
    for name, value in own.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--methods", default="fedavg,full-he", help="names, with commas in between")
    parser.add_argument("--against", type=Path, action="append", default=[], help="another checkout, built")
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    task = Task(**{name: getattr(given, name) for name in own})
    console = ResultConsole()
    print_machine(describe_machine(), console)
    asked = given.methods.split(",")
    absent = {method: missing(method) for method in asked if method in PEERS}
    methods = [method for method in asked if not absent.get(method)]
    found = by_turns([ROOT, *(path.resolve() for path in given.against)], methods, task, given.repetitions)
    console.print(table(found, task.rounds))
    console.print("milliseconds of a client's round", stages_table(found))
    for reason in filter(None, absent.values()):
        console.print(reason)


if __name__ == "__main__":
    main()
