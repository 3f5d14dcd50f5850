"""What an authority's store keeps of what was said of a round: its first message, and one reply for each phase."""

from __future__ import annotations

import pytest

from shieldfl.authority.authority_store import AuthorityStore, SessionRules, message_place
from shieldfl.errors import ParameterError, PolicyError

KEY, OWNER, SESSION, OTHER = bytes(range(32)), b"o" * 32, b"session of 16 b.", b"another session."
FIRST, SECOND = b"1" * 32, b"2" * 32


@pytest.fixture
def store(tmp_path):
    with AuthorityStore.create(tmp_path / "store", KEY, OWNER) as made:
        for session in (SESSION, OTHER):
            made.add_session(session, SessionRules(bytes(32), 2, 2))
        yield made


def test_what_was_said_is_said_again_and_nothing_else(store):
    store.keep_message(message_place(SESSION, 1), FIRST)
    store.keep_message(message_place(SESSION, 1, "update"), FIRST)
    rows = store.position.rows
    for _ in range(2):
        store.keep_message(message_place(SESSION, 1), FIRST)
        store.keep_message(message_place(SESSION, 1, "update"), FIRST)
        with pytest.raises(PolicyError, match="round 1 was begun with another first message"):
            store.keep_message(message_place(SESSION, 1), SECOND)
        with pytest.raises(PolicyError, match="phase 'update' of round 1 got another reply"):
            store.keep_message(message_place(SESSION, 1, "update"), SECOND)
    assert store.position.rows == rows
    # Other phases, rounds and sessions have their own.
    store.keep_message(message_place(SESSION, 1, "scores"), SECOND)
    store.keep_message(message_place(SESSION, 2, "update"), SECOND)
    store.keep_message(message_place(OTHER, 1, "update"), SECOND)
    store.keep_message(message_place(OTHER, 1), SECOND)


def test_replies_that_are_not_known_come_first_and_in_their_order(store):
    for phase in ("scores", "update"):
        store.keep_message(message_place(SESSION, 1, phase), FIRST)
    scores, update = (
        store.row_of_message(message_place(SESSION, 1, phase)) for phase in ("scores", "update")
    )
    assert 0 < scores < update
    assert store.row_of_message(message_place(SESSION, 2, "update")) == 0

    def waits(known, *asked):
        try:
            store.check_replies_are_known(message_place(SESSION, *asked), known)
        except PolicyError as error:
            return int(str(error).split()[3])
        return 0

    assert waits(0, 1, "scores") == 0
    assert waits(0, 1, "update") == waits(0, 2, "update") == waits(0, 1, "votes") == waits(0, 2) == 2
    assert waits(0, 1) == 0  # their own round is begun once more to ask for them
    assert waits(scores, 1, "scores") == waits(scores, 1, "update") == 0
    assert waits(scores, 2, "update") == waits(scores, 2) == 1
    assert waits(update, 1, "scores") == waits(update, 2, "update") == waits(update, 2) == 0
    store.check_replies_are_known(message_place(OTHER, 2, "update"), 0)


def test_they_are_there_when_the_file_is_opened_again(store, tmp_path):
    store.keep_message(message_place(SESSION, 1, "update"), FIRST)
    store.close()
    with AuthorityStore(tmp_path / "store", KEY, OWNER) as again:
        with pytest.raises(PolicyError):
            again.keep_message(message_place(SESSION, 1, "update"), SECOND)
        assert again.row_of_message(message_place(SESSION, 1, "update"))


def test_only_what_begun_sessions_say_is_kept(store):
    with pytest.raises(PolicyError, match="no such session"):
        store.keep_message(message_place(b"x" * 16, 1, "update"), FIRST)
    with pytest.raises(PolicyError, match="no such session"):
        store.keep_message(message_place(b"x" * 16, 1), FIRST)
    for wrong in (b"short", "1" * 32):
        with pytest.raises(ParameterError):
            store.keep_message(message_place(SESSION, 1, "update"), wrong)
        with pytest.raises(ParameterError):
            store.keep_message(message_place(SESSION, 1), wrong)
    with pytest.raises(ParameterError):
        store.keep_message(message_place(SESSION, 1, ""), FIRST)
