"""Opening a total with what the key authority answered: for whoever was granted that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_threads
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.kahe.encryption import Total, digest_of_total
from shieldfl.kahe.keys import ClientKey
from shieldfl.kahe.parameters import PublicKey
from shieldfl.scheme.sealed_answer import read_answer

__all__ = ["open", "open_total"]


def open(total: Total, answer: Buffer, key: ClientKey, *, threads: int | None = None) -> NDArray[np.float64]:
    """Open a total with the key authority's answer: the sums, float64 (count,), by ascending position.

    Parameters
    ----------
    total : what the aggregator gave.
    answer : what the authority answered to ``total.request()``.
    key : of a client that took the authority's grant.
    threads : None for as many as the work is worth.

    Raises KeyMismatchError for an answer that the authority did not sign for this very total; PolicyError before a
    grant was taken; WireFormatError for what does not open to sums in range.
    """
    if not isinstance(total, Total):
        raise PolicyError("only totals are opened, never a single client's batch: add it to an Aggregator")
    public_key = key.public_key
    if public_key.identity is None:
        raise ParameterError("the public key does not say whose it is: give it the authority's identity")
    verifying_key = public_key.identity.verifying_key
    sum_key = read_answer(verifying_key, key.opening_key, public_key.id, total.request(), answer)
    return open_total(public_key, total, sum_key, threads=threads)[0]


def open_total(
    public_key: PublicKey, total: Total, key: Buffer, *, beside: bytes = b"", threads: int | None = None
) -> tuple[NDArray[np.float64], float | None]:
    """Open a total: the sums, float64 (count,), by ascending position, and the sum of encrypted weights, if any.

    Parameters
    ----------
    public_key : of the session.
    total : what the aggregator gave.
    key : what :func:`sum_key` gave for this very total.
    beside : what the request was made with.
    threads : None for as many as the work is worth.

    Raises KeyMismatchError for a key of another total, WireFormatError for what does not open to sums in range: the
    list of clients is not that of the ciphertexts, or one of them was altered.
    """
    if not isinstance(total, Total):
        raise PolicyError("only totals are opened, never a single client's batch: add it to an Aggregator")
    return _core.kahe_open(
        PublicKey.core_of(public_key),
        total.parse(threads),
        digest_of_total(total.to_bytes(), beside),
        as_frame(key),
        as_threads(threads),
    )
