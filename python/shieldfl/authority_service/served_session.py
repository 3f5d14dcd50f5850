"""One session of a served authority: its steps, what is asked of it, and on the disk what it goes on from."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from shieldfl.authority.authority_secrets import JointKeys
from shieldfl.authority.message import Message, Part
from shieldfl.authority_service.identity import ClientRegistry, ServiceKey, check_enrolment
from shieldfl.authority_service.session_folder import SessionFacts, SessionFolder
from shieldfl.authority_service.session_request import SessionRequest
from shieldfl.errors import DataError, ParameterError, PolicyError, ShieldError, WireFormatError
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.public_setup import check_sizes
from shieldfl.rounds.reports import Note

T = TypeVar("T")

LOG = logging.getLogger("shieldfl.authority")
"""Of what the service does: a record's ``fields`` are what its line has beside the event; no secrets, no values."""

LEAST_BODY_BYTES = 2**20
"""That any call may take, whatever the session."""
_BYTES_A_CLIENT = 64
_BYTES_A_VALUE = 48
"""More than a total, and what goes beside it in the clear, take for each value of a model."""
_SINGLE_BYTES_A_VALUE = 2_048
"""Where each value may have a ciphertext of its own."""


class ServedSession:
    """Answers for one session, one message at a time; what it says is on the disk before it leaves.

    Use :meth:`begin` and :meth:`open`.
    """

    def __init__(
        self,
        folder: SessionFolder,
        steps: AuthoritySteps,
        setup: Message,
        facts: SessionFacts,
        state_key: bytes,
        registry: ClientRegistry,
        names: dict[int, str],
    ) -> None:
        self.setup = setup
        """The public one, with the service's signature."""
        self.facts = facts
        self._folder = folder
        self._setup_digest = hashlib.sha256(setup["setup"]).digest()
        self._steps = steps
        self._key = state_key
        self._registry = registry
        self._lock = threading.Lock()
        self._is_kept = True
        self._names = names
        """By client, who enrolled as it."""
        self._dropped: set[int] = set()

    @classmethod
    def begin(
        cls,
        folder: SessionFolder,
        request: SessionRequest,
        facts: SessionFacts,
        key: ServiceKey,
        registry: ClientRegistry,
        joint: JointKeys | None = None,
    ) -> ServedSession:
        """Make a session; where that ends in an error, nothing is left of it.

        Parameters
        ----------
        folder : where it will be.
        request : what is asked for.
        facts : that the session keeps.
        key : of the service.
        registry : of whom clients are to be, where the facts say so.
        joint : where other authorities have to answer, too.

        Raises what the method refuses, and DataError.
        """
        check_sizes(request.initial, request.method.plan)
        folder.make()
        try:
            store = folder.store if request.method.enrols else None
            steps, made = request.method.authority_setup(request.initial, store=store, joint=joint)
            assert steps is not None  # the policy refuses methods that need no authority
            try:
                setup = key.sign_setup(made.to_bytes())
                folder.write(request, setup, facts)
                state_key = key.state_key(folder.id, folder.facts_as_written())
                session = cls(folder, steps, setup, facts, state_key, registry, {})
                session._keep()
            except BaseException:
                steps.close()
                raise
        except BaseException:
            folder.remove()
            raise
        return session

    @classmethod
    def open(cls, folder: SessionFolder, key: ServiceKey, registry: ClientRegistry) -> ServedSession:
        """Go on with a session that another process had. Raises as restoring a role's state does."""
        folder.sweep()
        request = folder.request()
        signed, setup = folder.setup()
        state_key = key.state_key(folder.id, folder.facts_as_written())
        state, names = folder.state(state_key)
        store = folder.store if request.method.enrols else None
        steps = request.method.authority_steps(setup, request.initial, store=store)
        steps.restore(state, state_key)
        return cls(folder, steps, signed, folder.facts(), state_key, registry, names)

    @property
    def most_body_bytes(self) -> int:
        """More than any call of the session takes."""
        each = _SINGLE_BYTES_A_VALUE if self.facts.encrypts_singly else _BYTES_A_VALUE
        totals = each * self.facts.values if self.facts.carries_totals else 0
        return LEAST_BODY_BYTES + _BYTES_A_CLIENT * self.facts.clients + totals

    def check_aggregator(self, name: str) -> None:
        """Raise PolicyError for another aggregator than the one that began the session."""
        if name != self.facts.aggregator:
            raise PolicyError("another aggregator began this session: begin one of your own")

    def enrol(self, client: int, message: Message) -> Message:
        """Take a client's enrolment, signed by one that is registered, where the session asks for that.

        One name is one client of the session, and one client one name. Raises PolicyError, and as
        :meth:`AuthoritySteps.enrol` does.
        """
        with self._lock:
            if not self.facts.registered_clients_only:
                return self._kept_after(lambda: self._steps.enrol(client, message))
            if client >= self.facts.clients:
                raise ParameterError(f"the plan has clients 0 to {self.facts.clients - 1}")
            is_new = self._take_name(client, message)
            # The name goes to the disk before the store knows the client: none is in there without one.
            self._is_kept = False

            def step() -> Message:
                try:
                    return self._steps.enrol(client, message)
                except ShieldError as error:
                    # What the store has not taken, takes no name; whether it has, a failing disk leaves open.
                    if is_new and not isinstance(error, DataError):
                        del self._names[client]
                    raise

            return self._kept_after(step)

    def _take_name(self, client: int, message: Message) -> bool:
        """Say whether the name is new."""
        if "name" not in message:
            raise PolicyError(
                f"client {client} does not say who it is, and this authority enrols whom it knows"
            )
        name = bytes(message["name"]).decode(errors="replace")
        check_enrolment(self._registry.public_key(name), name, self._setup_digest, client, message)
        own, others = self._names.get(client), {**self._names, client: None}.values()
        if own not in (None, name) or name in others:
            raise PolicyError(f"{name} or client {client} has enrolled in this session with another one")
        self._names[client] = name
        return own is None

    def grant(self, message: Message) -> Message:
        """Let the aggregator open answers, where it does."""
        with self._lock:
            return self._kept_after(lambda: self._steps.grant(message))

    def begin_round(self, round_number: int, invited: list[int] | None, model: bytes) -> Message:
        """Begin a round: return its first message, signed."""
        with self._lock:
            return self._kept_after(lambda: self._steps.begin_round(round_number, invited, model))

    def answer(self, phase: str, message: Message) -> Message:
        """Answer a phase. Whom the operator has revoked is in no list that is answered for the first time then."""
        with self._lock:
            self._drop_revoked()
            return self._kept_after(lambda: self._steps.answer(phase, message))

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign what a phase came to at an aggregator that opens sums, or what several authorities have answered."""
        with self._lock:
            return self._kept_after(lambda: self._steps.sign_answer(phase, round_number, digest))

    def newest_model(self) -> Message:
        """Return what the next round starts from: of what is on the disk."""
        with self._lock:
            self._keep_what_is_not()
            return self._steps.newest_model()

    def _drop_revoked(self) -> None:
        if not self.facts.registered_clients_only:
            return
        gone = self._registry.revoked()
        for client, name in self._names.items():
            if name in gone and client not in self._dropped:
                self._steps.revoke(client)
                self._dropped.add(client)

    def _kept_after(self, step: Callable[[], T]) -> T:
        """Return what a step returns, once what it has changed is on the disk: also where it ended in an error."""
        self._keep_what_is_not()
        self._is_kept = False
        try:
            return step()
        finally:
            # What was opened is in the aggregator's account; remarks are for the operator.
            for note in self._steps.report().notes:
                if isinstance(note, Note):
                    LOG.info("note", extra={"fields": {"session": self._folder.path.name, "note": note.text}})
            self._keep()

    def _keep_what_is_not(self) -> None:
        if not self._is_kept:
            self._keep()

    def _keep(self) -> None:
        self._folder.write_state(self._steps.state(self._key), self._names, self._key)
        self._is_kept = True

    def close(self) -> None:
        """Give the session's files up."""
        with self._lock:
            self._steps.close()


