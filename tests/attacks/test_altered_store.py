"""Whoever can write an authority's file, without its key, wants a second answer for a list, or a client's key back."""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from authority.store_cases import (
    CLIENTS,
    RULES,
    SESSION,
    ask,
    begun,
    key_of,
    moved_to,
    never,
    opened,
    random_answer,
)
from shieldfl.authority.store_journal import ClientKey, Grant
from shieldfl.errors import KeyMismatchError, PolicyError, WireFormatError

TABLES = ("head", "journal", "sessions", "clients", "answers", "answered", "grants", "enrolment_key")


def answer_some(store, rounds):
    answers = {}
    for number in rounds:
        answers[number] = ask(
            store, number, lambda keys, number=number: (random_answer(keys)[0], moved_to(number)(keys)),
            clients=CLIENTS[:5],
        )  # fmt: skip
    return answers


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store in which everything has happened, and what it answers."""
    path = tmp_path_factory.mktemp("whole") / "store"
    with begun(path) as store:
        answers = answer_some(store, (1, 2))
        store.revoke(SESSION, 8)
        store.close_round(SESSION, 1, moved_to(2))
        answers |= answer_some(store, (3,))
        store.enrol(SESSION, {9: ClientKey(3, key_of(9))}, {9: Grant(b"granted", b"r" * 32)})
        store.keep_enrolment_key(b"enrolment key")
    return path, {2: answers[2], 3: answers[3]}


@pytest.fixture
def copied(whole, tmp_path):
    """Puts a fresh copy in place, changes it by SQL, and returns its path; None where nothing was changed."""

    def copy_and_change(statement, *values):
        path = tmp_path / "store"
        shutil.copy(whole[0], path)
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA synchronous=OFF")
            with suppress(sqlite3.IntegrityError), database:
                # A statement on the schema counts no rows, and changes something.
                return path if database.execute(statement, values).rowcount != 0 else None
            return None

    return copy_and_change


def rows_of(path, table):
    with closing(sqlite3.connect(path)) as database:
        columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
        return columns, database.execute(f"SELECT * FROM {table} ORDER BY {', '.join(columns)}").fetchall()


def dump_of(path):
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def others_for(value):
    """Return values that might pass for the right one."""
    match value:
        case bytes():
            flipped = bytes([value[0] ^ 1, *value[1:]])
            return [flipped, value[:-1], value + b"\0", b"", None, value[:-1] + bytes([value[-1] ^ 0x80])]
        case int():
            return [value + 1, value - 1, float(value) + 0.5, str(value) + "x", None]
        case str():
            return [value + " ", "close" if value == "answer" else "answer", None, value.encode()]
        case _:
            return [0, b"", "text"]


def condition(columns, row):
    where = " AND ".join(f"{column} IS ?" for column in columns)
    return f"WHERE {where}", row


@pytest.mark.every_run("answered", "clients", "head", "answers", "sessions", "grants", "enrolment_key")
@pytest.mark.parametrize("table", TABLES)
def test_no_value_of_any_row_can_be_changed(whole, copied, table):
    columns, rows = rows_of(whole[0], table)
    refused = 0
    for row in rows:
        where, values = condition(columns, row)
        for column, value in zip(columns, row, strict=True):
            for other in others_for(value):
                update = f"UPDATE {table} SET {column} = ? {where} AND {column} IS NOT ?"
                path = copied(update, other, *values, other)
                if path is not None:
                    with pytest.raises((WireFormatError, KeyMismatchError)):
                        opened(path)
                    refused += 1
    assert refused > 3 * len(rows)
    opened(shutil.copy(whole[0], whole[0].with_name("as it was"))).close()


@pytest.mark.every_run("answered", "clients", "head", "answers", "sessions", "grants", "enrolment_key")
@pytest.mark.parametrize("table", TABLES)
def test_no_row_can_be_removed_added_or_exchanged_with_another(whole, copied, table):
    columns, rows = rows_of(whole[0], table)
    for row in rows:
        where, values = condition(columns, row)
        with pytest.raises(WireFormatError):
            opened(copied(f"DELETE FROM {table} {where}", *values))
    places = ", ".join("?" * len(columns))
    for row in rows:
        # Once more, as another row: under each value that a key may have that comes first.
        for first in (0, 999, b"another session!"):
            path = copied(f"INSERT INTO {table} VALUES ({places})", first, *row[1:])
            if path is not None:
                with pytest.raises(WireFormatError):
                    opened(path)
    for column, (one, other) in itertools.product(columns, itertools.combinations(rows, 2)):
        index = columns.index(column)
        keys = columns[:4] if table == "answered" else columns[:2] if table == "clients" else columns[:1]
        if column in keys or one[index] == other[index]:
            continue
        (where, values), (_, others) = condition(keys, one[: len(keys)]), condition(keys, other[: len(keys)])
        exchange = f"UPDATE {table} SET {column} = CASE WHEN {where.removeprefix('WHERE ')} THEN ? ELSE ? END"
        changed = f"{exchange} {where} OR {where.removeprefix('WHERE ')}"
        path = copied(changed, *values, other[index], one[index], *values, *others)
        with pytest.raises(WireFormatError):
            opened(path)


def test_the_row_that_was_altered_is_named(copied):
    for statement, words in [
        ("UPDATE journal SET round = 7 WHERE number = 11", "row 11 is not what was written"),
        ("DELETE FROM journal WHERE number = 4", "row 4 is missing"),
        ("DELETE FROM journal WHERE number = (SELECT max(number) FROM journal)", "row 16 is missing"),
        ("DELETE FROM answered WHERE client = 3 AND round = 2", "the list of row 11 of the journal"),
        (
            "UPDATE clients SET sealed = zeroblob(60) WHERE client = 9",
            "the secret that row 15 of the journal",
        ),
        ("UPDATE clients SET changed = 3 WHERE client = 9", "client 9 is not the one of row 15"),
        (
            "DELETE FROM clients WHERE client = 6",
            "client 6, whose key row 13 of the journal wrote, is missing",
        ),
        ("UPDATE answers SET sealed = NULL WHERE number = 14", "the secret that row 14 of the journal"),
        ("UPDATE answered SET number = 9 WHERE number = 10", "the list of row 10 of the journal"),
        ("UPDATE answers SET sealed = zeroblob(60) WHERE number = 10", "answer of row 10 .* was dropped"),
        ("UPDATE sessions SET min_clients = 2", "row 1 of the journal began a session"),
        ("DELETE FROM grants", "the grant that row 15 of the journal wrote is missing"),
        (
            "UPDATE grants SET request_digest = NULL",
            "the grant of row 15 of the journal is not what was given",
        ),
        ("UPDATE grants SET client = 1", "a grant of client 1 that no row"),
        ("DELETE FROM enrolment_key", "enrolment key is not the one that the journal says"),
    ]:
        with pytest.raises(WireFormatError, match=words):
            opened(copied(statement))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER forget BEFORE INSERT ON answered BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TRIGGER forget AFTER INSERT ON answered BEGIN DELETE FROM answered; END",
        "CREATE TABLE more (x)",
        "CREATE VIEW more AS SELECT 1",
        "DROP INDEX journal_rounds",
        "ALTER TABLE answers ADD COLUMN x",
        "DROP TABLE answered",
    ],
)
def test_a_database_that_does_more_or_less_than_ours_is_refused(copied, statement):
    with pytest.raises(WireFormatError, match="not the tables of a store"):
        opened(copied(statement))


def test_an_index_that_hides_a_row_from_whoever_looks_for_it_is_refused(whole, tmp_path):
    path = Path(shutil.copy(whole[0], tmp_path / "store"))
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_schema SET sql = replace(sql, 'kind, round', 'kind, client')")
        database.commit()
    with closing(sqlite3.connect(path)) as database:
        database.execute("REINDEX")
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_schema SET sql = replace(sql, 'kind, client', 'kind, round')")
        database.commit()
    with pytest.raises(WireFormatError, match="is damaged"):
        opened(path)


def test_tables_of_two_copies_that_went_on_apart_make_no_store(tmp_path):
    """An old copy that went on has as many rows as the right one, all of them the authority's own."""
    first, second = tmp_path / "first", tmp_path / "second"
    with begun(first) as store:
        answer_some(store, (1,))
    shutil.copy(first, second)
    for path in (first, second):
        with opened(path) as store:
            answer_some(store, (2,))
    mixed = tmp_path / "mixed"
    whole = [dump_of(first), dump_of(second)]
    refused = 0
    for count in range(1, 6):
        for taken in itertools.combinations(TABLES[:6], count):
            shutil.copy(first, mixed)
            with closing(sqlite3.connect(mixed, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous=OFF")
                database.execute("ATTACH ? AS second", (str(second),))
                for table in taken:
                    database.execute(f"DELETE FROM {table}")
                    database.execute(f"INSERT INTO {table} SELECT * FROM second.{table}")
            if dump_of(mixed) not in whole:
                with pytest.raises(WireFormatError):
                    opened(mixed)
                refused += 1
    # Of these six tables four differ between the copies, and two are the same, whichever they are taken from.
    assert refused == 2**2 * (2**4 - 2)


def test_a_client_that_was_revoked_or_moved_on_does_not_get_its_old_key_back(tmp_path):
    path, before = tmp_path / "store", tmp_path / "before"
    with begun(path) as store:
        answer_some(store, (1,))
    shutil.copy(path, before)
    with opened(path) as store:
        store.revoke(SESSION, 2)
        answer_some(store, ())
        ask(store, 2, lambda keys: (b"answer", moved_to(3)(keys)), clients=[1, 3, 4])
    for client in (1, 2):
        altered = shutil.copy(path, tmp_path / f"of {client}")
        with closing(sqlite3.connect(altered, isolation_level=None)) as database:
            database.execute("ATTACH ? AS old", (str(before),))
            database.execute("REPLACE INTO clients SELECT * FROM old.clients WHERE client = ?", (client,))
        with pytest.raises(WireFormatError, match=f"client {client} is not the one of row"):
            opened(altered)


def test_an_enrolment_key_that_was_erased_does_not_come_back(tmp_path):
    path, before = tmp_path / "store", tmp_path / "before"
    with begun(path) as store:
        store.keep_enrolment_key(b"enrolment key")
    shutil.copy(path, before)
    with opened(path) as store:
        store.end_enrolment()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("ATTACH ? AS old", (str(before),))
        database.execute("INSERT INTO enrolment_key SELECT * FROM old.enrolment_key")
    with pytest.raises(WireFormatError, match="is back though erased"):
        opened(path)


def test_bytes_that_were_lost_or_overwritten_give_an_error_or_the_same_answers(whole, tmp_path):
    """Half a page that was never written, a file that ends too early, single bits."""
    content, page, draw = whole[0].read_bytes(), 4096, random.Random(1)
    damaged = [content[:length] for length in range(0, len(content), page // 2)]
    for start in range(0, len(content), page // 2):
        for half in (bytes(page // 2), draw.randbytes(page // 2), content[: page // 2]):
            damaged.append(content[:start] + half + content[start + page // 2 :])
    for _ in range(200):
        at = draw.randrange(len(content))
        damaged.append(content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :])
    outcomes = {"refused": 0, "the same": 0}
    for number, data in enumerate(damaged):
        path = tmp_path / f"{number}"
        path.write_bytes(data)
        try:
            with opened(path) as store:
                for round_number, answer in whole[1].items():
                    assert ask(store, round_number, never, clients=CLIENTS[:5]) == answer
                outcomes["the same"] += 1
        except (WireFormatError, KeyMismatchError):
            outcomes["refused"] += 1
    # What lies in no row does not matter, and much of a page may be empty.
    assert min(outcomes.values()) > 50


def test_what_another_copy_left_of_a_transaction_makes_no_store_of_this_one(tmp_path):
    """A backup that is put beside the newer file's rollback journal, which SQLite then plays back."""
    path, backup, newest = (tmp_path / name for name in ("store", "backup", "newest"))
    with begun(path) as store:
        answer_some(store, (1,))
    shutil.copy(path, backup)
    with opened(path) as store:
        right = answer_some(store, range(2, 20))[19]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # More than stays in memory, so that pages are written before the commit.
        database.execute("PRAGMA cache_size=2")
        database.execute("BEGIN IMMEDIATE")
        for table in ("journal", "answered", "clients"):
            database.execute(f"UPDATE {table} SET session = session || 'x'")
        shutil.copy(path, newest)
        for name in ("newest-journal", "backup-journal"):
            shutil.copy(tmp_path / "store-journal", tmp_path / name)
        database.execute("ROLLBACK")
    assert newest.read_bytes() != path.read_bytes()
    with opened(newest) as store:
        position = store.position
        assert ask(store, 19, never, clients=CLIENTS[:5]) == right
    with pytest.raises((WireFormatError, PolicyError)):
        opened(backup, at_least=position)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", bytes(4096), b"no store at all" * 400])
def test_what_is_no_store_is_refused_by_name(tmp_path, content):
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(WireFormatError, match=r"no store at all|not the tables of a store"):
        opened(path)
    assert path.read_bytes() == content


def test_rules_are_those_of_the_session(whole):
    """The fixture is what these tests take it for."""
    assert RULES.answers_kept == 2
    with opened(shutil.copy(whole[0], whole[0].with_name("right"))) as store:
        assert store.position.rows == 16
        for round_number, answer in whole[1].items():
            assert ask(store, round_number, never, clients=CLIENTS[:5]) == answer
