"""A round with everything encrypted, against one in the clear and against methods that encrypt a tenth.

    SHIELDFL_DATA=... python bench/experiments/full_he_round.py [--quick] [--json FILE]

SelectiveShield's CIFAR-10 setting: its SimpleCNN of 1.1 million parameters, 20 clients, 5 local epochs. The first round
and the last are shown: FedML-HE scores in the first alone. Full encryption is measured with values of 24 bits,
its default, also under ckks, and of 16 (|difference| < 2 in steps of 2^-14), next to which the accuracy of the global
model says what that loses. MaskCrypt and SelectiveShield are measured with the gradients that training makes anyway as
scores, too; the overlap is the share of the positions that a client encrypts by the paper's scores, and by these. The
round of a client, from the model that it gets to the one that it gets next, is

    training + scoring + its own stages + aggregation of all clients + opening + bytes up and down / bandwidth

Clients work at the same time and are alike, so that each is the slowest. Stages of clients are means over them; the
time of a negotiation, which all roles share, is counted as if it were the clients' alone. Training is the same work for
all methods: the median over all methods and rounds stands for each, or its noise would hide what is asked.

Training is measured over --measured-epochs and as many samples as the data set has for a client, or --samples, and
scaled to 5 epochs and to the samples of a client, both linearly; scoring, one pass, to the samples. A second ratio says
what 2,500 samples a client, all of CIFAR-10, would make of it where there is only a subset. --quick measures one epoch
of 64 samples: then what the first scoring of a process loads is scaled too, so only the last round means something.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from shieldfl.lab.simulation.data import dirichlet_partition, load_dataset
from shieldfl.lab.simulation.federation import EmbeddedFederation
from shieldfl.lab.simulation.runner import describe_environment
from shieldfl.learning.local_trainer import LocalTrainer, evaluate
from shieldfl.learning.networks import build_model
from shieldfl.masks import Mask
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.models.torch_bridge import (
    flatten,
    flatten_buffers,
    load_flat,
    load_flat_buffers,
    parameter_layout,
)
from shieldfl.rounds.plan import FederationPlan, GlobalModel
from shieldfl.settings import TrainingSettings

# What is run, by the name that is printed: the method and the settings that differ from the defaults.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "full-he": ("full-he", {}),
    "full-he, ckks": ("full-he", {"encryption": "ckks"}),
    "full-he, 16 bits": ("full-he", {"value_bits": 16, "fraction_bits": 14}),
    "fedml-he": ("fedml-he", {}),
    "mask-crypt": ("mask-crypt", {}),
    "mask-crypt, update": ("mask-crypt", {"gradient": "update"}),
    "selective-shield": ("selective-shield", {}),
    "selective-shield, batch": ("selective-shield", {"sensitivity": "batch"}),
}
SCORED_CHEAPLY = {"mask-crypt, update": "mask-crypt", "selective-shield, batch": "selective-shield"}
"""By run, the one whose scores are the paper's own."""
LOCAL_EPOCHS = 5
WHOLE_SET_SAMPLES = 50_000
CLIENT_STAGES = ("negotiate", "encrypt", "upload", "merge")


@dataclass(frozen=True)
class MeasuredRound:
    """One round of one method, as it ran; bytes are of one client."""

    stage_seconds: dict[str, float]
    encrypted_share: float
    bytes_up: float
    bytes_down: float
    clients_open: bool
    """Whether each client opens; otherwise the key authority does, once."""
    accuracy: float
    masks: tuple[Mask, ...]
    """What each client encrypts."""


@dataclass(frozen=True)
class ClientRound:
    """Seconds of one client's round, by what they are spent on."""

    method: str
    encrypted_share: float
    train: float
    score: float
    own_stages: float
    aggregate: float
    open: float
    transfer: float
    bytes_up: float
    bytes_down: float
    accuracy: float
    overlap: float
    """With what the paper's scores have encrypted; NaN for these."""
    samples_factor: float
    """How many times the samples of this run a client of the whole data set would have."""

    @property
    def seconds(self) -> float:
        return self.train + self.score + self._rest

    @property
    def whole_set_seconds(self) -> float:
        return self.samples_factor * (self.train + self.score) + self._rest

    @property
    def _rest(self) -> float:
        return self.own_stages + self.aggregate + self.open + self.transfer


def measure_rounds(name: str, options: argparse.Namespace, samples: int, epochs: int) -> list[MeasuredRound]:
    method_name, changes = RUNS[name]
    data = load_dataset(options.dataset)
    model = build_model(options.model, data.feature_shape, data.classes, options.seed)
    initial = GlobalModel(flatten(model), flatten_buffers(model))
    plan = FederationPlan(
        clients=options.clients,
        rounds=options.rounds,
        min_clients=2,
        server_learning_rate=1.0,
        parameters=initial.parameters.size,
        buffers=initial.buffers.size,
        layer_offsets=parameter_layout(model).offsets,
    )
    settings = MethodSettings().changed(
        "selective-shield", {"threshold": options.tau, "consensus": options.rho}
    )
    if changes:
        settings = settings.changed(method_name, changes)
    method = make_method(method_name, settings, plan)
    training = TrainingSettings(
        local_epochs=epochs, batch_size=32, learning_rate=0.01, momentum=0.9, weight_decay=0.0
    )
    trainers = []
    for part in dirichlet_partition(data.train_labels.numpy(), options.clients, math.inf, options.seed):
        own = part[:samples]
        trainers.append(LocalTrainer(model, data.train_features[own], data.train_labels[own], training))
    run = EmbeddedFederation(method, initial, trainers, options.seed)
    measured = []
    for number in range(1, options.rounds + 1):
        traffic = run.run_round(number, range(options.clients))
        # SelectiveShield's clients have models of their own: only buffers, which may stay local, are a client's here.
        load_flat(model, run.model.vector("parameters", np.float32, plan.parameters))
        load_flat_buffers(model, run.clients[0].merged_model(run.model).buffers)
        shares = [client.disclosure.shares()["encrypted"] for client in run.clients]
        measured.append(
            MeasuredRound(
                run.account.clock.take(),
                mean(shares),
                traffic.bytes_up / options.clients,
                traffic.bytes_down / options.clients,
                method.clients_open,
                evaluate(model, data.test_features, data.test_labels),
                tuple(client.disclosure.encrypted for client in run.clients),
            )
        )
        print(f"{name}, round {number}", flush=True)
    return measured


