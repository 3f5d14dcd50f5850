"""What a lying server or one client would break a promise by, each by an attack that has worked."""

from __future__ import annotations

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
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.flower.record_layout import RecordLayout
from shieldfl.flower.wire import ASK, MESSAGE, message_in, packed
from shieldfl.roles.message import Message as RoleMessage

ONE = {"min_available_nodes": 1, "min_train_nodes": 1, "min_evaluate_nodes": 1}


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


def test_a_layout_of_the_servers_choice_opens_no_single_update():
    """The others' moving arrays would lie where the target's stand still: the sum there were the target's update."""
    run = HalfFrozenRun(opener="aggregator", rounds=1)

    def lie(node, message):
        asked = message.content[ASK]
        if asked["kind"] == "set-up" and number_of(node) != 0:
            layout = json.loads(asked["layout"])
            asked["layout"] = json.dumps(layout | {"parameters": layout["parameters"][::-1]})

    run.grid.before = lie
    with pytest.raises(PolicyError, match="places the model's arrays otherwise than the set-up says"):
        run.start()


def test_arrays_that_stay_apart_are_of_the_set_up_and_no_floats():
    run = VectorRun(rounds=1)

    def lie(node, message):
        if message.content[ASK]["kind"] == "set-up":
            brought = message_in(message.content)
            apart = RecordLayout.apart_to_message({"bias": Array(np.ones(7, np.float32))})
            message.content[MESSAGE] = packed(RoleMessage({**brought, **apart}))

    run.grid.before = lie
    with pytest.raises(PolicyError, match="places the model's arrays otherwise than the set-up says"):
        run.start()
    with pytest.raises(WireFormatError, match="stay apart"):
        RecordLayout.apart_from_message(
            RecordLayout.apart_to_message({"bias": Array(np.ones(7, np.float32))})
        )


def config_of(folder, **more):
    return lambda number: (
        {"shieldfl-store": str(folder / str(number))}
        | {f"shieldfl-{name}": value for name, value in more.items()}
    )


def test_one_update_is_in_the_sum_of_one_session_alone(tmp_path):
    """The server begins anew from the same model with one client less: the sums' difference were that one's update."""
    run = VectorRun(rounds=1, opener="aggregator", node_config=config_of(tmp_path, openers="aggregator"))
    run.start()
    run.grid.before = lambda node, message: number_of(node) != 0 or message.metadata.group_id != "round 1"
    with pytest.raises(PolicyError, match="not one round ended"):
        run.start()
    assert "was trained in another round or run" in run.strategy.session.clients.failures[1]


@pytest.mark.parametrize("kind", ["model", "finish"])
def test_a_client_that_opens_takes_no_model_of_the_servers(tmp_path, kind):
    run = VectorRun(rounds=1, node_config=config_of(tmp_path))

    def lie(node, message):
        if message.content[ASK]["kind"] == kind:
            sevens = {"parameters": np.full(84, 7, "<f4").tobytes(), "buffers": b""}
            message.content[MESSAGE] = packed(RoleMessage(sevens))

    run.grid.before = lie
    run.start()
    run.check({1: ALL})
    with np.load(tmp_path / "0" / "model.npz") as kept:
        np.testing.assert_array_equal(kept["bias"], run.evaluated[0]["bias"])


@pytest.mark.parametrize("opener", ["aggregator", "authority"])
def test_who_opens_is_what_the_nodes_operator_allows(tmp_path, opener):
    run = VectorRun(rounds=1, opener=opener, node_config=config_of(tmp_path))
    with pytest.raises(PolicyError, match=f'set shieldfl-openers="{opener}"'):
        run.start()
    assert run.trained == []


def test_settings_that_a_node_insists_on_are_those_of_the_run_or_it_takes_no_part(tmp_path):
    allowed = {"methods": "fedml-he", "method-settings": '{"ratio": 0.5}'}
    run = VectorRun(rounds=1, method="fedml-he", node_config=config_of(tmp_path, **allowed))
    run.config["shieldfl.settings.ratio"] = 0.1
    with pytest.raises(PolicyError, match=r"insists on ratio = 0.5, and the run has 0.1"):
        run.start()
    run.config["shieldfl.settings.ratio"] = 0.5
    run.start()
    assert len(run.trained) == len(ALL)


def test_a_message_of_one_type_that_asks_for_another_is_refused():
    run, told = VectorRun(rounds=1), []

    def lie(node, message):
        if message.content[ASK]["kind"] == "model":
            message.content[ASK]["kind"] = "train"

    run.grid.before = lie
    run.grid.after = lambda node, reply: told.append(reply.error.reason) if reply.has_error() else None
    run.start()
    assert told == ["PolicyError: the message asks for one thing, and is of the type of another"] * len(ALL)


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
    with pytest.raises(PolicyError, match="fedml-he does not encrypt all that it sends"):
        run.start()
    assert read == run.trained == []


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
    "an empty list": _changed(loss=[]),
    "no weight": lambda content: content["metrics"].pop("num-examples"),
    "two records": lambda content: content.__setitem__("more", MetricRecord({"num-examples": 1})),
    "arrays": lambda content: content.__setitem__("arrays", MetricRecord({"num-examples": 1})),
}


@pytest.mark.every_run("negative", "not a number", "no weight")
@pytest.mark.parametrize("lie", METRICS)
def test_one_clients_metrics_end_no_run(lie):
    run = VectorRun(opener="aggregator", strategy=FedAdam(**ONE) if lie == "not a number" else FedAvg(**ONE))

    def after(node, reply):
        if number_of(node) == 1 and not reply.has_error() and "metrics" in reply.content:
            METRICS[lie](reply.content)

    run.grid.after = after
    run.start()


@pytest.mark.every_run("two records", "not a number")
@pytest.mark.parametrize("lie", METRICS)
def test_metrics_of_as_many_as_there_are_others_end_no_run(lie):
    run = VectorRun(rounds=1)

    def after(node, reply):
        if number_of(node) in (0, 1) and not reply.has_error() and "metrics" in reply.content:
            METRICS[lie](reply.content)

    run.grid.after = after
    run.start()
    run.check({1: ALL})


def test_no_weights_that_clients_state_move_the_model_that_a_strategy_steps_with():
    """Two that are finite, and whose sum is not: all others' shares of the mean would be 0, and so theirs."""

    def stepped(weight):
        run = VectorRun(opener="aggregator", strategy=FedAdam(**ONE), rounds=2)

        def after(node, reply):
            if number_of(node) in (1, 2) and not reply.has_error() and "metrics" in reply.content:
                _changed(**{"num-examples": weight})(reply.content)

        run.grid.after = after
        return run.start().arrays["bias"].numpy()

    np.testing.assert_allclose(stepped(1.7e308), stepped(1), atol=1e-5)
