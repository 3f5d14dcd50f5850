"""What a served key authority does with messages, whatever carries them: sessions under its operator's policy."""

from __future__ import annotations

import threading
from pathlib import Path

from shieldfl.authority_service.client_registry import ClientRegistry
from shieldfl.authority_service.identity import ServiceKey
from shieldfl.authority_service.policy import AuthorityPolicy
from shieldfl.authority_service.served_session import ServedSession
from shieldfl.authority_service.session_folder import SessionFolder
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.errors import DataError, PolicyError
from shieldfl.roles.held_file import HeldFile
from shieldfl.roles.message import Message
from shieldfl.roles.private_file import write_private_file

__all__ = ["AuthorityFolder", "AuthorityService"]


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
    def create(cls, path: Path, passphrase: str, policy: AuthorityPolicy) -> AuthorityFolder:
        """Make an authority. Raises DataError where there is one; OSError."""
        made = cls(path)
        if made.key.exists():
            raise DataError(f"{path} has a key authority already: serve that one, or choose another folder")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (made.clients, made.sessions, made.tls):
            folder.mkdir(mode=0o700, exist_ok=True)
        write_private_file(made.lock, b"")
        write_private_file(made.policy, policy.to_toml().encode())
        # Last: with it, there is an authority.
        key = ServiceKey.create(made.key, passphrase)
        write_private_file(made.public_key, key.public_key.hex().encode() + b"\n")
        return made

    @property
    def registry(self) -> ClientRegistry:
        """Whom its operator vouches for."""
        return ClientRegistry(self.clients)

    def check(self) -> None:
        """Raise DataError where no authority lives in this folder."""
        if not self.key.exists():
            raise DataError(f"{self.path} has no key authority: make one by `shieldfl authority init`")

    def session_folders(self) -> list[SessionFolder]:
        """Return those of all sessions that were begun, by their ids."""
        self.check()
        found = (SessionFolder(folder) for folder in sorted(self.sessions.iterdir()))
        return [one for one in found if one.is_begun]

    def end_sessions(self) -> int:
        """End every session, for good; return how many ran. What was restored from a backup must not go on."""
        running = [one for one in self.session_folders() if not one.is_ended]
        for one in running:
            one.end()
        return len(running)


class AuthorityService:
    """Answers aggregators. One process serves a folder; sessions are opened when they are first asked for.

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
            self._registry = folder.registry if self.policy.registered_clients_only else None
        except BaseException:
            self._held.close()
            raise
        self._lock = threading.Lock()
        self._sessions: dict[bytes, ServedSession] = {}

    @property
    def public_key(self) -> bytes:
        """What clients and aggregators pin: 32 bytes."""
        return self._key.public_key

    @property
    def open_sessions(self) -> int:
        """How many sessions this process has opened."""
        return len(self._sessions)

    def begin_session(self, message: Message, aggregator: str) -> Message:
        """Begin the session that a request asks for, unless it was; return its public set-up, signed.

        Raises PolicyError for what the policy does not allow; WireFormatError, ParameterError; OSError.
        """
        request = SessionRequest.from_message(message)
        session_id = request.id
        with self._lock:
            folder = SessionFolder(self._folder.sessions / session_id.hex())
            if folder.is_begun:
                session = self._opened(session_id)
                session.check_aggregator(aggregator)
                return session.setup
            self.policy.check(request.method)
            if len(self._folder.session_folders()) >= self.policy.most_sessions:
                raise PolicyError(
                    f"this authority begins {self.policy.most_sessions:,} sessions, and it has: ask its operator"
                )
            session = ServedSession.begin(folder, request, aggregator, self._key, self._registry)
            self._sessions[session_id] = session
            return session.setup

    def session(self, session_id: bytes, aggregator: str) -> ServedSession:
        """Return an aggregator's session. Raises PolicyError for another's, an ended, and an unknown one."""
        with self._lock:
            session = self._opened(session_id)
        session.check_aggregator(aggregator)
        return session

    def _opened(self, session_id: bytes) -> ServedSession:
        folder = SessionFolder(self._folder.sessions / session_id.hex())
        folder.check_running()
        if session_id not in self._sessions:
            self._sessions[session_id] = ServedSession.open(folder, self._key, self._registry)
        return self._sessions[session_id]

    def close(self) -> None:
        """Give the folder up, for another process to go on with."""
        with self._lock:
            for session in self._sessions.values():
                session.close()
            self._sessions.clear()
            self._held.close()
