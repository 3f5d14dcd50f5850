"""Runs of several methods, one after the other, in one simulation of Flower, by a process that imports this module."""

from __future__ import annotations

import hashlib
import json
from functools import cache

import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from flower import digits_app
from flower.digits_app import SEED, DigitsRun, vector_of
from shieldfl.flower.mod import ShieldMod
from shieldfl.flower.strategy import ShieldStrategy
from shieldfl.flower.torch_training import train_as_asked

VARIANTS = {
    label: digits_app.VARIANTS[label]
    for label in (
        *("fedavg", "full-he", "full-he, aggregator", "selective-shield, clear votes"),
        *("selective-shield, encrypted votes", "dict-pfl", "alt-fl-pi", "sense-crypt"),
    )
}
_SERVER = ServerApp()
_CLIENT = ClientApp(mods=[ShieldMod(lambda context: len(_part(context)), clear_metrics=True)])


@cache
def run_of(label):
    """Return what server, workers and the run without Flower have in common."""
    torch.set_num_threads(1)
    method, settings, more = VARIANTS[label]
    return DigitsRun(method, settings=settings, **more)


def _part(context):
    return run_of("fedavg").parts[context.node_config["partition-id"]]


def digest_of(vector):
    """Return 56 bits of a digest of floats."""
    return int.from_bytes(hashlib.sha256(vector.tobytes()).digest()[:7])


@_CLIENT.train()
def _train(message, context):
    run, index = run_of(message.content["config"]["label"]), context.node_config["partition-id"]
    content = train_as_asked(run.trainer(index), run.model, message, SEED, samples=len(run.parts[index]))
    return Message(content, reply_to=message)


@_CLIENT.evaluate()
def _evaluate(message, context):
    kept = context.state["shieldfl.memory"].items()
    secrets = [value for name, value in kept if name.endswith(" secret") and value]
    told = {
        "client": context.node_config["partition-id"],
        "digest": digest_of(vector_of(message.content["arrays"])),
        "secret": list(secrets[-1]) if secrets else [],
        "num-examples": 1,
    }
    return Message(RecordDict({"metrics": MetricRecord(told)}), reply_to=message)


def _told(contents, weighted_by):
    """Join what clients tell: by client, one after the other."""
    records = sorted((one["metrics"] for one in contents), key=lambda record: record["client"])
    return MetricRecord(
        {
            "digests": [one["digest"] for one in records],
            "secret": [n for one in records[:1] for n in one["secret"]],
        }
    )


def main():
    """Run, and print as JSON what clients told: by run and round, digests of the models that they evaluate."""
    found = {}

    @_SERVER.main()
    def serve(grid, context):
        for label in VARIANTS:
            run = run_of(label)
            own = FedAvg(min_available_nodes=run.clients, evaluate_metrics_aggr_fn=_told)
            config = ConfigRecord({"label": label})
            result = ShieldStrategy(own, run.run_config()).start(
                grid, run.arrays(), run.rounds, timeout=300, train_config=config
            )
            found[label] = [dict(one) for _, one in sorted(result.evaluate_metrics_clientapp.items())]

    one_processor = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(
        _SERVER, _CLIENT, 3, backend_config={"client_resources": one_processor, "init_args": {"num_cpus": 2}}
    )
    print(json.dumps(found))
