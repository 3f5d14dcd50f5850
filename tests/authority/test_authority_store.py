"""The memory of an authority: one answer for each session, round, purpose and client, for ever."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from authority.store_cases import (
    CLIENTS,
    DIGEST,
    RULES,
    SESSION,
    ask,
    begun,
    key_of,
    listed,
    moved_to,
    never,
    opened,
    parts_left,
    random_answer,
    sealed_rows,
)
from shieldfl.authority.authority_store import MOST_ROUNDS_AHEAD, ClientKey, Grant
from shieldfl.errors import ParameterError, PolicyError, WireFormatError


def keys_in(store, clients=CLIENTS, round_number=None):
    """The keys that an answer would be computed from; nothing is answered."""
    seen = {}

    class NotNowError(Exception):
        pass

    def look(keys):
        seen.update({client: (key.round, key.key) for client, key in keys.items()})
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
    store.enrol(other, {client: ClientKey(0, key_of(client)) for client in CLIENTS})
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
    def compute(keys):
        return os.urandom(9000), moved_to(1)(keys)

    ask(store, 0, compute)
    store.close()
    then = sealed_rows(path, "kind = 'answer' AND round = 0 OR kind IN ('key', 'session')")
    assert all(one in path.read_bytes() for one in then[1:])
    with opened(path) as again:
        ask(again, 2, moved := lambda keys: (b"", moved_to(3)(keys)))
    assert moved
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
        store.enrol(SESSION, {2: ClientKey(0, key_of(2))})
    for client, words in ((2, "was revoked"), (77, "not enrolled")):
        with pytest.raises(PolicyError, match=words):
            store.revoke(SESSION, client)
    # What was answered before stays what it was.
    ask(store, 1, never, clients=CLIENTS[:4])
    others = [client for client in CLIENTS if client != 2]
    store.close_round(SESSION, 1, moved_to(2))
    ask(store, 2, clients=others)
    store.close()
    with closing(sqlite3.connect(path)) as database:
        select = "SELECT length(sealed) FROM records WHERE kind = 'key' AND client IN (2, 3)"
        # A token and a tag, of no key; and those of a key.
        assert [length > 32 for (length,) in database.execute(select)] == [False, True]
    opened(path).close()


def test_keys_are_handed_to_what_computes_and_stand_where_it_says_afterwards(store, path):
    assert keys_in(store) == {client: (0, key_of(client)) for client in CLIENTS}
    ask(store, 1, lambda keys: (b"answer", moved_to(2)(keys)), clients=CLIENTS[:3])
    store.close()
    with opened(path) as again:
        expected = {1: (2, key_of(1)), 4: (0, key_of(4)), 5: (0, key_of(5))}
        assert keys_in(again, expected, 2) == expected
        with pytest.raises(PolicyError, match="advanced past round 1"):
            ask(again, 1, never, clients=[1, 2, 4], purpose="votes")


def test_ending_a_round_moves_every_key_and_ends_all_before(store, path):
    ask(store, 1, lambda keys: (b"answer", moved_to(2)(keys)), clients=CLIENTS[:3])
    store.enrol(SESSION, {20: ClientKey(9, b"late" * 8)})
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
    store.enrol(SESSION, {20: ClientKey(9, b"late" * 8)})
    before = store.position
    for client, stands in ((1, 3), (20, 10), (1, 1)):
        wrong = {client: ClientKey(stands, key_of(1))}
        with pytest.raises(ParameterError, match="advanced to round 2, and none further"):
            store.close_round(SESSION, 1, lambda keys, wrong=wrong: moved_to(2)(keys) | wrong)
    assert store.position == before
    store.close_round(SESSION, 1, moved_to(2))


def test_keys_move_up_alone_and_not_past_what_is_asked(store):
    ask(store, 0, lambda keys: (b"", moved_to(1)(keys)))
    before = store.position
    key = key_of(1)
    for wrong in (
        lambda keys: keys | {1: ClientKey(0, key)},
        lambda keys: keys | {1: ClientKey(3, key)},
        lambda keys: keys | {1: ClientKey(2, key[:-1])},
        lambda keys: keys | {99: ClientKey(2, key)},
        lambda keys: {client: one for client, one in keys.items() if client != 1},
    ):
        with pytest.raises(ParameterError):
            ask(store, 1, lambda keys, wrong=wrong: (b"answer", wrong(keys)))
        with pytest.raises(ParameterError):
            store.close_round(SESSION, 1, wrong)
    assert store.position == before
    assert {number for number, _ in keys_in(store).values()} == {1}
    ask(store, 1)


def test_what_fails_while_it_computes_leaves_nothing_behind(store):
    before = store.position
    for error in (ValueError, KeyboardInterrupt):

        def fail(keys, error=error):
            raise error

        with pytest.raises(error):
            ask(store, 1, fail)
    with pytest.raises(PolicyError, match="asked from within a computation"):
        ask(store, 1, lambda keys: (ask(store, 2), keys))
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
        store.enrol(SESSION, {20: ClientKey(0, key_of(20)), 1: ClientKey(0, key_of(1))})
    assert store.position == before
    with pytest.raises(PolicyError, match="not enrolled"):
        store.revoke(SESSION, 20)


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
    with pytest.raises(WireFormatError, match="'grant' do not match its head: 1 missing"):
        opened(path)
