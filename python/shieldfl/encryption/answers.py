"""A key authority's answer: signed for one request, sealed for those who are to open, and what a total opens by."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_frame, as_threads
from shieldfl.build_info import cryptographic
from shieldfl.encryption.encryption import SchemeTotal
from shieldfl.encryption.enrolment import ClientKey, EnrolledPublicKey
from shieldfl.encryption.parameters import checked_key
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError

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

    ``signing_key`` is the authority's Ed25519 private key, ``opening_key`` 32 bytes of those who are to open,
    ``key_id`` that of the session's public key; the answer is to this ``request`` alone.
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
    cipher = cryptographic("ciphers.aead", "answers").AESGCM(opening_key)
    with suppress(InvalidTag, ValueError):  # ValueError: too short, where an authority has signed that
        salted = bytes(cipher.decrypt(nonce, ciphertext, bound))
        if len(salted) >= _SALT_BYTES and hmac.compare_digest(commitment, _commitment(bound, salted)):
            return salted[_SALT_BYTES:]
    raise PolicyError(
        "the answer is sealed for others: who opens is settled by whom the key authority gives a grant"
    )


Answers = Buffer | Sequence[Buffer]
"""Of the authority, or of each of several in the order of their group."""


def _checked(total: SchemeTotal, answers: Answers) -> list[Buffer]:
    if not isinstance(total, SchemeTotal):
        raise PolicyError("only totals are opened, never a single client's batch: add it to an Aggregator")
    return list(answers) if isinstance(answers, list | tuple) else [answers]  # type: ignore[list-item]


def open_answered(
    total: SchemeTotal,
    answers: Answers,
    key: ClientKey,
    *,
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Open a total with the key authority's answer: the sums, float64 (count,), by ascending position.

    Parameters
    ----------
    total : what the aggregator gave.
    answers : to ``total.request()``; of several authorities a list, in the order of their group.
    key : of a client that took each authority's grant.
    threads : None for as many as the work is worth.

    Raises KeyMismatchError for an answer that the authority did not sign for this very total; PolicyError before a
    grant was taken; ParameterError for too few or too many answers; WireFormatError for what does not open to sums in
    range.
    """
    public_key, given = key.public_key, _checked(total, answers)
    authorities = public_key.authorities
    if len(given) != len(authorities):
        raise ParameterError(
            f"the session has {len(authorities)} authorities, each of which has to answer, and there are {len(given)} "
            "answers"
        )
    request = total.request()
    sum_keys = [
        read_answer(authority.verifying_key, opening_key, public_key.id, request, answer)
        for authority, opening_key, answer in zip(authorities, key.opening_keys, given, strict=True)
    ]
    return open_total(public_key, total, sum_keys, threads=threads)[0]


def open_total(
    public_key: EnrolledPublicKey,
    total: SchemeTotal,
    keys: Answers,
    *,
    beside: bytes = b"",
    threads: int | None = None,
) -> tuple[NDArray[np.float64], float | None]:
    """Open a total: the sums, float64 (count,), by ascending position, and the sum of encrypted weights, if any.

    ``keys`` is what ``sum_key`` gave for this very total, of several authorities a list; ``beside`` what the request
    was made with.

    Raises KeyMismatchError for a key of another total, WireFormatError for what does not open to sums in range: the
    list of clients is not that of the ciphertexts, or one of them was altered.
    """
    given = _checked(total, keys)
    if not isinstance(total, checked_key(public_key, EnrolledPublicKey)._total_class):
        raise KeyMismatchError("the total is of another scheme than the session")
    opened: tuple[NDArray[np.float64], float | None] = total.parse(threads).open(
        public_key._core,
        total.digest(beside, threads),
        list(map(as_frame, given)),
        as_threads(threads),
    )
    return opened
