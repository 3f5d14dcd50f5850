"""An answer of the key authority as it travels: signed for one request, and sealed for those who are to open."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from shieldfl.array_view import Buffer, as_frame
from shieldfl.errors import KeyMismatchError, PolicyError
from shieldfl.installing import cryptographic

__all__ = ["read_answer", "sealed_answer"]

_DOMAIN = b"shieldfl answer 2\0"
_SIGNATURE_BYTES = 64
_NONCE_BYTES = 12
_SALT_BYTES = 32
_COMMITMENT_BYTES = 32


def _bound(key_id: bytes, request: bytes) -> bytes:
    return _DOMAIN + key_id + hashlib.sha256(request).digest()


def _commitment(bound: bytes, salted: bytes) -> bytes:
    return hashlib.sha256(bound + salted).digest()


def sealed_answer(
    signing_key: Any, opening_key: bytes, key_id: bytes, request: Buffer, sum_key: Buffer
) -> bytes:
    """Seal what opens a total by AES-256-GCM, commit to it, and sign that.

    The answer is a signature (64 bytes), a nonce (12), the commitment (32), then what is sealed. AES-GCM alone commits
    to nothing: whoever chooses the keys of two clients makes one ciphertext that opens to other things for each.

    Parameters
    ----------
    signing_key : the authority's Ed25519 private key.
    opening_key : 32 bytes, of those who are to open.
    key_id : of the session's public key.
    request : to which this is the answer, and of which alone.
    sum_key : what opens the total.
    """
    bound, nonce = _bound(key_id, bytes(request)), secrets.token_bytes(_NONCE_BYTES)
    salted = secrets.token_bytes(_SALT_BYTES) + bytes(sum_key)
    cipher = cryptographic("ciphers.aead", "answers").AESGCM(opening_key)
    sealed = nonce + _commitment(bound, salted) + bytes(cipher.encrypt(nonce, salted, bound))
    return bytes(signing_key.sign(bound + sealed)) + sealed


def read_answer(
    verifying_key: bytes, opening_key: bytes, key_id: bytes, request: bytes, answer: Buffer
) -> bytes:
    """Return what opens a total; secret. Of one answer it is the same for all who can read it.

    Raises KeyMismatchError for an answer that the authority did not sign for this request; PolicyError for one that was
    sealed for others.
    """
    frame = bytes(as_frame(answer))
    signature, sealed = frame[:_SIGNATURE_BYTES], frame[_SIGNATURE_BYTES:]
    bound = _bound(key_id, request)
    ed25519 = cryptographic("asymmetric.ed25519", "answers")
    from cryptography.exceptions import InvalidSignature, InvalidTag

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(verifying_key).verify(signature, bound + sealed)
    except InvalidSignature:
        raise KeyMismatchError(
            "the answer was not signed by this session's key authority for this total: ask it again, with this total's "
            "own request"
        ) from None
    nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    commitment, ciphertext = rest[:_COMMITMENT_BYTES], rest[_COMMITMENT_BYTES:]
    try:
        salted = bytes(
            cryptographic("ciphers.aead", "answers").AESGCM(opening_key).decrypt(nonce, ciphertext, bound)
        )
        is_what_was_committed_to = len(salted) >= _SALT_BYTES and hmac.compare_digest(
            commitment, _commitment(bound, salted)
        )
    except (InvalidTag, ValueError):  # ValueError: too short, where an authority has signed that
        is_what_was_committed_to = False
    if not is_what_was_committed_to:
        raise PolicyError(
            "the answer is sealed for others: who opens is settled by whom the key authority gives a grant"
        )
    return salted[_SALT_BYTES:]
