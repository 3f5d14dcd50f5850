"""What a role refuses leaves it as it was, and what was opened is told once, whatever becomes of it."""

from __future__ import annotations

import numpy as np
import pytest

from methods.method_conformance import SteppedRun, contraction
from methods.variants import CLIENTS, PARAMETERS, Variant, labelled
from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, RangeError, ShieldError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.privacy.events import OpenedSum
from shieldfl.stateful import encode_record


class NotAskedError(Exception):
    """The authority is not asked."""


def asked(variant: Variant, phase: str = "update", **changes) -> tuple[SteppedRun, Message]:
    """A run whose first round goes on until the authority is asked in this phase, and what it is asked."""
    run, questions = SteppedRun(variant, **changes), []
    answer = run.authority.answer

    def stop(asked_phase, message):
        if asked_phase != phase:
            return answer(asked_phase, message)
        questions.append(message)
        raise NotAskedError

    run.authority.answer = stop
    with pytest.raises(NotAskedError):
        run.run_round()
    run.authority.answer = answer
    return run, questions[0]


def record(role) -> bytes:
    return bytes(encode_record(role.changed(), {}))


def refused(role, error: type[Exception], words: str, ask) -> None:
    before = record(role)
    for _ in range(2):
        with pytest.raises(error, match=words):
            ask()
    assert record(role) == before


def test_a_refused_total_does_not_change_the_zone_that_an_authority_holds():
    run, message = asked(labelled("selective-shield/clear"))
    others = {name: part for name, part in message.items() if name != "sums"}
    refused(
        run.authority,
        WireFormatError,
        "no part 'sums'",
        lambda: run.authority.answer("update", Message(others)),
    )
    run.authority.answer("update", message)


def test_a_refused_question_draws_nothing():
    run, _ = asked(labelled("dict-pfl"), "count")
    ask = Message({"round": Message.from_number(2)})
    refused(run.authority, PolicyError, "round 2 does not run", lambda: run.authority.answer("count", ask))


@pytest.mark.parametrize(
    ("label", "phase", "answer", "words"),
    [
        ("mask-crypt", "ranking", {"zone": b""}, "truncated"),
        ("batch-crypt", "ranges", {"bounds": np.full(4, 0.25).tobytes(), "zone": b""}, "settled"),
    ],
)
def test_a_client_keeps_what_it_has_where_an_answer_is_refused(label, phase, answer, words):
    run = SteppedRun(labelled(label))
    run.run_round()
    client = run.clients[0]
    client.finish_training(contraction(2, 0, client.begin_round(2, CLIENTS, run.begin_round(2))))
    client.step(phase, None)
    refused(client, ShieldError, words, lambda: client.step("update", Message(answer)))


@pytest.mark.parametrize("label", ["selective-shield/clear", "mask-crypt", "sense-crypt/ckks", "fedml-he"])
def test_sums_that_no_model_can_take_are_refused_before_a_total_is_opened(label):
    run, message = asked(labelled(label), server_learning_rate=1e3)
    name = "sums 0" if "sums 0" in message else "sums"
    too_large = np.full(len(message[name]) // 4, 3e38, dtype=np.float32)
    run.authority.report()
    refused(
        run.authority,
        RangeError,
        "not finite",
        lambda: run.authority.answer("update", Message({**message, name: too_large.tobytes()})),
    )
    assert run.authority.report().events == ()
    run.authority.answer("update", message)
    assert run.authority.report().events == (OpenedSum(1),)


def test_sums_at_positions_of_the_encrypted_zone_do_not_count():
    run, message = asked(labelled("selective-shield/clear"))
    sums = message.vector("sums", np.float32, PARAMETERS).copy()
    zone = Mask.from_bytes(message["encrypted zone"])
    assert zone.count
    zone.scatter(np.full(zone.count, 3e38, dtype=np.float32), sums)
    altered = run.authority.answer("update", Message({**message, "sums": sums.tobytes()}))
    again, honest = asked(labelled("selective-shield/clear"))
    assert altered == again.authority.answer("update", honest)


@pytest.mark.parametrize(
    "label", ["full-he", "dict-pfl", "batch-crypt", "sense-crypt/ckks", "selective-shield/clear"]
)
def test_a_sum_that_was_opened_for_nothing_is_told(label):
    """With the server's learning rate its values are too large for a model: that shows once they are known."""
    run, message = asked(labelled(label), server_learning_rate=1e45)
    message = Message(
        {name: bytes(len(part)) if name.startswith("sums") else part for name, part in message.items()}
    )
    run.authority.report()
    for _ in range(2):
        with pytest.raises(RangeError, match="not finite"):
            run.authority.answer("update", message)
        # Each time: what was told before may have been lost with a process, and an account counts rounds.
        assert run.authority.report().events == (OpenedSum(1),)
