"""Whoever can write a store's file while it is held, past its locks, wants a second answer, or an old key back."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest

import shieldfl as sf
from attacks.test_altered_store import put_back
from authority import client_store_cases as of_client
from authority.enrolled_session import PARAMETERS
from authority.store_cases import (
    CLIENTS,
    KEY,
    RULES,
    SESSION,
    ask,
    begun,
    enrol,
    keys_of,
    moved_to,
    never,
    opened,
)
from shieldfl.authority.private_file import LONGEST_IN_TABLE_BYTES
from shieldfl.authority.step_store import StepStore
from shieldfl.errors import PolicyError, WireFormatError


def overwrite(store, path, content):
    """Write into the file that a store holds, past its locks, and have SQLite read it again."""
    with path.open("r+b") as file:
        file.write(content)
    store._connection.execute("PRAGMA shrink_memory")


def write_beside(store, path, statement):
    """Change the file that a store holds by a statement."""
    copy = shutil.copy(path, path.with_name("copy"))
    with closing(sqlite3.connect(copy, isolation_level=None)) as database:
        database.execute(statement)
    overwrite(store, path, copy.read_bytes())


def test_an_answer_that_is_hidden_while_the_store_is_held_is_not_given_for_another_list(tmp_path):
    """Put back after, it would leave a file in which all is as it was written: two lists were answered."""
    path = tmp_path / "store"
    with begun(path) as store:
        answers = [ask(store, 1, clients=clients) for clients in (CLIENTS[:4], CLIENTS[4:7])]
        before = path.read_bytes()
        for hidden in ("kind = 'answer' AND client = 1", "kind = 'answer'"):
            write_beside(store, path, f"DELETE FROM records WHERE {hidden}")
            for clients in (CLIENTS[1:4], CLIENTS[:3]):
                with pytest.raises(WireFormatError, match="lacks some of its 2 answer"):
                    ask(store, 1, never, clients=clients)
            overwrite(store, path, before)
        assert answers == [ask(store, 1, never, clients=clients) for clients in (CLIENTS[:4], CLIENTS[4:7])]
        assert ask(store, 1, clients=CLIENTS[:4], purpose="another")
        assert ask(store, 2)
    opened(path).close()


def put_back_beside(store, path, before, where, hidden="FALSE"):
    """Put rows of an earlier copy back into the file that a store holds, and hide others."""
    write_beside(store, path, f"DELETE FROM records WHERE {hidden}")
    put_back(path.with_name("copy"), before, where)
    overwrite(store, path, path.with_name("copy").read_bytes())


@pytest.mark.parametrize("back", ["kind IN ('session', 'keys')", "kind = 'session'", "kind = 'keys'"])
def test_neither_rules_nor_keys_of_before_an_answer_come_back_while_the_store_is_held(tmp_path, back):
    """With them, and without its record, the answer was given for another list: the difference is an update."""
    path = tmp_path / "store"
    with begun(path) as store:
        before = shutil.copy(path, tmp_path / "before")
        ask(store, 1, moved_to(2, b"answer"), clients=CLIENTS[:4])
        put_back_beside(store, path, before, back, hidden="kind = 'answer'")
        for clients in (CLIENTS[1:5], CLIENTS[4:]):
            with pytest.raises(
                WireFormatError, match=r"put back while the store was held here|lacks some of"
            ):
                ask(store, 1, never, clients=clients)


def test_no_key_of_before_a_revocation_comes_back_while_the_store_is_held(tmp_path):
    path = tmp_path / "store"
    with begun(path) as store:
        before = shutil.copy(path, tmp_path / "before")
        store.revoke(SESSION, 2)
        put_back_beside(store, path, before, "kind IN ('keys', 'grant')")
        with pytest.raises(
            WireFormatError, match="the record 'keys' at 'page 0' is an earlier one, put back"
        ):
            ask(store, 1, never)
        write_beside(store, path, "DELETE FROM records WHERE kind = 'keys'")
        with pytest.raises(WireFormatError, match="the record 'keys' at 'page 0' is missing"):
            enrol(store, SESSION, keys_of([2]))


def test_a_nodes_contents_of_before_do_not_come_back_while_the_store_is_held(tmp_path):
    path = tmp_path / "store"
    with StepStore.create(path, KEY) as store:
        store.keep(SESSION, {"state": b"1"}, since=store.position)
        before = shutil.copy(path, tmp_path / "before")
        store.keep(SESSION, {"state": b"2"}, since=store.position)
        put_back_beside(store, path, before, "kind = 'kept'")
        with pytest.raises(WireFormatError, match="the record 'kept' at 'state' is an earlier one, put back"):
            store.kept(SESSION)


def test_a_clients_grants_of_before_do_not_come_back_while_the_store_is_held(tmp_path):
    path, authority = tmp_path / "store", sf.KeyAuthority(PARAMETERS)
    with of_client.begun(path) as store:
        (request,) = store.enrol(authority.public_key, "clinic")
        before = shutil.copy(path, tmp_path / "before")
        store.take_grant(authority.public_key, authority.grant(authority.accept(request)))
        put_back_beside(store, path, before, "kind = 'enrolment'")
        with pytest.raises(WireFormatError, match="the record 'enrolment' is an earlier one, put back"):
            store.opening_keys(authority.public_key)
        write_beside(store, path, "DELETE FROM records WHERE kind = 'enrolment'")
        with pytest.raises(WireFormatError, match="the record 'enrolment' is missing"):
            store.opening_keys(authority.public_key)


def test_a_clients_key_of_before_a_frame_does_not_come_back_while_the_store_is_held(tmp_path):
    """With it, and without the frame, another frame was made under the same key."""
    path = tmp_path / "store"
    with of_client.begun(path) as store:
        before = shutil.copy(path, tmp_path / "before")
        of_client.encrypt(store, 1)
        put_back_beside(store, path, before, "kind = 'key'", hidden="kind IN ('frame', 'values')")
        with pytest.raises(WireFormatError, match="the record 'key' is an earlier one, put back"):
            of_client.encrypt(store, 1, number=7)


def test_a_frame_that_is_hidden_while_the_store_is_held_is_not_made_again_of_other_values(tmp_path):
    """In the next round it would be put back, and be deleted as one that is over."""
    path = tmp_path / "store"
    with of_client.begun(path) as store:
        of_client.encrypt(store, 1)
        frame, _ = of_client.encrypt(store, 2), of_client.encrypt(store, 2, part=1)
        before = path.read_bytes()
        write_beside(store, path, "DELETE FROM records WHERE kind = 'frame' AND name = 'update/0'")
        with pytest.raises(WireFormatError, match="the record 'frame' of round 2 at 'update/0' is missing"):
            of_client.encrypt(store, 2, number=7)
        overwrite(store, path, before)
        assert of_client.kept(store, 2) == frame
        assert of_client.encrypt(store, 2, number=7, part=2)
        assert of_client.encrypt(store, 3)
    of_client.opened(path).close()


def test_an_old_copy_that_is_written_into_the_file_while_it_is_held_is_refused(tmp_path):
    path = tmp_path / "store"
    with begun(path) as store:
        before = path.read_bytes()
        answer = ask(store, 1, clients=CLIENTS[:5])
        now = path.read_bytes()
        overwrite(store, path, before)
        for _ in range(2):
            with pytest.raises(WireFormatError, match="an earlier content was put back"):
                ask(store, 1, never, clients=CLIENTS[1:])
        overwrite(store, path, now)
        assert ask(store, 1, never, clients=CLIENTS[:5]) == answer


def test_the_end_of_enrolment_is_not_undone_while_the_store_is_held(tmp_path):
    path = tmp_path / "store"
    with begun(path) as store:
        store.keep_enrolment_key(b"enrolment key")
        shutil.copy(path, tmp_path / "before")
        store.end_enrolment()
        write_beside(store, path, "DELETE FROM records WHERE kind = 'enrolment end'")
        store._connection.execute("ATTACH ? AS old", (str(tmp_path / "before"),))
        store._connection.execute(
            "INSERT INTO records SELECT * FROM old.records WHERE kind = 'enrolment key'"
        )
        assert store.keep_enrolment_key(b"another") is None
        with pytest.raises(PolicyError, match="enrolment has ended"):
            enrol(store, SESSION, keys_of([9]))


def test_a_number_that_was_altered_while_the_store_is_held_is_found(tmp_path):
    path = tmp_path / "store"
    with begun(path) as store:
        store.keep_state(bytes(32))
        write_beside(store, path, "UPDATE records SET number = number + 9 WHERE kind = 'state'")
        with pytest.raises(WireFormatError, match="the record 'state' is not what was written"):
            store.state()


def test_a_page_of_keys_that_is_hidden_keeps_no_key_of_a_round_that_is_closed(tmp_path):
    """Put back, it had keys that were to be overwritten, and all was as it was written."""
    path = tmp_path / "store"
    with begun(path) as store:
        enrol(store, SESSION, keys_of([70]))
        for number, hidden in enumerate(("page 1", "page 0"), 1):
            before = path.read_bytes()
            write_beside(store, path, f"DELETE FROM records WHERE name = '{hidden}'")
            with pytest.raises(WireFormatError, match=f"the record 'keys' at '{hidden}' is missing"):
                store.close_round(SESSION, number, moved_to(number + 1))
            with pytest.raises(WireFormatError, match="is missing"):
                store.revoke(SESSION, 70 if hidden == "page 1" else 1)
            overwrite(store, path, before)


def test_a_restored_store_does_not_forget_a_session_that_is_hidden(tmp_path):
    """Begun once more, it answered lists of rounds that were answered before the backup."""
    path = tmp_path / "store"
    with begun(path) as store:
        ask(store, 1)
    with opened(path, restored=True) as store:
        write_beside(store, path, "DELETE FROM records WHERE kind = 'session'")
        with pytest.raises(WireFormatError, match="the record 'session' is missing"):
            store.add_session(SESSION, RULES)


def test_a_nodes_content_that_is_hidden_is_missed_and_keeps_its_file(tmp_path):
    path, long = tmp_path / "store", bytes(LONGEST_IN_TABLE_BYTES + 1)
    with StepStore.create(path, KEY) as store:
        store.keep(SESSION, {"model": long, "short": b"1"}, since=store.position)
        before = path.read_bytes()
        for hidden in ("kind = 'kept'", "name = 'model'"):
            write_beside(store, path, f"DELETE FROM records WHERE {hidden}")
            with pytest.raises(WireFormatError, match="is missing"):
                store.kept(SESSION)
            with pytest.raises(WireFormatError, match="is missing"):
                store.keep(SESSION, {"model": b"2"}, since=store.position)
            overwrite(store, path, before)
        assert store.kept(SESSION) == {"model": long, "short": b"1"}


def test_a_row_that_was_altered_before_it_was_deleted_is_found(tmp_path):
    """Also where it was the last one of its kind: the head has then no records of it, and a sum that is wrong."""
    path = tmp_path / "store"
    with begun(path) as store:
        store.keep_enrolment_key(b"enrolment key")
        write_beside(store, path, "UPDATE records SET sealed = zeroblob(80) WHERE kind = 'enrolment key'")
        store.end_enrolment()
    with pytest.raises(WireFormatError, match="record of kind 'enrolment key' is an earlier one"):
        opened(path)
