"""A server that says to each client what it likes: it gets no single update, and no client another model."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord

from flower.test_messages_that_fail import ALL, number_of
from flower.vector_app import SHAPES, VectorRun, as_arrays
from shieldfl.errors import PolicyError
from shieldfl.flower.begun_run import BegunRun
from shieldfl.flower.participants import Participants
from shieldfl.flower.wire import ASK, MESSAGE, message_in, packed
from shieldfl.roles.message import Message as RoleMessage


@pytest.mark.every_run("more-train", "[arrays-model", "no arrays-train")
@pytest.mark.parametrize("kind", ["train", "model"])
@pytest.mark.parametrize("record", ["arrays", "more", "no arrays"])
def test_a_model_of_the_servers_own_is_not_trained_or_evaluated(kind, record):
    """Beside the signed one it would be another for each client: with one that does not move, a sum is one update."""
    run, sevens = VectorRun(), {name: np.full(shape, 7.0, np.float32) for name, shape in SHAPES.items()}

    def lie(node, message):
        if number_of(node) == 1 and message.content[ASK]["kind"] == kind:
            beside = ConfigRecord({"x": 1}) if record == "no arrays" else ArrayRecord(as_arrays(sevens))
            message.content["more" if record == "more" else "arrays"] = beside

    run.grid.before = lie
    run.start()
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
    made = BegunRun.made
    monkeypatch.setattr(BegunRun, "made", lambda planned, authority, said: made(planned, authority, weights))
    run = VectorRun(opener="aggregator", weighting="samples", samples=samples)
    with pytest.raises(PolicyError, match="another weight than its number of samples"):
        run.start()
    assert {number for _, number in run.trained} <= {
        1
    }  # by which samples were counted: nothing of it has left


@pytest.mark.parametrize("part", ["weight", "index", "layout", "other"])
def test_no_part_of_the_set_up_s_message_takes_the_place_of_what_was_looked_at(part):
    """The record beside it says that all count by their samples; the message, that the target counts 2^14."""
    run = VectorRun(
        opener="aggregator", weighting="samples", samples=lambda context: 20, most_weight=2**14, rounds=1
    )

    def lie(node, message):
        if message.content[ASK]["kind"] == "set-up":
            number = 2**14 if number_of(node) == 0 else 1
            brought = RoleMessage({**message_in(message.content), part: RoleMessage.from_number(number)})
            message.content[MESSAGE] = packed(brought)

    run.grid.before = lie
    with pytest.raises(PolicyError, match="brings parts that no set-up has"):
        run.start()
    assert run.trained == []


def test_a_client_does_not_take_a_plan_in_which_others_may_count_more(monkeypatch):
    def not_counted(participants, *arguments):
        for one in participants.by_index.values():
            one.samples = 1

    monkeypatch.setattr(Participants, "count", not_counted)
    run = VectorRun(opener="aggregator", weighting="samples", most_weight=2**14)
    with pytest.raises(PolicyError, match="another weight than its number of samples"):
        run.start()
    assert run.trained == []


def test_a_node_that_pins_an_authority_takes_no_other_in_a_process_that_uses_ray_either(tmp_path):
    pinned = {"shieldfl-authority-key": "11" * 32}
    run = VectorRun(node_config=lambda number: {"shieldfl-store": str(tmp_path / str(number))} | pinned)
    with pytest.raises(PolicyError, match="under a key authority that it pins"):
        run.start()
    assert run.trained == []


# Each name with three values, each value with two names, and the one number that need not be there; the rest is slow.
NO_NUMBERS = [
    pytest.param(name, value, marks=[] if i % 2 == j % 2 or (i, j) == (3, 0) else [pytest.mark.slow])
    for i, name in enumerate(["events-known", "round", "participants", "position"])
    for j, value in enumerate([None, "x", 1.5, -1, 2**63 - 1 + 0.0, [1.0, 2.0]])
]


@pytest.mark.every_run("position-x", "round--1", "events-known-None", "participants-9.2")
@pytest.mark.parametrize(("name", "value"), NO_NUMBERS)
def test_numbers_that_are_none_are_refused_in_words(name, value):
    run, reasons = VectorRun(), []

    def lie(node, message):
        if number_of(node) == 1 and message.metadata.group_id == "round 2":
            if value is None:
                del message.content[ASK][name]
            else:
                message.content[ASK][name] = value

    def after(node, reply):
        if number_of(node) == 1 and reply.metadata.group_id == "round 2" and reply.has_error():
            reasons.append(reply.error.reason)

    run.grid.before, run.grid.after = lie, after
    run.start()
    if (name, value) != ("position", None):
        assert reasons
        assert all(one.startswith("WireFormatError: the message does not say") for one in reasons)
    run.check({1: ALL, 2: ALL if not reasons else [0, 2, 3], 3: ALL})
