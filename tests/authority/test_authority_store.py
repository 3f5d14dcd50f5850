"""The memory of an authority: one answer for each session, round, purpose and client, for ever."""

from __future__ import annotations

import gc
import os
import random
import sqlite3
import struct
from collections import Counter
from contextlib import closing, suppress
from threading import Barrier

import numpy as np
import pytest

from authority.store_cases import (
    AUTHORITY,
    CLIENTS,
    DIGEST,
    KEY,
    RULES,
    SESSION,
    ask,
    begun,
    enrol,
    key_of,
    keys_of,
    listed,
    moved_to,
    never,
    opened,
    parts_left,
    random_answer,
    sealed_rows,
)
from on_threads import on_threads
from shieldfl.authority.authority_store import MOST_ROUNDS_AHEAD, AuthorityStore, Grant, StoredKeys
from shieldfl.authority.store import Place, StoreKeys
from shieldfl.errors import DataError, ParameterError, PolicyError, WireFormatError


def keys_in(store, clients=CLIENTS, round_number=None):
    """The keys that an answer would be computed from; nothing is answered."""
    seen = {}

    class NotNowError(Exception):
        pass

    def look(keys):
        columns = keys.clients.tolist(), keys.rounds.tolist(), keys.secrets
        seen.update({client: (at, secret.tobytes()) for client, at, secret in zip(*columns, strict=True)})
        raise NotNowError

    with pytest.raises(NotNowError):
        ask(store, round_number or 1, look, clients=clients, purpose="peek")
    return seen


def test_the_same_request_gets_the_same_bytes_and_nothing_is_computed(store):
    first = ask(store, 1)
    assert ask(store, 1, never) == first
    participants = listed(1)[::-1]
    assert store.answer(SESSION, 1, "update", iter(participants), DIGEST, never) == first


def test_the_same_list_with_another_total_or_another_frame_is_another_request(store):
    ask(store, 1)
    with pytest.raises(PolicyError, match="another list or total"):
        ask(store, 1, never, digest=b"e" * 32)
    participants = listed(1)
    participants[3] = (participants[3][0], b"another frame id")
    with pytest.raises(PolicyError, match="another list or total"):
        store.answer(SESSION, 1, "update", participants, DIGEST, never)


def test_other_clients_rounds_purposes_and_sessions_are_other_occasions(store):
    other = b"another session!"
    store.add_session(other, RULES)
    enrol(store, other, keys_of(CLIENTS))
    answers = {
        ask(store, 1, clients=CLIENTS[:4]),
        ask(store, 1, clients=CLIENTS[4:]),
        ask(store, 1, purpose="votes"),
        ask(store, 2),
        store.answer(other, 1, "update", listed(1), DIGEST, random_answer),
    }
    assert len(answers) == 5


def test_a_round_far_ahead_is_refused_since_it_would_end_all_before(store):
    with pytest.raises(PolicyError, match="above 0, the oldest"):
        ask(store, MOST_ROUNDS_AHEAD + 1, never)
    with pytest.raises(PolicyError, match="above 0, the oldest"):
        store.close_round(SESSION, MOST_ROUNDS_AHEAD + 1, never)
    ask(store, MOST_ROUNDS_AHEAD)


def test_answers_are_kept_for_as_many_rounds_as_was_said_and_never_computed_again(store, path):
    answers = [ask(store, number) for number in range(3)]
    assert [ask(store, number, never) for number in (1, 2)] == answers[1:]
    with pytest.raises(PolicyError, match="no longer kept"):
        ask(store, 0, never)
    store.close()
    with opened(path) as again, pytest.raises(PolicyError, match="no longer kept"):
        ask(again, 0, never)
    with closing(sqlite3.connect(path)) as database:
        kept = database.execute("SELECT round FROM records WHERE kind = 'answer'").fetchall()
    assert kept == [(1,), (2,)]


