"""What a client has: its own keys, and what opens the key authority's answers; an aggregator may have that as well."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from typing import Any, ClassVar

from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.authority.message import piece_of_each
from shieldfl.authority.round_key_check import RoundKeyCheck
from shieldfl.authority.total_opener import AnswerOpener
from shieldfl.encryption.enrolment import (
    OPENER,
    SECRET_BYTES,
    ClientKey,
    grant_key,
    read_grant,
    read_request,
    sealed_request,
)
from shieldfl.errors import KeyMismatchError, PolicyError, ShieldError, WireFormatError
from shieldfl.stateful import Uncopied, refuse_unless

_SECRET_DOMAIN = b"shieldfl shared secret 1\0"
_NOT_GRANTED = "this role was granted no answers: have it enrolled, and take what comes back"


class GrantRequest(Uncopied):
    """How a client, or an aggregator that opens sums, comes to what opens answers: by secrets that it draws.

    Each key authority has one of its own, 32 bytes, sealed to it alone; ``drawn`` may give them.
    """

    _why_uncopied = "holds a secret and is neither copied nor pickled"

    changes: ClassVar = {"request": bytes, "_grant_key": bytes}

    def __init__(self, check: RoundKeyCheck, client: int | str = OPENER, drawn: bytes | None = None) -> None:
        self._check = check
        self._client = client
        session, members = check.manifest_digest, check.identity.members
        drawn = drawn or secrets.token_bytes(SECRET_BYTES * len(members))
        self._grant_key = self.request = b""
        """Of the request a piece for each authority, which it alone can read."""
        for member, piece in zip(members, piece_of_each(drawn, len(members)), strict=True):
            secret = bytes(piece)
            self._grant_key += grant_key(secret, session)
            self.request += sealed_request(member, session, client, secret)

    def check_changed(self) -> None:
        count = len(self._check.identity.members)
        refuse_unless(len(self._grant_key) == SECRET_BYTES * count)
        pieces = piece_of_each(self.request, count)
        refuse_unless(all(read_request(piece)[0] == self._client for piece in pieces))

    def granted(self, grant: Buffer) -> bytes:
        """Return what opens each authority's answers, 32 bytes for each; secret. Raises KeyMismatchError."""
        count, session = len(self._check.identity.members), self._check.manifest_digest
        try:
            given = piece_of_each(bytes(as_frame(grant)), count)
        except WireFormatError as error:
            raise KeyMismatchError(
                "the grant is not of all key authorities of the session: ask each of them"
            ) from error
        keys = piece_of_each(self._grant_key, count)
        return b"".join(
            read_grant(bytes(key), session, piece) for key, piece in zip(keys, given, strict=True)
        )


class ClientKeys(Uncopied):
    """Drawn by the client itself, in which nobody but the key authority, to whom it is sealed, has a share."""

    _why_uncopied = "hold a client's secrets and are neither copied nor pickled"

    changes: ClassVar = {"enrolment": GrantRequest, "_held": dict[str, tuple[int, bytes]]}

    def __init__(self, check: RoundKeyCheck, client: int) -> None:
        self._check = check
        self._client = client
        drawn = secrets.token_bytes(SECRET_BYTES * len(check.identity.members))
        self._keys: dict[str, Any] = {
            purpose: ClientKey.of_secret(check.session_key(purpose), client, drawn)
            for purpose in check.parameters
        }
        self.enrolment = GrantRequest(check, client, drawn)

    @property
    def _held(self) -> dict[str, tuple[int, bytes]]:
        return {purpose: (key.round, bytes(key.export_secret())) for purpose, key in self._keys.items()}

    @_held.setter
    def _held(self, held: dict[str, tuple[int, bytes]]) -> None:
        refuse_unless(held.keys() == self._check.parameters.keys())
        try:
            self._keys = {
                purpose: ClientKey(self._check.session_key(purpose), self._client, secret, round_number)
                for purpose, (round_number, secret) in held.items()
            }
        except ShieldError:
            refuse_unless(False)

    def check_changed(self) -> None:
        refuse_unless(len({key.round for key in self._keys.values()}) == 1)

    @property
    def round(self) -> int:
        """The round that the keys stand at; what opens earlier ones is overwritten."""
        return max(int(key.round) for key in self._keys.values())

    def begin_round(self, round_number: int) -> None:
        """Move all keys on to a round. Raises PolicyError for one that is over or too far ahead."""
        for key in self._keys.values():
            key.advance_to(round_number)

    def key(self, purpose: str) -> Any:
        return self._keys[purpose]


