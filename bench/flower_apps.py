"""Apps for rounds of Flower that are timed, each plain or protected by what a server asks: in a simulation, or here."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from shieldfl.flower.mod import shield_mod
from shieldfl.flower.records import ASK

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "flower" / "torch_digits"
TINY_VALUES = 1_000


def either_mod(message, context, call_next):
    """Protect where the server's strategy does."""
    return (shield_mod if ASK in message.content else _plain)(message, context, call_next)


def _plain(message, context, call_next):
    return call_next(message, context)


def digits_app() -> ClientApp:
    """Return the app of examples/flower/torch_digits."""
    if str(EXAMPLE) not in sys.path:
        sys.path.append(str(EXAMPLE))
    from torch_digits import client_app

    app = ClientApp(mods=[either_mod])
    app.train()(client_app.train)
    app.evaluate()(client_app.evaluate)
    return app


def tiny_app() -> ClientApp:
    """Return an app whose training is an addition, on TINY_VALUES values: it has no torch to import."""
    app = ClientApp(mods=[either_mod])

    @app.train()
    def train(message, context):
        draw = np.random.default_rng(context.node_config["partition-id"])
        moved = message.content["arrays"]["w"].numpy() + draw.normal(0.0, 0.01, TINY_VALUES).astype(
            np.float32
        )
        content = {"arrays": ArrayRecord({"w": Array(moved)}), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        mean = float(message.content["arrays"]["w"].numpy().mean())
        metrics = MetricRecord({"num-examples": 1, "mean": mean})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def tiny_arrays() -> ArrayRecord:
    """Return its first model."""
    return ArrayRecord({"w": Array(np.zeros(TINY_VALUES, np.float32))})
