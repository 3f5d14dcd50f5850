"""Clients of one process open a total once, and only where each by itself would come to the same."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun
from methods.variants import each_as_parameter, labelled, opened_by_clients
from shieldfl.authority.message import Message
from shieldfl.authority.total_opener import AnswerOpener
from shieldfl.errors import KeyMismatchError, ShieldError
from shieldfl.rounds.messages import ANSWER
from shieldfl.rounds.opening_rule import OpenedTogether

CLIENTS = 4
LABELS = (
    "full-he",
    "selective-shield/encrypted",
    "sense-crypt/clusters",
    "dict-pfl",
    "fedml-he/paillier-dense",
)


def sharing_run(variant) -> SteppedRun:
    """A run whose clients open together; one that shares nothing is the same without this."""
    run = SteppedRun(variant)
    run.together = OpenedTogether(CLIENTS)
    for client in run.clients:
        client.open_together(run.together)
    return run


def full_he() -> SteppedRun:
    (variant,) = opened_by_clients([labelled("full-he")])
    return sharing_run(variant)


@pytest.fixture
def openings(monkeypatch):
    """Totals that were opened, by their digest."""
    found = []
    honest = AnswerOpener._answer
    monkeypatch.setattr(
        AnswerOpener, "_answer", lambda self, total: (found.append(total.digest()), honest(self, total))[1]
    )
    return found


@pytest.mark.parametrize("variant", each_as_parameter(opened_by_clients(map(labelled, LABELS))))
def test_clients_that_share_have_the_models_of_clients_that_do_not(variant):
    shared, alone = sharing_run(variant), SteppedRun(variant)
    for participants in ([0, 1, 2, 3], [0, 1, 2], [1, 2, 3], [0, 1, 2, 3]):
        for run in (shared, alone):
            run.run_round(participants)
    for client in range(CLIENTS):
        own, other = shared.merged(client), alone.merged(client)
        np.testing.assert_array_equal(own.parameters, other.parameters)
        np.testing.assert_array_equal(own.buffers, other.buffers)


def test_each_total_is_opened_once_and_kept_until_all_have_it(openings):
    run = full_he()
    run.run_round([0, 1, 2])
    run.run_round([0, 1, 2])
    assert len(openings) == len(set(openings)) == 2
    assert len(run.together._known) == 2
    run.run_round([1, 2, 3])  # opens what it has missed
    assert len(openings) == len(set(openings)) == 3
    assert len(run.together._known) == 1
    run.run_round([0, 1, 2, 3])
    assert len(openings) == 4
    assert not run.together._known


def test_the_seconds_of_the_first_one_count_for_all(monkeypatch):
    run = full_he()
    monkeypatch.setattr(type(run.clients[0]._opening.opener), "repeat", lambda *arguments: None)
    clock = iter((0.0, 5.0, 10.0, 11.0))  # begin and end of each
    monkeypatch.setattr("shieldfl.rounds.opening_rule.time.perf_counter", lambda: next(clock))
    for client in run.clients[:2]:
        run.together.open(
            b"history", Message(), "update", 1, Message(), client._opening, lambda: (Message(), b"")
        )
    monkeypatch.undo()
    assert run.together.take_saved() == 4.0
    assert run.together.take_saved() == 0.0


def test_what_others_have_opened_lets_nobody_take_an_altered_end():
    run = full_he()
    run.run_round([0, 1, 2])
    end = run.answers["update"]
    late = run.clients[3]
    before = late.merged_model(run.model).parameters.copy()
    forged = bytearray(end[ANSWER])
    forged[-1] ^= 1
    with pytest.raises(KeyMismatchError):
        late.end_round(Message({**end, ANSWER: bytes(forged)}))
    with pytest.raises(ShieldError):
        late.end_round(Message({**end, "total": bytes(end["total"])[:-1]}))
    np.testing.assert_array_equal(late.merged_model(run.model).parameters, before)
    late.end_round(end)
    np.testing.assert_array_equal(late.merged_model(run.model).parameters, run.merged(0).parameters)


def test_an_opener_that_stands_elsewhere_opens_by_itself(openings):
    run = full_he()
    run.run_round([0, 1, 2])
    late = run.clients[3]._opening.opener.rule
    late.model = late.model.moved(np.ones(run.merged(0).parameters.size + run.merged(0).buffers.size), 1.0)
    run.clients[3].end_round(run.answers["update"])
    assert len(openings) == 2
    assert not np.array_equal(run.merged(3).parameters, run.merged(0).parameters)


def test_a_client_that_was_granted_nothing_opens_nothing_that_others_have():
    run = full_he()
    run.run_round([0, 1, 2])
    stranger = run.new_client(3)
    stranger.open_together(run.together)
    with pytest.raises(ShieldError, match="granted no answers"):
        stranger.end_round(run.answers["update"])


def test_an_end_that_was_missed_is_read_once_from_one_object_and_anew_from_others():
    together = OpenedTogether(CLIENTS)
    end = Message({"round": bytes(8), "total": b"sums"}).to_bytes()
    assert together.read(end) is together.read(end)
    assert together.read(end) == together.read(memoryview(end)) == together.read(bytes(bytearray(end)))
    assert together.read(memoryview(end)) is not together.read(end)
    assert together.read(bytes(bytearray(end))) is not together.read(end)
    # What somebody can write to is read as it is now.
    written = bytearray(end)
    before = together.read(memoryview(written))
    written[-4:] = b"SUMS"
    assert bytes(together.read(memoryview(written))["total"]) == b"SUMS"
    assert before is not together.read(memoryview(written))