@pytest.mark.parametrize("seed", range(3))
def test_the_floor_refuses_what_the_rows_that_it_replaced_would_have(folder, seed):
    """Beside a memory of everything: no client is answered for twice, and what is kept is what it was, in any order."""
    draw = random.Random(seed)
    rules = RULES._replace(answers_kept=seed % 3 + 1)
    answered, asked, newest, closed = {}, [], -1, -1
    outcomes = Counter()
    with begun(folder / "store", rules) as store:
        for _ in range(600):
            number = max(0, newest + draw.choice([-5, -3, -2, -1, 0, 0, 1, 2]))
            clients, purpose = (
                sorted(draw.sample(CLIENTS, draw.choice([3, 4, 8]))),
                draw.choice(["aaaa", "bbbb"]),
            )
            digest = draw.choice([b"d", b"e"]) * 32
            if asked and draw.random() < 0.3:
                number, clients, purpose, digest = draw.choice(asked[-6:])
            if draw.random() < 0.02:
                closed = max(closed, number)
                store.close_round(SESSION, number, moved_to(number + 1))
            before = [answered[key] for client in clients if (key := (number, purpose, client)) in answered]
            floor = max(newest, closed + 1)
            try:
                answer = ask(store, number, clients=clients, purpose=purpose, digest=digest)
            except PolicyError:
                outcomes["refused again" if before else "refused"] += 1
                assert before or number < floor
                kept = number > newest - rules.answers_kept
                assert not (kept and [one[:2] for one in before] == [(clients, digest)] * len(clients))
                continue
            if before:
                assert before == [(clients, digest, answer)] * len(clients)
                outcomes["repeated"] += 1
                continue
            assert number >= floor
            outcomes["answered"] += 1
            asked.append((number, clients, purpose, digest))
            newest = max(newest, number)
            answered.update({(number, purpose, client): (clients, digest, answer) for client in clients})
    assert len(outcomes) == 4
    assert min(outcomes.values()) > 5


def test_what_is_no_longer_kept_is_nowhere_in_the_file(store, path):
    ask(store, 0, moved_to(1, os.urandom(9000)))
    store.close()
    then = sealed_rows(path, "kind = 'answer' AND round = 0 OR kind IN ('keys', 'session')")
    assert all(one in path.read_bytes() for one in then[1:])
    with opened(path) as again:
        ask(again, 2, moved_to(3))
    parts, left = parts_left(then, path)
    assert parts > 300
    assert left == 0
    assert not list(path.parent.glob("store-*")) or path.with_name("store-journal").stat().st_size == 0


def test_lists_are_of_enrolled_clients_enough_of_them_and_each_once(store):
    before = store.position
    for clients, words in [
        ([1, 2], "fewer than min_clients = 3"),
        ([], "fewer than min_clients = 3"),
        ([1, 2, 3, 99], "client 99 is not enrolled"),
        ([1, 2, 3, 3], "names a client twice"),
    ]:
        with pytest.raises(PolicyError, match=words):
            ask(store, 1, never, clients=clients)
    participants = [(client, bytes(16)) for client in CLIENTS]
    with pytest.raises(PolicyError, match="names a frame twice"):
        store.answer(SESSION, 1, "update", participants, DIGEST, never)
    with pytest.raises(PolicyError, match="no such session"):
        store.answer(b"another session!", 1, "update", listed(1), DIGEST, never)
    assert store.position == before


def test_a_revoked_client_is_out_for_good_and_its_key_gone(store, path):
    ask(store, 1, clients=CLIENTS[:4])
    store.revoke(SESSION, 2)
    with pytest.raises(PolicyError, match="client 2 was revoked"):
        ask(store, 2, never)
    with pytest.raises(PolicyError, match="enrolled in the session before"):
        enrol(store, SESSION, keys_of([2]))
    for client, words in ((2, "was revoked"), (77, "not enrolled")):
        with pytest.raises(PolicyError, match=words):
            store.revoke(SESSION, client)
    # What was answered before stays what it was.
    ask(store, 1, never, clients=CLIENTS[:4])
    others = [client for client in CLIENTS if client != 2]
    store.close_round(SESSION, 1, moved_to(2))
    ask(store, 2, clients=others)
    store.close()
    with opened(path) as again, again._transaction() as change:
        ((_, _, page),) = change.find("kind = 'keys'")
    assert key_of(2)[:8] not in page
    assert key_of(3)[:8] in page


