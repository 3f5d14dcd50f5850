"""A sum that nobody can use is spoiled for all clients alike: no aggregator makes it so for some of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from encryption.wire_twin import reseal
from methods.method_conformance import SteppedRun, contraction
from methods.method_conformance import run_of as run_opened_by
from methods.variants import CLIENTS
from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, RangeError, ShieldError
from shieldfl.rounds.opening_rule import ANSWERED_PHASE, ANSWERED_ROUND

LABELS = ["full-he", "selective-shield/encrypted", "dict-pfl", "fedml-he", "mask-crypt"]
VICTIM = 0


run_of = partial(run_opened_by, opener="clients")


def models_of(run: SteppedRun) -> list[Message]:
    return [client.global_model(run.model) for client in run.clients]


def spoils(phase_spoiled: str, part: str):
    """One client alters one byte of its frame."""

    def intrude(phase, aggregator, messages):
        if phase == phase_spoiled:
            frame = bytearray(messages[CLIENTS - 1][part])
            frame[len(frame) // 2] ^= 1
            messages[CLIENTS - 1] = Message({**messages[CLIENTS - 1], part: reseal(bytes(frame))})

    return intrude


def lost_end(run: SteppedRun) -> Message:
    """Run a round whose end the victim does not get; return that end."""
    client = run.clients[VICTIM]
    honest, client.end_round = client.end_round, lambda message: None
    run.run_round()
    client.end_round = honest
    return run.answers["update"]


ROUNDS_SAID = [0, 1, 3, 4, 100, 101, 2**40]
PHASES_SAID = ["update", "negotiate", "scores", "count"]
# Every round with every phase, and every method with every phase; the rest of all three is slow.
SAID = [
    pytest.param(label, number, phase, marks=[] if (i + j + k) % len(LABELS) == 0 else [pytest.mark.slow])
    for i, label in enumerate(LABELS)
    for j, number in enumerate(ROUNDS_SAID)
    for k, phase in enumerate(PHASES_SAID)
]


@pytest.mark.parametrize(("label", "round_said", "phase_said"), SAID)
def test_no_client_is_told_of_another_round_or_phase_so_that_it_cannot_open_what_others_do(
    label, round_said, phase_said
):
    run = run_of(label)
    run.run_round()
    end = lost_end(run)
    victim, before = run.clients[VICTIM], run.clients[VICTIM].global_model(run.model)
    history = victim._opening._history
    lie = {ANSWERED_ROUND: Message.from_number(round_said), ANSWERED_PHASE: phase_said.encode()}
    with pytest.raises(ShieldError):
        victim.end_round(Message({**end, **lie}))
    assert victim._opening._history == history
    assert victim.global_model(run.model) == before
    victim.end_round(end)
    assert models_of(run) == models_of(run)[:1] * CLIENTS
    run.run_round()
    assert models_of(run) == models_of(run)[:1] * CLIENTS


@pytest.mark.every_run("selective-shield/encrypted-True", "dict-pfl-False", "full-he-True")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("label", LABELS)
def test_a_spoiled_round_is_one_for_all_who_take_it_in_whichever_order(label, restarts):
    run = run_of(label, restarts_roles=restarts)
    run.run_round()
    before = models_of(run)
    run.run_round(intrude=spoils("update", "ciphertexts"))
    assert models_of(run) == before
    for client in run.clients:
        client.end_round(run.answers["update"])
    assert models_of(run) == before
    run.run_round([0, 1, 2])
    run.run_round()
    after = models_of(run)
    assert after == after[:1] * CLIENTS
    assert after != before


@pytest.mark.parametrize("is_spoiled", [True, False])
def test_what_was_in_a_spoiled_sum_is_in_no_other_one(is_spoiled):
    """Who has spoiled it knows by what. Sent again by others, without the victim, it were the victim's update."""

    def once(number, client, start):
        if number == 1:
            return contraction(number, client, start)
        return start.trained(start.parameters, start.buffers)

    run = run_of("dict-pfl", train=once)
    if is_spoiled:
        run.run_round(intrude=spoils("update", "ciphertexts"))
    else:  # a round that is given up tells nobody, and its updates are sent again
        with pytest.raises(PolicyError, match="min_clients"):
            run.run_round(dropping=[1, 2, 3])
    run.run_round([1, 2, 3])
    moved = (
        run.clients[1].global_model(run.model).vector("parameters", np.float32, run.initial.parameters.size)
    )
    assert np.array_equal(moved, run.initial.parameters) == is_spoiled


def test_a_run_whose_one_sum_of_scores_is_spoiled_does_not_go_on_and_sends_nothing_in_the_clear():
    """Another sum of the same scores would tell of single clients: none is answered."""
    run = run_of("fedml-he")
    for number in (1, 2):
        with pytest.raises(RangeError, match="no sum that can be used"):
            run.run_round(intrude=spoils("scores", "scores") if number == 1 else None)
        for client in run.clients:  # the first one's refusal has ended the round for the others, too
            client.catch_up([run.answers["scores"]])
        assert "update" not in run.sent
