"""Enrolment requests, grants and answers are read and written as docs/wire-format.md says."""

from __future__ import annotations

import hashlib
import hmac
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shieldfl.authority.authority_secrets import AuthoritySecrets
from shieldfl.encryption.answers import read_answer, sealed_answer
from shieldfl.encryption.enrolment import EnrolmentRequest, client_number, grant_key, sealed_grant
from shieldfl.errors import PolicyError

SECRET, SESSION, KEY = bytes(range(32)), bytes(16), bytes(range(1, 33))


def test_an_authority_s_id_is_of_both_its_keys():
    one = AuthoritySecrets().identity
    assert (len(one.verifying_key), len(one.enrolment_key)) == (32, 1184 + 32)
    both = b"shieldfl authority 1\0" + one.verifying_key + one.enrolment_key
    assert one.id == hashlib.blake2b(both, digest_size=16).digest()


def test_a_request_says_who_asks_and_seals_what_is_shared():
    secrets = AuthoritySecrets()
    name = "clinic-7"
    number = 2**31 | int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1
    for client, stated, encoded in ((7, 7, b""), (name, number, name.encode())):
        assert client_number(client) == stated
        request = EnrolmentRequest.of(secrets.identity, SESSION, client, SECRET).to_bytes()
        head = b"SHER" + struct.pack("<BIB", 1, stated, len(encoded)) + encoded
        assert request[: len(head)] == head
        assert len(request) == len(head) + 1120 + 32 + 16
        assert SECRET not in request
        assert secrets.unseal(request, SESSION) == (client, SECRET)
        info = b"shieldfl enrolment 1\0" + struct.pack("<HIB", 16, stated, len(encoded)) + SESSION + encoded
        assert EnrolmentRequest.context(SESSION, client) == info


def test_a_grant_is_sealed_under_what_was_shared():
    context = b"shieldfl grant 1\0" + SESSION
    under = hmac.digest(SECRET, context, "sha256")
    assert grant_key(SECRET, SESSION) == under
    grant = sealed_grant(under, SESSION, KEY)
    assert AESGCM(under).decrypt(grant[:12], grant[12:], context) == KEY


def test_an_answer_is_signed_for_one_request():
    signing_key, request, sum_key = Ed25519PrivateKey.generate(), b"a request", b"a sum key"
    answer = sealed_answer(signing_key, KEY, SESSION, request, sum_key)
    context = b"shieldfl answer 2\0" + SESSION + hashlib.sha256(request).digest()
    signing_key.public_key().verify(answer[:64], context + answer[64:])
    salted = AESGCM(KEY).decrypt(answer[64:76], answer[108:], context)
    assert salted[32:] == sum_key
    assert answer[76:108] == hashlib.sha256(context + salted).digest()


@pytest.mark.parametrize("case", ["other contents", "other key", "no contents", "too short"])
def test_an_answer_opens_to_what_it_commits_to_or_to_nothing(case):
    """Whatever its authority does: for two clients with keys of its choice it has one commitment."""
    signing_key, request = Ed25519PrivateKey.generate(), b"a request"
    context = b"shieldfl answer 2\0" + SESSION + hashlib.sha256(request).digest()
    answer = sealed_answer(signing_key, KEY, SESSION, request, b"a sum key")
    key, contents = {
        "other contents": (KEY, bytes(32) + b"another sum key"),
        "other key": (bytes(32), bytes(32) + b"a sum key"),
        "no contents": (KEY, b""),
        "too short": (KEY, None),
    }[case]
    sealed = b"" if contents is None else AESGCM(key).encrypt(answer[64:76], contents, context)
    frame = answer[64:108] + sealed
    frame = signing_key.sign(context + frame) + frame
    public_key = signing_key.public_key().public_bytes_raw()
    assert read_answer(public_key, KEY, SESSION, request, answer) == b"a sum key"
    for own in (KEY, key):
        with pytest.raises(PolicyError, match="sealed for others"):
            read_answer(public_key, own, SESSION, request, frame)