class GrantedKeys(Uncopied):
    """Opens what the key authority has answered to one that it was granted to."""

    _why_uncopied = "hold what opens answers and are neither copied nor pickled"

    changes: ClassVar = {"_round": int, "_opening_key": bytes | None}

    def __init__(
        self,
        check: RoundKeyCheck,
        min_clients: int,
        *,
        weight_bounds: tuple[float, float],
        threads: int | None,
    ) -> None:
        self.check = check
        self._round = -1
        self._opening_key: bytes | None = None
        self._min_clients = min_clients
        self._weight_bounds = weight_bounds
        self._threads = threads
        self._openers: dict[str, AnswerOpener] = {}
        self.newest_request = b""
        """What the last total that was opened was asked for with."""

    def check_changed(self) -> None:
        expected = SECRET_BYTES * len(self.check.identity.members)
        refuse_unless(self._opening_key is None or len(self._opening_key) == expected)

    @property
    def newest_round(self) -> int:
        return self._round

    def grant(self, opening_key: bytes) -> None:
        """Take what opens the authority's answers.

        Raises PolicyError for another one than before: what derives from it is in use.
        """
        if self._opening_key not in (None, opening_key):
            raise PolicyError("this role was granted other answers before: enrol in a new session")
        self._opening_key = opening_key

    def opens_as(self, other: GrantedKeys) -> bool:
        """Say whether it opens, by the same checks, what another one does."""
        return (
            self.check.manifest_digest == other.check.manifest_digest
            and (self._min_clients, self._weight_bounds) == (other._min_clients, other._weight_bounds)
            and None not in (self._opening_key, other._opening_key)
            and hmac.compare_digest(self._opening_key or b"", other._opening_key or b"")
        )

    def shared_secret(self) -> bytes:
        """Return what all with a grant of this session have in common, 32 bytes; secret. Raises PolicyError."""
        if self._opening_key is None:
            raise PolicyError(_NOT_GRANTED)
        return hmac.digest(self._opening_key, _SECRET_DOMAIN + self.check.manifest_digest, "sha256")

    def begin_round(self, round_number: int, purposes: Iterable[str] = ("update",)) -> dict[str, bytes]:
        """Begin a round, of which no keys come along. Raises PolicyError for one before the newest."""
        number = as_unsigned(round_number, "round_number")
        if number < self._round:
            raise PolicyError(f"round {number} is over since round {self._round} began: begin a later round")
        self._round = number
        return {}

    def take(self, purpose: str, answer: Buffer, beside: bytes) -> None:
        """Take the authority's answer to the newest round's total for a purpose. Raises PolicyError before a grant."""
        self._openers[purpose] = self._opener(purpose, answer, beside)

    def _opener(self, purpose: str, answer: Buffer, beside: bytes) -> AnswerOpener:
        if self._opening_key is None:
            raise PolicyError(_NOT_GRANTED)
        opener = AnswerOpener(
            self.check.session_key(purpose),
            self._opening_key,
            self._min_clients,
            self._weight_bounds,
            self._threads,
            purpose=purpose,
        )
        opener.take(answer, beside)
        return opener

    def answered_request(self, purpose: str, total: Any, answer: Buffer, beside: bytes) -> bytes:
        """Return what a total was asked for with; nothing is opened.

        Raises KeyMismatchError for an answer to another one.
        """
        return self._opener(purpose, answer, beside).sum_keys(total)[1]

    def go_back(self, round_number: int) -> None:
        """Stand at an earlier round, with no answer: the one that was begun was none of the authority's."""
        self._round, self._openers = round_number, {}

    def opener(self, round_number: int, purpose: str = "update") -> AnswerOpener:
        if round_number == self._round and purpose in self._openers:
            return self._openers[purpose]
        raise PolicyError(f"there is no answer for {purpose!r} of round {round_number}")

    def wipe(self, round_number: int, purpose: str = "update") -> None:
        opener = self._openers.pop(purpose, None)
        if opener is not None:
            self.newest_request = opener.request