def test_keys_are_handed_to_what_computes_and_stand_where_it_says_afterwards(store, path):
    assert keys_in(store) == {client: (0, key_of(client)) for client in CLIENTS}
    ask(store, 1, moved_to(2, b"answer"), clients=CLIENTS[:3])
    store.close()
    with opened(path) as again:
        expected = {1: (2, key_of(1)), 4: (0, key_of(4)), 5: (0, key_of(5))}
        assert keys_in(again, expected, 2) == expected
        with pytest.raises(PolicyError, match="advanced past round 1"):
            ask(again, 1, never, clients=[1, 2, 4], purpose="votes")


def test_ending_a_round_moves_every_key_and_ends_all_before(store, path):
    ask(store, 1, moved_to(2, b"answer"), clients=CLIENTS[:3])
    enrol(store, SESSION, StoredKeys.of(20, 9, b"late" * 8))
    store.close_round(SESSION, 3, moved_to(4))
    with pytest.raises(PolicyError, match="round 3 is over: the oldest open round is 4"):
        ask(store, 3, never)
    before = store.position
    store.close_round(SESSION, 3, never)
    store.close_round(SESSION, 2, never)
    assert store.position == before
    expected = dict.fromkeys(CLIENTS, 4) | {20: 9}
    store.close()
    with opened(path) as again:
        # A repeat is no new answer: the round may be over.
        assert ask(again, 1, never, clients=CLIENTS[:3]) == b"answer"
        assert {client: number for client, (number, _) in keys_in(again, expected, 9).items()} == expected


def test_ending_a_round_moves_no_key_past_the_round_after(store):
    enrol(store, SESSION, StoredKeys.of(20, 9, b"late" * 8))
    before = store.position
    for client, stands in ((1, 3), (20, 10), (1, 1)):

        def wrong(keys, client=client, stands=stands):
            moved_to(2)(keys)
            keys.rounds[keys.clients == client] = stands

        with pytest.raises(ParameterError, match="advanced to round 2, and none further"):
            store.close_round(SESSION, 1, wrong)
    assert store.position == before
    store.close_round(SESSION, 1, moved_to(2))


@pytest.mark.parametrize("stands", [0, 3, 2**64 - 1])
def test_keys_move_up_alone_and_not_past_what_is_asked(store, stands):
    ask(store, 0, moved_to(1))
    before = store.position

    def wrong(keys):
        keys.rounds[keys.clients == 1] = stands
        return b"answer"

    with pytest.raises(ParameterError, match="never go back, nor past round 2"):
        ask(store, 1, wrong)
    assert store.position == before
    assert {number for number, _ in keys_in(store).values()} == {1}
    ask(store, 1)


def test_clients_of_many_pages_are_found_and_each_key_stays_its_own(folder):
    clients = [0, 1, 63, 64, 65, 127, 128, 6400, 2**32 - 1, 2**62]
    many = range(10_000, 10_000 + 64 * 600, 64)  # more pages than one statement names
    keys = StoredKeys.joined([StoredKeys.of(one, 0, bytes([at]) * 32) for at, one in enumerate(clients)])
    more = StoredKeys.joined([StoredKeys.of(one, 0, struct.pack("<Q24x", one)) for one in many])
    with begun(folder / "store") as store:
        session = b"another session!"
        store.add_session(session, RULES)
        enrol(store, session, keys)
        enrol(store, session, more)
        store.revoke(session, 64)
        asked = [clients[at] for at in (9, 5, 4, 0)]
        seen = {}

        def look(keys):
            seen.update(zip(keys.clients.tolist(), keys.secrets[:, 0].tolist(), strict=True))
            return moved_to(1)(keys)

        def of(clients, round_number):
            return [(client, struct.pack("<QQ", client, round_number)) for client in clients]

        store.answer(session, 0, "update", of(asked, 0), DIGEST, look)
        assert seen == {0: 0, 65: 4, 127: 5, 2**62: 9}
        for missing in (2, 66, 129, 6401, 2**63 - 1):
            with pytest.raises(PolicyError, match=f"client {missing} is not enrolled"):
                store.answer(session, 1, "update", of([0, 1, missing], 1), DIGEST, never)
        with pytest.raises(PolicyError, match="client 64 was revoked"):
            store.answer(session, 1, "update", of([0, 1, 64], 1), DIGEST, never)
        rounds = {}

        def end(held):
            rounds.update(zip(held.clients.tolist(), held.rounds.tolist(), strict=True))
            moved_to(1)(held)

        store.close_round(session, 0, end)
        assert rounds == {one: int(one in asked) for one in (*clients, *many) if one != 64}

        def look_at_all(keys):
            assert keys.secrets[:, :-9:-1].copy().view(np.uint64).ravel().tolist() == [*many]
            return moved_to(2)(keys)

        store.answer(session, 1, "update", of(many, 1), DIGEST, look_at_all)


