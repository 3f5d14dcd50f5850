"""What noise costs in accuracy at the same epsilon: 1,000 clients, about 100 in each round, or exactly.

    export SHIELDFL_DATA=...
    python bench/distributed_noise_accuracy.py select --results cells.json      # training, on held-out data
    python bench/distributed_noise_accuracy.py measure --results cells.json     # what is missing, cell by cell
    python bench/distributed_noise_accuracy.py table --results cells.json       # Markdown

**Epsilon** is the same in every column: of one client, all its updates zeroed out and the rest as it is, for whoever
sees every global model and who takes part in each round, so that sampling amplifies nothing. Noise is sized for the
client that takes part most often: who does follows from the seed, before anything is trained. ``dp-fedavg`` has as much
noise as hides every single update from its aggregator, too, which the others do not ask of it: that is what it is for.

**Training** is chosen by one rule: of a task's choices, what gives ``central-dp-fedavg`` the best accuracy after the
last round, on a sixth of the training samples, which no client then has, with a seed that is none of those measured, at
the task's epsilon: 8 for a convolution, 1 for a linear model of few parameters (``--task linear``), which learns with
more noise. All methods and epsilons get what was chosen. The models, and where the choices lie, come of trials on the
same held-out samples. The test samples are looked at by ``measure`` alone.

**Who takes part**: by default each client with a probability of a tenth, and shares are sized for 90 clients; with
``--draws exactly`` 100 of them, for whom shares are sized.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from central_dp_fedavg import CentralDpFedAvg
from distributed_noise_draws import DRAWS, Draws
from distributed_noise_results import EPSILONS, METHODS, Results, commit, table
from distributed_noise_task import SELECTION_SEED, TASKS, Choice, Task, without_test
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.lab.simulation.data import Dataset, dirichlet_partition
from shieldfl.lab.simulation.federation import torch_threads
from shieldfl.lab.simulation.method_run import MethodRun
from shieldfl.methods.fedavg import DpFedAvg, DpFedAvgSettings, FedAvg
from shieldfl.methods.full_encryption import DdpFedAvg, DdpFedAvgSettings
from shieldfl.models.torch_bridge import flatten, parameter_layout
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.events import Noise
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan

DELTA = 1e-5
LOCAL_EPOCHS, BATCH_SIZE = 1, 16
SEEDS = (0, 1, 2)


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
    dataset: Dataset,
    name: str,
    epsilon: float | None,
    seed: int,
    choice: Choice,
    draws: Draws,
    task: Task = TASKS["convolution"],
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
    model = task.built(dataset, seed)
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
        "task": task.name,
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


def select(results: Results, task: Task, dataset_name: str) -> None:
    """Try all of a task's choices that were not tried yet."""
    dataset = without_test(task.pooled(dataset_name))
    for choice in task.choices:
        if any(asdict(choice).items() <= one.items() for one in results.tried_on(task, dataset_name)):
            continue
        found = measured(
            dataset,
            "central-dp-fedavg",
            task.selection_epsilon,
            SELECTION_SEED,
            choice,
            DRAWS["each"],
            task,
        )
        results.tried.append(found)
        results.write()
        print(f"{choice}: {found['accuracy']:.4f} in {found['seconds']:.0f} s", flush=True)
    print(results.chosen(task, dataset_name))


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
    task: Task,
    dataset_name: str,
    minutes: float,
    draws: Draws,
    epsilons: Sequence[float],
    methods: Sequence[str],
    seeds: Sequence[int],
) -> None:
    """Run the cells that are missing, as long as there is time. Raises SystemExit before all was tried."""
    choice = results.chosen(task, dataset_name)
    if choice is None:
        raise SystemExit("training is not chosen yet: run select first")
    dataset, end = task.pooled(dataset_name), time.monotonic() + 60 * minutes
    for name, epsilon, seed in cells(seeds):
        if name not in methods or epsilon not in (None, *epsilons):
            continue
        key = {"method": name, "epsilon": epsilon, "seed": seed, "draws": draws.name}
        if any(key.items() <= one.items() for one in results.measured_on(task, dataset_name)):
            continue
        if time.monotonic() > end:
            print("no time is left: the rest is missing")
            return
        found = measured(dataset, name, epsilon, seed, choice, draws, task)
        results.cells.append(found)
        results.write()
        print(
            f"{name}, epsilon {epsilon}, seed {seed}: {found['accuracy']:.4f} in {found['seconds']:.0f} s",
            flush=True,
        )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("select", "measure", "table"))
    parser.add_argument(
        "--results", type=Path, required=True, help="a JSON file; what it has is not run again"
    )
    parser.add_argument("--task", choices=tuple(TASKS), default="convolution", help="what is trained")
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
    results, task = Results(given.results), TASKS[given.task]
    if given.what == "select":
        select(results, task, given.dataset)
    elif given.what == "measure":
        measure(
            results,
            task,
            given.dataset,
            given.minutes,
            DRAWS[given.draws],
            given.epsilons,
            given.methods,
            given.seeds,
        )
    else:
        print(table(results, task, given.dataset, given.draws, given.seeds))


if __name__ == "__main__":
    main()
