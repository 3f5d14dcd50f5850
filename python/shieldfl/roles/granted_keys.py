"""What opens a round's totals at a client, or an aggregator: the key authority's answers, which it was granted."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any, ClassVar

from shieldfl.array_view import Buffer, as_unsigned
from shieldfl.errors import PolicyError
from shieldfl.roles.answer_opener import AnswerOpener
from shieldfl.roles.round_key_check import RoundKeyCheck
from shieldfl.roles.shared_secrets import SharedSecrets, check_shared, read_grants
from shieldfl.scheme.enrolment import OPENER, SECRET_BYTES
from shieldfl.stateful import Stateful, Uncopied, refuse_unless

__all__ = ["GrantRequest", "GrantedKeys"]

_SECRET_DOMAIN = b"shieldfl shared secret 1\0"
_NOT_GRANTED = "this role was granted no answers: have it enrolled, and take what comes back"


class GrantRequest(Stateful, Uncopied):
    """How an aggregator that opens sums comes to what opens answers: by a secret that it seals to the key authority.

    Parameters
    ----------
    check : of the federation.
    """

    _why_uncopied = "holds a secret and is neither copied nor pickled"

    changes: ClassVar = {"request": bytes, "_grant_key": bytes}

    def __init__(self, check: RoundKeyCheck) -> None:
        self._check = check
        shared = SharedSecrets(check, OPENER)
        self._grant_key = shared.grant_key
        self.request = shared.request
        """For the key authority alone to read; of several each has a piece."""

    def check_changed(self) -> None:
        """Raise WireFormatError for a request in another name, and what is no key."""
        super().check_changed()
        check_shared(self._check, OPENER, self._grant_key, self.request)

    def granted(self, grant: Buffer) -> bytes:
        """Return what opens the authority's answers; secret. Raises KeyMismatchError for another's grant."""
        return read_grants(self._check, self._grant_key, grant)


class GrantedKeys(Stateful, Uncopied):
    """Opens what the key authority has answered to one that it was granted to.

    Parameters
    ----------
    check : of the federation.
    min_clients, weight_bounds, threads : as for the authority's keys.
    """

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
        self._newest_request = b""

    def check_changed(self) -> None:
        """Raise WireFormatError for what opens no answers."""
        super().check_changed()
        expected = SECRET_BYTES * len(self.check.identity.members)
        refuse_unless(self._opening_key is None or len(self._opening_key) == expected)

    @property
    def newest_round(self) -> int:
        """The round that was begun last; -1 before the first."""
        return self._round

    def grant(self, opening_key: bytes) -> None:
        """Take what opens the authority's answers, 32 bytes for each; secret.

        Raises PolicyError for another one than was taken before: what derives from that is in use.
        """
        if self._opening_key not in (None, opening_key):
            raise PolicyError("this role was granted other answers before: enrol in a new session")
        self._opening_key = opening_key

    def opens_as(self, other: GrantedKeys) -> bool:
        """Say whether it opens, by the same checks, what another one does: of one session, granted the same."""
        return (
            self.check.manifest_digest == other.check.manifest_digest
            and (self._min_clients, self._weight_bounds) == (other._min_clients, other._weight_bounds)
            and None not in (self._opening_key, other._opening_key)
            and hmac.compare_digest(self._opening_key or b"", other._opening_key or b"")
        )

    def shared_secret(self) -> bytes:
        """Return what all who were granted answers of this session have in common, 32 bytes; secret.

        Raises PolicyError before a grant.
        """
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

        Raises KeyMismatchError unless the authority has given this answer for this very total, PolicyError.
        """
        return self._opener(purpose, answer, beside).checked_request(total)

    def go_back(self, round_number: int) -> None:
        """Stand at an earlier round, with no answer: the one that was begun was none of the authority's."""
        self._round, self._openers = round_number, {}

    @property
    def newest_request(self) -> bytes:
        """What the last total that was opened, or looked at, was asked for with."""
        return self._newest_request

    def opener(self, round_number: int, purpose: str = "update") -> AnswerOpener:
        """Return what opens the total that was answered for last."""
        if round_number == self._round and purpose in self._openers:
            return self._openers[purpose]
        raise PolicyError(f"there is no answer for {purpose!r} of round {round_number}")

    def wipe(self, round_number: int, purpose: str = "update") -> None:
        """Forget the answer, which was used."""
        opener = self._openers.pop(purpose, None)
        if opener is not None:
            self._newest_request = opener.request
