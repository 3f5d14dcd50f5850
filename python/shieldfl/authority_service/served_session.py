"""One session of a served authority: its calls, and the files from which it continues."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shieldfl.authority.authority_secrets import JointKeys
from shieldfl.authority.authority_store import AuthorityStore
from shieldfl.authority.message import Message, Part
from shieldfl.authority.private_file import disk_errors_as, write_private_file
from shieldfl.authority_service.identity import ClientRegistry, ServiceKey, check_enrolment
from shieldfl.encryption.enrolment import AuthorityGroup
from shieldfl.errors import (
    KeyMismatchError,
    ParameterError,
    PolicyError,
    WireFormatError,
)
from shieldfl.methods.registry import MethodSettings, make_method
from shieldfl.rounds.authorities import AuthoritySteps
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import FederationPlan, GlobalModel, PublicSetup, check_sizes

__all__ = ["SessionRequest"]

SESSION_ID_BYTES = 16
_OFFERS = "offers"
_NONCE_BYTES = 16
_MOST_ASKED_BYTES = 2**20  # a list of numbers takes some thirty times as much memory after it was read


@dataclass(frozen=True)
class SessionRequest:
    """A request for a session; the same one begins it once, so a lost answer can be asked for again.

    Parameters
    ----------
    method : the session's method, under its plan.
    initial : the model before the first round.
    nonce : 16 random bytes that tell this session from one with the same settings; by default new ones.
    group : for several authorities, the keys that each has offered for this session; None for a single
        authority.

    Raises ParameterError for a nonce of another length.
    """

    method: Method
    initial: GlobalModel
    nonce: bytes = b""
    group: AuthorityGroup | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "nonce", self.nonce or secrets.token_bytes(_NONCE_BYTES))
        if len(self.nonce) != _NONCE_BYTES:
            raise ParameterError(f"a session's nonce has {_NONCE_BYTES} random bytes")

    @property
    def id(self) -> bytes:
        """The session's identifier at its authority: 16 bytes."""
        return hashlib.sha256(self.to_message().to_bytes()).digest()[:SESSION_ID_BYTES]

    def to_message(self) -> Message:
        method = self.method
        asked = {"method": method.name, "settings": method.own_settings, "plan": method.plan}
        parts = {"asked": msgspec.json.encode(asked, order="sorted"), "nonce": self.nonce}
        offers = {} if self.group is None else {_OFFERS: self.group.to_bytes()}
        return Message({**parts, **offers, **self.initial.to_message()})

    @classmethod
    def from_message(
        cls, message: Message, check_plan: Callable[[FederationPlan], None] = lambda plan: None
    ) -> SessionRequest:
        """Read a request that :meth:`to_message` wrote.

        ``check_plan`` raises for a plan that is not allowed, before anything is made from the plan's numbers.
        Raises WireFormatError, and ParameterError for settings that no method takes.
        """
        if len(message["asked"]) > _MOST_ASKED_BYTES:
            raise WireFormatError(
                f"a method, its settings and a plan take at most {_MOST_ASKED_BYTES:,} bytes as JSON"
            )
        try:
            asked = msgspec.json.decode(message["asked"], type=dict[str, Any])
            parts = [asked.get(name) for name in ("method", "settings", "plan")]
            name, changed, plan = msgspec.convert(parts, tuple[str, dict[str, Any], FederationPlan])
        except (ValueError, RecursionError, ParameterError) as error:
            raise WireFormatError(f"this version cannot read the request for a session: {error}") from error
        check_plan(plan)
        settings = MethodSettings().changed(name, changed)
        initial = GlobalModel.from_message(message, plan.parameters, plan.buffers)
        nonce = bytes(message["nonce"])
        if len(nonce) != _NONCE_BYTES:
            raise WireFormatError(f"a session's nonce has {_NONCE_BYTES} bytes")
        group = AuthorityGroup.from_bytes(bytes(message[_OFFERS])) if _OFFERS in message else None
        return cls(make_method(name, settings, plan), initial, nonce, group)


LOG = logging.getLogger("shieldfl.authority")
"""Logger of the service. A record's ``fields`` stand in its line beside the event: no secrets, no values."""

