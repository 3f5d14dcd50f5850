"""Opening of totals, and what clients hold for it: their own keys, and the key that opens answers."""

from __future__ import annotations

import hmac
import math
import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_count, as_frame, as_pair, as_threads
from shieldfl.authority.message import piece_of_each
from shieldfl.authority.round_key_check import RoundKeyCheck, checked_round
from shieldfl.encryption.enrolment import (
    OPENER,
    SECRET_BYTES,
    ClientKey,
    grant_key,
    open_total,
    read_answer,
    read_grant,
    read_request,
    sealed_request,
)
from shieldfl.encryption.parameters import SchemeParameters, SchemePublicKey
from shieldfl.encryption.registry import SchemeBatch, SchemeTotal, scheme_of
from shieldfl.errors import (
    KeyMismatchError,
    ParameterError,
    PolicyError,
    RangeError,
    ShieldError,
    WireFormatError,
)
from shieldfl.stateful import Uncopied, refuse_unless

if TYPE_CHECKING:
    # Type checkers know it without an installation; its TypeVar, unlike that of Python 3.11, can have a
    # default.
    from typing_extensions import TypeVar

    Key = TypeVar("Key", bound=SchemePublicKey, default=Any)
else:
    from typing import TypeVar

    Key = TypeVar("Key")

LEAST_THAT_HIDES = 3
"""Default of ``min_clients``. Each of two clients learns the other's update: the sum less its own."""

WeightBounds = tuple[float, float]
WEIGHT_BOUNDS = (2.0**-6, 1.0)
"""Default bounds of encrypted weights."""

_MISSTATED = (
    "the weights in the total do not sum to what the clients stated in the clear: one of them is forged, so "
    "no mean is given. Start a new round"
)


def checked_weight_bounds(bounds: WeightBounds) -> WeightBounds:
    smallest, largest = as_pair(bounds, "weight_bounds")
    if not 0.0 < smallest <= largest < math.inf:
        raise ParameterError("weight_bounds must be two finite numbers above 0, the smaller one first")
    return smallest, largest


def checked_min_clients(params: SchemeParameters[Any], min_clients: int) -> int:
    number = as_count(min_clients, "min_clients")
    if number > params.max_clients:
        raise ParameterError(
            f"min_clients is {number}, but must be at most max_clients = {params.max_clients}. Of two "
            "clients each learns the other's update from the sum: pass a smaller min_clients if that is meant"
        )
    return number


Answer = tuple[NDArray[np.float64], float | None]
"""An opened total: the sums, float64 (count,), and the sum of encrypted weights, None without any."""


class TotalOpener(Uncopied, Generic[Key]):
    """Opens totals of one scheme and key that have enough clients, and divides them.

    Subclasses that can open define ``_answer``. ``purpose`` is the purpose of the totals, None for any; other
    arguments are as for ``KeyAuthority``.
    """

    def __init__(
        self,
        public_key: Key,
        min_clients: int,
        weight_bounds: WeightBounds,
        threads: int | None,
        purpose: str | None = None,
    ) -> None:
        self._scheme = scheme_of(public_key)
        self._threads = as_threads(threads)
        self.public_key = public_key
        """The public key for all other roles: the PublicKey of the parameters' scheme."""
        self._purpose = purpose
        self.min_clients = min_clients
        self.weight_bounds = checked_weight_bounds(weight_bounds)

    def open(self, total: SchemeTotal | bytes) -> NDArray[np.float64]:
        """Open a total: the weighted sums, float64 (count,), in the order of ascending positions.

        Sums of batches that were encrypted in a union are in the order of its ``paillier.UnionOrder``. Raises
        PolicyError for a total that may not be opened, KeyMismatchError, ParameterError, WireFormatError.
        """
        return self._answer(self._checked(total))[0]

    def open_mean(
        self, total: SchemeTotal | bytes, *, stated_weight: float | None = None
    ) -> NDArray[np.float64]:
        """Open a total and divide by the sum of weights: encrypted ones, or those that the aggregator gave.

        Without weights, the divisor is the number of clients.

        Parameters
        ----------
        stated_weight : sum of the weights that the clients stated in the clear; None if they stated none.

        Raises what :meth:`open` raises. Raises RangeError if encrypted weights sum to what weights within
        ``weight_bounds`` cannot, or not to ``stated_weight``, apart from rounding by half a step for each.
        """
        checked = self._checked(total)
        sums, weight_sum = self._answer(checked)
        if weight_sum is None:
            if stated_weight is not None and stated_weight != checked.total_weight:
                raise RangeError(_MISSTATED)
            return sums / checked.total_weight
        clients, step = checked.clients, self.public_key.parameters.weight_step
        slack = (clients / 2 + 1) * step
        smallest, largest = (clients * bound for bound in self.weight_bounds)
        # The message leaves the sum out, since not all of its readers may know it.
        if not max(smallest - slack, step) <= weight_sum <= largest + slack:
            raise RangeError(
                f"the encrypted weights of {clients} clients do not sum to what weights between "
                f"{self.weight_bounds[0]:g} and {self.weight_bounds[1]:g} can: one of them is forged, or "
                "the clients have other bounds. Give their bounds as weight_bounds, and start a new round"
            )
        if stated_weight is not None and not abs(weight_sum - stated_weight) <= slack:
            raise RangeError(_MISSTATED)
        return sums / weight_sum

    def _checked(self, total: SchemeTotal | bytes) -> SchemeTotal:
        if isinstance(total, SchemeBatch):
            raise PolicyError(
                "only totals are opened, never a single client's batch: add it to an Aggregator"
            )
        own, threads = self._scheme.Total, self._threads or None  # 0 is the core's number for all cores
        if isinstance(total, SchemeTotal) and not isinstance(total, own):
            raise ParameterError(
                f"the total is of another encryption scheme: {self._scheme.name} totals are opened here"
            )
        checked: SchemeTotal = total if isinstance(total, own) else own.from_bytes(total, threads)
        checked.parse(threads)
        if self._purpose is not None and not checked.is_for(self._purpose):
            raise PolicyError(f"the total is not for {self._purpose!r}: nothing was opened")
        if checked.clients < self.min_clients:
            raise PolicyError(
                f"the total holds {checked.clients} clients, fewer than min_clients = {self.min_clients}: "
                "wait for more clients before closing the round"
            )
        return checked

    def has_opened(self, total: SchemeTotal) -> bool:
        """Return whether this total was opened, or the total of its round if each round has only one."""
        raise NotImplementedError

    def _answer(self, total: SchemeTotal) -> Answer:
        """Open a total that was checked; the receiver may change the sums."""
        raise NotImplementedError


