"""What goes into an authority's store, checked: rules of sessions, clients' keys, requests for answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.roles.store_journal import KEY_BYTES
from shieldfl.stateful import Uncopied

__all__ = [
    "DIGEST_BYTES",
    "ENROLMENT_HAS_ENDED",
    "MOST_ROUNDS_AHEAD",
    "OPENER_HAS_GRANT",
    "OWNER_BYTES",
    "SESSION_BYTES",
    "ClientKey",
    "Grant",
    "Grants",
    "Keys",
    "Request",
    "SessionRules",
    "as_bytes",
    "as_number",
    "checked_enrolments",
    "checked_grant",
    "checked_keys",
    "checked_purpose",
    "checked_rules",
    "checked_sessions",
]

MOST_ROUNDS_AHEAD = 2**16
"""A round further than this above the oldest that is open is refused: one request would end all rounds between."""

ENROLMENT_HAS_ENDED = (
    "enrolment has ended, and the key that requests are sealed to was erased: begin a session of a new key authority "
    "for clients that come now"
)

OPENER_HAS_GRANT = (
    "an aggregator was granted the answers of this session before: go on from its state, or begin "
    "another session"
)

OWNER_BYTES = 32
"""Of what says whose a store is."""

SESSION_BYTES = 16
_FRAME_ID_BYTES = 16
DIGEST_BYTES = 32
_MOST_PURPOSE_BYTES = 255
_LEAST_CLIENTS = 2


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class ClientKey(Uncopied):
    """A client's key, 32 bytes, of which the keys of ``round`` and later ones come, and of no earlier one."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled: take it where it is used"

    round: int
    key: bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "round", as_number(self.round, "a key's round"))

    def __repr__(self) -> str:
        return f"ClientKey(round={self.round})"


Keys = Mapping[int, ClientKey]
"""By client."""


class Grant(NamedTuple):
    """What a client gets for its enrolment, and what it asked with; who asks with the same again gets the same."""

    grant: bytes
    request_digest: bytes | None = None
    """SHA-256 of the request, 32 bytes; None where it was enrolled without one."""


Grants = Mapping[int, Grant]
"""By client."""


class SessionRules(NamedTuple):
    """What is settled when a session begins, and never changes.

    ``window``: how many rounds below the newest answered one may still be answered. ``answers_kept``: for how many
    rounds, the newest included, answers are kept, more than ``window``; what is asked for again later is refused.
    """

    manifest_digest: bytes
    min_clients: int
    window: int
    answers_kept: int


def as_number(value: Any, what: str) -> int:
    """Check a number that SQLite can hold: whole, not negative, below 2^63. Raises ParameterError."""
    number = as_unsigned(value, what)
    if number >= 2**63:
        raise ParameterError(f"{what} must be below 2^63")
    return number


def as_bytes(value: Any, length: int, what: str) -> bytes:
    """Check that ``value`` is so many bytes. Raises ParameterError."""
    if not isinstance(value, bytes) or len(value) != length:
        raise ParameterError(f"{what} must be {length} bytes")
    return value


def checked_purpose(purpose: Any) -> str:
    """Return what names a purpose: a text of 1 to 255 bytes. Raises ParameterError."""
    try:
        length = len(purpose.encode())
    except (AttributeError, UnicodeEncodeError):
        length = 0
    if not isinstance(purpose, str) or not 0 < length <= _MOST_PURPOSE_BYTES:
        raise ParameterError(f"purpose must be a text of 1 to {_MOST_PURPOSE_BYTES} bytes")
    return purpose


def checked_rules(rules: SessionRules) -> SessionRules:
    """Return the rules if a session can have them. Raises ParameterError."""
    if not isinstance(rules, SessionRules):
        raise ParameterError(f"rules must be SessionRules, not {type(rules).__name__}")
    as_bytes(rules.manifest_digest, DIGEST_BYTES, "manifest_digest")
    min_clients, window, answers_kept = (
        as_number(getattr(rules, name), name) for name in ("min_clients", "window", "answers_kept")
    )
    if min_clients < _LEAST_CLIENTS:
        raise ParameterError(
            f"min_clients must be at least {_LEAST_CLIENTS}: the sum over one client is its own"
        )
    if window > MOST_ROUNDS_AHEAD:
        raise ParameterError(f"window must be at most {MOST_ROUNDS_AHEAD}")
    if answers_kept <= window:
        raise ParameterError(
            "answers_kept must be more than window: else what may be answered could not be repeated"
        )
    return SessionRules(rules.manifest_digest, min_clients, window, answers_kept)


