"""What protection adds to a round of Flower: the same app, plain and protected by turns, on the same machine.

In a grid within this process nothing waits, and clients train one after the other. In Flower's simulation clients are
Ray's workers.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from rich.table import Table

from flower_apps import ROOT, TINY_VALUES, digits_app, tiny_app, tiny_arrays
from shieldfl.cli.console import result_table
from shieldfl.flower.strategy import ShieldStrategy

CONFIG = {"local-epochs": 1, "learning-rate": 0.1}
FORMS = ("plain", "protected")
Measured = dict[str, list[tuple[float, float]]]
"""By form and repetition, the seconds of a round and of all that is none."""
HIDDEN = {2_410: 32, 1_012_510: 13_500}
"""Neurons, by the model's values."""


class TimedFedAvg(FedAvg):
    """Knows when its rounds began."""

    def configure_train(self, server_round, arrays, config, grid):
        self.begun.append(self.clock())
        return super().configure_train(server_round, arrays, config, grid)


def rounds_of(
    form: str,
    grid: Grid,
    arrays: ArrayRecord,
    rounds: int,
    clients: int,
    share: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[list[float], float]:
    """Run one form; return the seconds of every round but the last, and of all that is no round."""
    own = TimedFedAvg(
        fraction_train=share,
        fraction_evaluate=share,
        min_available_nodes=clients,
        weighted_by_key="num-examples",
    )
    own.begun, own.clock = [], clock
    # A count of samples would be a training between the first two times that a round is configured.
    asked = {"shieldfl.clients": clients, "shieldfl.min-clients": 3, "shieldfl.weighting": "uniform"}
    strategy = ShieldStrategy(own, asked) if form == "protected" else own
    begin = clock()
    config = ConfigRecord({"learning-rate": CONFIG["learning-rate"]})
    strategy.start(grid, arrays, num_rounds=rounds, timeout=600, train_config=config)
    whole = clock() - begin
    between = [later - earlier for earlier, later in zip(own.begun, own.begun[1:], strict=False)]
    return between, whole - sum(between) - median(between)


def in_turns(
    run: Callable[[str], tuple[list[float], float]], repetitions: int, uncounted: int = 1
) -> Measured:
    """Return, by form, the median round and what is no round, of each repetition after those that are not counted."""
    found: Measured = {form: [] for form in FORMS}
    for repetition in range(uncounted + repetitions):
        for form in FORMS:
            between, beside = run(form)
            if repetition >= uncounted:
                found[form].append((median(between), beside))
    return found


def _rows(label: list[str], found: Measured) -> Iterator[list[str]]:
    first = next(iter(found))
    for form, measured in found.items():
        added = [one[0] - other[0] for one, other in zip(measured, found[first], strict=True)]
        ratios = [one[0] / other[0] for one, other in zip(measured, found[first], strict=True)]
        yield [
            *label,
            form,
            f"{median(one for one, _ in measured):.3f}",
            "" if form == first else f"{median(added):+.3f}",
            "" if form == first else f"{median(ratios):.3f}",
            f"{median(beside for _, beside in measured):.2f}",
        ]


HEADS = ["where", "clients", "values", "form", "round, s", "added, s", "ratio", "set-up and end, s"]


def loopback_table(clients: int = 3, repetitions: int = 3) -> Table:
    """Rounds in a grid within this process, by the processor: all clients' work, one after the other."""
    sys.path.append(str(ROOT / "tests"))
    from unittest.mock import patch

    from flower.loopback_grid import LoopbackGrid

    app, rows = digits_app(), []
    from torch_digits import task

    for values, hidden in HIDDEN.items():
        arrays = ArrayRecord(task.make_model(hidden).state_dict())

        def run(form: str, hidden: int = hidden, arrays: ArrayRecord = arrays) -> tuple[list[float], float]:
            # A node keeps what it must on its disk, as in a deployment.
            with (
                tempfile.TemporaryDirectory() as stores,
                patch("shieldfl.flower.mod.is_simulated", lambda: True),
            ):
                grid = LoopbackGrid(
                    lambda: app,
                    clients,
                    lambda number: {
                        "shieldfl-store": f"{stores}/{number}",
                        "shieldfl-openers": "aggregator",
                    },
                    CONFIG | {"hidden": hidden},
                )
                return rounds_of(form, grid, arrays, 3, clients, 1.0, time.process_time)

        found = in_turns(run, repetitions)
        rows += _rows(["one process, processor", str(clients), f"{values:,}"], found)
    return result_table(HEADS, rows, words={"form"})


def _simulate(serve: Callable[[Grid], Any], app: Any, nodes: int) -> Any:
    """Run a function of the grid in Flower's simulation, with two workers; return what it does."""
    from flwr.simulation import run_simulation

    server, found = ServerApp(), []

    @server.main()
    def main(grid, context):
        found.append(serve(grid))

    one_processor = {"num_cpus": 1, "num_gpus": 0.0}
    init = {"num_cpus": 2, "logging_level": "ERROR", "log_to_driver": False}
    run_simulation(server, app, nodes, backend_config={"client_resources": one_processor, "init_args": init})
    return found[0]


def simulated_table(clients: int = 10, repetitions: int = 5) -> Table:
    """Rounds in Flower's simulation, all of whose clients take part."""

    def serve(grid: Grid) -> Measured:
        return in_turns(lambda form: rounds_of(form, grid, tiny_arrays(), 5, clients, 1.0), repetitions)

    found = _simulate(serve, tiny_app(), clients)
    return result_table(HEADS, _rows(["Ray", str(clients), f"{TINY_VALUES:,}"], found), words={"form"})


def thousand_table(clients: int = 1_000, share: float = 0.1, rounds: int = 4) -> Table:
    """Rounds of a part of very many simulated clients."""

    def serve(grid: Grid) -> Measured:
        return in_turns(lambda form: rounds_of(form, grid, tiny_arrays(), rounds, clients, share), 1, 0)

    found = _simulate(serve, tiny_app(), clients)
    return result_table(HEADS, _rows(["Ray", f"{clients:,}", f"{TINY_VALUES:,}"], found), words={"form"})
