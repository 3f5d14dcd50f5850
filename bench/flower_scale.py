"""What protection takes as clients and values grow, by role, and what it adds to a round of Flower.

python bench/flower_scale.py roles       # client, aggregator, authority; trees of aggregators; several authorities
python bench/flower_scale.py frames      # the frames of 100,000 participants
python bench/flower_scale.py rounds      # rounds of Flower in one process, plain and protected by turns
python bench/flower_scale.py simulation  # the same in Flower's simulation, which needs Ray
python bench/flower_scale.py thousand    # 1,000 simulated clients

Each takes a minute or two. Roles and frames are timed by the processor, on one thread, since other programs may share
the machine, and so are rounds in one process; simulated rounds by the clock.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.table import Table

from shieldfl.cli.bench import print_machine
from shieldfl.cli.console import ResultConsole
from shieldfl.lab.bench.comparison import describe_machine

Titled = tuple[str, Callable[[], Table]]


def roles() -> list[Titled]:
    """What each role takes."""
    import scale_roles

    return [
        ("a client and its frame", scale_roles.frames_table),
        ("the authority's answer", scale_roles.authority_table),
        ("a round of all clients, computed from these", scale_roles.rounds_table),
        ("bytes of a million values, computed from parameters", scale_roles.bytes_table),
        ("100 clients, 1,000,000 values, by one aggregator and by a tree", scale_roles.tree_table),
        ("several authorities, 1,000 clients, 1,000,000 values", scale_roles.authorities_table),
    ]


def frames() -> list[Titled]:
    """Every participant's frame."""
    import scale_frames

    return [("a whole round without training", lambda: scale_frames.participants_table(100_000, 10_000))]


def rounds() -> list[Titled]:
    """In one process."""
    import flower_rounds

    return [("rounds of Flower", flower_rounds.loopback_table)]


def simulation() -> list[Titled]:
    """Through Ray."""
    import flower_rounds

    return [("rounds of Flower's simulation", flower_rounds.simulated_table)]


def thousand() -> list[Titled]:
    """Through Ray."""
    import flower_rounds

    return [("a tenth of 1,000 simulated clients in each round", flower_rounds.thousand_table)]


def _load_and_commit() -> Iterator[str]:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    yield f"commit {done.stdout.strip()}"
    yield f"load {os.getloadavg()[0]:.1f} over the last minute"


def main() -> None:
    """Measure and print."""
    parts = {one.__name__: one for one in (roles, frames, rounds, simulation, thousand)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=parts)
    part = parts[parser.parse_args().part]
    console = ResultConsole()
    print_machine(describe_machine(), console)
    for line in _load_and_commit():
        console.print(line)
    tables = part()
    logging.getLogger("flwr").setLevel(logging.ERROR)  # which sets its own as it is imported
    for title, table in tables:
        console.print(f"\n{title}")
        console.print(table())
    for line in _load_and_commit():
        console.print(line)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0"}
    main()
