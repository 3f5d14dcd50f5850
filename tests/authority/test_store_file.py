"""The file of an authority's store: who opens it, what an old copy is, and how the page on the wire format reads it."""

from __future__ import annotations

import copy
import hashlib
import hmac
import os
import pickle
import sqlite3
import struct
import threading
from contextlib import closing

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec.msgpack import decode, encode

import shieldfl as sf
from authority import client_store_cases as of_client
from authority.enrolled_session import PARAMETERS
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
    enrol,
    key_of,
    keys_of,
    listed,
    moved_to,
    never,
    opened,
    random_answer,
)
from shieldfl.authority import client_store
from shieldfl.authority.authority_store import AuthorityStore, Grant, StoredKeys
from shieldfl.authority.private_file import LONGEST_IN_TABLE_BYTES
from shieldfl.authority.step_store import StepStore
from shieldfl.authority.store import Position
from shieldfl.encryption.enrolment import client_number
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, SecretCopyError, WireFormatError


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
    for owner in (b"a" * 32, None):
        with pytest.raises(KeyMismatchError, match="another authority"):
            AuthorityStore(path, KEY, owner)
    for key, authority in ((KEY[1:], AUTHORITY), (KEY, AUTHORITY[1:]), ("k" * 32, AUTHORITY)):
        with pytest.raises(ParameterError):
            AuthorityStore(path, key, authority)
    with pytest.raises(TypeError, match="key"):
        AuthorityStore(path)  # and nothing more is said when it is dropped


def test_no_secret_is_readable_in_the_file_shown_or_copied(path):
    with begun(path, KEPT_FOR_LONG) as store:
        ask(store, 1, lambda keys: b"what is answered" * 4)
        key = StoredKeys.of(7, 3, key_of(7))
        for secret in (store, key, store._file, store._keys):
            for copied in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(SecretCopyError):
                    copied(secret)
            assert repr(key_of(7)) not in repr(secret)
        assert "7, 7" not in repr(key)
        key.wipe()
        assert not key.secrets.any()
    with of_client.begun(path.with_name("of a client")) as store:
        with store._transaction() as change:
            key = client_store._read_key(change, of_client.PUBLIC_KEY.id)
        for secret in (store, key):
            for copied in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(SecretCopyError):
                    copied(secret)
            assert repr(of_client.SECRET) not in repr(secret)
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
            lambda: enrol(restored, SESSION, keys_of([50])),
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
        enrol(again, fresh, keys_of(CLIENTS))
        answer = again.answer(fresh, 1, "update", listed(1), DIGEST, random_answer)
    with closing(sqlite3.connect(backup)) as database:
        assert database.execute(
            "SELECT count(*) FROM records WHERE kind = 'keys' AND session != ?", (fresh,)
        ).fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM records WHERE kind = 'answer'").fetchone() == (1,)
    with opened(backup) as again:
        assert again.answer(fresh, 1, "update", listed(1), DIGEST, never) == answer
    for at_least in (3, (1,), (-1, 0), ("a", 0), None):
        with pytest.raises(ParameterError, match="at_least"):
            opened(path, at_least=at_least)
    with pytest.raises(ParameterError, match="epoch"):
        opened(backup, at_least=(2**63 - 1, 0), restored=True)


class Read:
    """A store's content by kind and place, once all of it was found to be what the page says."""

    def __init__(self, path):
        with closing(sqlite3.connect(path)) as database:
            ((self.owner, salt, proof, head),) = database.execute(
                "SELECT owner, salt, proof, sealed FROM head"
            )
            rows = database.execute(
                "SELECT kind, session, round, name, client, number, sealed FROM records"
            ).fetchall()
        keys = HKDF(SHA256(), 96, salt=salt, info=b"shieldfl store 1\0").derive(KEY)
        self.sealing, self.authenticating, summing = keys[:32], keys[32:64], keys[64:]
        assert self.mac("proof", self.owner, salt) == proof
        self.epoch, self.number, sums = decode(self.unseal(0, head, b"head"))
        self.at, own = {}, {kind: [0, 0] for kind in sums}
        for *place, number, sealed in rows:
            bound = encode([*place, number])
            self.at[tuple(value for value in place if value not in (-1, b"", ""))] = self.unseal(
                number, sealed, bound
            )
            summand = hashlib.blake2b(
                bound + sealed[:16] + sealed[-16:], key=summing, digest_size=32
            ).digest()
            own[place[0]] = [own[place[0]][0] + 1, own[place[0]][1] + int.from_bytes(summand, "big")]
            assert number <= self.number
        assert {
            kind: (count, (total % 2**256).to_bytes(32, "big")) for kind, (count, total) in own.items()
        } == {kind: tuple(one) for kind, one in sums.items()}

    def mac(self, *values):
        return hmac.new(self.authenticating, encode(values), hashlib.sha256).digest()

    def unseal(self, number, sealed, bound):
        key = hmac.new(self.sealing, sealed[:16], hashlib.sha256).digest()
        return AESGCM(key).decrypt(number.to_bytes(12, "big"), sealed[16:], bound)


