"""A session in which clients enrol, as it is settled before anybody does: its public key."""

from __future__ import annotations

import hashlib
import secrets
import struct
from typing import Any

from shieldfl.array_view import as_unsigned
from shieldfl.authority.total_opener import Key, checked_min_clients
from shieldfl.encryption.enrolment import AuthorityGroup, AuthorityIdentity
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import scheme_of

MOST_VALUES = 2**32
"""Of a total that is answered for, where nothing else is said: a number in a request decides how much is computed."""

_MANIFEST_DOMAIN = b"shieldfl session 1\0"


def session_key(
    params: SchemeParameters[Any, Key],
    authority: AuthorityIdentity | AuthorityGroup,
    min_clients: int,
    most_values: int = MOST_VALUES,
    *,
    epoch: int = 0,
) -> Key:
    """Begin a session: its public key, on which all who take part settle, whichever of several authorities made it.

    Parameters
    ----------
    params : of the session.
    authority : whose it is; a group where several authorities have to answer.
    min_clients, most_values : what clients may rely on that their authority keeps to.
    epoch : of the authority's store; a group says it of each of its members.

    Raises ParameterError.
    """
    least = checked_min_clients(params, min_clients)
    settled = struct.pack("<QQ", least, as_unsigned(most_values, "most_values"))
    manifest = _MANIFEST_DOMAIN + secrets.token_bytes(32) + params.id + settled
    digest, number = hashlib.sha256(manifest).digest(), max(as_unsigned(epoch, "epoch"), *authority.epochs)
    made: Key = scheme_of(params).PublicKey.of_session(params, digest, authority, number)
    return made