def asked(*, invited: Iterable[int] | None = None, **parts: int | str | bytes | Message) -> Message:
    """Return a call's message: parts by their names; what is empty is left out."""
    found: dict[str, Part] = {}
    if invited is not None:
        found["invited"] = np.array([*invited], dtype="<u8").tobytes()
    for name, part in parts.items():
        if isinstance(part, int | np.integer):
            found[name] = Message.from_number(int(part))
        elif isinstance(part, Message):
            found[name] = part.to_bytes()
        elif part:
            found[name] = part.encode() if isinstance(part, str) else part
    return Message(found)


def _phase_of(call: Message) -> str:
    try:
        return bytes(call["phase"]).decode()
    except UnicodeDecodeError as error:
        raise WireFormatError("the call names a phase that is no text") from error


def _round_begun(session: ServedSession, call: Message) -> Message:
    model, invited = bytes(call["model"]) if "model" in call else b"", None
    if "invited" in call:
        part = call.vector("invited", np.uint64, len(call["invited"]) // 8)
        invited = [int(one) for one in part]
    return session.begin_round(call.number("round"), invited, model)


def _inner(call: Message) -> Message:
    return Message.from_bytes(call["message"])


CALLS: Mapping[str, Callable[[ServedSession, Message], Message]] = MappingProxyType(
    {
        "set-up": lambda session, call: session.setup,
        "enrol": lambda session, call: session.enrol(call.number("client"), _inner(call)),
        "grant": lambda session, call: session.grant(_inner(call)),
        "begin-round": _round_begun,
        "answer": lambda session, call: session.answer(_phase_of(call), _inner(call)),
        "sign-answer": lambda session, call: session.sign_answer(
            _phase_of(call), call.number("round"), bytes(call["digest"])
        ),
        "newest-model": lambda session, call: session.newest_model(),
    }
)
"""What a session does for each call, by its name in addresses."""


def answered(session: ServedSession, name: str, call: Message) -> Message:
    """Carry a call out. Raises ParameterError for one that there is not, and as the session does."""
    if name not in CALLS:
        raise ParameterError(f"a session has no call {name!r}: it has {', '.join(CALLS)}")
    return CALLS[name](session, call)
