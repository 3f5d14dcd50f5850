"""One reply for each phase of a round."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, RangeError
from shieldfl.rounds.opening_rule import Replies

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
