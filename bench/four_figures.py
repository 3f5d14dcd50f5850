"""Four figures that decide between a plain mean, SecAgg+, TenSEAL and shieldfl: time, bytes, accuracy, what is read.

    SHIELDFL_DATA=... python bench/four_figures.py [--json FILE]   # README.md has its table
    python bench/four_figures.py --quick   # shows that it works, and says nothing about speed or accuracy

Time and bytes are a client's for each of a million float32 values, on one thread, from values to bytes on the wire.
Times are medians of interleaved turns. Accuracy is federated averaging's on MNIST, or on digits without SHIELDFL_DATA.
Each protection trains its own model, and the mean of the updates passes through it in each round. Initial models,
partitions and the order of samples are the same for all.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shieldfl import encrypted_mean
from shieldfl.cli.bench import QUICK, print_machine
from shieldfl.cli.console import ResultConsole, write_json
from shieldfl.lab.bench import others
from shieldfl.lab.bench.comparison import describe_machine, own_schemes
from shieldfl.lab.bench.measurement import Effort, Scheme, Selection, WrongSumError, measure, select
from shieldfl.lab.simulation.data import Dataset, dirichlet_partition, load_dataset
from shieldfl.learning.local_trainer import evaluate, train_locally
from shieldfl.learning.networks import build_model
from shieldfl.models.torch_bridge import flatten, load_flat
from shieldfl.settings import TrainingSettings

Updates = Sequence[NDArray[np.float32]]
Average = Callable[[Updates], Any]
# Values, effort, clients, rounds, seeds.
FULL = (1_000_000, Effort(30.0, 5, baseline_values=1_000_000), 10, 5, 3)
SMALL = (10_000, QUICK, 3, 1, 1)
HEADS = "| protection | ns a value | bytes a value | test accuracy, % | what the server reads |"
SERVER_READS = {
    "plain copy": "every update",
    "Flower SecAgg+": "no single update",
    "TenSEAL 4096": "no single update",
    "shieldfl `kahe`": "no single update",
}
LARGEST_ERROR = 2.0**-17  # of a mean: two steps of SecAgg+'s default ranges, the coarsest


def mean_of_frames(scheme: Scheme, updates: Updates) -> NDArray[Any]:
    """Average by the steps that are timed."""
    frames = (scheme.serialise(scheme.encrypt(Selection(one, None, one))) for one in updates)
    total = scheme.start_sum(next(frames))
    for frame in frames:
        scheme.add(total, frame)
    return scheme.opened(total) / len(updates)


def mean_of_secagg_plus(updates: Updates) -> NDArray[Any]:
    """Run a round of Flower: its workflow, its clients' mod, all four exchanges, every message serialised.

    Each client's weight is the largest, which keeps most of the precision.
    """
    from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
    from flwr.client import ClientApp, NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.server import LegacyContext, SimpleClientManager
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key

    from flower.loopback_grid import LoopbackGrid

    logging.getLogger("flwr").setLevel(logging.ERROR)
    workflow = SecAggPlusWorkflow(3, 2)  # shares and threshold of Flower's example; the rest has defaults

    @dataclass
    class Client(NumPyClient):
        update: NDArray[np.float32]

        def fit(self, parameters: Any, config: Any) -> Any:
            return [self.update], int(workflow.max_weight), {}

    app = ClientApp(
        lambda node: Client(updates[node.node_config["partition-id"]]).to_client(), [secaggplus_mod]
    )
    grid, manager = LoopbackGrid(lambda: app, len(updates)), SimpleClientManager()
    for node in grid.get_node_ids():
        manager.register(SimpleNamespace(cid=str(node), node_id=node))
    context = LegacyContext(Context(1, 1, {}, RecordDict(), {}), client_manager=manager)
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = ArrayRecord([np.full_like(updates[0], np.nan)])
    workflow(grid, context)
    return context.state.array_records[MAIN_PARAMS_RECORD].to_numpy_ndarrays()[0]


def accuracy_of(average: Average, data: Dataset, clients: int, rounds: int, seed: int) -> float:
    """Train by federated averaging. Raises WrongSumError where a mean is not that of the updates."""
    model = build_model("linear", data.feature_shape, data.classes, seed)
    parts = dirichlet_partition(data.train_labels.numpy(), clients, math.inf, seed)
    samples = [(data.train_features[part], data.train_labels[part]) for part in parts]
    parameters = flatten(model)
    for number in range(rounds):
        updates = []
        for own in samples:
            load_flat(model, parameters)
            train_locally(model, *own, TrainingSettings(local_epochs=1), seed=rounds * seed + number)
            updates.append(flatten(model) - parameters)
        opened = np.asarray(average(updates), np.float32)
        if not np.abs(opened - np.mean(updates, axis=0)).max() <= LARGEST_ERROR:
            raise WrongSumError(f"{average} opened a wrong mean: were values clipped?")
        parameters = parameters + opened
    load_flat(model, parameters)
    return evaluate(model, data.test_features, data.test_labels)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few values, and one round on digits")
    parser.add_argument("--json", type=Path, metavar="FILE", help='every figure; "-" is standard output')
    options = parser.parse_args(arguments)
    sys.path.append(str(Path(__file__).parents[1] / "tests"))  # which have Flower's grid in one process
    values, effort, clients, rounds, seeds = SMALL if options.quick else FULL
    torch.set_num_threads(1)
    dataset = "mnist" if "SHIELDFL_DATA" in os.environ and not options.quick else "digits"
    data, machine, most = load_dataset(dataset), describe_machine(), effort.baseline_values
    plain, tenseal = others.plain_copy(), others.tenseal_baselines(1, most)[1]
    schemes = [plain, others.flower_baselines(most)[0], tenseal, own_schemes("kahe", 1)[0]]
    figures = measure(schemes, select(values, 1.0), effort)
    averages: list[Average] = [partial(mean_of_frames, plain), mean_of_secagg_plus]
    averages += [partial(mean_of_frames, tenseal), encrypted_mean]
    facts: dict[str, Any] = {"machine": machine, "rows": []}
    lines = [HEADS, "| --- " * 5 + "|"]
    for figure, average, (name, reads) in zip(figures, averages, SERVER_READS.items(), strict=True):
        found = [accuracy_of(average, data, clients, rounds, seed) for seed in range(seeds)]
        time = figure.encrypt_and_serialise_ns
        costs = f"{time:,.{0 if time >= 99.5 else 2}f} | {figure.bytes_per_value:.2f}"
        lines.append(f"| {name} | {costs} | {100 * mean(found):.2f} | {reads} |")
        facts["rows"].append({"name": name, "accuracy": found, "server_reads": reads, **asdict(figure)})
    facts["accuracy"] = (
        f"{dataset}, linear model, clients with equally many samples: {clients}, rounds of one epoch: {rounds}, "
        f"mean of seeds: {seeds}; no value was clipped, no mean was off by more than {LARGEST_ERROR:.2g}"
    )
    if write_json(facts, options.json):
        console = ResultConsole()
        print_machine(machine, console)
        settings = [f"{row['name']}: {row['setting']}" for row in facts["rows"]]
        console.say("", *lines, "", f"accuracy: {facts['accuracy']}", *settings)


if __name__ == "__main__":
    main()
