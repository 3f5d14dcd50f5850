"""What lying servers and clients would break a promise by, and what a run or a node refuses, in which words."""

from __future__ import annotations

import json
import math
import types

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import FedAdam

from flower.loopback_grid import FIRST_NODE
from flower.vector_app import ALL, ONE, SHAPES, VectorRun, as_arrays, config_of, cut_off, number_of
from shieldfl.authority.message import Message as RoleMessage
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.flower.clients import GridClients
from shieldfl.flower.records import ASK, MESSAGE, RecordLayout, message_in, packed
from shieldfl.flower.server_session import PlannedRun


@pytest.mark.parametrize("position", [[math.inf, 1.0], [1], "far", None])
def test_a_reply_with_a_position_that_is_none_costs_its_client_the_round(position):
    def lie(reply):
        del reply.content[ASK]["position"]
        if position is not None:
            reply.content[ASK]["position"] = position

    run = VectorRun()
    run.altered(lie, group="round 2", replies=True)
    run.check({1: ALL, 2: [0, 2, 3], 3: ALL})


@pytest.mark.parametrize(
    "lie", [{"shieldfl": "0"}, {"position": [math.inf]}, {"samples": "x"}, {"samples": -1}]
)
def test_a_node_that_cannot_take_part_keeps_no_run_from_beginning(lie):
    run = VectorRun(nodes=5)
    run.altered(lambda reply: reply.content[ASK].update(lie), "hello", clients=[4], replies=True)
    run.check(dict.fromkeys((1, 2, 3), ALL))


@pytest.mark.parametrize("index", [2, 4, 99])
def test_a_node_that_says_it_was_another_client_takes_nobodys_place(tmp_path, index):
    """It is a fifth node, beside the clients of a run that is gone on with."""
    run = VectorRun(nodes=5, checkpoint=str(tmp_path / "run"))

    def lie(node, reply):
        if node == FIRST_NODE + 4 and not reply.has_error() and reply.content[ASK]["kind"] == "hello":
            reply.content[ASK]["index"] = index

    run.grid.after = lie
    cut_off(run, "round 2", "train")
    run.start()
    run.check(dict.fromkeys((1, 2, 3), ALL))


@pytest.mark.every_run("more-train", "[arrays-model", "no arrays-train")
@pytest.mark.parametrize("kind", ["train", "model"])
@pytest.mark.parametrize("record", ["arrays", "more", "no arrays"])
def test_a_model_of_the_servers_own_is_not_trained_or_evaluated(kind, record):
    """Beside the signed one it would be another for each client: with one that does not move, a sum is one update."""
    run, sevens = VectorRun(), {name: np.full(shape, 7.0, np.float32) for name, shape in SHAPES.items()}

    def lie(message):
        beside = ConfigRecord({"x": 1}) if record == "no arrays" else ArrayRecord(as_arrays(sevens))
        message.content["more" if record == "more" else "arrays"] = beside

    run.altered(lie, kind)
    if kind == "train":
        assert all(client != 1 for client, _ in run.trained)
        run.check({number: [0, 2, 3] for number in (1, 2, 3)})
    else:
        assert 1 not in run.evaluated
        run.check(dict.fromkeys((1, 2, 3), ALL))


@pytest.mark.parametrize("samples", [None, lambda context: 20])
@pytest.mark.parametrize("others", [1, 2])
def test_no_weight_of_the_servers_choice_makes_a_sum_one_clients_update(monkeypatch, samples, others):
    """The target counts 2^14 times as much as the others, whose updates all but round to nothing in the sum."""
    weights = [2**14, others, others, others]
    monkeypatch.setattr(PlannedRun, "weights", lambda planned, said: (weights, []))
    run = VectorRun(opener="aggregator", weighting="samples", samples=samples)
    with pytest.raises(PolicyError, match="another weight than its number of samples"):
        run.start()
    assert {number for _, number in run.trained} <= {1}  # by which samples were counted: nothing has left


