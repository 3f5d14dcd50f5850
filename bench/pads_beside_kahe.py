"""What the authority takes, and how long its answers are, under one-time pads and under key-additive encryption.

    python bench/pads_beside_kahe.py            # about three minutes: docs/explanation/pads.md has its table
    python bench/pads_beside_kahe.py --quick    # shows that it works, and says nothing about speed
    python bench/pads_beside_kahe.py --clients 16 --values 5000 10000

For each number of clients and values both schemes answer in turns, on one thread. Times are medians of the processor's,
which other programs that run beside it change less than the clock's. Values have 24 bits, and both have room for as
many clients as are in the sum. Answers are as they are before they are sealed and signed, which adds 92 bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial

import shieldfl as sf
from authority_answers import AuthorityFigure, measure_authorities
from shieldfl.encryption import kahe, pads

_CLIENTS = (4, 16, 64, 256)
_VALUES = (100, 1_000, 10_000, 100_000, 1_000_000)
_QUICK_CLIENTS, _QUICK_VALUES = (2, 3), (100, 2_000)

_SECONDS = 4.0
_FEWEST, _MOST = 15, 1001


def rows(clients: Sequence[int], values: Sequence[int], seconds: float) -> Iterator[str]:
    """Yield the lines of a table: milliseconds and bytes, of pads and then of kahe."""
    yield "| clients | values | pads, ms | kahe, ms | pads / kahe | answer of pads | of kahe |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for some in clients:
        for count in values:
            yield _row(some, count, **_figures(some, count, seconds))


def _figures(clients: int, values: int, seconds: float) -> dict[str, AuthorityFigure]:
    parameter_sets = {
        "of_pads": pads.Parameters(max_clients=clients),
        "of_kahe": kahe.Parameters(max_clients=clients),
    }
    measure = partial(measure_authorities, parameter_sets, clients, 1, values=values, clock=time.process_time)
    once = measure(repetitions=1)
    if not seconds:
        return once
    repetitions = int(seconds / sum(figure.seconds for figure in once.values()))
    return measure(repetitions=max(_FEWEST, min(repetitions, _MOST)))


def _row(clients: int, values: int, of_pads: AuthorityFigure, of_kahe: AuthorityFigure) -> str:
    cells = (
        f"{clients:,}",
        f"{values:,}",
        f"{1e3 * of_pads.seconds:,.3f}",
        f"{1e3 * of_kahe.seconds:,.3f}",
        f"{of_pads.seconds / of_kahe.seconds:.2f}",
        f"{of_pads.answer_bytes:,}",
        f"{of_kahe.answer_bytes:,}",
    )
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=_CLIENTS)
    parser.add_argument("--values", type=int, nargs="+", default=_VALUES)
    parser.add_argument("--quick", action="store_true", help="few clients and values, measured once")
    options = parser.parse_args(arguments)
    print(f"instruction set: {sf.build_info()['instruction_set']}")
    if options.quick:
        lines = rows(_QUICK_CLIENTS, _QUICK_VALUES, seconds=0.0)
    else:
        lines = rows(options.clients, options.values, _SECONDS)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
