"""A node that says what it likes: others go on without it."""

from __future__ import annotations

import math

import pytest
from flwr.app import MetricRecord

from flower.loopback_grid import FIRST_NODE
from flower.test_messages_that_fail import ALL, number_of
from flower.vector_app import VectorRun
from shieldfl.flower.wire import ASK


@pytest.mark.parametrize("position", [[math.inf, 1.0], [1], "far", None])
def test_a_reply_with_a_position_that_is_none_costs_its_client_the_round(position):
    run = VectorRun()

    def lie(node, reply):
        if number_of(node) == 1 and reply.metadata.group_id == "round 2":
            if position is None:
                del reply.content[ASK]["position"]
            else:
                reply.content[ASK]["position"] = position

    run.grid.after = lie
    run.start()
    run.check({1: ALL, 2: [0, 2, 3], 3: ALL})


@pytest.mark.parametrize(
    "lie", [{"shieldfl": "0"}, {"position": [math.inf]}, {"samples": "x"}, {"samples": -1}]
)
def test_a_node_that_cannot_take_part_keeps_no_run_from_beginning(lie):
    run = VectorRun(nodes=5)

    def after(node, reply):
        if number_of(node) == 4 and not reply.has_error() and reply.content[ASK]["kind"] == "hello":
            for name, value in lie.items():
                reply.content[ASK][name] = value

    run.grid.after = after
    run.start()
    run.check(dict.fromkeys((1, 2, 3), ALL))


def resumed(tmp_path, after, before=None):
    """Return a run that was ended in round 2 and gone on with, with a fifth node beside its clients."""
    run = VectorRun(nodes=5, checkpoint=str(tmp_path / "run"))

    def end(node, message):
        if message.metadata.group_id == "round 2":
            raise KeyboardInterrupt

    run.grid.before, run.grid.after = end, after
    with pytest.raises(KeyboardInterrupt):
        run.start()
    run.grid.before = before
    run.config["shieldfl.resume"] = True
    run.start()
    return run


@pytest.mark.every_run("[2]", "[99]")
@pytest.mark.parametrize("index", [2, 4, 99])
def test_a_node_that_says_it_was_another_client_takes_nobodys_place(tmp_path, index):
    def lie(node, reply):
        if node == FIRST_NODE + 4 and not reply.has_error() and reply.content[ASK]["kind"] == "hello":
            reply.content[ASK]["index"] = index

    resumed(tmp_path, lie).check(dict.fromkeys((1, 2, 3), ALL))


def test_a_loss_that_is_no_number_keeps_no_run_from_going_on(tmp_path):
    def lie(node, reply):
        if not reply.has_error() and "loss" in reply.content.get("metrics", {}):
            reply.content["metrics"] = MetricRecord({"num-examples": 1, "loss": math.nan})

    resumed(tmp_path, lie).check(dict.fromkeys((1, 2, 3), ALL))
