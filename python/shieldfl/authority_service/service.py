"""A served key authority without its transport: it answers messages under its operator's policy."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from shieldfl.authority.authority_secrets import AuthoritySecrets, JointKeys
from shieldfl.authority.message import Message
from shieldfl.authority.private_file import HeldFile, disk_errors_as, write_private_file
from shieldfl.authority_service.certificates import is_newest
from shieldfl.authority_service.identity import ClientRegistry, ServiceKey
from shieldfl.authority_service.served_session import (
    ServedSession,
    SessionFacts,
    SessionFolder,
    SessionRequest,
)
from shieldfl.encryption.enrolment import SECRET_BYTES, AuthorityGroup, AuthorityIdentity
from shieldfl.encryption.registry import REGISTRY, scheme_of
from shieldfl.errors import DataError, ParameterError, PolicyError
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan
from shieldfl.settings import Count, Settings, about, parse_toml, read_settings, read_text, settings_of

_ENROLLING = tuple(name for name, scheme in REGISTRY.items() if scheme.enrols)


@dataclass(frozen=True)
class AuthorityPolicy(Settings):
    """The bounds of every session. A session keeps the bounds under which it was begun."""

    min_clients: Annotated[
        Count,
        about(
            "Fewest clients in a total that this authority opens. It refuses plans with a smaller "
            "min_clients."
        ),
    ] = 3
    most_clients: Annotated[Count, about("Most clients in one session.")] = 10_000
    most_rounds: Annotated[Count, about("Most rounds in one session.")] = 10_000
    most_values: Annotated[
        Annotated[int, Meta(ge=1, lt=2**40)],
        about("Most values of a model, parameters and buffers together."),
    ] = 2**28
    most_sessions: Annotated[
        Count, about("Most sessions that this authority ever begins, ended ones included.")
    ] = 1_000
    most_bytes_in_progress: Annotated[
        int,
        Meta(ge=2**20, lt=2**40),
        about(
            "Most bytes of all requests held at once. The process uses several times as much memory. A "
            "larger request is answered alone."
        ),
    ] = 2**29
    most_connections: Annotated[Count, about("Most connections open at once, from all addresses.")] = 512
    most_connections_of_one_address: Annotated[
        Count, about("Most connections open at once from one address.")
    ] = 128
    schemes: Annotated[
        tuple[str, ...],
        about("Encryption schemes that sessions may use.", choices=partial(tuple, REGISTRY)),
    ] = _ENROLLING
    registered_clients_only: Annotated[
        bool,
        about(
            "Enrol only clients whose public key the operator has registered. If false, an aggregator "
            "can invent clients and get a sum over one real client."
        ),
    ] = True

    @classmethod
    def from_file(cls, path: Path) -> AuthorityPolicy:
        text = read_text(path, "policy")
        return read_settings(cls, parse_toml(text, tuple(settings_of(cls)), str(path)), str(path))

    def to_toml(self) -> str:
        lines = [
            "# What this key authority allows, whatever an aggregator asks. Read when it starts to serve."
        ]
        for key, setting in settings_of(type(self)).items():
            value = getattr(self, setting.name)
            lines += ["", f"# {setting.meaning}", f"{key} = {json.dumps(value)}"]
        return "\n".join(lines) + "\n"

    def check_plan(self, plan: FederationPlan) -> None:
        if plan.min_clients < self.min_clients:
            raise PolicyError(
                f"the plan opens totals of {plan.min_clients} clients, but this authority opens none of "
                f"fewer than {self.min_clients}: plan with min_clients = {self.min_clients} or more"
            )
        for asked, most, what in (
            (plan.clients, self.most_clients, "clients"),
            (plan.rounds, self.most_rounds, "rounds"),
            (plan.update_size, self.most_values, "values"),
        ):
            if asked > most:
                raise PolicyError(f"the plan has {asked:,} {what}, but this authority allows {most:,}")

    def check_method(self, method: Method) -> None:
        used = {scheme_of(parameters).name for parameters in method.purposes.values()}
        if not used:
            raise PolicyError(f"{method.name} encrypts nothing: it needs no key authority")
        if not used <= set(self.schemes):
            raise PolicyError(
                f"{method.name} would encrypt by {', '.join(sorted(used))}, but this authority allows "
                f"{', '.join(self.schemes)}: take one of these as the method's encryption"
            )
        if self.registered_clients_only and not method.enrols:
            raise PolicyError(
                "clients of this method do not enrol, so nobody vouches for them: encrypt by "
                f"{' or '.join(_ENROLLING)}, or have the operator set registered_clients_only = false"
            )


_MOST_OFFERS = 32  # of one aggregator; its oldest offer makes way
_MOST_OPEN = 64  # sessions at once; a closed one is opened again when it is asked for


class AuthorityFolder:
    """The folder of an authority: its key, policy, registered clients, certificates and sessions."""

    def __init__(self, path: Path) -> None:
        self.path, self.policy, self.lock = path, path / "policy.toml", path / "lock"
        self.key, self.public_key = path / "authority.key", path / "authority.pub"
        self.tls, self.clients, self.sessions = path / "tls", path / "clients", path / "sessions"

    @classmethod
    def create(
        cls,
        path: Path,
        passphrase: str,
        policy: AuthorityPolicy,
        certify: Callable[[Path], None] = lambda tls: None,
    ) -> AuthorityFolder:
        """Make an authority, all of it or nothing.

        ``certify`` gets the folder for the certificates.
        """
        path = path.absolute()
        made = cls(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
        taken = f"{path} has a key authority already, or other files: choose another folder"
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DataError(taken)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            for folder in (made.path, made.clients, made.sessions, made.tls):
                folder.mkdir(mode=0o700)
            certify(made.tls)
            write_private_file(made.lock, b"")
            write_private_file(made.policy, policy.to_toml().encode())
            key = ServiceKey.create(made.key, passphrase)
            write_private_file(made.public_key, key.public_key.hex().encode() + b"\n")
            with disk_errors_as(taken):  # as where it was filled meanwhile
                made.path.replace(path)
        except BaseException:
            shutil.rmtree(made.path, ignore_errors=True)
            raise
        return cls(path)

    @property
    def registry(self) -> ClientRegistry:
        return ClientRegistry(self.clients)

    def check(self) -> None:
        if not self.key.exists():
            raise DataError(f"{self.path} has no key authority: make one by `shieldfl authority init`")

    def session_folders(self) -> list[SessionFolder]:
        self.check()
        found = (SessionFolder(folder) for folder in sorted(self.sessions.iterdir()))
        return [one for one in found if one.is_begun]

    def end_sessions(self) -> int:
        """End every session for good; return how many were running."""
        running = [one for one in self.session_folders() if not one.is_ended]
        for one in running:
            one.write(ended=b"")
        return len(running)


@dataclass
class _Place:
    """A session in this process; while one thread makes or opens it, only threads that need it wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    session: ServedSession | None = None