def _other_layout(message):
    """The others' moving arrays would lie where the target's stand still: the sum there were the target's update."""
    asked = message.content[ASK]
    layout = json.loads(asked["layout"])
    asked["layout"] = json.dumps(layout | {"parameters": layout["parameters"][::-1]})


def _with_part(name, part):
    def lie(message):
        brought = RoleMessage({**message_in(message.content), name: part})
        message.content[MESSAGE] = packed(brought)

    return lie


FLOATS_APART = RecordLayout.apart_to_message({"bias": Array(np.ones(7, np.float32))})
SET_UPS = {
    "another layout": (_other_layout, "places the model's arrays otherwise than the set-up says"),
    "arrays apart": (_with_part("apart", FLOATS_APART["apart"]), "places the model's arrays otherwise"),
    "no message": (lambda message: message.content.pop(MESSAGE), "brings no set-up"),
    **{
        # The record beside it says that all count by their samples; the message, that the target counts 2^14.
        part: (_with_part(part, RoleMessage.from_number(2**14)), "brings parts that no set-up has")
        for part in ("weight", "index", "layout")
    },
}


@pytest.mark.parametrize("lie", SET_UPS)
def test_a_set_up_that_is_another_for_some_clients_begins_no_run(lie):
    change, words = SET_UPS[lie]
    run = VectorRun(opener="aggregator", weighting="samples", samples=lambda context: 20, rounds=1)
    with pytest.raises(PolicyError, match=words):
        run.altered(change, "set-up", clients=[1, 2, 3])
    assert run.trained == []


def test_floats_do_not_stay_apart():
    with pytest.raises(WireFormatError, match="stay apart"):
        RecordLayout.apart_from_message(FLOATS_APART)


REFUSING = {
    "a pinned authority": ({"authority-key": "11" * 32}, {}, "under a key authority that it pins"),
    "an opener": ({}, {"opener": "aggregator"}, 'set shieldfl-openers="aggregator"'),
    "another opener": ({}, {"opener": "authority"}, 'set shieldfl-openers="authority"'),
    "no table": ({"method-settings": "ratio = 0.5"}, {}, "shieldfl-method-settings is no table in JSON"),
    # It "encrypts", at a ratio of the server's choice: one position, and the rest is readable.
    "no method": ({}, {"method": "fedml-he"}, "fedml-he does not encrypt all that it sends"),
}


@pytest.mark.parametrize("label", REFUSING)
def test_a_node_takes_part_in_what_its_operator_allows(tmp_path, label):
    node, settings, words = REFUSING[label]
    run = VectorRun(rounds=1, node_config=config_of(tmp_path, **node), **settings)
    with pytest.raises(PolicyError, match=words):
        run.start()
    assert run.trained == []


def test_a_client_does_not_take_a_plan_in_which_others_may_count_more(monkeypatch):
    def not_counted(clients, *arguments):
        for one in clients.by_index.values():
            one.samples = 1

    monkeypatch.setattr(GridClients, "count", not_counted)
    run = VectorRun(opener="aggregator", weighting="samples", most_weight=2**14)
    with pytest.raises(PolicyError, match="another weight than its number of samples"):
        run.start()
    assert run.trained == []


KEY = bytes(32)


def test_ends_of_rounds_come_with_nothing_else():
    missed, run = {"shieldfl.missed": packed(RoleMessage({"other": b"1"}))}, VectorRun()
    errors = run.altered(lambda message: message.content.update(missed), "train", "round 2")
    assert errors == [(1, "WireFormatError: the ends of rounds came with parts that none has")]
    run.check({1: ALL, 2: [0, 2, 3], 3: ALL})


@pytest.mark.parametrize("what", ["index", "model"])
def test_a_node_does_not_take_part_twice_in_one_run(what):
    run, asked = VectorRun(), {}

    def again(message):
        if message.content[ASK]["kind"] == "set-up":
            asked["set-up"] = message.content
        elif message.content[ASK]["kind"] == "train" and message.metadata.group_id == "round 2":
            message.content = asked["set-up"]
            message.content[ASK]["index"] = 2 if what == "index" else 1
            if what == "model":
                brought = message_in(message.content)
                changed = bytes(4) + b"\x00\x00\x80\x3f" + bytes(brought["parameters"])[8:]
                message.content[MESSAGE] = packed(RoleMessage({**brought, "parameters": changed}))

    ((_, error),) = run.altered(again)
    assert "already takes part in the run, as another client or with another model" in error


