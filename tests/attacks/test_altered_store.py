"""Whoever can write an authority's or a client's file, without its key, wants a second answer, or an old key back."""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
from contextlib import closing, suppress

import numpy as np
import pytest

import shieldfl as sf
from authority import client_store_cases as of_client
from authority.conftest import folder  # noqa: F401
from authority.enrolled_session import PARAMETERS
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
    moved_to,
    never,
    opened,
)
from shieldfl.authority.authority_store import AuthorityStore, Grant, StoredKeys
from shieldfl.errors import KeyMismatchError, PolicyError, WireFormatError

KINDS = {
    "authority": ("session", "keys", "grant", "answer", "enrolment key", "state"),
    "client": ("session", "key", "enrolment", "frame", "values"),
}
OF_STORES = [(owner, kind) for owner, kinds in KINDS.items() for kind in ("head", *kinds)]
REFUSED = (WireFormatError, KeyMismatchError)


def answer_some(store, rounds):
    answers = {}
    for number in rounds:
        answers[number] = ask(store, number, moved_to(number, random.randbytes(24)), clients=CLIENTS[:5])
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
        enrol(store, SESSION, keys_of([9, 64], 3), {9: Grant(b"granted", b"r" * 32)})
        store.keep_enrolment_key(b"enrolment key")
        store.keep_state(b"of a role")
    return path, {2: answers[2], 3: answers[3]}


@pytest.fixture(scope="module")
def whole_of_client(tmp_path_factory):
    """A client's store in which everything has happened."""
    path = tmp_path_factory.mktemp("whole of a client") / "store"
    authority = sf.KeyAuthority(PARAMETERS)
    with of_client.begun(path) as store:
        of_client.encrypt(store, 1)
        of_client.encrypt(store, 2)
        of_client.encrypt(store, 2, part=1)
        (request,) = store.enrol(authority.public_key, "clinic")
        authority.accept(request)
        store.enrol(sf.KeyAuthority(PARAMETERS).public_key, "clinic")
        store.take_grant(authority.public_key, authority.grant("clinic"))
        store.close_round(authority.public_key, 6)
    return path


@pytest.fixture
def copied(whole, whole_of_client, tmp_path):
    """Puts a fresh copy in place, changes it by SQL, and returns its path; None where nothing was changed."""

    def copy_and_change(statement, *values, owner="authority"):
        path = tmp_path / "store"
        shutil.copy(whole[0] if owner == "authority" else whole_of_client, path)
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA synchronous=OFF")
            with suppress(sqlite3.IntegrityError), database:
                # A statement on the schema counts no rows, and changes something.
                return path if database.execute(statement, values).rowcount != 0 else None
            return None

    return copy_and_change


@pytest.fixture
def rows_of(whole, whole_of_client):
    def rows(owner, kind):
        table, where = ("head", "") if kind == "head" else ("records", f"WHERE kind = '{kind}'")
        path = whole[0] if owner == "authority" else whole_of_client
        with closing(sqlite3.connect(path)) as database:
            columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
            return table, columns, database.execute(f"SELECT * FROM {table} {where}").fetchall()

    return rows


def open_again(owner, path, **options):
    return (opened if owner == "authority" else of_client.opened)(path, **options)


def dump_of(path):
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def others_for(value):
    """Return values that might pass for the right one."""
    match value:
        case bytes():
            flipped = (
                [bytes([value[0] ^ 1, *value[1:]]), value[:-1] + bytes([value[-1] ^ 0x80])] if value else []
            )
            return [*flipped, value[:-1] if value else b"\0", value + b"\0", b"", b"text", None, 0]
        case int():
            return [value + 1, value - 1, float(value) + 0.5, str(value) + "x", None]
        case str():
            return [value + " ", "key" if value == "answer" else "answer", "", None, value.encode()]
    raise AssertionError(value)


def condition(columns, row):
    where = " AND ".join(f"{column} IS ?" for column in columns)
    return f"WHERE {where}", row