def test_what_fails_while_it_computes_leaves_nothing_behind(store):
    before = store.position
    for error in (ValueError, KeyboardInterrupt):

        def fail(keys, error=error):
            raise error

        with pytest.raises(error):
            ask(store, 1, fail)
    for wrong in (lambda keys: ask(store, 2), lambda keys: store.close()):
        with pytest.raises(PolicyError, match="asked from within a computation"):
            ask(store, 1, wrong)
    assert store.position == before
    ask(store, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session", b"short"), ("round_number", -1), ("round_number", 2**63), ("round_number", 1.0),
        ("purpose", ""), ("purpose", "p" * 256), ("purpose", None), ("purpose", "\ud800"),
        ("total_digest", b"short"), ("participants", [(2**63, bytes(16))]), ("participants", [(1, bytes(15))]),
    ],
)  # fmt: skip
def test_arguments_of_another_type_or_length_are_refused_by_name(store, name, value):
    right = {"session": SESSION, "round_number": 1, "purpose": "update", "total_digest": DIGEST}
    arguments = right | {"participants": listed(1)} | {name: value}
    with pytest.raises(ParameterError):
        store.answer(**arguments, compute=never)


def test_a_session_begins_once_and_keeps_its_rules(store):
    before = store.position
    store.add_session(SESSION, RULES)
    assert store.position == before
    with pytest.raises(PolicyError, match="other rules"):
        store.add_session(SESSION, RULES._replace(min_clients=4))
    for wrong in ({"min_clients": 1}, {"answers_kept": 0}):
        with pytest.raises(ParameterError):
            store.add_session(b"another session!", RULES._replace(**wrong))
    with pytest.raises(PolicyError, match="enrolled in the session before"):
        enrol(store, SESSION, keys_of([20, 1]))
    assert store.position == before
    with pytest.raises(PolicyError, match="not enrolled"):
        store.revoke(SESSION, 20)


def test_what_a_client_got_for_its_enrolment_is_there_until_it_is_revoked(store, path):
    granted = {20: Grant(b"of twenty", b"r" * 32), 21: Grant(b"of twenty-one")}
    enrol(store, SESSION, keys_of([20, 21, 22]), granted)
    store.close()
    with opened(path) as again:
        found = {client: again.grant(SESSION, client) for client in (20, 21, 22, 99)}
        assert found == granted | {22: None, 99: None}
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
            enrol(again, SESSION, keys_of([20]))
        assert ask(again, 1) == ask(again, 1, never)
    assert sealed_rows(path, kind) == []
    assert parts_left(was, path, 12)[1] == 0
    with opened(path) as again:
        assert again.keep_enrolment_key(b"another") is None
        with pytest.raises(PolicyError, match="enrolment has ended"):
            enrol(again, SESSION, keys_of([20]))


def test_enrolment_ends_with_the_last_client_of_all_sessions(store):
    other = b"another session!"
    store.add_session(other, RULES)
    store.keep_enrolment_key(b"key")
    many = len(CLIENTS) + 2

    def enrol_in(client, sessions):
        for_each = {session: keys_of([client]) for session in sessions}
        store.enrol(for_each, {session: {} for session in sessions}, clients=many)

    for client in CLIENTS:
        enrol_in(client, [other])
    enrol_in(20, [SESSION, other])
    assert store.keep_enrolment_key(None) == b"key"
    enrol_in(21, [SESSION, other])
    assert store.keep_enrolment_key(None) is None
    with pytest.raises(PolicyError, match="enrolment has ended"):
        enrol_in(22, [SESSION, other])