class AnswerOpener(TotalOpener[Any]):
    """Opens only those totals that the authority has answered for; it holds no client's key.

    ``public_key`` has the authority's identity. ``opening_key`` was granted: 32 bytes for each authority,
    secret. Other arguments are as for :class:`TotalOpener`.
    """

    _why_uncopied = "holds the key that opens answers and is neither copied nor pickled"

    def __init__(
        self,
        public_key: Any,
        opening_key: bytes,
        min_clients: int,
        weight_bounds: WeightBounds,
        threads: int | None = None,
        *,
        purpose: str | None = None,
    ) -> None:
        super().__init__(public_key, min_clients, weight_bounds, threads, purpose)
        self._opening_key = opening_key
        self._given: Buffer | None = None
        self._beside = b""
        self.request = b""
        """The request for the total that was opened last."""
        self._opened: set[bytes] = set()

    def take(self, answer: Buffer, beside: bytes = b"") -> None:
        """Take the answer to the total that is opened next; answers of several authorities stand in a row.

        ``beside`` is what the request was made with.
        """
        self._given, self._beside = answer, beside

    def has_opened(self, total: Any) -> bool:
        return total.digest() in self._opened

    def sum_keys(self, total: Any) -> tuple[list[bytes], bytes]:
        """Return the keys that open a total, one of each authority, and the request for it.

        Raises KeyMismatchError unless the answer belongs to this total.
        """
        if self._given is None:
            raise PolicyError("there is no answer to this total: ask the key authority with total.request()")
        key = self.public_key
        request = total.request(self._beside)
        members = key.identity.members
        opening_keys = piece_of_each(self._opening_key, len(members))
        answers = piece_of_each(bytes(as_frame(self._given)), len(members))
        sum_keys = [
            read_answer(member.verifying_key, bytes(opening_key), key.id, request, answer)
            for member, opening_key, answer in zip(members, opening_keys, answers, strict=True)
        ]
        return sum_keys, request

    def _answer(self, total: Any) -> Answer:
        key = self.public_key
        sum_keys, request = self.sum_keys(total)
        answer = open_total(key, total, sum_keys, beside=self._beside, threads=self._threads or None)
        self._opened.add(total.digest())
        self.request = request
        return answer


_SECRET_DOMAIN = b"shieldfl shared secret 1\0"
_NOT_GRANTED = "this role was granted no answers: have it enrolled, and take the grant that comes back"


