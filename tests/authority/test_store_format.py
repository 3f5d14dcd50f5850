"""Stores read by nothing but SQLite, ``cryptography``, ``msgspec`` and the page on the wire format."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import struct
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
    KEY,
    RULES,
    SESSION,
    ask,
    begun,
    key_of,
    listed,
    moved_to,
)
from shieldfl.authority.authority_store import ClientKey, Grant, message_place
from shieldfl.authority.step_store import LONGEST_IN_TABLE_BYTES, StepStore
from shieldfl.encryption.enrolment import client_number
from shieldfl.errors import WireFormatError


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
        answer = ask(store, 1, lambda keys: (b"an answer", moved_to(2)(keys)), clients=CLIENTS[:5])
        store.revoke(SESSION, 8)
        store.close_round(SESSION, 2, moved_to(3))
        store.enrol(SESSION, {9: ClientKey(3, key_of(9))}, {9: Grant(b"a grant", b"r" * 32)})
        store.grant_opener([SESSION], Grant(b"of the opener"))
        store.keep_enrolment_key(b"an enrolment key")
        for phase in (None, "update"):
            store.keep_message(message_place(SESSION, 1, phase), b"m" * 32)
        position = store.position
    found = Read(path)
    assert (found.owner, found.epoch, found.number) == (AUTHORITY, *position)
    # Each client was written, five and then seven again, and one to be revoked; the reply is the one before the last.
    session = [0, list(RULES), 1, 2, position.rows - 1, [["update", len(CLIENTS) + 2]]]
    keys = {
        ("key", SESSION, client): encode(
            [3, bytes(reversed(key_of(client))) if client in (6, 7) else key_of(client)]
        )
        for client in (1, 2, 3, 4, 5, 6, 7, 9)
    }
    assert found.at == keys | {
        ("session", SESSION): encode(session),
        ("key", SESSION, 8): b"",
        ("grant", SESSION, 9): encode([b"a grant", b"r" * 32]),
        ("grant", SESSION): encode([b"of the opener", None]),
        ("answer", SESSION, 1, "update", 1): encode([DIGEST, listed(1, CLIENTS[:5]), answer]),
        ("first message", SESSION, 1): b"m" * 32,
        ("reply", SESSION, 1, "update"): b"m" * 32,
        ("enrolment key",): b"an enrolment key",
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
    name, key = decode(found.at.pop(("file", SESSION, "long")))
    assert name[32:] == "-" + found.mac("kept files")[:8].hex()
    sealed = (tmp_path / "store-kept" / name).read_bytes()
    assert AESGCM(key).decrypt(bytes(12), sealed, name.encode()) == long
    assert found.at == {
        ("kept", SESSION, "short"): b"s",
        ("moved", SESSION): b"",
        ("update", found.mac("update", b"u" * 32).hex()): encode([[SESSION, 4]]),
    }


def test_a_store_of_an_older_format_is_refused(tmp_path):
    path = tmp_path / "store"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE head (authority_id BLOB, salt BLOB, proof BLOB, epoch INTEGER)")
        database.execute("CREATE TABLE journal (number INTEGER PRIMARY KEY, kind TEXT)")
    with pytest.raises(WireFormatError, match="not the tables of a store: it is of another version"):
        StepStore(path, KEY)
