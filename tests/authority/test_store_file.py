"""The file of an authority's store: who can open it, who can read it, and what an old copy of it is."""

from __future__ import annotations

import copy
import os
import pickle
import sqlite3
import threading
from contextlib import closing

import pytest

from authority import client_store_cases as of_client
from authority.store_cases import (
    AUTHORITY,
    CLIENTS,
    DIGEST,
    KEPT_FOR_LONG,
    KEY,
    RULES,
    SESSION,
    ask,
    begun,
    key_of,
    listed,
    never,
    opened,
    random_answer,
)
from shieldfl.authority.authority_store import AuthorityStore, ClientKey
from shieldfl.authority.store import Position
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, SecretCopyError


def test_of_many_threads_one_computes(store):
    answers, computed = [], []

    def compute(keys):
        computed.append(1)
        return random_answer(keys)

    threads = [threading.Thread(target=lambda: answers.append(ask(store, 1, compute))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answers), len(set(answers)), len(computed)) == (8, 1, 1)


def test_the_file_is_the_owners_alone_whatever_others_files_are(path):
    mask = os.umask(0)
    try:
        with begun(path) as store:
            ask(store, 1)
            assert [one.stat().st_mode & 0o777 for one in path.parent.iterdir()] == [0o600] * 2
    finally:
        os.umask(mask)


def test_a_store_is_begun_over_nothing(path, store):
    ask(store, 1)
    with pytest.raises(PolicyError, match="exists: open it"):
        AuthorityStore.create(path, KEY, AUTHORITY)
    ask(store, 1, never)


def test_another_key_and_another_authority_open_nothing(path):
    begun(path).close()
    with pytest.raises(KeyMismatchError, match="another key"):
        AuthorityStore(path, b"k" * 32, AUTHORITY)
    with pytest.raises(KeyMismatchError, match="another authority"):
        AuthorityStore(path, KEY, b"a" * 32)
    for key, authority in ((KEY[1:], AUTHORITY), (KEY, AUTHORITY[1:]), ("k" * 32, AUTHORITY), (KEY, None)):
        with pytest.raises(ParameterError):
            AuthorityStore(path, key, authority)


def test_no_secret_is_readable_in_the_file_shown_or_copied(path):
    with begun(path, KEPT_FOR_LONG) as store:
        ask(store, 1, lambda keys: (b"what is answered" * 4, keys))
        key = ClientKey(3, key_of(7))
        for secret in (store, key, store._file, store._keys):
            for copied in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(SecretCopyError):
                    copied(secret)
            assert repr(key_of(7)) not in repr(secret)
        assert key.key.hex() not in repr(key)
    with of_client.begun(path.with_name("of a client")) as store:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(SecretCopyError):
                copied(store)
        assert repr(of_client.SECRET) not in repr(store)
    content = path.read_bytes() + path.with_name("of a client").read_bytes()
    for secret in (b"what is answered", of_client.SECRET, KEY, *(key_of(client) for client in CLIENTS)):
        assert secret not in content


def test_an_old_copy_is_told_by_who_knows_a_newer_position_and_a_restored_one_begins_an_epoch(path, tmp_path):
    with begun(path) as store:
        ask(store, 1)
    backup = tmp_path / "backup"
    backup.write_bytes(path.read_bytes())
    with opened(path) as store:
        ask(store, 2)
        newest = store.position
    assert newest > Position(0, 0)
    opened(path, at_least=newest).close()
    with pytest.raises(PolicyError, match="old copy of the store"):
        opened(backup, at_least=newest)
    with pytest.raises(PolicyError, match="old copy of the store"):
        opened(path, at_least=(newest.epoch, newest.rows + 1))
    # Nothing in the file tells, if nobody knows: this is what restored=True is for.
    opened(backup).close()

    with opened(backup, at_least=(4, 10**6), restored=True) as restored:
        assert restored.position.epoch == 5
        for what in (
            lambda: ask(restored, 1, never),
            lambda: ask(restored, 2, never),
            lambda: ask(restored, 9, never),
            lambda: restored.enrol(SESSION, {50: ClientKey(0, key_of(50))}),
            lambda: restored.revoke(SESSION, 1),
            lambda: restored.close_round(SESSION, 1, never),
            lambda: restored.add_session(SESSION, RULES),
        ):
            with pytest.raises(PolicyError, match="begun in epoch 0, and a backup"):
                what()
        position = restored.position
    with opened(backup, at_least=position) as again:
        assert again.position == position
        with pytest.raises(PolicyError, match="begun in epoch 0"):
            ask(again, 1, never)
        fresh = b"a fresh session!"
        again.add_session(fresh, RULES)
        again.enrol(fresh, {client: ClientKey(0, key_of(client)) for client in CLIENTS})
        answer = again.answer(fresh, 1, "update", listed(1), DIGEST, random_answer)
    with closing(sqlite3.connect(backup)) as database:
        assert database.execute(
            "SELECT count(*) FROM records WHERE kind = 'key' AND session != ?", (fresh,)
        ).fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM records WHERE kind = 'answer'").fetchone() == (1,)
    with opened(backup) as again:
        assert again.answer(fresh, 1, "update", listed(1), DIGEST, never) == answer
    for at_least in (3, (1,), (-1, 0), ("a", 0), None):
        with pytest.raises(ParameterError, match="at_least"):
            opened(path, at_least=at_least)
    with pytest.raises(ParameterError, match="epoch"):
        opened(backup, at_least=(2**63 - 1, 0), restored=True)
