"""What every role of a federation knows, and what all but the authority are made of: nothing of it is secret."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np

from shieldfl.array_view import Buffer, as_threads, frame_buffer
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import RoundKeyCheck
from shieldfl.encryption.enrolment import ENROLMENT_KEY_BYTES, MOST_AUTHORITIES, VERIFYING_KEY_BYTES
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.plan import FederationPlan


@dataclass(frozen=True)
class RoleContext:
    """Public knowledge: no role gets a secret, or another client's weight, by it."""

    plan: FederationPlan
    keys: RoundKeyCheck
    """Tells the public keys that a round brings from others."""
    most_weight: int
    """The largest that a client counts; 1 where the method weighs all alike."""
    phases: tuple[str, ...]
    """The names of every phase that a round may have."""
    answered: Mapping[str, str | None]
    """Of these, those whose answer is the key authority's, or comes of it; for what purpose they open a total."""
    signed: tuple[str, ...]
    scores: str | None = None
    """What training brings along in every round, see ``StartingPoint.scores``; None where rounds differ, or nothing."""
    threads: int | None = None
    clients_open: bool = False
    aggregator_opens: bool = False
    buffer_factor: float = 1.0
    answered_once: tuple[str, ...] = ()
    """The phases of which the key authority answers one total in the whole run."""

    def __post_init__(self) -> None:
        as_threads(self.threads)

    def check_phase(self, phase: str) -> None:
        if phase not in self.phases:
            raise ParameterError(f"there is no phase {phase!r}: the method has {', '.join(self.phases)}")

    def check_answered(self, phase: str) -> None:
        self.check_phase(phase)
        if phase not in self.answered:
            raise ParameterError(
                f"phase {phase!r} is none of {', '.join(self.answered)}, which the authority answers"
            )

    def check_answer(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Raise unless the answer that a phase begins with is what the authority signed, where it signs."""
        before = self.phase_before(phase)
        if answer is not None and before is not None and before in self.signed:
            self.keys.check_answer(answer, round_number, before)

    def phase_before(self, phase: str) -> str | None:
        place = self.phases.index(phase)
        return self.phases[place - 1] if place else None

    def encrypts(self, purpose: str) -> bool:
        return purpose in self.keys.parameters

    @property
    def parameters(self) -> SchemeParameters[Any]:
        return self.keys.parameters["update"]

    def stage_of(self, phase: str) -> str:
        return "open" if phase == self.phases[-1] else "negotiate"

    def check_round(self, round_number: int, answered: int = 0) -> None:
        """Raise PolicyError for a round that the plan does not have, or before the last that was answered."""
        if not 1 <= round_number <= self.plan.rounds:
            raise PolicyError(f"round {round_number} is none of the plan's {self.plan.rounds:,}")
        if round_number <= answered:
            raise PolicyError(f"round {round_number} has been answered: begin a later round")


def check_sizes(initial: GlobalModel, plan: FederationPlan) -> None:
    """Raise ParameterError for a model of other sizes or another dtype than the plan's, RangeError for NaN in it."""
    for vector, size in ((initial.parameters, plan.parameters), (initial.buffers, plan.buffers)):
        if vector.shape != (size,) or vector.dtype != np.float32:
            raise ParameterError(
                f"the model has other sizes than the plan says, or is not float32: {plan.parameters:,} parameters and "
                f"{plan.buffers:,} buffer values"
            )
        if not np.isfinite(vector).all():
            raise RangeError("the initial model has NaN or infinity: no federation can begin with it")


@dataclass(frozen=True)
class PublicSetup:
    """Everything that clients and aggregator need to know; nothing of it is secret.

    Everybody but who made it has it from :meth:`from_bytes`.
    """

    method: str
    settings: Mapping[str, Any]
    plan: FederationPlan
    initial_digest: bytes
    """Of the model before the first round, see :attr:`GlobalModel.digest`: 32 bytes."""
    session: bytes
    """Of this federation alone: 16 random bytes."""
    verifying_key: bytes = b""
    """The key authority's Ed25519 public key, 32 bytes, or those of several, one after the other; empty for a method
    without keys."""
    enrolment_key: bytes = b""
    """Clients seal to it what they will share with the key authority, 1,216 bytes for each; empty where they share
    nothing."""
    derived: Mapping[str, Any] = field(default_factory=dict)
    """What follows from settings and plan, as who made the set-up found: plain data. Everybody works it out again."""
    format: Literal["shieldfl public set-up 4"] = "shieldfl public set-up 4"

    def __post_init__(self) -> None:
        authorities = len(self.verifying_key) // VERIFYING_KEY_BYTES
        if (
            len(self.session) != 16
            or len(self.initial_digest) != 32
            or len(self.verifying_key)
            not in range(0, VERIFYING_KEY_BYTES * MOST_AUTHORITIES + 1, VERIFYING_KEY_BYTES)
            or len(self.enrolment_key) not in (0, authorities * ENROLMENT_KEY_BYTES)
            or (authorities > 1 and not self.enrolment_key)
        ):
            raise ParameterError(
                "a public set-up has a session of 16 bytes, a digest of 32, and of each key authority a verifying key "
                "of 32 and, always where there are several, an enrolment key of 1,216"
            )

    def to_bytes(self) -> bytes:
        """Encode as JSON, always the same for the same set-up."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def from_bytes(cls, data: Buffer, pinned: bytes) -> PublicSetup:
        """Read what :meth:`to_bytes` wrote, of the digest that was ``pinned`` on a channel that tells its origin.

        Who sends another set-up decides under whose keys updates are encrypted, and in how small a sum.
        """
        frame = bytes(frame_buffer(data))
        if not hmac.compare_digest(hashlib.sha256(frame).digest(), pinned):
            raise KeyMismatchError(
                "this is another public set-up than the one that was pinned: ask whoever set the federation up"
            )
        return cls.trusted(frame)

    @classmethod
    def trusted(cls, frame: bytes) -> PublicSetup:
        """Read a set-up whose origin was proved otherwise: by a signature, or since it is one's own."""
        try:
            setup = msgspec.json.decode(frame, type=cls)
            spelled = setup.to_bytes()
        except (ValueError, RecursionError) as error:
            raise WireFormatError(
                f"these bytes are no public set-up of this version ({error}): where another version of shieldfl made "
                "them, go on with that one, or set the federation up anew"
            ) from error
        # Two spellings of one set-up would be two digests of it.
        if spelled != frame:
            raise WireFormatError("a public set-up is spelled in one way alone")
        return setup

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the encoded set-up, 32 bytes: what is pinned."""
        return hashlib.sha256(self.to_bytes()).digest()

    def check_method(
        self, name: str, settings: Mapping[str, Any], plan: FederationPlan, derived: Mapping[str, Any]
    ) -> None:
        if (name, dict(settings), plan) != (self.method, dict(self.settings), self.plan):
            raise ParameterError("the public set-up is of another method, plan or settings")
        if dict(derived) != dict(self.derived):
            # By names of one's own alone: the other side chose the others.
            other = [fact for fact in derived if self.derived.get(fact) != derived[fact]] or ["facts"]
            raise ParameterError(
                f"whoever made the public set-up comes to other {' and '.join(other)} than this build does from the "
                "same settings: use one version of shieldfl everywhere"
            )

    def check_model(self, initial: GlobalModel) -> GlobalModel:
        """Return the model that the federation begins with, as roles keep it. Raises KeyMismatchError."""
        check_sizes(initial, self.plan)
        kept = initial.kept()
        if kept.digest != self.initial_digest:
            raise KeyMismatchError(
                "this is another model than the federation begins with: take the one that it was set up with"
            )
        return kept