@pytest.mark.parametrize(("owner", "kind"), OF_STORES)
def test_no_value_of_any_row_can_be_changed(copied, rows_of, owner, kind):
    table, columns, rows = rows_of(owner, kind)
    refused = 0
    for row in rows:
        where, values = condition(columns, row)
        for column, value in zip(columns, row, strict=True):
            for other in others_for(value):
                update = f"UPDATE {table} SET {column} = ? {where} AND {column} IS NOT ?"
                path = copied(update, other, *values, other, owner=owner)
                if path is not None:
                    with pytest.raises(REFUSED):
                        open_again(owner, path)
                    refused += 1
    assert refused > 3 * len(rows) > 0
    open_again(owner, copied("UPDATE head SET salt = salt", owner=owner)).close()


@pytest.mark.parametrize(("owner", "kind"), OF_STORES)
def test_no_row_can_be_removed_added_or_exchanged_with_another(copied, rows_of, owner, kind):
    table, columns, rows = rows_of(owner, kind)
    places = ", ".join("?" * len(columns))
    for row in rows:
        where, values = condition(columns, row)
        with pytest.raises(WireFormatError):
            open_again(owner, copied(f"DELETE FROM {table} {where}", *values, owner=owner))
        # Once more, as another row: under each value that a key may have.
        for index, more in itertools.product(range(len(columns)), (0, 999, b"another session!", "reply")):
            changed = [*row[:index], more, *row[index + 1 :]]
            path = copied(f"INSERT INTO {table} VALUES ({places})", *changed, owner=owner)
            if path is not None:
                with pytest.raises(REFUSED):
                    open_again(owner, path)
    if table == "head":
        return
    for one, other in itertools.combinations(rows, 2):
        for exchanged in ([5], [6], [5, 6]):
            names = ", ".join(f"{columns[index]} = ?" for index in exchanged)
            (where, first), (_, second) = condition(columns[:5], one[:5]), condition(columns[:5], other[:5])
            path = copied(
                f"UPDATE records SET {names} {where}", *(other[at] for at in exchanged), *first, owner=owner
            )
            with pytest.raises(WireFormatError):
                open_again(owner, path)
            with closing(sqlite3.connect(path)) as database, database:
                values = *(one[at] for at in exchanged), *second
                database.execute(f"UPDATE records SET {names} {where}", values)
            with pytest.raises(WireFormatError):
                open_again(owner, path)


def test_the_row_that_was_altered_is_named(copied):
    for statement, words in [
        ("UPDATE records SET number = 7 WHERE kind = 'answer' AND round = 3", "of round 3 at 'update' is not what"),
        ("UPDATE records SET round = 7 WHERE kind = 'answer' AND round = 2", "'answer' of client 1 of round 7 at"),
        ("UPDATE records SET sealed = zeroblob(60) WHERE name = 'page 1'", "record 'keys' at 'page 1' is"),
        ("UPDATE records SET name = 'page 7' WHERE name = 'page 1'", "record 'keys' at 'page 7' is not what"),
        ("UPDATE records SET sealed = '' WHERE kind = 'session'", "the record 'session' is not what was written"),
        ("DELETE FROM records WHERE kind = 'state'", "of kind 'state' do not match its head: 1 missing"),
        ("DELETE FROM records WHERE kind = 'keys'", "'keys' do not match its head: 2 missing"),
        ("DELETE FROM records WHERE kind = 'answer' AND round = 3", "'answer' do not match its head: 1 missing"),
        ("DELETE FROM records WHERE kind = 'grant'", "'grant' do not match its head: 1 missing"),
        ("DELETE FROM records WHERE kind = 'session'", "'session' do not match its head: 1 missing"),
        ("DELETE FROM records WHERE kind = 'enrolment key'", "'enrolment key' do not match its head: 1 missing"),
        ("UPDATE head SET sealed = zeroblob(200)", "its head is not what was written"),
        ("DELETE FROM head", "its head is not what was written"),
    ]:  # fmt: skip
        with pytest.raises(WireFormatError, match=f"the store was altered: .*{words}"):
            opened(copied(statement))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER forget BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TRIGGER forget AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "CREATE TABLE more (x)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE INDEX more ON records (number)",
        "ALTER TABLE records ADD COLUMN x",
        "DROP TABLE records",
    ],
)
def test_a_database_that_does_more_or_less_than_ours_is_refused(copied, statement):
    with pytest.raises(WireFormatError, match="not have the tables of a store"):
        opened(copied(statement))


