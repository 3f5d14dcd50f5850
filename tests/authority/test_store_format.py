"""A store read by nothing but SQLite, ``cryptography`` and the page on the wire format."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import struct
from contextlib import closing

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from authority.store_cases import (
    AUTHORITY,
    CLIENTS,
    DIGEST,
    KEY,
    SESSION,
    ask,
    begun,
    key_of,
    listed,
    moved_to,
    opened,
)
from shieldfl.authority.store_journal import ClientKey, Grant


def canonical(*values):
    def one(value):
        if value is None:
            return b"n"
        if isinstance(value, int):
            return b"i" + struct.pack("<q", value)
        kind, content = (b"s", value.encode()) if isinstance(value, str) else (b"b", value)
        return kind + struct.pack("<Q", len(content)) + content

    return b"".join(map(one, values))


def mac(key, *values):
    return hmac.new(key, canonical(*values), hashlib.sha256).digest()


def test_a_store_is_what_the_page_says(tmp_path):
    path = tmp_path / "store"
    with begun(path) as store:
        answer = ask(store, 1, lambda keys: (b"an answer", moved_to(2)(keys)), clients=CLIENTS[:5])
        store.revoke(SESSION, 8)
        store.close_round(SESSION, 2, moved_to(3))
        store.enrol(SESSION, {9: ClientKey(3, key_of(9))}, {9: Grant(b"a grant", b"r" * 32)})
        store.keep_enrolment_key(b"an enrolment key")
    opened(path).close()
    with closing(sqlite3.connect(path)) as database:
        ((authority, salt, proof, epoch, rows, last_mac, openings, head_mac),) = database.execute(
            "SELECT authority_id, salt, proof, epoch, rows, last_mac, openings, mac FROM head"
        )
        journal = database.execute(
            "SELECT number, kind, session, client, round, purpose, digest, token, mac FROM journal ORDER BY number"
        ).fetchall()
        sessions = database.execute(
            "SELECT session, epoch, manifest_digest, min_clients, window, answers_kept FROM sessions"
        ).fetchall()
        keys = database.execute("SELECT session, client, round, changed, sealed FROM clients").fetchall()
        answers = database.execute("SELECT number, total_digest, sealed FROM answers").fetchall()
        answered = database.execute(
            "SELECT client, frame_id FROM answered WHERE (session, round, purpose, number) = (?, 1, 'update', ?)",
            (SESSION, answers[0][0]),
        ).fetchall()
        grants = database.execute(
            "SELECT number, session, client, request_digest, sealed FROM grants"
        ).fetchall()
        ((key_number, enrolment_key),) = database.execute(
            "SELECT number, sealed FROM enrolment_key"
        ).fetchall()
    kdf = HKDF(SHA256(), 64, salt=salt, info=b"shieldfl authority store 1\0")
    derived = kdf.derive(KEY)
    sealing, authenticating = derived[:32], derived[32:]

    def unseal(number, sealed, *owner):
        token = journal[number - 1][7]
        return AESGCM(mac(sealing, token)).decrypt(sealed[:12], sealed[12:], canonical(*owner))

    assert (authority, epoch, rows, openings) == (AUTHORITY, 0, len(journal), 2)
    assert mac(authenticating, "proof", authority, salt) == proof
    previous = bytes(32)
    for *columns, row_mac in journal:
        assert mac(authenticating, "row", previous, *columns) == row_mac
        previous = row_mac
    assert previous == last_mac
    assert mac(authenticating, "head", epoch, rows, last_mac, openings) == head_mac
    kinds = ["session", *["enrol"] * len(CLIENTS), "answer", "revoke", "close", "enrol", "key"]
    assert [row[1] for row in journal] == kinds
    ((number, *granted),) = grants
    assert granted[:3] == [SESSION, 9, b"r" * 32]
    assert unseal(number, granted[3], "grant", SESSION, 9) == b"a grant"
    assert journal[number - 1][6] == hashlib.sha256(canonical(b"r" * 32, b"a grant")).digest()
    assert unseal(key_number, enrolment_key, "enrolment key") == b"an enrolment key"
    assert [canonical(*session) for session in sessions] == [journal[0][6]]
    assert answered == listed(1, CLIENTS[:5])
    ((number, total_digest, sealed),) = answers
    pairs = b"".join(canonical(client, frame_id) for client, frame_id in answered)
    assert hashlib.sha256(canonical(total_digest) + pairs).digest() == journal[number - 1][6]
    assert (total_digest, unseal(number, sealed, "answer", SESSION, 1, "update")) == (DIGEST, answer)
    for session, client, round_number, changed, sealed in keys:
        if client == 8:
            assert (round_number, changed, sealed) == (None, rows - 3, None)
            continue
        assert (round_number, changed) == (3, rows - 1 if client == 9 else rows - 2)
        moves = 1 if client in CLIENTS[5:] else 2
        key = bytes(reversed(key_of(client))) if moves == 1 else key_of(client)
        assert unseal(changed, sealed, "key", session, client, 3) == key
