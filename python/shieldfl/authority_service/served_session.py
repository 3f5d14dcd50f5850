"""One session of a served authority: its steps, and on the disk what they go on from in another process."""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
from collections.abc import Callable
from typing import TypeVar

from shieldfl.authority_service.client_registry import ClientRegistry
from shieldfl.authority_service.identity import ServiceKey, check_enrolment
from shieldfl.authority_service.session_folder import SessionFolder
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.errors import PolicyError
from shieldfl.methods.protocol.reports import Note
from shieldfl.methods.protocol.steps import AuthoritySteps
from shieldfl.roles.message import Message

__all__ = ["LOG", "ServedSession"]

T = TypeVar("T")

LOG = logging.getLogger("shieldfl.authority")
"""Of what the service does: a record's ``fields`` are what its line has beside the event; no secrets, no values."""


class ServedSession:
    """Answers for one session, one message at a time; what it says is on the disk before it leaves.

    Use :meth:`begin` and :meth:`open`.
    """

    def __init__(
        self,
        folder: SessionFolder,
        steps: AuthoritySteps,
        setup: Message,
        state_key: bytes,
        registry: ClientRegistry | None,
    ) -> None:
        self.setup = setup
        """The public one, with the service's signature."""
        self._folder = folder
        self._setup_digest = hashlib.sha256(setup["setup"]).digest()
        self._steps = steps
        self._key = state_key
        self._registry = registry
        self._lock = threading.Lock()
        self._is_kept = True
        self._clients = folder.clients()
        self._revoked: frozenset[str] = frozenset()

    @classmethod
    def begin(
        cls,
        folder: SessionFolder,
        request: SessionRequest,
        aggregator: str,
        key: ServiceKey,
        registry: ClientRegistry | None,
    ) -> ServedSession:
        """Make a session. What a crash has left of one that was not begun yet is removed.

        Parameters
        ----------
        folder : where it will be.
        request, aggregator : what is asked for, and by whom.
        key : of the service.
        registry : of whom clients are to be; None for anybody.

        Raises what the method refuses, DataError, OSError.
        """
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.path.mkdir(mode=0o700)
        store = folder.store if request.method.enrols else None
        steps, made = request.method.authority_setup(request.initial, store=store)
        assert steps is not None  # the policy refuses methods that need no authority
        setup = key.sign_setup(made.to_bytes())
        folder.write(request, setup, aggregator)
        session = cls(folder, steps, setup, key.state_key(folder.id), registry)
        session._keep()
        return session

    @classmethod
    def open(cls, folder: SessionFolder, key: ServiceKey, registry: ClientRegistry | None) -> ServedSession:
        """Go on with a session that another process had. Raises as restoring a role's state does."""
        request = folder.request()
        signed, setup = folder.setup()
        store = folder.store if request.method.enrols else None
        steps = request.method.authority_steps(setup, request.initial, store=store)
        state_key = key.state_key(folder.id)
        steps.restore(folder.state(), state_key)
        return cls(folder, steps, signed, state_key, registry)

    def check_aggregator(self, name: str) -> None:
        """Raise PolicyError for another aggregator than the one that began the session."""
        if name != self._folder.facts().aggregator:
            raise PolicyError("another aggregator began this session: begin one of your own")

    def enrol(self, client: int, message: Message) -> Message:
        """Take a client's enrolment, signed by one that is registered, where that is asked for.

        One name is one client of the session, and one client one name. Raises PolicyError, and as
        :meth:`AuthoritySteps.enrol` does.
        """
        with self._lock:
            if self._registry is not None:
                self._take_name(self._registry, client, message)
            return self._kept_after(lambda: self._steps.enrol(client, message))

    def _take_name(self, registry: ClientRegistry, client: int, message: Message) -> None:
        if "name" not in message:
            raise PolicyError(
                f"client {client} does not say who it is, and this authority enrols whom it knows"
            )
        name = bytes(message["name"]).decode(errors="replace")
        check_enrolment(registry.public_key(name), name, self._setup_digest, client, message)
        own, others = self._clients.get(client), {**self._clients, client: None}.values()
        if own not in (None, name) or name in others:
            raise PolicyError(f"{name} or client {client} has enrolled in this session with another one")
        if own is None:
            self._folder.write_clients({**self._clients, client: name})
            self._clients[client] = name

    def grant(self, message: Message) -> Message:
        """Let the aggregator open answers, where it does."""
        with self._lock:
            return self._kept_after(lambda: self._steps.grant(message))

    def begin_round(self, round_number: int, invited: list[int] | None, model: bytes) -> Message:
        """Begin a round: return its first message, signed."""
        with self._lock:
            return self._kept_after(lambda: self._steps.begin_round(round_number, invited, model))

    def answer(self, phase: str, message: Message) -> Message:
        """Answer a phase. Whom the operator has revoked is in no list that is answered from now on."""
        with self._lock:
            self._revoke()
            return self._kept_after(lambda: self._steps.answer(phase, message))

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign what a phase came to at an aggregator that opens sums."""
        with self._lock:
            return self._kept_after(lambda: self._steps.sign_answer(phase, round_number, digest))

    def newest_model(self) -> Message:
        """Return what the next round starts from."""
        with self._lock:
            return self._steps.newest_model()

    def _revoke(self) -> None:
        gone = frozenset() if self._registry is None else self._registry.revoked()
        if gone != self._revoked:
            for client, name in self._clients.items():
                if name in gone:
                    self._steps.revoke(client)
            self._revoked = gone

    def _kept_after(self, step: Callable[[], T]) -> T:
        """Return what a step returns, once what it has changed is on the disk: also where it ended in an error."""
        if not self._is_kept:
            self._keep()
        self._is_kept = False
        try:
            return step()
        finally:
            # What was opened is in the aggregator's account; remarks are for the operator.
            for note in self._steps.report().notes:
                if isinstance(note, Note):
                    LOG.info("note", extra={"fields": {"session": self._folder.path.name, "note": note.text}})
            self._keep()

    def _keep(self) -> None:
        self._folder.write_state(self._steps.state(self._key))
        self._is_kept = True

    def close(self) -> None:
        """Give the session's files up."""
        with self._lock:
            self._steps.close()