def client_round(
    name: str,
    measured: MeasuredRound,
    exact: MeasuredRound | None,
    clients: int,
    train_seconds: float,
    samples_scale: float,
    samples_factor: float,
    bytes_per_second: float,
) -> ClientRound:
    stages = measured.stage_seconds
    return ClientRound(
        method=name,
        encrypted_share=measured.encrypted_share,
        train=train_seconds,
        score=stages.get("score", 0.0) / clients * samples_scale,
        own_stages=sum(stages.get(stage, 0.0) for stage in CLIENT_STAGES) / clients,
        aggregate=stages.get("aggregate", 0.0),
        open=stages.get("open", 0.0) / (clients if measured.clients_open else 1),
        transfer=(measured.bytes_up + measured.bytes_down) / bytes_per_second,
        bytes_up=measured.bytes_up,
        bytes_down=measured.bytes_down,
        accuracy=measured.accuracy,
        overlap=nan if exact is None else overlap_of(exact.masks, measured.masks),
        samples_factor=samples_factor,
    )


def overlap_of(exact: tuple[Mask, ...], cheap: tuple[Mask, ...]) -> float:
    """Return which share of the exact masks' positions the others have, as a mean over clients."""
    return mean((one & other).count / one.count for one, other in zip(exact, cheap, strict=True))


def print_rounds(rounds: list[ClientRound]) -> None:
    print(
        f"{'method':<25}{'encrypted':>10}{'train':>8}{'score':>8}{'own':>8}{'sum':>8}{'open':>8}{'transfer':>10}"
        f"{'round':>9}{'x FedAvg':>10}{'x, whole set':>14}{'accuracy':>10}{'overlap':>9}"
    )
    base = rounds[0]
    for one in rounds:
        print(
            f"{one.method:<25}{one.encrypted_share:>10.2%}{one.train:>8.2f}{one.score:>8.3f}{one.own_stages:>8.3f}"
            f"{one.aggregate:>8.3f}{one.open:>8.3f}{one.transfer:>10.3f}{one.seconds:>9.2f}"
            f"{one.seconds / base.seconds:>10.3f}{one.whole_set_seconds / base.whole_set_seconds:>14.3f}"
            f"{one.accuracy:>10.2%}{one.overlap:>9.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--model", default="simple-cnn")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--measured-epochs", type=int, default=LOCAL_EPOCHS)
    parser.add_argument("--samples", type=int, help="of a client that are trained on; default all")
    parser.add_argument("--quick", action="store_true", help="--measured-epochs 1 --samples 64")
    parser.add_argument("--megabytes-per-second", type=float, default=50.0)
    parser.add_argument("--tau", type=float, default=0.2, help="SelectiveShield's threshold")
    parser.add_argument("--rho", type=float, default=0.3, help="SelectiveShield's consensus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.measured_epochs, options.samples = 1, 64
    available = len(load_dataset(options.dataset).train_labels) // options.clients
    samples = min(options.samples or available, available)
    measured = {name: measure_rounds(name, options, samples, options.measured_epochs) for name in RUNS}
    trained = [one.stage_seconds["train"] / options.clients for rounds in measured.values() for one in rounds]
    samples_scale = available / samples
    train_seconds = median(trained) * LOCAL_EPOCHS / options.measured_epochs * samples_scale
    first, last = (
        [
            client_round(
                name,
                rounds[which],
                measured[SCORED_CHEAPLY[name]][which] if name in SCORED_CHEAPLY else None,
                options.clients,
                train_seconds,
                samples_scale,
                WHOLE_SET_SAMPLES / options.clients / available,
                options.megabytes_per_second * 1e6,
            )
            for name, rounds in measured.items()
        ]
        for which in (0, -1)
    )
    print(
        f"\n{options.dataset}, {options.model}, {options.clients} clients of {available} samples, {LOCAL_EPOCHS} local "
        f"epochs; trained on {samples} for {options.measured_epochs}"
    )
    for which, rounds in (("the first round", first), ("the last round", last)):
        print(
            f"\n{which}, one client, in seconds; transfer both ways at {options.megabytes_per_second:g} MB/s"
        )
        print_rounds(rounds)
    if options.json:
        facts = {"environment": describe_environment(), "samples": samples, "samples_a_client": available}
        for which, rounds in (("first_round", first), ("last_round", last)):
            facts[which] = [
                asdict(one) | {"seconds": one.seconds, "whole_set_seconds": one.whole_set_seconds}
                for one in rounds
            ]
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
