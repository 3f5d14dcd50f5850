"""What the key authority alone imports: the sum of participants' one-time secrets, which opens a total."""

from __future__ import annotations

from collections.abc import Sequence

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_threads
from shieldfl.kahe.encryption import purpose_id
from shieldfl.kahe.keys import ClientKey
from shieldfl.kahe.parameters import PublicKey

__all__ = ["SumRequest", "purpose_id", "sum_key"]

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
