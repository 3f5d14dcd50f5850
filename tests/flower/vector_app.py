"""An app whose model is a few vectors, and whose training is an addition: for what happens around training."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from flower.loopback_grid import FIRST_NODE, LoopbackGrid
from shieldfl.flower.mod import ShieldMod
from shieldfl.flower.records import ASK
from shieldfl.flower.strategy import ShieldStrategy
from shieldfl.methods.registry import method_class

ALL = [0, 1, 2, 3]
ONE = {"min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}
SHAPES = {"weight": (7, 11), "bias": (7,)}


def opened_by_clients(method, encryption="kahe"):
    """Return the setting that has clients open sums; none for a method whose clients cannot."""
    can = method_class(method).clients_can_open and encryption in ("kahe", "pads")
    return {"opener": "clients"} if can else {}


def moves(client, number, shape):
    """What training adds to an array, of this client in this round."""
    return np.random.default_rng([client, number, *shape]).normal(0.0, 0.1, shape).astype(np.float32)


class VectorRun:
    """A server, nodes and an app that counts what it does.

    Parameters
    ----------
    clients, rounds : of the run.
    nodes : how many there are; as many as clients by default.
    node_config : of each node, by its number.
    strategy : the app's own.
    arrays_key : under which the app reads and returns the record of arrays.
    settings : of the run, without ``shieldfl.``; clients open sums, where they can, unless another opener is set.
    """

    train_mods = evaluate_mods = ()
    """Of the app's functions, beside the app's own."""

    def __init__(
        self,
        *,
        clients=4,
        rounds=3,
        nodes=None,
        node_config=lambda number: {},
        strategy=None,
        samples=None,
        mods=None,
        arrays_key="arrays",
        **settings,
    ):
        self.rounds = rounds
        self.samples = samples
        self.arrays_key = arrays_key
        self.mods = [ShieldMod(samples)] if mods is None else mods
        self.grid = LoopbackGrid(self.app, nodes or clients, node_config)
        self.trained = []
        """Client and round of every training."""
        self.evaluated = {}
        """By client, the arrays that it evaluated last."""
        self.train = moves
        self.own = strategy or FedAvg(**ONE)
        config = (
            {"clients": clients, "min-clients": 2, "weighting": "uniform"}
            | opened_by_clients(settings.get("method", "full-he"))
            | {name.replace("_", "-"): one for name, one in settings.items()}
        )
        self.config = {f"shieldfl.{name}": one for name, one in config.items()}

    def app(self):
        app = ClientApp(mods=self.mods)

        @app.train(mods=list(self.train_mods))
        def train(message, context):
            client, number = context.node_config["partition-id"], message.content["config"]["server-round"]
            self.trained.append((client, number))
            arrays = {name: one.numpy() for name, one in message.content[self.arrays_key].items()}
            moved = {name: one + self.train(client, number, one.shape) for name, one in arrays.items()}
            count = 1 if self.samples is None else self.samples(context)
            metrics = MetricRecord({"num-examples": count, "loss": 1.0 / number})
            content = {self.arrays_key: ArrayRecord(as_arrays(moved)), "metrics": metrics}
            asked = message.content.get("shieldfl.learning", {})
            if asked.get("scores"):
                scores = {name: np.abs(moves(client, 100, one.shape)) for name, one in arrays.items()}
                content["shieldfl.scores"] = ArrayRecord(as_arrays(scores))
            return Message(RecordDict(content), reply_to=message)

        @app.evaluate(mods=list(self.evaluate_mods))
        def evaluate(message, context):
            arrays = {name: one.numpy() for name, one in message.content[self.arrays_key].items()}
            self.evaluated[context.node_config["partition-id"]] = arrays
            metrics = MetricRecord({"num-examples": 1, "mean": float(arrays["bias"].mean())})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        return app

    @staticmethod
    def initial():
        return ArrayRecord(as_arrays({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}))

    def start(self, **more):
        """Run; keep the strategy."""
        self.strategy = ShieldStrategy(self.own, self.config)
        return self.strategy.start(self.grid, self.initial(), num_rounds=self.rounds, timeout=0.3, **more)

    def altered(self, change=lambda message: None, kind=None, group=None, clients=(1,), *, replies=False):
        """Have these clients' messages, or replies, of a kind or group changed, and run; return errors by client."""
        errors = []

        def hook(node, message):
            if number_of(node) not in clients or message.has_error() or ASK not in message.content:
                return
            if kind in (None, message.content[ASK]["kind"]) and group in (None, message.metadata.group_id):
                change(message)

        def after(node, reply):
            if reply.has_error():
                errors.append((number_of(node), reply.error.reason))
            elif replies:
                hook(node, reply)

        self.grid.before, self.grid.after = None if replies else hook, after
        self.start()
        return errors

    def expected(self, participants):
        """Return the model after rounds with these clients, each a list; up to the fixed point."""
        model = {name: np.zeros(shape) for name, shape in SHAPES.items()}
        for number, clients in participants.items():
            for name, shape in SHAPES.items():
                model[name] += np.mean([self.train(client, number, shape) for client in clients], axis=0)
        return model

    def check(self, participants):
        """All clients have the model of these rounds."""
        expected = self.expected(participants)
        assert self.evaluated
        for arrays in self.evaluated.values():
            for name, one in expected.items():
                np.testing.assert_allclose(arrays[name], one, atol=1e-5)


def as_arrays(arrays):
    return {name: Array(one) for name, one in arrays.items()}


def number_of(node):
    return node - FIRST_NODE


def loses(client, kind, round_number):
    """Return a hook that loses one message of this kind and round, or its reply, for one client."""
    lost = []

    def hook(node, message):
        asked = message.content.get(ASK, {}) if message.has_content() else {}
        of_round = message.metadata.group_id.endswith(f" {round_number}")
        if number_of(node) == client and of_round and asked.get("kind") == kind and not lost:
            lost.append(message)
            return False
        return None

    return hook


def config_of(folder, **more):
    return lambda number: (
        {"shieldfl-store": str(folder / str(number))}
        | {f"shieldfl-{name}": value for name, value in more.items()}
    )


class EndedError(Exception):
    """The server's process ends."""


def cut_off(run, group, kind):
    """End a run's server where it sends this; what is started next goes on from the checkpoint."""

    def hook(node, message):
        if message.metadata.group_id == group and message.content[ASK]["kind"] == kind:
            raise EndedError

    run.grid.before = hook
    with pytest.raises(EndedError):
        run.start()
    run.grid.before = None
    run.config["shieldfl.resume"] = True
