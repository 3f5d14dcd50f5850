"""What noise costs in accuracy at the same epsilon: 1,000 clients, about 100 in each round, or exactly.

    export SHIELDFL_DATA=...
    python bench/distributed_noise_accuracy.py select --results cells.json      # training, on held-out data
    python bench/distributed_noise_accuracy.py measure --results cells.json     # what is missing, cell by cell
    python bench/distributed_noise_accuracy.py table --results cells.json       # Markdown

**Epsilon** is the same in every column: of one client, all its updates zeroed out and the rest as it is, for whoever
sees every global model and who takes part in each round, so that sampling amplifies nothing. Noise is sized for the
client that takes part most often: who does follows from the seed, before anything is trained. ``dp-fedavg`` has as much
noise as hides every single update from its aggregator, too, which the others do not ask of it: that is what it is for.

**Training** is chosen by one rule: of the grid below, what gives ``central-dp-fedavg`` the best accuracy after the last
round, on a sixth of the training samples, which no client then has, with a seed that is none of those measured, at an
epsilon of 8. All methods and epsilons get what was chosen. The model, and where the grid lies, come of trials on the
same held-out samples. The test samples are looked at by ``measure`` alone.

**Who takes part**: by default each client with a probability of a tenth, and shares are sized for 90 clients; with
``--draws exactly`` 100 of them, for whom shares are sized.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from central_dp_fedavg import CentralDpFedAvg
from distributed_noise_draws import DRAWS, Draws
from distributed_noise_task import SELECTION_SEED, built, pooled, without_test
from shieldfl.benchmarks.comparison import describe_machine
from shieldfl.methods.distributed_noise.method import DdpFedAvg
from shieldfl.methods.distributed_noise.settings import DdpFedAvgSettings
from shieldfl.methods.fedavg import FedAvg
from shieldfl.methods.noised_average.dp_fedavg import DpFedAvg
from shieldfl.methods.noised_average.settings import DpFedAvgSettings
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise
from shieldfl.simulation.config import RunConfig
from shieldfl.simulation.data import Dataset
from shieldfl.simulation.method_run import MethodRun
from shieldfl.simulation.partition import dirichlet_partition
from shieldfl.simulation.torch_threads import torch_threads
from shieldfl.torch_bridge import flatten, parameter_layout

DELTA = 1e-5
LOCAL_EPOCHS, BATCH_SIZE = 1, 16
EPSILONS = (8.0, 4.0, 2.0, 1.0)
SEEDS = (0, 1, 2)
SELECTION_EPSILON = 8.0
METHODS = ("fedavg", "central-dp-fedavg", "dp-fedavg", "ddp-fedavg")
LEARNING_RATES = (0.1, 0.2)
CLIP_NORMS = (0.6,)


@dataclass(frozen=True)
class Choice:
    """What is chosen on held-out samples."""

    learning_rate: float
    clip_norm: float


def grid() -> Iterator[Choice]:
    """Yield what there is to choose from; without noise nothing is clipped, so that C is chosen with it."""
    for values in itertools.product(LEARNING_RATES, CLIP_NORMS):
        yield Choice(*values)


def made(name: str, epsilon: float | None, most: int, clip_norm: float, plan: FederationPlan) -> Method:
    """Return a method whose noise keeps a client that takes part ``most`` often within an epsilon."""
    if epsilon is None:
        return FedAvg("fedavg", None, plan)
    kind = DdpFedAvgSettings if name == "ddp-fedavg" else DpFedAvgSettings
    settings = kind(target_epsilon=epsilon, clip_norm=clip_norm, delta=DELTA)
    # What one is sized by that takes part in all of so many rounds.
    shorter = replace(plan, rounds=most)
    sized = (
        DdpFedAvg(name, settings, shorter) if kind is DdpFedAvgSettings else DpFedAvg(name, settings, shorter)
    )
    settings = replace(settings, target_epsilon=None, noise_multiplier=sized.own_settings["noise_multiplier"])
    methods = {"central-dp-fedavg": CentralDpFedAvg, "dp-fedavg": DpFedAvg, "ddp-fedavg": DdpFedAvg}
    return methods[name](name, settings, plan)


def measured(
    dataset: Dataset, name: str, epsilon: float | None, seed: int, choice: Choice, draws: Draws
) -> dict[str, Any]:
    """Run one cell, and return its figures.

    Raises RuntimeError where another schedule was run than noise was sized for, or more was spent.
    """
    config = RunConfig(
        dataset=dataset.name,
        clients=draws.clients,
        sample_rate=draws.share,
        rounds=draws.rounds,
        min_clients=draws.min_clients,
        max_clients=draws.max_clients,
        local_epochs=LOCAL_EPOCHS,
        batch_size=BATCH_SIZE,
        learning_rate=choice.learning_rate,
        seed=seed,
        threads=1,
    )
    model = built(dataset, seed)
    plan = FederationPlan.for_weights(
        None,
        clients=draws.clients,
        rounds=draws.rounds,
        min_clients=draws.min_clients,
        max_clients=draws.max_clients,
        server_learning_rate=config.server_learning_rate,
        parameters=flatten(model).size,
        layer_offsets=parameter_layout(model).offsets,
        samples=len(dataset.train_labels),
    )
    drawn = draws.schedule(seed)
    most = int(sum(drawn).max())  # type: ignore[arg-type]
    method = made(name, epsilon, most, choice.clip_norm, plan)
    parts = dirichlet_partition(dataset.train_labels.numpy(), draws.clients, config.alpha, seed)
    load, start = os.getloadavg()[0], time.perf_counter()
    with torch_threads(1):
        run = MethodRun(
            method, config, dataset, deepcopy(model), parts, None, None, federation=draws.federation
        )
        run.run(None)
    records = run.records
    if [record.participants for record in records] != [int(one.sum()) for one in drawn]:
        raise RuntimeError("other clients took part than noise was sized for")
    spent = None
    multiplier = method.own_settings.get("noise_multiplier")
    if epsilon is not None:
        central = epsilon_of({Noise(multiplier or 0.0, "client"): most}, DELTA)
        spent = central if name == "central-dp-fedavg" else records[-1].epsilon
        if not spent <= epsilon * (1.0 + 1e-6):
            raise RuntimeError(f"{name} spent {spent}, above {epsilon}")
    return {
        "dataset": dataset.name,
        "method": name,
        "epsilon": epsilon,
        "seed": seed,
        "draws": draws.name,
        "accuracy": records[-1].accuracy,
        "best_accuracy": max(record.accuracy for record in records),
        "spent": spent,
        "noise_multiplier": multiplier,
        "most_rounds_of_a_client": most,
        "parameters": plan.parameters,
        "seconds": time.perf_counter() - start,
        "load_average": round(load, 2),
        "commit": commit(),
        **asdict(choice),
    }


def commit() -> str:
    """Return the commit that runs, with a plus where the working tree differs from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return found.stdout.strip() or "unknown"