def test_an_order_that_hides_a_row_from_whoever_looks_for_it_is_refused(copied):
    """The table is its own index: made by another order of columns, it has all rows, and not where they are sought."""
    path = copied("UPDATE head SET salt = salt")
    right, other = "kind, session, round, name, client)", "kind, session, name, client, round)"
    with closing(sqlite3.connect(path)) as database:
        ((sql,),) = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'records'").fetchall()
        database.execute("ALTER TABLE records RENAME TO before")
        database.execute(sql.replace(right, other))
        database.execute("INSERT INTO records SELECT * FROM before")
        database.execute("DROP TABLE before")
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'records'", (sql,))
        database.commit()
    with pytest.raises(WireFormatError):
        opened(path)


def test_tables_of_two_copies_that_went_on_apart_make_no_store(tmp_path):
    """An old copy that went on has as many rows as the right one, all of them the authority's own."""
    first, second = tmp_path / "first", tmp_path / "second"
    with begun(first) as store:
        enrol(store, SESSION, keys_of([9, 64], 3), {9: Grant(b"granted", b"r" * 32)})
        answer_some(store, (1,))
    shutil.copy(first, second)
    for path in (first, second):
        with opened(path) as store:
            answer_some(store, (2,))
    mixed = tmp_path / "mixed"
    whole = [dump_of(first), dump_of(second)]
    refused = 0
    for count in range(1, 6):
        for taken in itertools.combinations(("head", "session", "keys", "answer", "grant"), count):
            shutil.copy(first, mixed)
            with closing(sqlite3.connect(mixed, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous=OFF")
                database.execute("ATTACH ? AS second", (str(second),))
                for kind in taken:
                    table, where = ("head", "") if kind == "head" else ("records", f"WHERE kind = '{kind}'")
                    database.execute(f"DELETE FROM {table} {where}")
                    database.execute(f"INSERT INTO {table} SELECT * FROM second.{table} {where}")
            if dump_of(mixed) not in whole:
                with pytest.raises(REFUSED):
                    opened(mixed)
                refused += 1
    # The head and three kinds differ between the copies; grants are the same, whichever they are taken from.
    assert refused == 2 * (2**4 - 2)


def put_back(path, before, where):
    """Put rows of an earlier copy back into the newest file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("ATTACH ? AS old", (str(before),))
        database.execute(f"REPLACE INTO records SELECT * FROM old.records WHERE {where}")
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.revoke(SESSION, 2),
        lambda store: ask(store, 2, moved_to(3, b"answer"), clients=[1, 3, 4]),
        lambda store: store.close_round(SESSION, 1, moved_to(2)),
    ],
    ids=["revoked", "answered", "closed"],
)
def test_a_client_that_was_revoked_or_moved_on_does_not_get_its_old_key_back(tmp_path, change):
    path, before = tmp_path / "store", tmp_path / "before"
    with begun(path) as store:
        answer_some(store, (1,))
    shutil.copy(path, before)
    with opened(path) as store:
        change(store)
    altered = put_back(path, before, "kind = 'keys'")
    with pytest.raises(WireFormatError, match="a record of kind 'keys' is an earlier one"):
        opened(altered)


def test_nor_does_one_that_was_idle_for_a_thousand_rounds(folder):  # noqa: F811
    """Its key goes on late: the row that is put back is one that the newest rounds have not touched."""
    path, before, idle = folder / "store", folder / "before", range(64, 68)
    with begun(path) as store:
        enrol(store, SESSION, keys_of(idle))
        ask(store, 0, moved_to(1), clients=idle)
        store.close()
    shutil.copy(path, before)
    with opened(path) as store:
        ask(store, 1, moved_to(2), clients=[*CLIENTS, *idle])
        for number in range(2, 1002):
            ask(store, number, lambda keys: b"", clients=CLIENTS[4:])
        store.close_round(SESSION, 1001, moved_to(1002))
    for what in ("name = 'page 1'", "kind = 'answer'"):
        altered = put_back(shutil.copy(path, folder / "altered"), before, what)
        with pytest.raises(WireFormatError, match=r"is an earlier one|1 added"):
            opened(altered)
    opened(path).close()


def test_an_enrolment_key_that_was_erased_does_not_come_back(tmp_path):
    path, before = tmp_path / "store", tmp_path / "before"
    with begun(path) as store:
        store.keep_enrolment_key(b"enrolment key")
    shutil.copy(path, before)
    with opened(path) as store:
        store.end_enrolment()
    altered = put_back(shutil.copy(path, tmp_path / "altered"), before, "kind = 'enrolment key'")
    with pytest.raises(WireFormatError, match="'enrolment key' do not match its head: 1 added"):
        opened(altered)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DELETE FROM records WHERE kind = 'enrolment end'")
    with pytest.raises(WireFormatError, match="'enrolment end' do not match its head: 1 missing"):
        opened(path)


def test_a_clients_key_that_has_gone_on_does_not_come_back(tmp_path):
    path, before = tmp_path / "store", tmp_path / "before"
    with of_client.begun(path) as store:
        of_client.encrypt(store, 1)
    shutil.copy(path, before)
    with of_client.opened(path) as store:
        of_client.encrypt(store, 2)
    for kind in ("key", "frame"):
        altered = put_back(shutil.copy(path, tmp_path / kind), before, f"kind = '{kind}'")
        with pytest.raises(WireFormatError):
            of_client.opened(altered)


def test_how_much_is_kept_in_memory_is_not_for_the_file_to_say(copied):
    path = copied("UPDATE head SET salt = salt")
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA default_cache_size=1")
        database.commit()
    with opened(path) as store:
        assert store._connection.execute("PRAGMA cache_size").fetchone() == (-2000,)


def test_a_key_that_was_written_over_is_nowhere_in_the_file_sealed_as_it_was(folder):  # noqa: F811
    """SQLite overwrites what it deletes, and not always what it has moved to another page."""
    path, draw, clients = folder / "store", random.Random(8), range(20, 320)
    with begun(path) as store:
        enrol(
            store, SESSION, StoredKeys.joined([StoredKeys.of(one, 0, key_of(one % 256)) for one in clients])
        )
        with store._transaction() as change:
            change.number = 2**15 - 1200  # the numbers get longer on the way

        def sealed_keys():
            return {
                row[0] for row in store._connection.execute("SELECT sealed FROM records WHERE kind = 'keys'")
            }

        before, over = sealed_keys(), set()
        for number in range(1, 25):
            ask(store, number, moved_on(number), clients=draw.sample(clients, 100))
            store.keep_state(bytes(draw.randint(1, 30_000)))
            now = sealed_keys()
            over |= before - now
            before = now
            content = path.read_bytes()
            assert not any(sealed[-32:] in content for sealed in over)
    assert len(over) == 24 * 5  # pages


def moved_on(number):
    return moved_to(number, bytes(3000))


def test_bytes_that_were_lost_or_overwritten_give_an_error_or_the_same(whole, whole_of_client, tmp_path):
    """Half a page that was never written, a file that ends too early, single bits."""

    def same_answers(path):
        with opened(path) as store:
            for round_number, answer in whole[1].items():
                assert ask(store, round_number, never, clients=CLIENTS[:5]) == answer

    with of_client.opened(shutil.copy(whole_of_client, tmp_path / "right")) as store:
        frame = of_client.kept(store, 2)

    def same_frame(path):
        with of_client.opened(path) as store:
            assert of_client.kept(store, 2) == frame

    page, draw = 4096, random.Random(1)
    for of, check in ((whole[0], same_answers), (whole_of_client, same_frame)):
        content = of.read_bytes()
        damaged = [content[:length] for length in range(0, len(content), page // 2)]
        for start in range(0, len(content), page // 2):
            for half in (bytes(page // 2), draw.randbytes(page // 2), content[: page // 2]):
                damaged.append(content[:start] + half + content[start + page // 2 :])
        for _ in range(400):
            at = draw.randrange(len(content))
            damaged.append(content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :])
        outcomes = {"refused": 0, "the same": 0}
        for number, data in enumerate(damaged):
            path = tmp_path / f"{number}"
            path.write_bytes(data)
            try:
                check(path)
                outcomes["the same"] += 1
            except REFUSED:
                outcomes["refused"] += 1
        # What lies in no row does not matter, and much of a page may be empty.
        assert min(outcomes.values()) > 50


@pytest.mark.parametrize(
    "record",
    [
        pytest.param("87ecf7c79f00005c000000008b9ae3c0" + 47 * "00", id="a length over SQLite's limit"),
        pytest.param("ff00fb0037003b" + 52 * "00" + "471346bd", id="a name that is no text"),
    ],
)
def test_a_table_that_cannot_be_is_damage(whole_of_client, tmp_path, record):
    content, record = bytearray(whole_of_client.read_bytes()), bytes.fromhex(record)
    start = int.from_bytes(content[108:110], "big")  # of the first record of the first page
    content[start : start + len(record)] = record
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(WireFormatError, match="is damaged, or no store at all"):
        of_client.opened(path)


def test_what_another_copy_left_of_a_transaction_makes_no_store_of_this_one(tmp_path):
    """A backup that is put beside the newer file's rollback journal, which SQLite then plays back."""
    path, backup, newest = (tmp_path / name for name in ("store", "backup", "newest"))
    with begun(path, RULES._replace(answers_kept=100)) as store:
        answer_some(store, (1,))
    shutil.copy(path, backup)
    with opened(path) as store:
        right = answer_some(store, range(2, 20))[19]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # More than stays in memory, so that pages are written before the commit.
        database.execute("PRAGMA cache_size=2")
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE records SET number = number + 1, sealed = zeroblob(length(sealed))")
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
    with pytest.raises(WireFormatError, match=r"no store at all|not have the tables of a store"):
        opened(path)
    assert path.read_bytes() == content


def test_rules_are_those_of_the_session(whole):
    """The fixture is what these tests take it for."""
    assert RULES.answers_kept == 2
    with opened(shutil.copy(whole[0], whole[0].with_name("right"))) as store:
        for round_number, answer in whole[1].items():
            assert ask(store, round_number, never, clients=CLIENTS[:5]) == answer


def test_nothing_that_was_overwritten_is_left_once_the_store_was_closed(tmp_path):
    """Enrolments and revocations between rounds make SQLite move rows; what it moved stays where it was."""
    draw, path, written = random.Random(9), tmp_path / "store", set()
    sessions = {draw.randbytes(16): list(range(37)) for _ in range(5)}

    def tags(store):
        return {sealed[-16:] for (sealed,) in store._held().execute("SELECT sealed FROM records")}

    def moved(keys):
        answer = draw.randbytes(draw.randint(20, 3000))
        keys.rounds[:] += np.uint64(1)
        keys.secrets[:] = np.frombuffer(draw.randbytes(keys.secrets.size), np.uint8).reshape(-1, 32)
        return answer

    with AuthorityStore.create(path, KEY, AUTHORITY) as store:
        for session, clients in sessions.items():
            store.add_session(session, RULES)
            enrol(store, session, keys_of(clients))
        for round_number in range(1, 60):
            for session, clients in sessions.items():
                named = sorted(draw.sample(clients, draw.randint(3, len(clients))))
                participants = [(client, draw.randbytes(16)) for client in named]
                store.answer(session, round_number, "update", participants, DIGEST, moved)
                written |= tags(store)
                if draw.random() < 0.4:
                    clients.append(max(clients) + 1)
                    grant = Grant(draw.randbytes(draw.randint(30, 3000)), DIGEST)
                    enrol(store, session, keys_of([clients[-1]]), {clients[-1]: grant})
                    written |= tags(store)
                if draw.random() < 0.2:
                    store.revoke(session, clients.pop(draw.randrange(len(clients) - 1)))
        overwritten = written - tags(store)
    content = path.read_bytes()
    assert len(overwritten) > 1_000
    assert not [tag for tag in overwritten if tag in content]
