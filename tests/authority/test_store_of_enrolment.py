"""What the memory of an authority keeps of enrolment: grants, and what opens requests until the last client came."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from authority.store_cases import CLIENTS, RULES, SESSION, ask, key_of, never, opened, parts_left, sealed_rows
from shieldfl.authority.authority_store import ClientKey, Grant
from shieldfl.errors import PolicyError, WireFormatError


def test_what_a_client_got_for_its_enrolment_is_there_until_it_is_revoked(store, path):
    granted = {20: Grant(b"of twenty", b"r" * 32), 21: Grant(b"of twenty-one")}
    keys = {client: ClientKey(0, key_of(client)) for client in (20, 21, 22)}
    store.enrol(SESSION, keys, granted)
    store.close()
    with opened(path) as again:
        assert {client: again.grant(SESSION, client) for client in (20, 21, 22, 99)} == granted | {
            22: None,
            99: None,
        }
        again.revoke(SESSION, 20)
        assert again.grant(SESSION, 20) is None
        with pytest.raises(PolicyError, match="no such session"):
            again.grant(b"another session!", 20)
    with opened(path) as again:
        assert (again.grant(SESSION, 20), again.grant(SESSION, 21)) == (None, granted[21])
    assert b"of twenty" not in path.read_bytes()
    with opened(path, restored=True) as again, pytest.raises(PolicyError, match="begun in epoch 0"):
        again.grant(SESSION, 21)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM records WHERE kind = 'grant'").fetchone() == (0,)


def test_an_enrolment_key_is_kept_once_and_erased_for_good(store, path):
    kind = "kind = 'enrolment key'"
    assert store.keep_enrolment_key(None) is None
    assert store.keep_enrolment_key(b"the first") == b"the first"
    assert store.keep_enrolment_key(b"another") == store.keep_enrolment_key(None) == b"the first"
    store.close()
    was = sealed_rows(path, kind)
    assert was[0] in path.read_bytes()
    with opened(path) as again:
        assert again.keep_enrolment_key(None) == b"the first"
        again.end_enrolment()
        position = again.position
        again.end_enrolment()
        assert again.position == position
        assert again.keep_enrolment_key(b"another") is None
        with pytest.raises(PolicyError, match="enrolment has ended"):
            again.enrol(SESSION, {20: ClientKey(0, key_of(20))})
        assert ask(again, 1) == ask(again, 1, never)
    assert sealed_rows(path, kind) == []
    assert parts_left(was, path, 12)[1] == 0
    with opened(path) as again:
        assert again.keep_enrolment_key(b"another") is None
        with pytest.raises(PolicyError, match="enrolment has ended"):
            again.enrol(SESSION, {20: ClientKey(0, key_of(20))})


def test_enrolment_ends_with_the_last_client_of_all_sessions(store):
    other = b"another session!"
    store.add_session(other, RULES)
    store.keep_enrolment_key(b"key")
    many = len(CLIENTS) + 2

    def enrol(client, sessions):
        store.enrol_in(
            {session: {client: ClientKey(0, key_of(client))} for session in sessions}, clients=many
        )

    for client in CLIENTS:
        enrol(client, [other])
    enrol(20, [SESSION, other])
    assert store.keep_enrolment_key(None) == b"key"
    enrol(21, [SESSION, other])
    assert store.keep_enrolment_key(None) is None
    with pytest.raises(PolicyError, match="enrolment has ended"):
        enrol(22, [SESSION, other])


def test_who_opens_is_granted_answers_once_and_enrolment_ends_when_all_are_there(store, path):
    other, both = b"another session!", [SESSION, b"another session!"]
    store.add_session(other, RULES)
    store.keep_enrolment_key(b"key")
    granted = Grant(b"of the opener", b"r" * 32)
    assert store.grant(SESSION, None) is None
    before = store.position
    with pytest.raises(PolicyError, match="no such session"):
        store.grant_opener([SESSION, b"unknown session!"], granted)
    assert store.position == before
    store.grant_opener(both, granted, clients=len(CLIENTS))
    assert store.keep_enrolment_key(None) == b"key"
    with pytest.raises(PolicyError, match="granted the answers of this session before"):
        store.grant_opener([other], granted)
    store.close()
    with opened(path) as again:
        assert [again.grant(session, None) for session in both] == [granted, granted]
        assert all(again.grant(SESSION, client) is None for client in CLIENTS)
        with pytest.raises(PolicyError, match="not enrolled"):
            ask(again, 1, clients=[*CLIENTS, 0])
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM records WHERE kind = 'grant' AND session = ?", (other,))
        database.commit()
    with pytest.raises(WireFormatError, match="of the records of kind 'grant' there are 1 missing"):
        opened(path)


def test_the_grant_of_who_opens_ends_enrolment_where_it_comes_last(store):
    store.keep_enrolment_key(b"key")
    store.grant_opener([SESSION], Grant(b"of the opener"), clients=len(CLIENTS))
    assert store.keep_enrolment_key(None) is None
    with pytest.raises(PolicyError, match="enrolment has ended"):
        store.enrol(SESSION, {20: ClientKey(0, key_of(20))})