class Results:
    """A JSON file of cells, written after each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text()) if path.exists() else {}
        self.tried: list[dict[str, Any]] = known.get("tried", [])
        self.cells: list[dict[str, Any]] = known.get("cells", [])
        self.machine: dict[str, Any] = known.get("machine", {}) or describe_machine()

    def write(self) -> None:
        """Write everything, in the place of the file at once."""
        whole = {"machine": self.machine, "tried": self.tried, "cells": self.cells}
        partial_file = self._path.with_suffix(".part")
        partial_file.write_text(json.dumps(whole, indent=1) + "\n")
        partial_file.replace(self._path)

    def chosen(self, dataset: str) -> Choice | None:
        """Return what was best of what was tried; None before all was."""
        tried = {Choice(one["learning_rate"], one["clip_norm"]): one for one in self.tried_on(dataset)}
        if set(tried) < set(grid()):
            return None
        return max(grid(), key=lambda choice: tried[choice]["accuracy"])

    def tried_on(self, dataset: str) -> list[dict[str, Any]]:
        """Return what was tried on a data set's held-out samples."""
        return [one for one in self.tried if one["dataset"] == dataset]


def select(results: Results, dataset_name: str) -> None:
    """Try all of the grid that was not tried yet."""
    dataset = without_test(pooled(dataset_name))
    for choice in grid():
        if any(asdict(choice).items() <= one.items() for one in results.tried_on(dataset_name)):
            continue
        found = measured(
            dataset, "central-dp-fedavg", SELECTION_EPSILON, SELECTION_SEED, choice, DRAWS["each"]
        )
        results.tried.append(found)
        results.write()
        print(f"{choice}: {found['accuracy']:.4f} in {found['seconds']:.0f} s", flush=True)
    print(results.chosen(dataset_name))