class Request(NamedTuple):
    """A checked request; the list in the order of clients."""

    session: bytes
    round: int
    purpose: str
    participants: list[tuple[int, bytes]]
    total_digest: bytes

    @classmethod
    def checked(
        cls, session: Any, round_number: Any, purpose: Any, participants: Any, total_digest: Any
    ) -> Request:
        """Check a request and put its list in order. Raises ParameterError; PolicyError for a list with duplicates."""
        try:
            pairs = [(client, frame_id) for client, frame_id in participants]
        except (TypeError, ValueError):
            raise ParameterError("participants must be pairs of a client's number and a frame id") from None
        listed = sorted(
            (as_number(client, "a client's number"), as_bytes(frame_id, _FRAME_ID_BYTES, "a frame id"))
            for client, frame_id in pairs
        )
        for column, what in ((0, "a client"), (1, "a frame")):
            if len({entry[column] for entry in listed}) < len(listed):
                raise PolicyError(f"the list names {what} twice: each counts once. Start a new round")
        named = checked_purpose(purpose)
        return cls(
            as_bytes(session, SESSION_BYTES, "session"),
            as_number(round_number, "round_number"),
            named,
            listed,
            as_bytes(total_digest, DIGEST_BYTES, "total_digest"),
        )

    @property
    def occasion(self) -> tuple[bytes, int, str]:
        """What a client is answered for once."""
        return self.session, self.round, self.purpose

    @property
    def clients(self) -> list[int]:
        """Those that the list names."""
        return [client for client, _ in self.participants]


def checked_keys(keys: Any, clients: Iterable[int] | None = None) -> dict[int, ClientKey]:
    """Return keys by client, in the order of clients: of just these, if given. Raises ParameterError."""
    if not isinstance(keys, Mapping) or not all(isinstance(key, ClientKey) for key in keys.values()):
        raise ParameterError("keys must be a mapping from clients' numbers to ClientKey")
    try:
        ordered = sorted(keys)
    except TypeError:
        raise ParameterError("clients' numbers must be whole numbers") from None
    checked = {as_number(client, "a client's number"): keys[client] for client in ordered}
    for key in checked.values():
        as_bytes(key.key, KEY_BYTES, "a client's key")
    if clients is not None and checked.keys() != set(clients):
        raise ParameterError("there must be a key for each client that a key was given for, and no other")
    return checked


def checked_grant(grant: Any) -> Grant:
    """Return what is a grant. Raises ParameterError."""
    if not isinstance(grant, Grant) or not isinstance(grant.grant, bytes):
        raise ParameterError("a grant must be a Grant of bytes")
    if grant.request_digest is not None:
        as_bytes(grant.request_digest, DIGEST_BYTES, "request_digest")
    return grant


def checked_sessions(sessions: Any) -> list[bytes]:
    """Return sessions, 16 bytes each. Raises ParameterError."""
    try:
        return [as_bytes(session, SESSION_BYTES, "session") for session in sessions]
    except TypeError:
        raise ParameterError("sessions must be some of 16 bytes each") from None


def checked_enrolments(
    keys: Any, grants: Any = None
) -> dict[bytes, dict[int, tuple[ClientKey, Grant | None]]]:
    """Return by session and client its key, and its grant if there is one. Raises ParameterError."""
    granted = {} if grants is None else grants
    if not all(isinstance(by_session, Mapping) for by_session in (keys, granted)):
        raise ParameterError("keys and grants must be mappings from sessions")
    if not granted.keys() <= keys.keys():
        raise ParameterError("there are grants for a session in which nobody is enrolled with them")
    checked = {}
    for session in checked_sessions(keys):
        own, its_grants = checked_keys(keys[session]), granted.get(session, {})
        if not isinstance(its_grants, Mapping):
            raise ParameterError("grants must be a mapping from clients' numbers to Grant")
        if not its_grants.keys() <= own.keys():
            raise ParameterError("a grant is for a client that is enrolled with it")
        given = {client: checked_grant(grant) for client, grant in its_grants.items()}
        checked[session] = {client: (key, given.get(client)) for client, key in own.items()}
    return checked
