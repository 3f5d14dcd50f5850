"""Attacks that work: each test states the promise that it breaks."""

from __future__ import annotations

import contextlib
import json
import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg

from core.wire_twin import reseal
from flower.test_messages_that_fail import ALL, number_of
from flower.vector_app import VectorRun, moves
from shieldfl.errors import PolicyError
from shieldfl.flower.wire import ASK, MESSAGE, message_in, packed
from shieldfl.roles.message import Message as RoleMessage

ONE = {"min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}
broken = pytest.mark.xfail(strict=True, reason="not mended")


class HalfFrozenRun(VectorRun):
    """Trains ``head``; ``frozen``, of the same shape, stays as it is."""

    @staticmethod
    def initial():
        return ArrayRecord({name: Array(np.zeros(20, np.float32)) for name in ("head", "frozen")})

    def app(self):
        app = ClientApp(mods=self.mods)

        @app.train()
        def train(message, context):
            arrays = {name: one.numpy() for name, one in message.content["arrays"].items()}
            arrays["head"] = arrays["head"] + moves(context.node_config["partition-id"], 1, (20,))
            trained = ArrayRecord({name: Array(one) for name, one in arrays.items()})
            content = {"arrays": trained, "metrics": MetricRecord({"num-examples": 1})}
            return Message(RecordDict(content), reply_to=message)

        @app.evaluate()
        def evaluate(message, context):
            return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

        return app


@broken
def test_a_layout_of_the_servers_choice_opens_no_single_update():
    """The others' moving arrays lie where the target's stand still: the sum there is the target's update."""
    run = HalfFrozenRun(opener="aggregator", rounds=1)

    def lie(node, message):
        asked = message.content[ASK]
        if asked["kind"] == "set-up" and number_of(node) != 0:
            layout = json.loads(asked["layout"])
            asked["layout"] = json.dumps(layout | {"parameters": layout["parameters"][::-1]})

    run.grid.before = lie
    opened = run.start().arrays["head"].numpy()
    assert not np.allclose(4 * opened, moves(0, 1, (20,)), atol=1e-4)


@broken
def test_one_update_is_in_the_sum_of_one_session_alone(tmp_path):
    """The server begins anew from the same model, with one client less: the difference of the sums is that one's."""
    run = VectorRun(
        rounds=1,
        opener="aggregator",
        node_config=lambda number: {"shieldfl-store": str(tmp_path / str(number))},
    )
    first = run.start().arrays["bias"].numpy()
    run.grid.before = lambda node, message: number_of(node) != 0 or message.metadata.group_id != "round 1"
    second = run.start().arrays["bias"].numpy()
    assert not np.allclose(4 * first - 3 * second, run.train(0, 1, (7,)), atol=1e-4)


@broken
@pytest.mark.parametrize("opener", ["authority", "aggregator"])
@pytest.mark.parametrize("kind", ["model", "finish"])
def test_no_client_takes_a_last_model_that_nobody_signed(tmp_path, opener, kind):
    run = VectorRun(
        rounds=1, opener=opener, node_config=lambda number: {"shieldfl-store": str(tmp_path / str(number))}
    )

    def lie(node, message):
        if message.content[ASK]["kind"] == kind and number_of(node) == 0:
            model = message_in(message.content)
            sevens = np.full(84, 7, "<f4").tobytes()
            message.content[MESSAGE] = packed(RoleMessage({**model, "parameters": sevens}))

    run.grid.before = lie
    run.start()
    if kind == "model":
        assert 0 not in run.evaluated
    else:
        with np.load(tmp_path / "0" / "model.npz") as kept:
            assert not (kept["bias"] == 7.0).all()


@broken
def test_a_node_whose_operator_names_no_method_sends_nothing_in_the_clear(tmp_path):
    """fedml-he "encrypts", at a ratio of the server's choice: one position, and the rest is readable."""
    run = VectorRun(
        method="fedml-he",
        rounds=2,
        node_config=lambda number: {"shieldfl-store": str(tmp_path / str(number))},
    )
    run.config["shieldfl.settings.ratio"] = 0.01
    read = []

    def after(node, reply):
        message = message_in(reply.content) if not reply.has_error() and MESSAGE in reply.content else None
        if message is not None and "values" in message and number_of(node) == 0:
            read.append(np.frombuffer(message["values"], "<f4").size)

    run.grid.after = after
    with contextlib.suppress(PolicyError):
        run.start()
    assert read == []


@broken
def test_a_frame_that_spoils_a_round_does_not_end_the_run():
    """One client alters one byte of its frame: every client is to open the sum before it goes on, and none can."""
    run = VectorRun(rounds=4)

    def alter(node, reply):
        if number_of(node) == 3 and reply.metadata.group_id == "round 2":
            message = message_in(reply.content)
            frame = bytearray(message["ciphertexts"])
            frame[len(frame) // 2] ^= 1
            altered = RoleMessage({**message, "ciphertexts": reseal(bytes(frame))})
            reply.content[MESSAGE] = packed(altered)

    run.grid.after = alter
    run.start()
    run.check({1: ALL, 3: ALL, 4: ALL})


def _changed(**changes):
    return lambda content: content.__setitem__("metrics", MetricRecord(dict(content["metrics"]) | changes))


METRICS = {
    "more": _changed(more=1),
    "a list": _changed(**{"num-examples": [1, 2]}),
    "negative": _changed(**{"num-examples": -3}),
    "not a number": _changed(**{"num-examples": math.nan}),
    "none": lambda content: content.pop("metrics"),
    "arrays": lambda content: content.__setitem__("arrays", MetricRecord({"num-examples": 1})),
}


@broken
@pytest.mark.parametrize("lie", METRICS)
def test_one_clients_metrics_end_no_run(lie):
    run = VectorRun(opener="aggregator", strategy=FedAdam(**ONE) if lie == "not a number" else FedAvg(**ONE))

    def after(node, reply):
        if number_of(node) == 1 and not reply.has_error() and "metrics" in reply.content:
            METRICS[lie](reply.content)

    run.grid.after = after
    run.start()
