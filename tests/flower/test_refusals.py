"""What a run or a node refuses, in which words: each says what to do."""

from __future__ import annotations

import sqlite3
import types

import pytest

from flower.test_attacks_on_runs import config_of
from flower.test_messages_that_fail import ALL, number_of
from flower.test_resumed_runs import cut_off
from flower.vector_app import VectorRun
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.flower.exchange import Exchange
from shieldfl.flower.strategy import ShieldStrategy
from shieldfl.flower.wire import ASK, MESSAGE, message_in, packed
from shieldfl.roles.message import Message as RoleMessage
from shieldfl.roles.step_store import StepStore

KEY = bytes(32)


def failures_of(run, change, kind, group=None):
    """Change client 1's messages of a kind before they are delivered; return the errors that it answers with."""
    errors = []

    def before(node, message):
        of_group = group in (None, message.metadata.group_id)
        if number_of(node) == 1 and message.content[ASK]["kind"] == kind and of_group:
            change(message)

    def after(node, reply):
        if number_of(node) == 1 and reply.has_error():
            errors.append(reply.error.reason)

    run.grid.before, run.grid.after = before, after
    run.start()
    return errors


def test_a_round_without_its_first_message_is_not_trained():
    run = VectorRun()
    errors = failures_of(run, lambda message: message.content.pop(MESSAGE), "train", "round 2")
    assert errors == ["PolicyError: round 2 came without its first message"]
    assert (1, 2) not in run.trained
    run.check({1: ALL, 2: [0, 2, 3], 3: ALL})


def test_ends_of_rounds_come_with_nothing_else():
    def change(message):
        message.content["shieldfl.missed"] = packed(RoleMessage({"other": b"1"}))

    run = VectorRun()
    errors = failures_of(run, change, "train", "round 2")
    assert errors == ["WireFormatError: the ends of rounds came with parts that none has"]
    run.check({1: ALL, 2: [0, 2, 3], 3: ALL})


def test_a_run_does_not_begin_for_a_node_that_got_no_set_up():
    with pytest.raises(PolicyError, match="client 1: PolicyError: the server's message brings no set-up"):
        failures_of(VectorRun(), lambda message: message.content.pop(MESSAGE), "set-up")


@pytest.mark.parametrize("what", ["index", "model"])
def test_a_node_does_not_take_part_twice_in_one_run(what):
    run, errors = VectorRun(), []
    asked = {}

    def before(node, message):
        kind = message.content[ASK]["kind"]
        if number_of(node) == 1 and kind == "set-up":
            asked["set-up"] = message.content
        if number_of(node) == 1 and kind == "train" and message.metadata.group_id == "round 2":
            message.content = asked["set-up"]
            if what == "index":
                message.content[ASK]["index"] = 2
            else:
                brought = message_in(message.content)
                changed = bytes(4) + b"\x00\x00\x80\x3f" + bytes(brought["parameters"])[8:]
                message.content[MESSAGE] = packed(RoleMessage({**brought, "parameters": changed}))

    def after(node, reply):
        if reply.has_error():
            errors.append(reply.error.reason)

    run.grid.before, run.grid.after = before, after
    run.start()
    assert len(errors) == 1
    assert "takes part in the run already, as another client or from another model" in errors[0]


def test_method_settings_of_a_node_are_a_table(tmp_path):
    config = config_of(tmp_path, **{"method-settings": "ratio = 0.5"})
    with pytest.raises(PolicyError, match="shieldfl-method-settings is no table in JSON"):
        VectorRun(node_config=config).start()


def test_a_shared_secret_comes_where_clients_open():
    with pytest.raises(ParameterError, match="clients of dict-pfl share a secret"):
        VectorRun(method="dict-pfl", opener="authority").start()


def test_a_grid_without_enough_nodes_says_how_many_are_missing():
    run = VectorRun(clients=2)
    with pytest.raises(TimeoutError, match="2 of 3 nodes are there after 0 s"):
        Exchange(run.grid, 0.01).nodes(3)


def test_a_run_that_waits_for_nodes_says_so_at_once_and_every_ten_seconds(monkeypatch, caplog):
    """Flower's simulation has two nodes unless told otherwise: the run waited an hour without a word."""
    caplog.set_level("INFO")
    run, seconds = VectorRun(clients=4), iter(range(100))
    run.grid.hidden = set(list(run.grid.configs)[2:])
    clock = types.SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    monkeypatch.setattr("shieldfl.flower.exchange.time", clock)
    with pytest.raises(TimeoutError, match="2 of 4 nodes are there after 25 s"):
        Exchange(run.grid, 25.0).nodes(4)
    said = [one.getMessage() for one in caplog.records if "waits for all" in one.getMessage()]
    assert len(said) == 3
    assert all("2 of 4 nodes" in one and '--federation-config "num-supernodes=4"' in one for one in said)


def test_a_strategy_has_a_run_once_it_is_started():
    strategy = ShieldStrategy(None, {"shieldfl.clients": 3})
    with pytest.raises(PolicyError, match="no run was begun: call start"):
        _ = strategy.session


OTHERS = {
    "method": "fedavg",
    "weighting": "uniform",
    "most-weight": 2**13,
    "opener": "aggregator",
    "buffers": "*running_mean",
}


@pytest.mark.every_run("opener", "method")
@pytest.mark.parametrize("name", OTHERS)
def test_a_run_is_gone_on_with_by_the_same_settings(tmp_path, name):
    """Others were ignored: the run went on with what it had begun with, and nothing said so."""
    weighted = {"samples": lambda context: 20, "weighting": "samples", "most_weight": 2**14}
    run = VectorRun(checkpoint=str(tmp_path / "run"), **weighted)
    cut_off(run, "round 2", "train")
    given = run.config | {"shieldfl.resume": True}
    run.config = given | {f"shieldfl.{name}": OTHERS[name]}
    with pytest.raises(PolicyError, match=f"differs in {name}"):
        run.start()
    run.config, run.rounds = given, 4
    with pytest.raises(PolicyError, match="differs in rounds"):
        run.start()
    run.rounds = 3
    run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})


def test_a_run_whose_clients_have_one_sample_each_is_gone_on_with(tmp_path):
    """It was told from one that weighs all alike by its largest weight, and refused."""
    run = VectorRun(checkpoint=str(tmp_path / "run"), samples=lambda context: 1, weighting="samples")
    cut_off(run, "round 2", "train")
    given = run.config | {"shieldfl.resume": True}
    run.config = given | {"shieldfl.weighting": "uniform"}
    with pytest.raises(PolicyError, match="differs in weighting"):
        run.start()
    run.config = given
    run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})


def test_a_journal_of_a_later_version_is_not_gone_on_with(tmp_path):
    with StepStore.create(tmp_path / "store", KEY) as store, store._transaction() as journal:
        journal.append("later", b"a" * 16)
    with pytest.raises(WireFormatError, match="row 1 of the journal is of a kind that this version does not"):
        StepStore(tmp_path / "store", KEY)
    with sqlite3.connect(tmp_path / "store") as connection:
        assert connection.execute("SELECT kind FROM journal").fetchall() == [("later",)]
    connection.close()