def test_an_authoritys_store_is_what_the_page_says(tmp_path):
    path = tmp_path / "store"
    with begun(path) as store:
        answer = ask(store, 1, moved_to(2, b"an answer"), clients=CLIENTS[:5])
        store.revoke(SESSION, 8)
        store.close_round(SESSION, 2, moved_to(3))
        enrol(store, SESSION, keys_of([9, 64], 3), {9: Grant(b"a grant", b"r" * 32)})
        enrol(store, SESSION, keys_of([]), {None: Grant(b"of the opener")})
        store.keep_enrolment_key(b"an enrolment key")
        store.keep_state(b"of a role")
        position = store.position
    found = Read(path)
    assert (found.owner, found.epoch, found.number) == (AUTHORITY, *position)
    # The answer follows the session, twice, and the page of its clients.
    session = [0, list(RULES), 1, 2, len(CLIENTS) + 2, [["update", 4]]]
    clients = [*CLIENTS, 9]
    rounds = [2**64 - 1 if client == 8 else 3 for client in clients]
    secrets = [bytes(32) if client == 8 else key_of(client) for client in clients]
    assert found.at == {
        ("keys", SESSION, "page 0"): struct.pack("<9Q9Q", *clients, *rounds) + b"".join(secrets),
        ("keys", SESSION, "page 1"): struct.pack("<QQ", 64, 3) + key_of(64),
        ("session", SESSION): encode(session),
        ("grant", SESSION, 9): encode([b"a grant", b"r" * 32]),
        ("grant", SESSION): encode([b"of the opener", None]),
        ("answer", SESSION, 1, "update", 1): encode([DIGEST, listed(1, CLIENTS[:5]), answer]),
        ("enrolment key",): b"an enrolment key",
        ("state",): encode([b"of a role", "", b""]),
    }


def test_a_clients_store_is_what_the_page_says(tmp_path):
    path = tmp_path / "store"
    mask = sf.Mask.from_indices(np.arange(20), of_client.SIZE)
    authority = sf.KeyAuthority(PARAMETERS)
    session, other = of_client.PUBLIC_KEY.id, authority.public_key.id
    with of_client.begun(path) as store:
        of_client.encrypt(store, 1)
        frame = of_client.encrypt(store, 2, part=3, mask=mask, weight=0.5, clip=True)
        (request,) = store.enrol(authority.public_key, "clinic")
    ((requests, ((reads_grants, opening_key),)),) = (decode(Read(path).at["enrolment", other]),)
    assert (requests, len(reads_grants), opening_key) == ([request], 32, b"")
    authority.accept(request)
    with of_client.opened(path) as store:
        store.take_grant(authority.public_key, authority.grant("clinic"))
        store.close_round(authority.public_key, 6)
    found = Read(path)
    assert found.owner == hashlib.sha256(b"shieldfl client store 1\0").digest()
    opening_key = authority._owner.opening_key(authority.public_key.manifest_digest)
    macs = [
        found.mac("values", session, hashlib.sha256(values.astype("<f4").tobytes()).digest())
        for values in (of_client.update(1), of_client.update(2)[:20])
    ]
    how = hashlib.sha256(mask.to_bytes() + struct.pack("<d", 0.5)).digest()
    stands = {of: decode(found.at.pop(("key", of))) for of in (session, other)}
    assert {of: (client, at, len(key), made) for of, (client, at, key, made) in stands.items()} == {
        session: (of_client.CLIENT, 2, 32, ["update/3"]),
        other: (client_number("clinic"), 7, 32, []),
    }
    assert found.at == {
        ("session", session): b"",
        ("session", other): b"",
        ("enrolment", session): encode([[], []]),
        ("enrolment", other): encode([[], [[reads_grants, opening_key]]]),
        ("frame", session, 2, "update/3"): found.mac("frame", macs[1], how, 1) + frame,
        ("values", session, macs[0].hex()): encode(1),
        ("values", session, macs[1].hex()): encode(2),
    }


def test_a_nodes_store_is_what_the_page_says(tmp_path):
    path, long = tmp_path / "store", b"l" * (LONGEST_IN_TABLE_BYTES + 1)
    with StepStore.create(path, KEY) as store:
        contents = {"short": b"s", "long": long}
        store.keep(SESSION, contents, since=store.position, round_number=4, update=b"u" * 32)
    found = Read(path)
    assert found.owner == hashlib.sha256(b"shieldfl step store 1\0").digest()
    content, name, key = decode(found.at.pop(("kept", SESSION, "long")))
    assert content == b""
    assert name[32:] == "-" + found.mac("kept files")[:8].hex()
    sealed = (tmp_path / "store-kept" / name).read_bytes()
    assert AESGCM(key).decrypt(bytes(12), sealed, name.encode()) == long
    assert found.at == {
        ("kept", SESSION, "short"): encode([b"s", "", b""]),
        ("moved", SESSION): b"",
        ("update", found.mac("update", b"u" * 32).hex()): encode([[SESSION, 4]]),
    }


def test_a_store_of_an_older_format_is_refused(tmp_path):
    path = tmp_path / "store"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE head (authority_id BLOB, salt BLOB, proof BLOB, epoch INTEGER)")
        database.execute("CREATE TABLE journal (number INTEGER PRIMARY KEY, kind TEXT)")
    with pytest.raises(WireFormatError, match=r"not have the tables .* Keep it and use that version"):
        StepStore(path, KEY)
