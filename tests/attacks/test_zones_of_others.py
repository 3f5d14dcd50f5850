"""An aggregator has clients encrypt other positions than those that the key authority said: it reads the rest."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction, signed_answer
from methods.variants import CLIENTS, labelled
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.errors import KeyMismatchError, PolicyError
from shieldfl.masks import Mask

AGREED = ["fedml-he", "fedml-he/paillier-dense", "alt-fl-pi", "alt-fl-si-he", "alt-fl-mp"]


NEGOTIATED = ["selective-shield/encrypted", "selective-shield/hidden"]


def negotiate(run: SteppedRun, number: int) -> tuple[str, Message]:
    """Begin a round and let all go through the phase before the update: its part that says a zone, and its answer."""
    first = run.begin_round(number)
    phase = run.method.phases_of(first, number)[0].name
    for index in range(CLIENTS):
        run.train_client(index, number, CLIENTS, first)
    run.aggregator.begin_phase(phase, number, None)
    for index, client in enumerate(run.clients):
        run.aggregator.receive(phase, index, client.step(phase, None))
    return "zone" if phase == "scores" else "encrypted zone", run.authority.answer(
        phase, run.aggregator.close(phase)
    )


def another_of_the_size(zone: Mask, parameters: int) -> Mask:
    """As many parameters, none of them the same, and all buffers."""
    others = np.flatnonzero(~zone.resized(parameters).to_bool())[: zone.resized(parameters).count]
    return Mask.from_indices(others, parameters).resized(zone.size, chosen=True)


@pytest.mark.parametrize("label", AGREED)
def test_no_answer_replaces_the_mask_of_the_signed_model_for_a_client_that_comes_late(label):
    run = SteppedRun(labelled(label))
    run.run_round([0, 1, 2])
    for number in (2, 3):
        first = run.begin_round(number)
        late = run.new_client(3)
        late.finish_training(contraction(number, 3, late.begin_round(number, CLIENTS, first)))
        lie = another_of_the_size(Mask.from_bytes(first["zone"]), run.method.plan.parameters)
        with pytest.raises(PolicyError, match="no signature"):
            late.step("update", Message({"zone": lie.to_bytes()}))
        with pytest.raises(PolicyError, match="signed model"):
            late.step("update", signed_answer(run, "scores", {"zone": lie.to_bytes()}))
        assert "ciphertexts" in late.step("update", None)


@pytest.mark.parametrize("label", AGREED + NEGOTIATED)
def test_no_zone_is_taken_that_the_authority_did_not_sign(label):
    """Neither by clients, who would send what it leaves out in the clear, nor by an honest aggregator."""
    run = SteppedRun(labelled(label))
    part, answer = negotiate(run, 1)
    zone = Mask.from_bytes(answer[part])
    lie = another_of_the_size(zone, run.method.plan.parameters) if part == "zone" else Mask.empty(zone.size)
    unsigned = Message({part: lie.to_bytes()})
    of_a_model = run.authority.keys.sign_model(digest_of_parts(unsigned), b"")["round model"]
    signed_otherwise = [
        Message({**answer, part: lie.to_bytes()}),
        Message({**answer, "more": b""}),
        Message({**unsigned, "round answer": of_a_model}),
        negotiate(SteppedRun(labelled(label)), 1)[1],
    ]
    takers = [
        lambda message: run.clients[0].step("update", message),
        lambda message: run.aggregator.begin_phase("update", 1, message),
    ]
    for take in takers:
        with pytest.raises(PolicyError, match="no signature"):
            take(unsigned)
        for message in signed_otherwise:
            with pytest.raises(KeyMismatchError, match="answer was not signed"):
                take(message)
    assert run.clients[0].disclosure.clear.count == run.clients[0].disclosure.noised.count == 0
    for take in takers:
        take(answer)


@pytest.mark.parametrize("label", NEGOTIATED)
def test_a_zone_of_an_earlier_round_is_not_taken_again(label):
    """It would leave out what has become sensitive since."""
    run = SteppedRun(labelled(label))
    _, old = negotiate(run, 1)
    _, answer = negotiate(run, 2)
    for take in (run.clients[0].step, lambda phase, message: run.aggregator.begin_phase(phase, 2, message)):
        with pytest.raises(KeyMismatchError, match="answer was not signed"):
            take("update", old)
        take("update", answer)
