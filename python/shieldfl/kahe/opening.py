"""What opens a total: the sum of its participants' one-time secrets, from those who hold their keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_threads
from shieldfl.errors import PolicyError
from shieldfl.kahe.encryption import Total, digest_of_total
from shieldfl.kahe.keys import ClientKey
from shieldfl.kahe.parameters import PublicKey

__all__ = ["SumRequest", "open_total", "sum_key"]

SumRequest = _core.KaheSumRequest


def sum_key(
    public_key: PublicKey, request: Buffer, client_keys: Sequence[ClientKey], *, threads: int | None = None
) -> bytearray:
    """Compute what opens the total that a request names; secret, and for the opener alone.

    This computes and decides nothing. Two answers for overlapping lists of one round and purpose give a single client's
    update: whoever calls it keeps to one answer for each client, session, round and purpose, for ever.

    Parameters
    ----------
    public_key : of the session.
    request : what :meth:`Total.request` gave.
    client_keys : of the participants, in the request's order, each at the request's round.
    threads : None for as many as the work is worth.

    Raises WireFormatError, ParameterError for too many or too few keys, KeyMismatchError for keys of others, or of
    another session or round.
    """
    asked = _core.KaheSumRequest.from_bytes(as_frame(request))
    return _core.kahe_sum_key(
        PublicKey.core_of(public_key), asked, [key._core for key in client_keys], as_threads(threads)
    )


def open_total(
    public_key: PublicKey, total: Total, key: Buffer, *, threads: int | None = None
) -> tuple[NDArray[np.float64], float | None]:
    """Open a total: the sums, float64 (count,), by ascending position, and the sum of encrypted weights, if any.

    Parameters
    ----------
    public_key : of the session.
    total : what the aggregator gave.
    key : what :func:`sum_key` gave for this very total.
    threads : None for as many as the work is worth.

    Raises KeyMismatchError for a key of another total, WireFormatError for what does not open to sums in range: the
    list of clients is not that of the ciphertexts, or one of them was altered.
    """
    if not isinstance(total, Total):
        raise PolicyError("only totals are opened, never a single client's batch: add it to an Aggregator")
    return _core.kahe_open(
        PublicKey.core_of(public_key),
        total.parse(threads),
        digest_of_total(total.to_bytes()),
        as_frame(key),
        as_threads(threads),
    )
