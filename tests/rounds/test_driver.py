"""The loop of a round over clients that answer in any order, or not at all; replies; rounds that clients forget."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from methods.method_conformance import SOME_ABSENT, SteppedRun, assert_same_models, initial_model, run_of
from methods.small_plan import small_plan
from methods.variants import each_as_parameter, variants
from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, RangeError
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.driver import RoundDriver
from shieldfl.rounds.opening_rule import Replies
from shieldfl.rounds.plan import GlobalModel, joined

CLIENTS = 3


class Backwards:
    """Clients that answer in the opposite order; those in ``gone`` train and are then never heard of."""

    def __init__(self, steps, gone=()):
        self._steps = steps
        self._gone = gone

    def begin_round(self, clients, round_number, participants, message_of):
        for index in reversed(clients):
            start = self._steps[index].begin_round(round_number, participants, message_of(index))
            moved = start.parameters + np.float32(index)
            self._steps[index].finish_training(start.trained(moved, start.buffers))

    def step(self, clients, phase, message_of):
        for index in reversed(clients):
            if index not in self._gone:
                answer = None if message_of is None else message_of(index)
                yield index, self._steps[index].step(phase, answer).to_bytes()

    def end_round(self, clients, message_of):
        for index in clients:
            self._steps[index].end_round(message_of(index))


def driver_of(gone=()):
    method = make_method("fedavg", MethodSettings(), small_plan(clients=CLIENTS))
    initial = initial_model()
    authority, setup = method.authority_setup(initial)
    steps = [method.client_steps(setup, index, 1, initial) for index in range(CLIENTS)]
    aggregator = method.aggregator_steps(setup, [1] * CLIENTS, initial=initial)
    account = method.account()
    clients = Backwards(steps, gone)
    return RoundDriver(method, authority, aggregator, clients, account)


@pytest.mark.parametrize(("gone", "mean"), [((), 1.0), ((2,), 0.5)])
def test_the_mean_is_of_those_who_answered(gone, mean):
    driver = driver_of(gone)
    traffic = driver.run_round(1, range(CLIENTS), min_clients=2)
    assert sorted(traffic.finished) == [index for index in range(CLIENTS) if index not in gone]
    assert traffic.senders == sorted(traffic.finished, reverse=True)
    moved = np.frombuffer(driver.model["parameters"], np.float32) - initial_model().parameters
    assert np.allclose(moved, mean, atol=1e-6)


def test_a_round_is_given_up_where_too_few_answer():
    driver = driver_of(gone=(1, 2))
    before = driver.model
    assert driver.run_round(1, range(CLIENTS), min_clients=2).finished == []
    assert driver.model is before


@pytest.mark.parametrize("name", ["fedavg", "dp-fedavg", "full-he", "selective-shield"])
def test_a_client_reads_the_model_once_a_round(name, monkeypatch):
    run = SteppedRun(next(variant for variant in variants() if variant.method == name))
    read, reading = [], GlobalModel.from_message
    monkeypatch.setattr(
        GlobalModel, "from_message", lambda *arguments: read.append(arguments) or reading(*arguments)
    )
    first = run.begin_round(1)
    run.clients[0].begin_round(1, 4, run.method.message_for(0, first))
    assert len(read) == 1


def test_vectors_are_joined_and_nothing_is_copied_without_buffers():
    parameters, buffers = np.arange(3, dtype=np.float32), np.ones(2, dtype=np.float32)
    assert joined(parameters, buffers).tolist() == [0.0, 1.0, 2.0, 1.0, 1.0]
    assert joined(parameters, buffers[:0]) is parameters


REQUEST, OTHER, REPLY = Message({"sum": b"1"}), Message({"sum": b"2"}), Message({"reply": b"1"})


def test_a_round_gets_one_reply_and_its_request_gets_it_again():
    replies = Replies()
    assert replies.given("update", 2, REQUEST) is None
    replies.keep("update", 2, REQUEST, REPLY)
    assert replies.given("update", 2, Message({"sum": b"1"})) is REPLY
    for number, request in ((2, OTHER), (2, None), (1, REQUEST)):
        with pytest.raises(PolicyError, match=r"round 2 has been answered in phase 'update'"):
            replies.given("update", number, request)
    assert replies.given("mask", 1, None) is None
    assert replies.given("update", 3, OTHER) is None
    replies.forget()
    for phase, request in (("update", REQUEST), ("update", None), ("other", None)):
        with pytest.raises(PolicyError, match="round 2 is over"):
            replies.given(phase, 2, request)
    assert replies.newest("update") == (2, Message())
    assert replies.given("update", 3, REQUEST) is None


@pytest.mark.parametrize("is_kept", [False, True])
def test_what_failed_was_not_answered_and_left_its_owner_as_it_was(is_kept):
    replies, owner = Replies(), SimpleNamespace(model=1)

    def answer() -> None:
        with replies.undone_unless_kept("update", 1, owner):
            owner.model = 2
            if is_kept:
                replies.keep("update", 1, None, REPLY)
            raise RangeError("not this time")

    with pytest.raises(RangeError):
        answer()
    assert (owner.model, replies.given("update", 1, None)) == ((2, REPLY) if is_kept else (1, None))


LABELS = ("fedavg", "full-he", "selective-shield/encrypted", "dict-pfl", "dp-sgd")


@pytest.mark.parametrize("variant", each_as_parameter([one for one in variants() if one.label in LABELS]))
def test_rounds_come_to_what_they_did_without(variant):
    forgetting, keeping = SteppedRun(variant), SteppedRun(variant)
    for participants in SOME_ABSENT:
        for run in (forgetting, keeping):
            run.run_round(participants)
        for client in participants:
            forgetting.clients[client].forget_round()
    assert_same_models(forgetting, keeping)


def test_nothing_of_a_forgotten_round_is_sent_or_trained_again():
    run = run_of("fedavg")
    run.run_round()
    client, first = run.clients[0], run.sent["update"][0]
    assert client.step("update", None) == first
    client.forget_round()
    assert client.update is client.start is run.clients[3]._initial  # which all clients share
    with pytest.raises(PolicyError, match="round 1 is over"):
        client.step("update", None)
    for model in (run.model, Message()):
        with pytest.raises(PolicyError, match="has sent something of it"):
            client.begin_round(1, 4, model)


def test_a_state_after_it_holds_neither_update_nor_message_and_is_gone_on_from():
    run = run_of("fedavg")
    run.run_round()
    client = run.clients[0]
    update = client.update.parameters.tobytes()
    message = bytes(run.sent["update"][0]["update"])
    assert update in client.state()
    assert message in client.state()
    client.forget_round()
    state = client.state()
    assert update not in state
    assert message not in state
    again = run.new_client(0)
    again.restore(state)
    with pytest.raises(PolicyError, match="round 1 is over"):
        again.step("update", None)
    run.clients[0] = again
    run.run_round()
    assert 0 in run.sent["update"]


def test_a_round_that_was_left_before_anything_was_sent_can_be_begun_again():
    run = run_of("fedavg")
    client = run.clients[0]
    start = client.begin_round(1, 4, run.model)
    client.forget_round()
    again = client.begin_round(1, 4, run.model)
    np.testing.assert_array_equal(start.parameters, again.parameters)
    assert not client.has_trained
    run.run_round()
    assert 0 in run.sent["update"]
