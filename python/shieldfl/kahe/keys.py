"""What a client and the key authority share."""

from __future__ import annotations

from shieldfl.kahe.parameters import PublicKey
from shieldfl.scheme.client_key import EnrolledClientKey

__all__ = ["ClientKey"]


class ClientKey(EnrolledClientKey[PublicKey]):
    """A client's key in a session, at a round. Its owner keeps it from everybody but the key authority.

    It goes on by the number of the round, and what it was before is wiped: whoever gets hold of it opens nothing of
    earlier rounds. Where a session has several authorities, it is a secret with each, and each of them has to answer.
    """

    __slots__ = ()
    _public_key_class = PublicKey