def test_a_shared_secret_comes_where_clients_open():
    with pytest.raises(ParameterError, match="clients of dict-pfl share a secret"):
        VectorRun(method="dict-pfl", opener="authority").start()


def test_a_run_that_waits_for_nodes_says_so_at_once_and_every_ten_seconds(monkeypatch, caplog):
    """Flower's simulation has two nodes unless told otherwise: the run waited an hour without a word."""
    caplog.set_level("INFO")
    run, seconds = VectorRun(clients=4), iter(range(100))
    run.grid.hidden = set(list(run.grid.configs)[2:])
    clock = types.SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    monkeypatch.setattr("shieldfl.flower.clients.time", clock)
    with pytest.raises(TimeoutError, match="2 of 4 nodes are there after 25 s"):
        GridClients(run.grid, 25.0).nodes(4)
    said = [one.getMessage() for one in caplog.records if "waits for all" in one.getMessage()]
    assert len(said) == 3
    assert all("2 of 4 nodes" in one and '--federation-config "num-supernodes=4"' in one for one in said)


def test_a_run_whose_clients_have_one_sample_each_is_gone_on_with(tmp_path):
    run = VectorRun(checkpoint=str(tmp_path / "run"), samples=lambda context: 1, weighting="samples")
    cut_off(run, "round 2", "train")
    given = run.config | {"shieldfl.resume": True}
    run.config = given | {"shieldfl.weighting": "uniform"}
    with pytest.raises(PolicyError, match="differs in weighting"):
        run.start()
    run.config = given
    run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})


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
    sevens = RoleMessage({"parameters": np.full(84, 7, "<f4").tobytes(), "buffers": b""})
    run.altered(lambda message: message.content.update({MESSAGE: packed(sevens)}), kind, clients=ALL)
    run.check({1: ALL})
    with np.load(tmp_path / "0" / "model.npz") as kept:
        np.testing.assert_array_equal(kept["bias"], run.evaluated[0]["bias"])


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
    errors = VectorRun(rounds=1).altered(
        lambda message: message.content[ASK].update(kind="train"), "model", clients=ALL
    )
    said = "PolicyError: the message's type does not fit its request"
    assert sorted(errors) == [(client, said) for client in ALL]


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


@pytest.mark.every_run("negative-one", "not a number", "no weight-one", "two records-half")
@pytest.mark.parametrize("who", [[1], [0, 1]], ids=["one", "half"])
@pytest.mark.parametrize("lie", METRICS)
def test_metrics_of_some_clients_end_no_run(lie, who):
    """Of one client, and of as many as there are others."""
    server = {"opener": "aggregator", "strategy": FedAdam(**ONE) if lie == "not a number" else None}
    run = VectorRun(**server) if who == [1] else VectorRun(rounds=1)
    run.altered(
        lambda reply: "metrics" in reply.content and METRICS[lie](reply.content), clients=who, replies=True
    )
    if who == [0, 1]:
        run.check({1: ALL})


def test_no_weights_that_clients_state_move_the_model_that_a_strategy_steps_with():
    """Two that are finite, and whose sum is not: all others' shares of the mean would be 0, and so theirs."""

    def stepped(weight):
        change = _changed(**{"num-examples": weight})
        run = VectorRun(opener="aggregator", strategy=FedAdam(**ONE), rounds=2)
        run.altered(
            lambda reply: "metrics" in reply.content and change(reply.content), clients=[1, 2], replies=True
        )
        return run.strategy.session.model()["bias"].numpy()

    np.testing.assert_allclose(stepped(1.7e308), stepped(1), atol=1e-5)
