"""What a client and the key authority share."""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.kahe.parameters import PublicKey
from shieldfl.stateful import Uncopied

__all__ = ["ClientKey"]


class ClientKey(Uncopied):
    """A client's key in a session, at a round. Its owner keeps it from everybody but the key authority.

    It goes on by the number of the round, and what it was before is wiped: whoever gets hold of it opens nothing of
    earlier rounds.
    """

    __slots__ = ("_core", "public_key")
    _why_uncopied = "holds a secret and is neither copied nor pickled"

    def __init__(self, public_key: PublicKey, client: int, secret: Buffer, round: int = 0) -> None:
        """Take a key that stands at a round: 32 bytes, as :meth:`export_secret` gives them. Raises ParameterError."""
        key_id, number = PublicKey.core_of(public_key).id, _client(client)
        self.public_key = public_key
        """Of the session."""
        self._core = _core.KaheClientKey(key_id, number, as_unsigned(round, "round"), as_frame(secret))

    @classmethod
    def of_session(cls, public_key: PublicKey, client: int, long_term_secret: Buffer) -> ClientKey:
        """Make the key of round 0 from what client and authority share, 32 bytes. Raises ParameterError."""
        core = _core.KaheClientKey.of_session(
            as_frame(long_term_secret), PublicKey.core_of(public_key).id, _client(client)
        )
        key = cls.__new__(cls)
        key.public_key, key._core = public_key, core
        return key

    @property
    def client(self) -> int:
        """The client's number in the session."""
        return self._core.client

    @property
    def round(self) -> int:
        """The round that it stands at; earlier ones are over."""
        return self._core.round

    def advance_to(self, round: int) -> None:
        """Go on to a round. Raises PolicyError for an earlier one, or one more than 2**16 rounds later."""
        self._core.advance_to(as_unsigned(round, "round"))

    def export_secret(self) -> bytearray:
        """Return the key at its round, 32 bytes, for a store; the receiver overwrites it."""
        return self._core.export_secret()

    def __repr__(self) -> str:
        return f"ClientKey(client={self.client}, round={self.round})"


def _client(client: int) -> int:
    number = as_unsigned(client, "client")
    if number >= 2**32:
        raise ParameterError("client must be below 2**32")
    return number