def test_who_opens_is_granted_answers_once_and_enrolment_ends_when_all_are_there(store, path):
    other, both = b"another session!", [SESSION, b"another session!"]
    store.add_session(other, RULES)
    store.keep_enrolment_key(b"key")
    granted = Grant(b"of the opener", b"r" * 32)
    assert store.grant(SESSION, None) is None
    before = store.position

    def grant(sessions):
        for_each = {session: {None: granted} for session in sessions}
        store.enrol(dict.fromkeys(sessions, keys_of([])), for_each, clients=len(CLIENTS))

    with pytest.raises(PolicyError, match="no such session"):
        grant([SESSION, b"unknown session!"])
    assert store.position == before
    grant(both)
    assert store.keep_enrolment_key(None) == b"key"
    with pytest.raises(PolicyError, match="granted the answers of this session before"):
        grant([other])
    store.close()
    with opened(path) as again:
        assert [again.grant(session, None) for session in both] == [granted, granted]
        assert all(again.grant(SESSION, client) is None for client in CLIENTS)
        with pytest.raises(PolicyError, match="not enrolled"):
            ask(again, 1, clients=[*CLIENTS, 0])
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM records WHERE kind = 'grant' AND session = ?", (other,))
        database.commit()
    with pytest.raises(WireFormatError, match="'grant' do not match its head: 1 missing"):
        opened(path)


def put_and_raise(store, error, kind="grant"):
    with store._transaction() as change:
        change.put(Place(kind, b"t" * 16, client=-1 if kind == "session" else 9), b"m" * 32)
        raise error


