"""A client that forgets a finished round holds no more than one that was never in any, and goes on as it would have."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, run_of
from methods.variants import each_as_parameter, variants
from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError

LABELS = ("fedavg", "full-he", "selective-shield/encrypted", "dict-pfl", "dp-sgd")


@pytest.mark.parametrize("variant", each_as_parameter([one for one in variants() if one.label in LABELS]))
def test_rounds_come_to_what_they_did_without(variant):
    forgetting, keeping = SteppedRun(variant), SteppedRun(variant)
    for participants in ([0, 1, 2, 3], [0, 1, 2], [1, 2, 3]):
        for run in (forgetting, keeping):
            run.run_round(participants)
        for client in participants:
            forgetting.clients[client].forget_round()
    for client in range(4):
        own, other = forgetting.merged(client), keeping.merged(client)
        np.testing.assert_array_equal(own.parameters, other.parameters)
        np.testing.assert_array_equal(own.buffers, other.buffers)


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
