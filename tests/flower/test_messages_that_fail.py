"""Messages that are lost, late, repeated, altered or of another round: no wrong model, no second frame."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Message

from flower.loopback_grid import FIRST_NODE
from flower.vector_app import VectorRun
from shieldfl.errors import PolicyError
from shieldfl.flower.wire import ASK, MESSAGE, message_in

ALL = [0, 1, 2, 3]


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


def test_all_is_well_without_faults():
    run = VectorRun()
    result = run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})
    assert result.train_metrics_clientapp[3]["loss"] == pytest.approx(1 / 3)
    assert sorted(run.trained) == [(client, number) for client in ALL for number in (1, 2, 3)]


@pytest.mark.every_run("settings0-after", "settings1-before")
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("settings", [{}, {"opener": "aggregator"}, {"opener": "authority"}])
def test_a_client_whose_message_or_reply_is_lost_comes_back_with_the_same_model(where, settings):
    run = VectorRun(**settings)
    setattr(run.grid, where, loses(2, "train", 2))
    run.start()
    run.check({1: ALL, 2: [0, 1, 3], 3: ALL})


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_evaluation_that_is_lost_leaves_no_client_behind(where):
    run = VectorRun()
    setattr(run.grid, where, loses(3, "model", 1))
    run.start()
    run.check({1: ALL, 2: ALL, 3: ALL})


def test_a_message_that_comes_twice_is_answered_twice_alike_and_trained_once():
    run = VectorRun()
    begun, replies = [], []

    def twice(node, message):
        if message.content[ASK]["kind"] == "train" and not begun:
            begun.append(node)
            run.grid._delivered(_copy(message, node))

    def keep(node, reply):
        if number_of(node) == 0 and reply.content[ASK]["kind"] == "train":
            replies.append(message_in(reply.content).to_bytes())

    run.grid.before, run.grid.after = twice, keep
    run.start()
    assert len(replies) == 4  # of three rounds, of the first one twice
    assert replies[0] == replies[1]
    assert run.trained.count((0, 1)) == 1
    run.check({1: ALL, 2: ALL, 3: ALL})


def _copy(message, node):
    copied = Message(
        message.content.copy(), node, message.metadata.message_type, group_id=message.metadata.group_id
    )
    copied.metadata.__dict__["_message_id"] = "again"
    return copied


def test_a_message_of_an_earlier_round_that_comes_late_changes_nothing():
    run, kept, late = VectorRun(), [], []

    def hook(node, message):
        if number_of(node) != 1 or message.content[ASK]["kind"] != "train":
            return
        kept.append(_copy(message, node))
        if len(kept) == 3 and not late:
            late.append(True)
            late.append(run.grid._delivered(kept[0]))

    run.grid.before = hook
    run.start()
    assert "is over since round" in late[1].error.reason
    run.check({1: ALL, 2: ALL, 3: ALL})


@pytest.mark.every_run("before-10]", "after--1")
@pytest.mark.parametrize("position", [10, 1_000, -1])
@pytest.mark.parametrize("where", ["before", "after"])
def test_an_altered_message_costs_a_client_the_round_and_nothing_else(where, position):
    run, altered = VectorRun(), []

    def hook(node, message):
        if not message.has_content() or MESSAGE not in message.content or altered:
            return
        if message.content[ASK]["kind"] == "train" and message.metadata.group_id == "round 2":
            array = message.content[MESSAGE]["message"]
            data = bytearray(array.data)
            data[min(position, len(data) - 1)] ^= 1
            array.data = bytes(data)
            altered.append(number_of(node))

    setattr(run.grid, where, hook)
    run.start()
    others = [client for client in ALL if client not in altered]
    run.check({1: ALL, 2: others, 3: ALL})


def test_a_round_with_too_few_is_given_up_with_reasons_and_the_next_one_trains_anew(caplog):
    run = VectorRun(min_clients=3)

    def hook(node, message):
        return message.metadata.group_id != "round 2" or number_of(node) < 2

    run.grid.before = hook
    run.start()
    run.check({1: ALL, 3: ALL})
    reasons = [one.getMessage() for one in caplog.records if "was given up" in one.getMessage()]
    assert reasons == [
        "shieldfl: round 2 was given up: client 2: it has not answered in time; client 3: it has not answered in time"
    ]


def test_an_update_that_was_sent_in_a_round_that_was_given_up_is_not_sent_again():
    run = VectorRun(min_clients=3, rounds=3)
    run.train = lambda client, number, shape: np.full(
        shape, 0.01 * (client + 1) * (number != 3) + 0.01, np.float32
    )
    run.grid.after = lambda node, reply: reply.metadata.group_id != "round 1" or number_of(node) < 2
    run.start()
    # In round 2 all train what they have trained in round 1, which came to nothing: they leave it. Round 3 is new.
    assert len(run.trained) == 12
    assert set(run.strategy.session.clients.failures) == set()
    run.check({3: ALL})


def test_a_run_of_which_no_round_ends_fails():
    run = VectorRun()
    run.grid.before = lambda node, message: message.metadata.group_id == "set-up"
    with pytest.raises(PolicyError, match="not one round ended"):
        run.start()


def test_nodes_that_come_later_are_left_out_and_one_that_goes_is_missed(caplog):
    run = VectorRun(nodes=5)
    run.grid.hidden = {FIRST_NODE + 4}

    def hook(node, message):
        if message.metadata.group_id == "evaluation 1":
            run.grid.hidden = {FIRST_NODE}

    run.grid.before = hook
    run.start()
    assert any("no clients of this run" in one.getMessage() for one in caplog.records)
    del run.evaluated[0]  # it was there in the first round alone
    run.check({1: ALL, 2: [1, 2, 3], 3: [1, 2, 3]})
    assert sorted(run.trained) == [(0, 1)] + [
        (client, number) for client in (1, 2, 3) for number in (1, 2, 3)
    ]


def test_a_client_whose_training_fails_again_and_again_keeps_up_with_the_model():
    run = VectorRun(rounds=6)
    run.grid.after = lambda node, reply: (
        number_of(node) != 1 or reply.metadata.group_id not in ("round 2", "round 3", "round 4", "round 5")
    )
    run.start()
    run.check({1: ALL, 6: ALL} | {number: [0, 2, 3] for number in (2, 3, 4, 5)})