@pytest.mark.parametrize("rounds", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_of_two_lists_that_race_for_a_client_one_is_answered(store, rounds):
    answered, lists, both = [], iter((CLIENTS[:5], CLIENTS[4:])), Barrier(2)

    def work():
        own = next(lists)
        for number in range(rounds):
            both.wait()
            with suppress(PolicyError):
                ask(store, number, clients=own)
                answered.append(number)

    on_threads(2, work, switch_seconds=1e-5)
    assert sorted(answered) == [*range(rounds)]


def test_operations_that_are_made_together_are_on_the_disk_together(store, path):
    before = store.position

    def work():
        answer = ask(store, 1)
        store.keep_state(b"the state after it")
        assert ask(store, 1, never) == answer
        assert store.position == before
        return answer

    answer = store.together(work)
    store.close()
    with opened(path) as again:

        def interrupted():
            again.keep_state(b"another state")
            ask(again, 2)
            raise ValueError("in between")

        number = again.state_number
        assert (ask(again, 1, never), again.state()) == (answer, b"the state after it")
        with pytest.raises(ValueError, match="in between"):
            again.together(interrupted)
        assert (again.state_number, again.state()) == (number, b"the state after it")
        ask(again, 2, clients=CLIENTS[:3])
    with opened(path, restored=True) as again, pytest.raises(PolicyError, match="Set the federation up anew"):
        again.state()


def test_an_operation_that_is_refused_is_undone_alone(store, path):
    def work():
        answer = ask(store, 1)
        for wrong in (
            lambda: ask(store, 1, never, clients=CLIENTS[:3]),
            lambda: ask(store, 2, lambda keys: ask(store, 3)),
            lambda: enrol(store, SESSION, keys_of([50, 1])),
            lambda: store.revoke(SESSION, 77),
            lambda: store.together(lambda: ask(store, 3)),
        ):
            with pytest.raises(PolicyError):
                wrong()
        enrol(store, SESSION, keys_of([50]))
        return answer

    answer = store.together(work)
    store.close()
    with opened(path) as again:
        assert ask(again, 1, never) == answer
        ask(again, 2, clients=[1, 2, 50])


def test_no_key_seals_two_records_of_one_number(store, monkeypatch):
    """Also where the first of them was undone: both may have been on the disk, under one token."""
    sealed, seal = [], StoreKeys.seal

    def noted(self, token, number, secret, bound):
        sealed.append((token, number))
        return seal(self, token, number, secret, bound)

    def work():
        for _ in range(3):
            with pytest.raises(PolicyError):
                put_and_raise(store, PolicyError("undone"))
        store.keep_state(b"s")

    monkeypatch.setattr(StoreKeys, "seal", noted)
    store.together(work)
    assert len(set(sealed)) == len(sealed) == 5


def test_an_error_of_the_disk_undoes_all_even_if_it_was_caught(store):
    answer, broken = ask(store, 1), sqlite3.OperationalError("disk I/O error")
    broken.sqlite_errorcode = sqlite3.SQLITE_IOERR

    def work():
        ask(store, 2)
        with pytest.raises(DataError, match="mend the disk"):
            put_and_raise(store, broken)
        with pytest.raises(DataError, match="failed before"):
            ask(store, 3)

    with pytest.raises(DataError, match="failed"):
        store.together(work)
    assert ask(store, 1, never) == answer
    ask(store, 2, clients=CLIENTS[:3])


def test_memory_that_sqlite_lacks_undoes_all(store):
    """SQLite then undoes the transaction, and Python raises what is no error of SQLite's."""
    answer = ask(store, 1)

    def work():
        enrol(store, SESSION, keys_of([50]))
        store._connection.execute("ROLLBACK")
        with pytest.raises(MemoryError):
            put_and_raise(store, MemoryError())
        store.keep_state(b"after it")

    with pytest.raises(DataError, match="failed before"):
        store.together(work)
    assert ask(store, 1, never) == answer
    with pytest.raises(PolicyError, match="client 50 is not enrolled"):
        store.revoke(SESSION, 50)


def test_an_interrupted_operation_that_nobody_ended_takes_all_with_it(store):
    """As an interrupt within ``with`` leaves it, for as long as somebody has its traceback."""
    left = []

    def work():
        ask(store, 1)
        operation = store._transaction()
        operation.__enter__().put(Place("grant", SESSION, client=9), b"m" * 32)
        left.append(operation)
        with pytest.raises(PolicyError, match="asked from within"):
            ask(store, 2)

    with pytest.raises(PolicyError, match="was interrupted"):
        store.together(work)
    del left[:]
    gc.collect()
    ask(store, 1, clients=CLIENTS[:3])
    store.together(lambda: ask(store, 2))


def test_an_interrupt_right_after_a_commit_makes_the_store_look_what_it_holds(store):
    """The disk has more by then than the store has noted."""
    done = store.position

    class Interrupted(dict):
        def __ior__(self, _):
            raise KeyboardInterrupt

    store._newest = Interrupted(store._newest)
    with pytest.raises(KeyboardInterrupt):
        store.keep_state(b"the state")
    store.together(lambda: None)
    assert (store.state(), store.state_number) == (b"the state", store.position.rows)
    assert store.position > done


def test_an_operation_that_fails_within_others_leaves_no_note_of_what_it_wrote(store):
    def work():
        with pytest.raises(ZeroDivisionError):
            put_and_raise(store, ZeroDivisionError(), "session")
        assert not store.has_session(b"t" * 16)

    store.together(work)
    assert ask(store, 1)


def test_a_store_in_memory_needs_no_folder(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert not AuthorityStore.in_memory(KEY, AUTHORITY).has_session(SESSION)


def test_an_interrupt_beside_a_transaction_costs_no_memory():
    """Before it begins, or once it is done: there is nothing to undo."""
    store = AuthorityStore.in_memory(KEY, AUTHORITY)
    store.add_session(SESSION, RULES)
    store._undo(KeyboardInterrupt(), store._connection, "ROLLBACK")
    assert store.has_session(SESSION)


def test_a_long_state_in_memory_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = AuthorityStore.in_memory(KEY, AUTHORITY)
    store.keep_state(bytes(10**5))
    assert AuthorityStore.in_memory(KEY, AUTHORITY, store.serialised()).state() == bytes(10**5)
    assert not list(tmp_path.iterdir())


def test_a_long_state_whose_commit_failed_leaves_the_one_before(store, path):
    store.keep_state(b"1" * 10**5)

    def failing():
        store.keep_state(b"2" * 10**5)
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            store.together(failing)
    assert store.state() == b"1" * 10**5
    store.close()
    with opened(path) as again:
        assert again.state() == b"1" * 10**5
        again.keep_state(b"3" * 10**5)
        again.keep_state(b"4" * 10**5)
        assert again.state() == b"4" * 10**5
        assert len(list(path.with_name("store-kept").iterdir())) == 2
