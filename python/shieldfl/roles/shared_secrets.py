"""What a client, or an aggregator that opens, shares with each key authority of its session, from its enrolment on."""

from __future__ import annotations

import secrets

from shieldfl.array_view import Buffer, as_frame
from shieldfl.errors import KeyMismatchError, WireFormatError
from shieldfl.roles.joined_parts import piece_of_each
from shieldfl.roles.round_key_check import RoundKeyCheck
from shieldfl.scheme.enrolment import SECRET_BYTES, EnrolmentRequest, grant_key, read_grant
from shieldfl.stateful import refuse_unless

__all__ = ["SharedSecrets", "check_shared", "read_grants"]


class SharedSecrets:
    """Drawn at enrolment; of several authorities each has one of its own.

    Parameters
    ----------
    check : of the federation, with the session's digest.
    client : the client's number, or the name in which an aggregator asks.
    """

    def __init__(self, check: RoundKeyCheck, client: int | str) -> None:
        session, members = check.manifest_digest, check.identity.members
        each = [secrets.token_bytes(SECRET_BYTES) for _ in members]
        self.drawn = b"".join(each)
        """32 bytes for each authority; secret."""
        self.grant_key = b"".join(grant_key(secret, session) for secret in each)
        """What grants are sealed under, 32 bytes for each authority; secret."""
        self.request = b"".join(
            EnrolmentRequest.of(member, session, client, secret).to_bytes()
            for member, secret in zip(members, each, strict=True)
        )
        """For each authority a request that it alone can read."""


def check_shared(check: RoundKeyCheck, client: int | str, grant_key: bytes, request: bytes) -> None:
    """Raise WireFormatError for a state with the request of another client, and keys of other lengths."""
    count = len(check.identity.members)
    refuse_unless(len(grant_key) == SECRET_BYTES * count)
    pieces = piece_of_each(request, count)
    refuse_unless(all(EnrolmentRequest.from_bytes(piece).client == client for piece in pieces))


def read_grants(check: RoundKeyCheck, grant_key: bytes, grant: Buffer) -> bytes:
    """Return what opens the answers of each authority, 32 bytes for each; secret.

    Raises KeyMismatchError for a grant of others, or one that was altered.
    """
    count = len(check.identity.members)
    try:
        given = piece_of_each(bytes(as_frame(grant)), count)
    except WireFormatError as error:
        raise KeyMismatchError(
            "the grant is not of all key authorities of the session: ask each of them"
        ) from error
    keys = piece_of_each(grant_key, count)
    opening_keys = [
        read_grant(bytes(key), check.manifest_digest, piece) for key, piece in zip(keys, given, strict=True)
    ]
    return b"".join(opening_keys)
