"""What is settled before the first round and every role knows: plan, phases, public set-up.

And the global model.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, FloatVector, as_count, as_threads, as_unsigned, frame_buffer
from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import RoundKeyCheck
from shieldfl.encryption.enrolment import ENROLMENT_KEY_BYTES, MOST_AUTHORITIES, VERIFYING_KEY_BYTES
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.learning.local_update import DoubleVector, StartingPoint
from shieldfl.settings import Count, Positive, Settings, about

__all__ = [
    "TELL_OPENED",
    "FederationPlan",
    "GlobalModel",
    "Opener",
    "Phase",
    "SyntheticDemand",
    "checked_weights",
    "joined",
    "stated_weights",
]

OPENED = "opened"
"""Name of the phase in which clients tell the aggregator what it must know of a sum that they have opened."""


@dataclass(frozen=True)
class Phase:
    """One exchange of messages in a round."""

    name: str
    answered_by_authority: bool
    """Whether the aggregator's message goes to the key authority, which answers it."""
    opens: str | None = "update"
    """Purpose of the total that the authority's answer opens; None for a phase that opens none."""
    signs_answer: bool = True
    """Whether the authority signs its answer, so that no role continues from another one.

    It does not sign the last phase's answer so: that is signed as the next round's model. Nor does it sign
    answers that the method itself can tell from false ones.
    """
    once: bool = False
    """Whether only one total of this phase is opened in the whole run.

    In a later round clients would send the same. Two sums, one of them without a client, would tell what that
    client sent.
    """


TELL_OPENED = Phase(OPENED, answered_by_authority=False, opens=None)
"""Phase after one whose total clients open, before the next: they tell the aggregator what it must know."""


@dataclass(frozen=True)
class SyntheticDemand:
    """The synthetic data set that a method's rounds train on, if the caller gives none."""

    epsilon: float
    """Largest epsilon that the data set may cost the real data, together with ``delta``."""
    delta: float
    samples: int | None
    """Number of samples of all clients together; None for as many as there are real ones."""


_Size = Annotated[int, Meta(ge=1)]

Opener = Annotated[
    Literal["authority", "clients", "aggregator"] | None,
    about(
        "Who opens sums. authority: the key authority, which gets the sums. clients: each client, "
        "with the authority's answer to the list of participants; neither aggregator nor authority "
        "then sees an opened value. aggregator: the aggregator alone, with the authority's answers; "
        "it has the model, and the authority signs one model for all clients. None: clients if they "
        "enrol, else the authority."
    ),
]
"""The role that opens sums; None for clients if they enrol, otherwise the key authority."""


