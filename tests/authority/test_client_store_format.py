"""A client's store read by nothing but SQLite, ``cryptography`` and the page on the wire format."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from contextlib import closing

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

import shieldfl as sf
from authority.client_store_cases import CLIENT, KEY, PUBLIC_KEY, SIZE, begun, encrypt, opened, update
from authority.enrolled_session import PARAMETERS
from authority.test_store_format import canonical, mac
from shieldfl.encryption.enrolment import client_number


def test_a_store_is_what_the_page_says(tmp_path):
    path = tmp_path / "store"
    mask = sf.Mask.from_indices(np.arange(20), SIZE)
    authority = sf.KeyAuthority(PARAMETERS)
    session, other = PUBLIC_KEY.id, authority.public_key.id
    with begun(path) as store:
        encrypt(store, 1)
        frame = encrypt(store, 2, part=3, mask=mask, weight=0.5, clip=True)
        (request,) = store.enrol(authority.public_key, "clinic")
        authority.accept(request)
    with closing(sqlite3.connect(path)) as database:
        select = "SELECT number, kind, requests FROM enrolments WHERE session = ?"
        assert database.execute(select, (other,)).fetchone() == (4, "enrol", joined(request))
    with opened(path) as store:
        store.take_grant(authority.public_key, authority.grant("clinic"))
        store.close_round(authority.public_key, 6)
    with closing(sqlite3.connect(path)) as database:
        ((owner, salt, proof, epoch, rows, last_mac, openings, head_mac),) = database.execute(
            "SELECT authority_id, salt, proof, epoch, rows, last_mac, openings, mac FROM head"
        )
        journal = database.execute(
            "SELECT number, kind, session, client, round, purpose, digest, token, mac FROM journal ORDER BY number"
        ).fetchall()
        keys = database.execute("SELECT session, client, round, changed, sealed FROM keys").fetchall()
        enrolments = database.execute(
            "SELECT session, number, kind, requests, sealed FROM enrolments"
        ).fetchall()
        frames = database.execute(
            "SELECT number, session, round, purpose, made_of, sealed FROM frames"
        ).fetchall()
    derived = HKDF(SHA256(), 64, salt=salt, info=b"shieldfl authority store 1\0").derive(KEY)
    sealing, authenticating = derived[:32], derived[32:]

    def unseal(number, sealed, *owner):
        token = journal[number - 1][7]
        return AESGCM(mac(sealing, token)).decrypt(sealed[:12], sealed[12:], canonical(*owner))

    assert owner == hashlib.sha256(b"shieldfl client store 1\0").digest()
    assert mac(authenticating, "proof", owner, salt) == proof
    previous = bytes(32)
    for *columns, row_mac in journal:
        assert mac(authenticating, "row", previous, *columns) == row_mac
        previous = row_mac
    assert (previous, epoch, rows) == (last_mac, 0, len(journal))
    assert mac(authenticating, "head", epoch, rows, last_mac, openings) == head_mac
    said = [(kind, of, round_number, purpose) for _, kind, of, _, round_number, purpose, *_ in journal]
    assert said == [
        ("enrol", session, 0, None),
        ("frame", session, 1, "update/0"),
        ("frame", session, 2, "update/3"),
        ("enrol", other, 0, None),
        ("grant", other, None, None),
        ("close", other, 6, None),
    ]
    for number, asked in ((1, []), (4, [request]), (5, [])):
        assert journal[number - 1][6] == hashlib.sha256(canonical(*asked)).digest()
    ((number, *placed, made_of, sealed),) = frames
    values = hashlib.sha256(update(2)[:20].astype("<f4").tobytes()).digest()
    of_values = mac(authenticating, "values", session, values)
    how = hashlib.sha256(mask.to_bytes() + struct.pack("<d", 0.5)).digest()
    assert (number, placed, journal[2][6]) == (3, [session, 2, "update/3"], of_values)
    assert made_of == mac(authenticating, "frame", of_values, how, 1)
    assert unseal(number, sealed, "frame", *placed, made_of) == frame
    stands = {session: (CLIENT, 2, 3), other: (client_number("clinic"), 7, 6)}
    assert {of: tuple(key) for of, *key, _ in keys} == stands
    for of, client, round_number, changed, sealed in keys:
        assert len(unseal(changed, sealed, "key", of, client, round_number)) == 32
    secrets = {
        of: (number, unseal(number, sealed, kind, of, asked))
        for of, number, kind, asked, sealed in enrolments
    }
    number, secret = secrets.pop(other)
    opening_key = authority._owner.opening_key(authority.public_key.manifest_digest)
    assert (number, len(secret), secret[-36:]) == (5, 72, joined(opening_key))
    assert secrets == {session: (1, b"")}


def joined(*parts):
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)