class AuthorityService:
    """Answers aggregators. One process serves a folder, and opens sessions when they are asked for.

    Raises DataError, KeyMismatchError for a wrong passphrase, PolicyError while another process serves the
    folder.
    """

    def __init__(self, folder: AuthorityFolder, passphrase: str) -> None:
        folder.check()
        self._held = HeldFile(folder.lock, "Nothing is served")
        try:
            self._folder = folder
            self.policy = AuthorityPolicy.from_file(folder.policy)
            self._key = ServiceKey.load(folder.key, passphrase)
            self.public_key = self._key.public_key
            self._registry = folder.registry
            for left in folder.sessions.iterdir():
                if not SessionFolder(left).is_begun:
                    SessionFolder(left).remove()  # its making was cut off by the end of a process
        except BaseException:
            self._held.close()
            raise
        # By aggregator, the keys that it was offered and has not yet begun a session with.
        self._offered: dict[str, OrderedDict[AuthorityIdentity, AuthoritySecrets]] = defaultdict(OrderedDict)
        self._lock = threading.Lock()
        self._places: OrderedDict[bytes, _Place] = OrderedDict()

    @property
    def open_sessions(self) -> int:
        with self._lock:
            return sum(place.session is not None for place in self._places.values())

    def check_certificate(self, aggregator: str, certificate: bytes) -> None:
        """Raise PolicyError for a certificate, DER, that was issued here and has been renewed since."""
        if not is_newest(self._folder.tls, aggregator, certificate):
            raise PolicyError(
                "this certificate was renewed, or withdrawn: ask the authority's operator for the newest"
            )

    def has_open(self, session_id: bytes, aggregator: str) -> bool:
        """Return whether a session of this aggregator is open in this process."""
        with self._lock:
            session = self._places[session_id].session if session_id in self._places else None
        return session is not None and session.facts.aggregator == aggregator

    def most_body_bytes(self, session_id: bytes, aggregator: str) -> int:
        with self.session(session_id, aggregator) as session:
            return session.most_body_bytes

    def begin_session(self, message: Message, aggregator: str) -> Message:
        """Begin the session of a request, unless it was begun; return its public set-up, signed."""
        request = SessionRequest.from_message(message, self.policy.check_plan)
        session_id = request.id  # once: it is a digest of the whole model
        folder = SessionFolder(self._folder.sessions / session_id.hex())
        with self._place(session_id) as place, place.lock:
            if place.session is None and not folder.is_begun:
                self.policy.check_method(request.method)
                # Sessions that are being made count as well.
                if len(os.listdir(self._folder.sessions)) >= self.policy.most_sessions:
                    raise PolicyError(
                        f"this authority has begun {self.policy.most_sessions:,} sessions, which is its "
                        "limit: ask its operator"
                    )
                method, plan = request.method, request.method.plan
                purposes = method.purposes.values()
                facts = SessionFacts(
                    method.name,
                    plan.clients,
                    plan.rounds,
                    method.positions,
                    aggregator,
                    self.policy.registered_clients_only,
                    carries_totals=not (method.clients_open or method.aggregator_opens),
                    encrypts_singly=any(scheme_of(own).name == "paillier" for own in purposes),
                )
                joint = None if request.group is None else self._taken(aggregator, request.group)
                place.session = ServedSession.begin(folder, request, facts, self._key, self._registry, joint)
        with self.session(session_id, aggregator) as session:
            return session.setup

    def offer(self, message: Message, aggregator: str) -> Message:
        """Return keys for one session of this aggregator in which other authorities have to answer, too."""
        if message:
            raise ParameterError("a request for an offer must have no parts")
        made = AuthoritySecrets()
        with self._lock:
            own = self._offered[aggregator]
            own[made.identity] = made
            if len(own) > _MOST_OFFERS:
                own.popitem(last=False)
        offered = made.identity
        return Message({"verifying key": offered.verifying_key, "enrolment key": offered.enrolment_key})

    def _taken(self, aggregator: str, group: AuthorityGroup) -> JointKeys:
        """Take out the keys that were offered for a group, so that no other session begins with them.

        Raises ParameterError for a group with a key that clients cannot seal to.
        """
        for member in group.members:
            member.seal(bytes(SECRET_BYTES), b"")
        with self._lock:
            held = self._offered[aggregator]
            owned = [member for member in group.members if member in held]
            if len(owned) != 1:
                raise PolicyError(
                    "this authority has not offered exactly one of these keys since it was started: have "
                    "every authority make a new offer, and begin the session with the new keys"
                )
            return held.pop(owned[0]), group

    @contextlib.contextmanager
    def session(self, session_id: bytes, aggregator: str) -> Iterator[ServedSession]:
        """Use a session of an aggregator; it is opened if it is not open.

        Raises PolicyError for another aggregator's session, and for an ended one.
        """
        folder = SessionFolder(self._folder.sessions / session_id.hex())
        folder.check_running()
        with self._place(session_id) as place:
            with place.lock:
                if place.session is None:
                    place.session = ServedSession.open(folder, self._key, self._registry)
            if aggregator != place.session.facts.aggregator:
                raise PolicyError("another aggregator began this session: begin one of your own")
            yield place.session

    @contextlib.contextmanager
    def _place(self, session_id: bytes) -> Iterator[_Place]:
        with self._lock:
            place = self._places.setdefault(session_id, _Place())
            place.users += 1
            self._places.move_to_end(session_id)
        try:
            yield place
        finally:
            with self._lock:
                place.users -= 1
                if place.users == 0 and place.session is None:
                    self._places.pop(session_id, None)  # nothing came of it
                self._close_some()

    def _close_some(self) -> None:
        """Close the longest unused sessions until few are open, with no more values than one may have."""
        values = sum(
            place.session.facts.values for place in self._places.values() if place.session is not None
        )
        for key in [key for key, place in self._places.items() if place.users == 0]:
            if len(self._places) <= _MOST_OPEN and values <= self.policy.most_values:
                break
            session = self._places.pop(key).session
            if session is not None:
                values -= session.facts.values
                session.close()

    def close(self) -> None:
        with self._lock:
            for place in self._places.values():
                if place.session is not None:
                    place.session.close()
            self._places.clear()
            self._held.close()
