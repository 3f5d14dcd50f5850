"""What a key authority alone imports: secret keys, and summed one-time secrets of a total's participants.

Such a sum opens the total.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_threads
from shieldfl.encryption.enrolment import ClientKey, EnrolledPublicKey
from shieldfl.encryption.parameters import checked_key

DECRYPTORS: dict[type, Any] = {
    _core.CkksPublicKey: _core.CkksDecryptor,
    _core.PaillierPublicKey: _core.PaillierDecryptor,
}
"""The core's class that holds the secret key, by the core's class of the public key."""


def sum_key(
    public_key: EnrolledPublicKey,
    request: Buffer,
    client_keys: Sequence[ClientKey],
    *,
    threads: int | None = None,
) -> bytearray:
    """Compute the key of the total that a request names; secret, and for the opener alone.

    This computes and decides nothing. Two answers for overlapping lists of one round and purpose give a
    single client's update: the caller keeps to one answer for each client, session, round and purpose, for
    ever.

    ``client_keys`` are the participants', in the request's order, each at the request's round: only the parts
    that they share with this authority.

    Raises WireFormatError, ParameterError for too many or too few keys, KeyMismatchError for other clients'
    keys, or those of another session or round.
    """
    asked = checked_key(public_key, EnrolledPublicKey).read_request(request)
    cores = [core for key in client_keys for core in key._cores]
    computed: bytearray = asked.sum_key(public_key._core, cores, as_threads(threads))
    return computed
