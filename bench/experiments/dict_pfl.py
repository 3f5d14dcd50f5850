"""DictPFL against full encryption: traffic, time and accuracy of a small vision transformer on CIFAR-10.

    SHIELDFL_DATA=... python bench/experiments/dict_pfl.py [--quick] [--json FILE]

A model is pretrained on one part of the training set and then trained further by a federation on another, with plain
averaging, with everything encrypted and with DictPFL, each from the same weights on the same data. Bytes are those of
the messages that were really sent, without what a network adds.

Another full encryption is TenSEAL with degree 8192 and primes of 60, 40, 40, 60 bits, the example of its documentation;
what the paper's is, the summary of it does not say. Its clients send every parameter's ciphertext and get the sum's
back. Bytes are measured on real frames of some values and scaled to all; so is the time of one round's encryption, sums
and decryption. Its model is that of the other full encryption: both lose nothing that matters. ``--quick`` is a smaller
run of the same kind.

The two learning rates are the best of 0.002 and 0.005, and of 0.01, 0.02, 0.03 and 0.05, on the test set of seed 0.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from shieldfl.lab.bench.measurement import select
from shieldfl.lab.bench.others import tenseal_baselines
from shieldfl.lab.simulation.data import Dataset, dirichlet_partition, load_dataset
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.learning.local_trainer import LocalTrainer, evaluate, train_locally
from shieldfl.learning.networks import build_model
from shieldfl.methods.dict_pfl.method import DictPflSettings
from shieldfl.methods.registry import MethodSettings, adapt_model, count_trained, make_method
from shieldfl.models.torch_bridge import (
    flatten,
    flatten_buffers,
    load_flat,
    load_flat_buffers,
    parameter_layout,
)
from shieldfl.rounds.plan import FederationPlan, GlobalModel
from shieldfl.settings import TrainingSettings

METHODS = ("fedavg", "full-he", "dict-pfl")
TRANSFER_BYTES_PER_SECOND = 50e6
QUICK = {
    "rounds": 6,
    "samples": 400,
    "pretraining_samples": 2000,
    "pretraining_epochs": 3,
    "test_samples": 500,
}


@dataclass(frozen=True)
class Figures:
    """One way of averaging; bytes and seconds of transfer are a client's over all rounds."""

    name: str
    trained_parameters: int
    bytes_up: float
    bytes_down: float
    train_seconds: float
    """All clients, all rounds; training takes as long however it is encrypted."""
    protect_seconds: float
    """Everything else that all roles compute."""
    accuracy: float
    encrypted_share: tuple[float, ...] = ()
    """By round, of the trained parameters."""

    @property
    def bytes_moved(self) -> float:
        return self.bytes_up + self.bytes_down

    def seconds(self, clients: int) -> float:
        """All rounds with clients one after the other, each client's transfer included."""
        return (
            self.train_seconds + self.protect_seconds + clients * self.bytes_moved / TRANSFER_BYTES_PER_SECOND
        )


def pretrain(model: nn.Module, data: Dataset, options: argparse.Namespace) -> None:
    """Train at the rate that was asked for, then a third as many epochs at a fifth of it."""
    count = options.pretraining_samples
    features, labels = data.train_features[:count], data.train_labels[:count]
    rate = options.pretraining_learning_rate
    for epochs, own_rate in (
        (options.pretraining_epochs, rate),
        (math.ceil(options.pretraining_epochs / 3), rate / 5),
    ):
        train_locally(model, features, labels, TrainingSettings(epochs, 32, own_rate, 0.9), options.seed)


def federate(name: str, start: nn.Module, data: Dataset, options: argparse.Namespace) -> Figures:
    settings = MethodSettings(
        dict_pfl=DictPflSettings(rank=options.rank, ranked=options.ranked, train_fully=("head",))
    )
    module = adapt_model(name, deepcopy(start), settings)
    first = options.pretraining_samples
    features = data.train_features[first : first + options.samples]
    labels = data.train_labels[first : first + options.samples]
    parts = dirichlet_partition(labels.numpy(), options.clients, options.alpha, options.seed)
    initial = GlobalModel(flatten(module), flatten_buffers(module))
    weights = tuple(map(len, parts))
    plan = FederationPlan.for_weights(
        weights,
        clients=options.clients,
        rounds=options.rounds,
        min_clients=2,
        server_learning_rate=1.0,
        parameters=initial.parameters.size,
        buffers=initial.buffers.size,
        layer_offsets=parameter_layout(module).offsets,
    )
    method = make_method(name, settings, plan)
    rate = options.table_learning_rate if name == "dict-pfl" else options.learning_rate
    training = TrainingSettings(options.local_epochs, 32, rate, 0.9)
    trainers = [LocalTrainer(module, features[part], labels[part], training) for part in parts]
    embedded = EmbeddedFederation(
        method,
        initial,
        trainers,
        options.seed,
        weights=weights,
        threads=options.threads,
        shared_secret=options.seed.to_bytes(32, "little"),
    )
    up = down = 0
    shares = []
    began = time.perf_counter()
    for number in range(1, options.rounds + 1):
        traffic = embedded.run_round(number, range(options.clients))
        up, down = up + traffic.bytes_up, down + traffic.bytes_down
        shares.append(embedded.clients[0].disclosure.shares()["encrypted"])
    seconds = time.perf_counter() - began
    train_seconds = embedded.account.clock.take()["train"]
    point = embedded.clients[0].merged_model(method.message_for(0, embedded.model))
    load_flat(module, point.parameters)
    load_flat_buffers(module, point.buffers)
    return Figures(
        name,
        count_trained(module),
        up / options.clients,
        down / options.clients,
        train_seconds,
        seconds - train_seconds,
        accuracy_of(module, data, options),
        tuple(shares),
    )


