"""One reply for each phase of a round."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, RangeError
from shieldfl.rounds.messages import Replies


def ask(replies: Replies, phase: str, round_number: int, request: Message | None, made: list) -> Message:
    def make() -> Message:
        made.append((phase, round_number))
        return Message({"reply": bytes([len(made)])})

    return replies.reply(phase, round_number, request, make)


def test_the_same_request_gets_the_same_reply_and_none_is_made_again():
    replies, made = Replies(), []
    first = ask(replies, "update", 1, Message({"sum": b"1"}), made)
    assert ask(replies, "update", 1, Message({"sum": b"1"}), made) is first
    assert ask(replies, "mask", 1, None, made) != first
    assert ask(replies, "mask", 1, None, made) == ask(replies, "mask", 1, None, made)
    assert made == [("update", 1), ("mask", 1)]


def test_another_request_of_an_answered_round_is_refused():
    replies, made = Replies(), []
    ask(replies, "update", 2, Message({"sum": b"1"}), made)
    for number, request in ((2, Message({"sum": b"2"})), (2, None), (1, Message({"sum": b"1"}))):
        with pytest.raises(PolicyError, match=r"round 2 has been answered in phase 'update'"):
            ask(replies, "update", number, request, made)
    ask(replies, "update", 3, Message({"sum": b"2"}), made)
    assert made == [("update", 2), ("update", 3)]


def test_what_failed_was_not_answered():
    replies, made = Replies(), []

    def fail() -> Message:
        raise RangeError("not this time")

    with pytest.raises(RangeError):
        replies.reply("update", 1, None, fail)
    ask(replies, "update", 1, Message({"sum": b"2"}), made)
    assert made == [("update", 1)]


def test_a_request_that_comes_again_while_it_is_answered_waits_for_the_reply():
    replies, made, second_has_come = Replies(), [], threading.Event()

    def make() -> Message:
        made.append("answered")
        # Ends at once where the second request gets in here too, otherwise waits in vain.
        second_has_come.wait(0.2)
        return Message({"reply": bytes([len(made)])})

    def ask_again() -> Message:
        return replies.reply("update", 1, Message({"sum": b"1"}), lambda: (second_has_come.set(), make())[1])

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(replies.reply, "update", 1, Message({"sum": b"1"}), make)
        second = pool.submit(ask_again)
        assert first.result() == second.result()
    assert made == ["answered"]


def test_what_was_forgotten_is_refused_and_later_rounds_are_answered():
    replies, made = Replies(), []
    request = Message({"sum": b"1"})
    ask(replies, "mask", 2, None, made)
    ask(replies, "update", 2, request, made)
    replies.forget()
    for phase, asked in (("mask", None), ("update", request), ("update", None), ("other", None)):
        with pytest.raises(PolicyError, match="round 2 is over"):
            ask(replies, phase, 2, asked, made)
    assert replies.newest("update") == (2, Message())
    ask(replies, "update", 3, request, made)
    assert made == [("mask", 2), ("update", 2), ("update", 3)]