@dataclass(frozen=True)
class FederationPlan(Settings):
    """Sizes and policies that every role knows.

    Raises ParameterError for values out of range, and for values that contradict each other.
    """

    clients: Count
    rounds: Count
    min_clients: Annotated[
        Count,
        about(
            "Fewest clients in a round. Clients begin no smaller round, and the key authority opens no "
            "smaller total."
        ),
    ]
    server_learning_rate: Annotated[Positive, about("Factor of the server's step; 1 is FedAvg.")]
    parameters: Annotated[_Size, about("Number of parameters of the model.", symbol="P")]
    buffers: Annotated[
        int,
        Meta(ge=0),
        about(
            "Number of floating-point buffer values of the model, such as BatchNorm's statistics.", symbol="B"
        ),
    ] = 0
    layer_offsets: Annotated[
        tuple[int, ...],
        about(
            "Positions in the flat vector at which the model's parameter tensors begin, then the end of "
            "the last one. () for one layer."
        ),
    ] = ()
    most_weight: Annotated[
        int,
        Meta(ge=1, lt=2**32),
        about("Largest weight of a client, such as its number of samples."),
    ] = 1
    mean_weight: Annotated[float, Meta(ge=1.0), about("Mean weight of all clients.")] = 1.0
    samples: Annotated[
        _Size | None,
        about(
            "Number of samples N of all clients together, if it is known. 1/N is the delta of privacy "
            "for a sample."
        ),
    ] = None

    layout_digest: Annotated[
        str,
        Meta(pattern="^([0-9a-f]{64})?$"),
        about(
            "SHA-256, 64 hexadecimal digits, of the layout of the model's arrays in the flat vector. All "
            "clients compare it. Empty if they agree on the layout otherwise."
        ),
    ] = ""

    opener: Opener = None
    max_clients: Annotated[
        Count | None,
        about(
            "Most clients in a round. Sums have room for this many: a smaller bound takes fewer bytes. "
            "None: all."
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_clients > self.clients:
            raise ParameterError("min_clients must not be above the number of clients: no round could end")
        if self.max_clients is not None and not self.min_clients <= self.max_clients <= self.clients:
            raise ParameterError(
                f"max_clients must be from min_clients, {self.min_clients}, to the number of clients, "
                f"{self.clients}, got {self.max_clients}"
            )
        if self.mean_weight > self.most_weight:
            raise ParameterError("mean_weight must not be above most_weight, which is the largest")
        ends = (self.offsets[0], self.offsets[-1])
        if ends != (0, self.parameters) or list(self.offsets) != sorted(self.offsets):
            raise ParameterError(
                f"layer_offsets must ascend from 0 to the model's {self.parameters:,} parameters: take "
                "ParameterLayout.offsets"
            )

    @classmethod
    def for_weights(cls, weights: Sequence[int] | None, *, clients: int, **others: Any) -> FederationPlan:
        """Return the plan for clients of these weights; with None all count alike.

        The other arguments are its fields. Raises ParameterError for another number of weights, and for a
        weight that is no whole number from 1 to 2**32 - 1.
        """
        known = checked_weights(weights, clients)
        return cls(clients=clients, most_weight=max(known), mean_weight=sum(known) / len(known), **others)

    def client(self, number: int) -> int:
        """Return a client's number. Raises ParameterError for one that the plan does not have."""
        if as_unsigned(number, "client") >= self.clients:
            raise ParameterError(f"there is no client {number}: the plan has clients 0 to {self.clients - 1}")
        return int(number)

    def weight(self, weight: int) -> int:
        """Return a client's weight. Raises ParameterError for one that the plan does not have."""
        if as_count(weight, "weight") > self.most_weight:
            raise ParameterError(f"the plan has weights from 1 to {self.most_weight}")
        return int(weight)

    @property
    def most_participants(self) -> int:
        return self.clients if self.max_clients is None else self.max_clients

    @property
    def update_size(self) -> int:
        return self.parameters + self.buffers

    @property
    def offsets(self) -> tuple[int, ...]:
        return self.layer_offsets or (0, self.parameters)


def checked_weights(weights: Sequence[int] | None, clients: int) -> tuple[int, ...]:
    """Return a weight for each client, 1 if ``weights`` is None.

    Raises ParameterError as ``for_weights`` does.
    """
    count = as_count(clients, "clients")
    known = (1,) * count if weights is None else tuple(as_unsigned(one, "a weight", 32, 1) for one in weights)
    if len(known) != count:
        raise ParameterError(f"give each of {count} clients a weight, not {len(known)}")
    return known


def stated_weights(weights: Sequence[int]) -> str | list[int]:
    """Return weights for reports: ``"uniform"`` where all are 1."""
    return "uniform" if max(weights) == 1 else list(weights)


@dataclass(frozen=True)
class RoleContext:
    """What a role knows of the federation: all public, without secrets or other clients' weights."""

    plan: FederationPlan
    keys: RoundKeyCheck
    """Checks that public keys in a round's messages are the key authority's for that round."""
    most_weight: int
    """Largest weight of a client; 1 if the method weighs all clients alike."""
    phases: tuple[str, ...]
    """Names of all phases that a round may have, in order."""
    answered: Mapping[str, str | None]
    """Purpose of the opened total, by a phase that the key authority answers; None if that opens none."""
    signed: tuple[str, ...]
    scores: str | None
    """Scores of training in all rounds, see ``StartingPoint.scores``; None for none, or if rounds differ."""
    threads: int | None
    clients_open: bool
    aggregator_opens: bool
    buffer_factor: float
    answered_once: tuple[str, ...]
    """Phases for which the key authority answers a single total in the whole run."""

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
        """Raise unless the authority signed the answer that a phase begins with, if it signs such answers."""
        before = self.phase_before(phase)
        if answer is not None and before is not None and before in self.signed:
            self.keys.check_answer(answer, round_number, before)

    def phase_before(self, phase: str) -> str | None:
        place = self.phases.index(phase)
        return self.phases[place - 1] if place else None

    @property
    def parameters(self) -> SchemeParameters[Any]:
        return self.keys.parameters["update"]

    def stage_of(self, phase: str) -> str:
        return "open" if phase == self.phases[-1] else "negotiate"

    def check_round(self, round_number: int, answered: int = 0) -> None:
        """Raise PolicyError for a round that the plan does not have, and for one not after ``answered``."""
        if not 1 <= round_number <= self.plan.rounds:
            raise PolicyError(f"round {round_number} is none of the plan's {self.plan.rounds:,}")
        if round_number <= answered:
            raise PolicyError(f"round {round_number} has been answered: begin a later round")


def check_sizes(initial: GlobalModel, plan: FederationPlan) -> None:
    """Raise ParameterError for a model of other sizes or dtype than the plan's, RangeError for NaN in it."""
    for vector, size in ((initial.parameters, plan.parameters), (initial.buffers, plan.buffers)):
        if vector.shape != (size,) or vector.dtype != np.float32:
            raise ParameterError(
                f"the model has other sizes than the plan says, or is not float32: {plan.parameters:,} "
                f"parameters and {plan.buffers:,} buffer values"
            )
        if not np.isfinite(vector).all():
            raise RangeError("the initial model has NaN or infinity: no federation can begin with it")


@dataclass(frozen=True)
class PublicSetup:
    """Everything that clients and aggregator need to know; nothing of it is secret.

    All roles except its maker read it with :meth:`from_bytes`.
    """

    method: str
    settings: Mapping[str, Any]
    plan: FederationPlan
    initial_digest: bytes
    """SHA-256 of the model before the first round, see :attr:`GlobalModel.digest`: 32 bytes."""
    session: bytes
    """Identifier of this federation alone: 16 random bytes."""
    verifying_key: bytes = b""
    """The key authority's Ed25519 public key, 32 bytes; those of several authorities one after the other.

    Empty for a method without keys.
    """
    enrolment_key: bytes = b""
    """Public key, 1,216 bytes for each key authority, to which clients seal what they will share with it.

    Empty if they share none.
    """
    derived: Mapping[str, Any] = field(default_factory=dict)
    """Facts that follow from settings and plan, as the maker of the set-up computed them: plain data.

    Every role computes them again and compares.
    """
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
                "a public set-up has a session of 16 bytes, a digest of 32, and of each key authority a "
                "verifying key of 32 and, always where there are several, an enrolment key of 1,216"
            )

    def to_bytes(self) -> bytes:
        """Encode as JSON, always the same for the same set-up."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def from_bytes(cls, data: Buffer, pinned: bytes) -> PublicSetup:
        """Read what :meth:`to_bytes` wrote; ``pinned`` is its digest, from a channel that proves its origin.

        The sender of another set-up would decide under whose keys updates are encrypted, and in how small a
        sum.
        """
        frame = bytes(frame_buffer(data))
        if not hmac.compare_digest(hashlib.sha256(frame).digest(), pinned):
            raise KeyMismatchError(
                "this public set-up is not the one that was pinned: ask the person who set the federation up"
            )
        return cls.trusted(frame)

    @classmethod
    def trusted(cls, frame: bytes) -> PublicSetup:
        """Read a set-up whose origin was proved otherwise: by a signature, or because the reader made it."""
        try:
            setup = msgspec.json.decode(frame, type=cls)
            spelled = setup.to_bytes()
        except (ValueError, RecursionError) as error:
            raise WireFormatError(
                f"these bytes are no public set-up of this version ({error}): if another version of "
                "shieldfl made them, use that version, or set the federation up anew"
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
            raise ParameterError("the public set-up belongs to another method, plan or settings")
        if dict(derived) != dict(self.derived):
            # Only names of this build: the other side chose the others.
            other = [fact for fact in derived if self.derived.get(fact) != derived[fact]] or ["facts"]
            raise ParameterError(
                f"whoever made the public set-up comes to other {' and '.join(other)} than this build does "
                "from the same settings: use one version of shieldfl everywhere"
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


@dataclass(frozen=True)
class GlobalModel:
    """Float32 parameters (P,) and shared float buffers (B,); B is 0 where buffers stay local."""

    parts: ClassVar = frozenset(("parameters", "buffers"))
    """Names of the model's parts in a message."""

    parameters: FloatVector
    buffers: FloatVector

    def kept(self) -> GlobalModel:
        """Return a model of the same numbers that its maker cannot change: itself, if it already is one."""
        if type(_owner(self.parameters)) is type(_owner(self.buffers)) is bytes:
            return self
        vectors = (self.parameters, self.buffers)
        return GlobalModel(*(np.frombuffer(one.tobytes(), one.dtype).reshape(one.shape) for one in vectors))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the numbers, 32 bytes.

        It is computed once, so the model must be one that is :meth:`kept`.
        """
        digest = hashlib.sha256(b"shieldfl initial model 1\0")
        for vector in (self.parameters, self.buffers):
            digest.update(vector.size.to_bytes(8, "little"))
            digest.update(vector.astype("<f4", copy=False).data)
        return digest.digest()

    def is_like(self, other: GlobalModel) -> bool:
        pairs = ((self.parameters, other.parameters), (self.buffers, other.buffers))
        return all(one.shape == two.shape and bool(np.isfinite(one).all()) for one, two in pairs)

    def kept_in_place_of(self, other: GlobalModel) -> GlobalModel:
        """Return the model as roles keep it, to continue from instead of another.

        Raises ParameterError for other sizes than that one's, and for NaN or infinity.
        """
        if not self.is_like(other):
            raise ParameterError("the model to resume from has other sizes than the plan's, or contains NaN")
        return self.kept()

    def to_message(self) -> Message:
        """Encode as message parts ``parameters`` and ``buffers``: no copies if the model is :meth:`kept`."""
        return Message({"parameters": _bytes_of(self.parameters), "buffers": _bytes_of(self.buffers)})

    @classmethod
    def from_message(cls, message: Message, parameter_count: int, buffer_count: int) -> GlobalModel:
        return cls(
            message.vector("parameters", np.float32, parameter_count),
            message.vector("buffers", np.float32, buffer_count),
        )

    def moved_finite(self, mean: DoubleVector, learning_rate: float) -> GlobalModel:
        """Take a server step along the mean update (P + B,): model + learning_rate * mean (eq. 26).

        Buffers are statistics, not parameters: they move by the whole mean. Raises RangeError.
        """
        count = self.parameters.size
        with np.errstate(over="ignore"):
            moved = GlobalModel(
                (self.parameters + learning_rate * mean[:count]).astype(np.float32),
                (self.buffers + mean[count:]).astype(np.float32),
            )
        if not (np.isfinite(moved.parameters).all() and np.isfinite(moved.buffers).all()):
            raise RangeError("the new global model is not finite: lower server_learning_rate or the noise")
        return moved

    def starting_point(self, local_buffers: FloatVector | None = None) -> StartingPoint:
        return StartingPoint(self.parameters, self.buffers if local_buffers is None else local_buffers)


def _owner(array: NDArray[Any]) -> object:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base


def _bytes_of(vector: FloatVector) -> bytes:
    """Return a vector's bytes, without a copy if it is a view of all bytes of a bytes object."""
    owner = _owner(vector)
    if type(owner) is bytes and len(owner) == vector.nbytes and vector.flags.c_contiguous:
        return owner
    return vector.tobytes()


def joined(parameters: NDArray[Any], buffers: NDArray[Any]) -> NDArray[Any]:
    """Return one vector, (P,) and (B,) to (P + B,): the parameters themselves, not a copy, where B is 0."""
    return np.concatenate((parameters, buffers)) if buffers.size else parameters
