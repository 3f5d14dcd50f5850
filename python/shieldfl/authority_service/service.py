"""What a served key authority does with messages, whatever carries them: sessions under its operator's policy."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shieldfl.authority.authority_secrets import AuthoritySecrets, JointKeys
from shieldfl.authority.message import Message
from shieldfl.authority.private_file import HeldFile, write_private_file
from shieldfl.authority_service.certificates import is_newest
from shieldfl.authority_service.identity import ClientRegistry, ServiceKey
from shieldfl.authority_service.policy import AuthorityPolicy
from shieldfl.authority_service.served_session import LEAST_BODY_BYTES, ServedSession
from shieldfl.authority_service.session_folder import SessionFacts, SessionFolder
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.encryption.enrolment import SECRET_BYTES, AuthorityGroup, AuthorityIdentity
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import DataError, ParameterError, PolicyError

_MOST_OFFERS = 32
"""Of one aggregator: its oldest makes way."""


class OfferedKeys:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: defaultdict[str, OrderedDict[AuthorityIdentity, AuthoritySecrets]] = defaultdict(
            OrderedDict
        )
        """By aggregator."""

    def offer(self, aggregator: str) -> AuthorityIdentity:
        made = AuthoritySecrets()
        with self._lock:
            own = self._held[aggregator]
            own[made.identity] = made
            if len(own) > _MOST_OFFERS:
                own.popitem(last=False)
        return made.identity

    def take(self, aggregator: str, group: AuthorityGroup) -> JointKeys:
        """Take the keys that were offered for a group out: whatever comes of it, nothing else is begun with them.

        Raises PolicyError for a group of others' keys, or of some that were used, or made way, or were forgotten;
        ParameterError for one that clients could seal nothing to.
        """
        for member in group.members:
            member.seal(bytes(SECRET_BYTES), b"")
        with self._lock:
            held = self._held[aggregator]
            owned = [member for member in group.members if member in held]
            if len(owned) != 1:
                raise PolicyError(
                    "of these keys not one, and one alone, was offered here, or not since this authority was started: "
                    "have every authority make a new offer, and begin the session with those"
                )
            return JointKeys(held.pop(owned[0]), group)


_MOST_OPEN = 64
"""Sessions whose files are open at once; one that is asked for again is opened again."""


class AuthorityFolder:
    """Where an authority lives: its key, policy, registered clients, certificates and sessions.

    Parameters
    ----------
    path : of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = path / "authority.key"
        self.public_key = path / "authority.pub"
        self.policy = path / "policy.toml"
        self.tls = path / "tls"
        self.clients = path / "clients"
        self.sessions = path / "sessions"
        self.lock = path / "lock"

    @classmethod
    def create(
        cls,
        path: Path,
        passphrase: str,
        policy: AuthorityPolicy,
        certify: Callable[[Path], None] = lambda tls: None,
    ) -> AuthorityFolder:
        """Make an authority, all of it or nothing.

        ``certify`` gets the folder that certificates are put into. Raises DataError where there is something; OSError.
        """
        path = path.absolute()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DataError(f"{path} has a key authority already, or something else: choose another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        made = cls(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
        try:
            for folder in (made.path, made.clients, made.sessions, made.tls):
                folder.mkdir(mode=0o700)
            certify(made.tls)
            write_private_file(made.lock, b"")
            write_private_file(made.policy, policy.to_toml().encode())
            key = ServiceKey.create(made.key, passphrase)
            write_private_file(made.public_key, key.public_key.hex().encode() + b"\n")
            made.path.replace(path)
        except OSError as error:
            shutil.rmtree(made.path, ignore_errors=True)
            if path.exists() and any(path.iterdir()):
                raise DataError(f"{path} has a key authority meanwhile: choose another folder") from error
            raise
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
        """End every session, for good; return how many ran. What was restored from a backup must not go on."""
        running = [one for one in self.session_folders() if not one.is_ended]
        for one in running:
            one.end()
        return len(running)


@dataclass
class _Place:
    """Of a session in this process: whoever makes or opens it keeps others waiting, and nobody else."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    session: ServedSession | None = None


class AuthorityService:
    """Answers aggregators. One process serves a folder; sessions are opened when they are asked for.

    Parameters
    ----------
    folder : of an authority that was made.
    passphrase : of its key.

    Raises DataError, KeyMismatchError for a wrong passphrase, PolicyError while another process serves the folder.
    """

    def __init__(self, folder: AuthorityFolder, passphrase: str) -> None:
        folder.check()
        self._held = HeldFile(folder.lock, "Nothing is served")
        try:
            self._folder = folder
            self.policy = AuthorityPolicy.from_file(folder.policy)
            self._key = ServiceKey.load(folder.key, passphrase)
            self._registry = folder.registry
            for left in folder.sessions.iterdir():
                if not SessionFolder(left).is_begun:
                    SessionFolder(left).remove()  # its making was cut off by the end of a process
        except BaseException:
            self._held.close()
            raise
        self._offered = OfferedKeys()
        self._lock = threading.Lock()
        self._places: OrderedDict[bytes, _Place] = OrderedDict()

    @property
    def public_key(self) -> bytes:
        return self._key.public_key

    @property
    def open_sessions(self) -> int:
        with self._lock:
            return sum(place.session is not None for place in self._places.values())

    def check_certificate(self, aggregator: str, certificate: bytes) -> None:
        """Raise PolicyError for a certificate, DER, that was issued here and renewed since."""
        if not is_newest(self._folder.tls, aggregator, certificate):
            raise PolicyError(
                "this certificate was renewed, or withdrawn: ask the authority's operator for the newest"
            )

    @property
    def most_request_bytes(self) -> int:
        return LEAST_BODY_BYTES + 4 * self.policy.most_values

    def most_body_bytes(self, session_id: bytes, aggregator: str) -> int:
        """Return more than any call of a session takes. Raises as :meth:`session` does."""
        with self.session(session_id, aggregator) as session:
            return session.most_body_bytes

    def begin_session(self, message: Message, aggregator: str) -> Message:
        """Begin the session that a request asks for, unless it was; return its public set-up, signed.

        Raises PolicyError for what the policy does not allow; WireFormatError, ParameterError, DataError.
        """
        request = SessionRequest.from_message(message, self.policy.check_plan)
        session_id = request.id  # once: it is a digest of the whole model
        folder = SessionFolder(self._folder.sessions / session_id.hex())
        with self._place(session_id) as place:
            if place.session is None and not folder.is_begun:
                self._check_new(request)
                facts = self._facts_of(request, aggregator)
                joint = None if request.group is None else self._offered.take(aggregator, request.group)
                place.session = ServedSession.begin(folder, request, facts, self._key, self._registry, joint)
        with self.session(session_id, aggregator) as session:
            return session.setup

    def offer(self, message: Message, aggregator: str) -> Message:
        """Return keys for one session of this aggregator in which other authorities have to answer, too.

        Raises ParameterError for a message that has something in it.
        """
        if message:
            raise ParameterError("who asks for an offer says nothing else")
        offered = self._offered.offer(aggregator)
        return Message({"verifying key": offered.verifying_key, "enrolment key": offered.enrolment_key})

    def _check_new(self, request: SessionRequest) -> None:
        self.policy.check_method(request.method)
        # Those that are being made are counted too.
        if len(os.listdir(self._folder.sessions)) >= self.policy.most_sessions:
            raise PolicyError(
                f"this authority begins {self.policy.most_sessions:,} sessions, and it has: ask its operator"
            )

    def _facts_of(self, request: SessionRequest, aggregator: str) -> SessionFacts:
        method, plan = request.method, request.method.plan
        carries_totals = not (method.clients_open or method.aggregator_opens)
        sizes = plan.clients, plan.rounds, method.positions
        singly = any(scheme_of(own).name == "paillier" for own in method.purposes.values())
        return SessionFacts(
            method.name, *sizes, aggregator, self.policy.registered_clients_only, carries_totals, singly
        )

    @contextlib.contextmanager
    def session(self, session_id: bytes, aggregator: str) -> Iterator[ServedSession]:
        """Use a session of an aggregator in ``with``, opened where it is not.

        Raises PolicyError for another's, one that was ended, and an unknown one; as restoring a state does.
        """
        folder = SessionFolder(self._folder.sessions / session_id.hex())
        folder.check_running()
        with self._place(session_id) as place:
            if place.session is None:
                place.session = ServedSession.open(folder, self._key, self._registry)
            session = place.session
            with self._lock:
                place.users += 1
        try:
            session.check_aggregator(aggregator)
            yield session
        finally:
            with self._lock:
                place.users -= 1
            self._close_some()

    @contextlib.contextmanager
    def _place(self, session_id: bytes) -> Iterator[_Place]:
        with self._lock:
            place = self._places.setdefault(session_id, _Place())
            place.users += 1
            self._places.move_to_end(session_id)
        try:
            with place.lock:
                yield place
        finally:
            with self._lock:
                place.users -= 1
                if place.users == 0 and place.session is None:
                    self._places.pop(session_id, None)  # nothing came of it

    def _close_some(self) -> None:
        """Close those sessions that were not asked for in the longest time, beyond the most that are open.

        Together, too, they have no more values than one session may have: each takes memory for its own.
        """
        with self._lock:
            opened = [place.session for place in self._places.values() if place.session is not None]
            values = sum(session.facts.values for session in opened)
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