def cells(seeds: Sequence[int]) -> Iterator[tuple[str, float | None, int]]:
    """Yield method, epsilon and seed: the largest epsilon first, and of it what is compared."""
    for epsilon in EPSILONS:
        for names in (("central-dp-fedavg", "ddp-fedavg"), ("fedavg", "dp-fedavg")):
            for seed, name in itertools.product(seeds, names):
                if name != "fedavg":
                    yield name, epsilon, seed
                elif epsilon == EPSILONS[0]:
                    yield name, None, seed


def measure(
    results: Results,
    dataset_name: str,
    minutes: float,
    draws: Draws,
    epsilons: Sequence[float],
    methods: Sequence[str],
    seeds: Sequence[int],
) -> None:
    """Run the cells that are missing, as long as there is time. Raises SystemExit before all was tried."""
    choice = results.chosen(dataset_name)
    if choice is None:
        raise SystemExit("training is not chosen yet: run select first")
    dataset, end = pooled(dataset_name), time.monotonic() + 60 * minutes
    for name, epsilon, seed in cells(seeds):
        if name not in methods or epsilon not in (None, *epsilons):
            continue
        key = {"dataset": dataset_name, "method": name, "epsilon": epsilon, "seed": seed, "draws": draws.name}
        if any(key.items() <= one.items() for one in results.cells):
            continue
        if time.monotonic() > end:
            print("no time is left: the rest is missing")
            return
        found = measured(dataset, name, epsilon, seed, choice, draws)
        results.cells.append(found)
        results.write()
        print(
            f"{name}, epsilon {epsilon}, seed {seed}: {found['accuracy']:.4f} in {found['seconds']:.0f} s",
            flush=True,
        )


def with_deviation(values: Sequence[float], sign: str = "") -> str:
    """Return mean and standard deviation of percentages; of one value alone, it."""
    spread = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * mean(values):{sign}.2f}{spread}"


def table(results: Results, dataset_name: str, draws: str, seeds: Sequence[int]) -> str:
    """Return the Markdown table: means over seeds, and differences of the same seed."""
    by_cell = {
        (one["method"], one["epsilon"], one["seed"]): one["accuracy"]
        for one in results.cells
        if one["dataset"] == dataset_name and one["draws"] == draws
    }
    heads = ["ε", *(f"`{name}`" for name in METHODS), "`ddp-fedavg` less `central-dp-fedavg`"]
    lines = [heads, ["---:"] * len(heads)]
    for epsilon in EPSILONS:
        row = [f"{epsilon:g}"]
        for name in METHODS:
            at = None if name == "fedavg" else epsilon
            found = [by_cell[name, at, seed] for seed in seeds if (name, at, seed) in by_cell]
            row.append(
                with_deviation(found)
                if len(found) == len(seeds)
                else f"missing ({len(found)} of {len(seeds)})"
            )
        pairs = [
            (by_cell.get(("ddp-fedavg", epsilon, seed)), by_cell.get(("central-dp-fedavg", epsilon, seed)))
            for seed in seeds
        ]
        whole = [own - other for own, other in pairs if own is not None and other is not None]
        row.append(with_deviation(whole, "+") if len(whole) == len(seeds) else "missing")
        lines.append(row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("select", "measure", "table"))
    parser.add_argument(
        "--results", type=Path, required=True, help="a JSON file; what it has is not run again"
    )
    parser.add_argument("--dataset", choices=("mnist", "cifar10"), default="mnist")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no cell after so long")
    parser.add_argument("--draws", choices=tuple(DRAWS), default="each", help="clients of a round")
    parser.add_argument(
        "--epsilons", type=float, nargs="+", default=EPSILONS, help="measure these; default: 8 4 2 1"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=METHODS, help="measure these; default: all"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=SEEDS, help="measure and compare these; default: 0 1 2"
    )
    given = parser.parse_args()
    results = Results(given.results)
    if given.what == "select":
        select(results, given.dataset)
    elif given.what == "measure":
        measure(
            results,
            given.dataset,
            given.minutes,
            DRAWS[given.draws],
            given.epsilons,
            given.methods,
            given.seeds,
        )
    else:
        print(table(results, given.dataset, given.draws, given.seeds))


if __name__ == "__main__":
    main()