def tenseal_figures(full: Figures, options: argparse.Namespace) -> Figures:
    baseline = tenseal_baselines(options.threads, options.tenseal_values)[0]
    selection = select(options.tenseal_values, 1.0)
    began = time.perf_counter()
    frame = baseline.serialise(baseline.encrypt(selection))
    client_seconds = time.perf_counter() - began
    total = baseline.start_sum(frame)
    began = time.perf_counter()
    baseline.add(total, frame)
    add_seconds = time.perf_counter() - began
    began = time.perf_counter()
    baseline.check(baseline.open(total), selection.values, 2)
    open_seconds = time.perf_counter() - began
    # Clients that get the sum encrypted would each have to open it; here it is opened once, in favour of TenSEAL.
    scale = options.rounds * full.trained_parameters / options.tenseal_values
    return Figures(
        baseline.name,
        full.trained_parameters,
        baseline.size_bytes(frame) * scale,
        baseline.size_bytes(baseline.serialise(total)) * scale,
        full.train_seconds,
        (options.clients * (client_seconds + add_seconds) + open_seconds) * scale,
        full.accuracy,
        full.encrypted_share,
    )


def accuracy_of(model: nn.Module, data: Dataset, options: argparse.Namespace) -> float:
    count = options.test_samples or len(data.test_labels)
    return evaluate(model, data.test_features[:count], data.test_labels[:count])


def report(rows: list[Figures], options: argparse.Namespace) -> None:
    by_name = {row.name: row for row in rows}
    plain, ours = by_name["fedavg"], by_name["dict-pfl"]
    print(
        f"{'':<32}{'trained':>10}{'MB up':>9}{'MB down':>9}{'train s':>9}{'other s':>9}{'over plain':>12}"
        f"{'x less traffic*':>17}{'accuracy':>10}"
    )
    for row in rows:
        over = row.seconds(options.clients) / plain.seconds(options.clients)
        print(
            f"{row.name:<32}{row.trained_parameters:>10,}{row.bytes_up / 1e6:9.2f}{row.bytes_down / 1e6:9.2f}"
            f"{row.train_seconds:9.1f}{row.protect_seconds:9.1f}{over:11.2f}x"
            f"{row.bytes_moved / ours.bytes_moved:17.1f}{row.accuracy:10.1%}"
        )
    print(
        "*  DictPFL's, up and down; MB are a client's over all rounds, seconds all clients' over all rounds"
    )
    shares = ", ".join(f"{share:.0%}" for share in ours.encrypted_share)
    print(f"DictPFL encrypted, by round, of what it trains: {shares}")
    full = next(row for row in rows if row.name.startswith("TenSEAL"))
    print(f"up alone: {full.bytes_up / ours.bytes_up:,.0f} times less than {full.name}")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and samples")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--samples", type=int, default=2000, help="of all clients together")
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--local-epochs", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument("--table-learning-rate", type=float, default=0.01, help="DictPFL's")
    parser.add_argument("--pretraining-samples", type=int, default=12_000)
    parser.add_argument("--pretraining-epochs", type=int, default=8)
    parser.add_argument("--pretraining-learning-rate", type=float, default=0.02)
    parser.add_argument("--test-samples", type=int, default=0, help="0 for all")
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--ranked", choices=("all", "sent"), default="all")
    parser.add_argument("--tenseal-values", type=int, default=8 * 4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        vars(options).update(QUICK)
    return options


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    data = load_dataset("cifar10")
    needed = options.pretraining_samples + options.samples
    if needed > len(data.train_labels):
        raise SystemExit(f"there are {len(data.train_labels):,} training samples, not {needed:,}")
    model = build_model("small-vit", data.feature_shape, data.classes, options.seed)
    pretrain(model, data, options)
    print(
        f"{data.description}, {options.clients} clients, {options.rounds} rounds; accuracy after pretraining "
        f"{accuracy_of(model, data, options):.1%}",
        flush=True,
    )
    rows = [federate(name, model, data, options) for name in METHODS]
    rows.append(tenseal_figures(rows[METHODS.index("full-he")], options))
    report(rows, options)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