LEAST_BODY_BYTES = 2**20  # that the body of a call may have in any session
_BYTES_A_CLIENT = 64
_BYTES_A_VALUE = 48  # more than a total and its clear parts take for each value of a model
_SINGLE_BYTES_A_VALUE = 2_048  # if each value may have a ciphertext of its own


_FACTS, _SETUP = "facts.json", "set-up"


@dataclass(frozen=True)
class SessionFacts:
    """What a session keeps for good: facts for the operator, its aggregator's name, and who may enrol."""

    method: str
    clients: int
    rounds: int
    values: int
    aggregator: str
    registered_clients_only: bool
    carries_totals: bool  # whether totals are sent to the authority
    encrypts_singly: bool  # whether a value may have a ciphertext of its own, of hundreds of bytes


class SessionFolder:
    """Holds a session's request, signed set-up, facts, and store, with its state and its clients' names."""

    def __init__(self, path: Path) -> None:
        self.path, self.store = path, path / "store"

    @property
    def is_begun(self) -> bool:
        """Whether the folder is complete: the set-up is written last."""
        return (self.path / _SETUP).exists()

    @property
    def is_ended(self) -> bool:
        return (self.path / "ended").exists()

    def check_running(self) -> None:
        if len(self.path.name) != 2 * SESSION_ID_BYTES or not self.is_begun:
            raise PolicyError("this authority has no such session: begin one")
        if self.is_ended:
            raise PolicyError("this session was ended by the authority's operator: begin another one")

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, **contents: bytes) -> None:
        with disk():
            for name, content in contents.items():
                write_private_file(self.path / name, content)

    def read(self, name: str) -> bytes:
        with disk():
            return (self.path / name).read_bytes()

    def facts(self) -> SessionFacts:
        try:
            return msgspec.json.decode(self.read(_FACTS), type=SessionFacts)
        except msgspec.MsgspecError as error:
            raise WireFormatError(
                f"{self.path / _FACTS} does not hold the facts of a session: restore it"
            ) from error

    def store_key(self, key: ServiceKey) -> bytes:
        """Return the store's key, bound to the session and to its facts as they are written."""
        return key.store_key(bytes.fromhex(self.path.name), self.read(_FACTS))


def disk() -> contextlib.AbstractContextManager[None]:
    return disk_errors_as(
        "the session's files cannot be read or written: nothing is answered until the disk is mended"
    )


