"""What a key authority alone imports: the sum of participants' one-time secrets, which opens a total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shieldfl.array_view import Buffer, as_frame, as_threads
from shieldfl.scheme.client_key import EnrolledClientKey
from shieldfl.scheme.enrolled_key import EnrolledPublicKey

__all__ = ["sum_key"]


def sum_key(
    public_key: EnrolledPublicKey[Any],
    request: Buffer,
    client_keys: Sequence[EnrolledClientKey[Any]],
    *,
    threads: int | None = None,
) -> bytearray:
    """Compute what opens the total that a request names; secret, and for the opener alone.

    This computes and decides nothing. Two answers for overlapping lists of one round and purpose give a single client's
    update: whoever calls it keeps to one answer for each client, session, round and purpose, for ever.

    Parameters
    ----------
    public_key : of the session.
    request : what ``Total.request`` gave.
    client_keys : of the participants, in the request's order, each at the request's round; what they share with this
        authority alone.
    threads : None for as many as the work is worth.

    Raises WireFormatError, ParameterError for too many or too few keys, KeyMismatchError for keys of others, or of
    another session or round.
    """
    asked = public_key._core_request.from_bytes(as_frame(request))
    computed: bytearray = asked.sum_key(
        type(public_key).core_of(public_key),
        [core for key in client_keys for core in key._cores],
        as_threads(threads),
    )
    return computed