class GrantRequest(Uncopied):
    """A request for a grant, by a client or by an aggregator that opens sums, with the secrets that it draws.

    Each key authority has a secret of its own, 32 bytes, sealed to it alone; ``drawn`` may give the secrets.
    """

    _why_uncopied = "holds a secret and is neither copied nor pickled"

    changes: ClassVar = {"request": bytes, "_grant_key": bytes}

    def __init__(self, check: RoundKeyCheck, client: int | str = OPENER, drawn: bytes | None = None) -> None:
        self._check = check
        self._client = client
        session, members = check.manifest_digest, check.identity.members
        drawn = drawn or secrets.token_bytes(SECRET_BYTES * len(members))
        self._grant_key = self.request = b""
        """The request, in which each authority has a piece that it alone can read."""
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
        """Return the keys that open answers, 32 bytes for each authority; secret. Raises KeyMismatchError."""
        count, session = len(self._check.identity.members), self._check.manifest_digest
        try:
            given = piece_of_each(bytes(as_frame(grant)), count)
        except WireFormatError as error:
            raise KeyMismatchError(
                "the grant does not have a piece of each key authority of the session: ask all of them"
            ) from error
        keys = piece_of_each(self._grant_key, count)
        return b"".join(
            read_grant(bytes(key), session, piece) for key, piece in zip(keys, given, strict=True)
        )


class ClientKeys(Uncopied):
    """Keys that a client draws, and shares only with the key authority, to which they are sealed."""

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
        """The round of the keys; what opens earlier rounds is overwritten."""
        return max(int(key.round) for key in self._keys.values())

    def begin_round(self, round_number: int) -> None:
        """Advance all keys to a round. Raises PolicyError for a round that is over or too far ahead."""
        for key in self._keys.values():
            key.advance_to(round_number)

    def key(self, purpose: str) -> Any:
        return self._keys[purpose]


class GrantedKeys(Uncopied):
    """Opens the key authority's answers for a role that has a grant."""

    _why_uncopied = "hold keys that open answers and are neither copied nor pickled"

    changes: ClassVar = {"_round": int, "_opening_key": bytes | None}

    def __init__(
        self,
        check: RoundKeyCheck,
        min_clients: int,
        *,
        weight_bounds: WeightBounds,
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
        """The request for the total that was opened last."""

    def check_changed(self) -> None:
        expected = SECRET_BYTES * len(self.check.identity.members)
        refuse_unless(self._opening_key is None or len(self._opening_key) == expected)

    @property
    def newest_round(self) -> int:
        return self._round

    def grant(self, opening_key: bytes) -> None:
        """Take the key that opens the authority's answers.

        Raises PolicyError for another key than before: keys that derive from it are in use.
        """
        if self._opening_key not in (None, opening_key):
            raise PolicyError("this role was granted other answers before: enrol in a new session")
        self._opening_key = opening_key

    def opens_as(self, other: GrantedKeys) -> bool:
        """Return whether it opens the same answers as another one, by the same checks."""
        return (
            self.check.manifest_digest == other.check.manifest_digest
            and (self._min_clients, self._weight_bounds) == (other._min_clients, other._weight_bounds)
            and None not in (self._opening_key, other._opening_key)
            and hmac.compare_digest(self._opening_key or b"", other._opening_key or b"")
        )

    def shared_secret(self) -> bytes:
        """Return a secret, 32 bytes, that all roles with a grant of this session share.

        Raises PolicyError before a grant.
        """
        if self._opening_key is None:
            raise PolicyError(_NOT_GRANTED)
        return hmac.digest(self._opening_key, _SECRET_DOMAIN + self.check.manifest_digest, "sha256")

    def begin_round(self, round_number: int) -> None:
        """Open totals of this round from now on. Raises PolicyError for a round before the newest."""
        self._round = checked_round(round_number, self._round)

    def take(self, purpose: str, answer: Buffer, beside: bytes) -> None:
        """Take the authority's answer to the newest round's total for a purpose.

        Raises PolicyError before a grant.
        """
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
        """Return the request for a total, without opening the total.

        Raises KeyMismatchError if the answer belongs to another total.
        """
        return self._opener(purpose, answer, beside).sum_keys(total)[1]

    def go_back(self, round_number: int) -> None:
        """Return to an earlier round, without an answer: the authority had not begun the newer round."""
        self._round, self._openers = round_number, {}

    def opener(self, round_number: int, purpose: str = "update") -> AnswerOpener:
        if round_number == self._round and purpose in self._openers:
            return self._openers[purpose]
        raise PolicyError(
            f"there is no answer for {purpose!r} of round {round_number}: take the key authority's first"
        )

    def wipe(self, round_number: int, purpose: str = "update") -> None:
        opener = self._openers.pop(purpose, None)
        if opener is not None:
            self.newest_request = opener.request