class ServedSession:
    """Answers for one session, one message at a time; its state is on the disk before an answer leaves."""

    def __init__(
        self,
        folder: SessionFolder,
        setup: Message,
        steps: AuthoritySteps,
        registry: ClientRegistry,
    ) -> None:
        self.setup = setup  # the public one, signed
        self.facts = folder.facts()
        self._folder, self._steps, self._registry = folder, steps, registry
        self._setup_digest = hashlib.sha256(setup["setup"]).digest()
        self._lock = threading.Lock()
        self._dropped: set[str] = set()
        """Names whose clients were revoked here."""

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
        """Make a session; after an error nothing is left of it."""
        check_sizes(request.initial, request.method.plan)
        folder.remove()  # left over from an attempt that failed
        with contextlib.ExitStack() as undo:
            undo.callback(folder.remove)
            with disk():
                folder.path.mkdir(mode=0o700)
            folder.write(**{_FACTS: msgspec.json.encode(facts), "request": request.to_message().to_bytes()})
            store = undo.enter_context(AuthorityStore.create(folder.store, folder.store_key(key)))
            steps, made = request.method.authority_setup(request.initial, store=store, joint=joint)
            assert steps is not None  # the policy refuses methods that need no authority
            setup = key.sign_setup(made.to_bytes())
            folder.write(**{_SETUP: setup.to_bytes()})
            session = cls(folder, setup, steps, registry)
            undo.pop_all()
        return session

    @classmethod
    def open(cls, folder: SessionFolder, key: ServiceKey, registry: ClientRegistry) -> ServedSession:
        with disk():
            for cut_off in folder.path.glob("*.????????"):  # left half-written by a process that ended
                cut_off.unlink(missing_ok=True)
        request, setup = (Message.from_bytes(folder.read(name)) for name in ("request", _SETUP))
        asked, public = SessionRequest.from_message(request), PublicSetup.trusted(bytes(setup["setup"]))
        with contextlib.ExitStack() as undo:
            try:
                store = undo.enter_context(AuthorityStore(folder.store, folder.store_key(key)))
            except KeyMismatchError as error:
                raise KeyMismatchError(
                    "the session's store or its facts were altered: restore the folder"
                ) from error
            steps = asked.method.authority_steps(public, asked.initial, store=store)
            steps.report()  # was told when it happened
            session = cls(folder, setup, steps, registry)
            undo.pop_all()
        return session

    @property
    def most_body_bytes(self) -> int:
        each = _SINGLE_BYTES_A_VALUE if self.facts.encrypts_singly else _BYTES_A_VALUE
        totals = each * self.facts.values if self.facts.carries_totals else 0
        return LEAST_BODY_BYTES + _BYTES_A_CLIENT * self.facts.clients + totals

    def call(self, name: str, call: Message) -> Message:
        if name not in CALLS:
            raise ParameterError(f"a session has no call {name!r}: it has {', '.join(CALLS)}")
        step = CALLS[name]
        with self._lock:
            if name == "set-up":
                return self.setup
            if name == "enrol" and self.facts.registered_clients_only:
                return self._enrolled(call.number("client"), _inner(call))
            if name == "answer":
                self._drop_revoked()
            try:
                return step(self._steps, call)
            finally:
                # The aggregator accounts for openings; remarks are for the operator.
                for note in self._steps.report().notes:
                    fields = {"session": self._folder.path.name, "note": note.text}
                    LOG.info("note", extra={"fields": fields})

    def _enrolled(self, client: int, message: Message) -> Message:
        """Enrol a registered client by its signature."""
        if "name" not in message:
            raise PolicyError(
                f"client {client} gives no name, and this authority enrols only registered clients"
            )
        name = bytes(message["name"]).decode(errors="replace")
        check_enrolment(self._registry.public_key(name), name, self._setup_digest, client, message)
        return self._steps.enrol(client, message, name)

    def _drop_revoked(self) -> None:
        """Revoke in this session the clients that the operator has revoked, before a list is answered."""
        if not self.facts.registered_clients_only:
            return
        gone = self._registry.revoked() - self._dropped
        if not gone:
            return
        self._steps.load()
        named = {client: name for client, name in self._steps.enrolled_names.items() if name in gone}
        if named:
            self._steps.revoke(*named)
            self._dropped |= {*named.values()}

    def close(self) -> None:
        with self._lock:
            self._steps.close()


def asked(*, invited: Iterable[int] | None = None, **parts: int | str | bytes | Message) -> Message:
    """Return a call's message from parts by name; empty parts are left out."""
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
    return bytes(call["phase"]).decode(errors="replace")  # there is no phase of that name


def _round_begun(steps: AuthoritySteps, call: Message) -> Message:
    model, invited = bytes(call["model"]) if "model" in call else b"", None
    if "invited" in call:
        invited = [int(one) for one in call.vector("invited", np.uint64, len(call["invited"]) // 8)]
    return steps.begin_round(call.number("round"), invited, model)


def _inner(call: Message) -> Message:
    return Message.from_bytes(call["message"])


CALLS: Mapping[str, Callable[[AuthoritySteps, Message], Message]] = {
    "set-up": lambda steps, call: Message(),
    "enrol": lambda steps, call: steps.enrol(call.number("client"), _inner(call)),
    "grant": lambda steps, call: steps.grant(_inner(call)),
    "begin-round": _round_begun,
    "answer": lambda steps, call: steps.answer(_phase_of(call), _inner(call)),
    "sign-answer": lambda steps, call: steps.sign_answer(
        _phase_of(call), call.number("round"), bytes(call["digest"])
    ),
    "newest-model": lambda steps, call: steps.newest_model(),
}
"""The step that a session takes for each call, by the call's name in addresses."""
