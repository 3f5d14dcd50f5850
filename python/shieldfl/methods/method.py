"""The interface of a method: local steps of three roles, with no networking in them.

A round goes through the method's phases. In each phase every client makes a message, the aggregator receives
the messages one by one and closes the phase with one message, and where the phase says so, the key authority
turns that into the answer to the clients. A driver moves the messages; it may run the roles in one process or on
many machines.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError, RangeError
from shieldfl.methods.account import Account
from shieldfl.methods.disclosure import Disclosure
from shieldfl.methods.federation import Federation
from shieldfl.methods.reports import Reporter
from shieldfl.privacy.reading import PrivacyReading
from shieldfl.roles.message import Message

__all__ = [
    "AggregatorSteps",
    "AuthoritySteps",
    "ClientSteps",
    "FloatVector",
    "GradientNoise",
    "LocalUpdate",
    "Method",
    "Phase",
    "PrivateSteps",
    "StartingPoint",
    "SyntheticDemand",
]

FloatVector = NDArray[np.float32]


@dataclass(frozen=True)
class Phase:
    """One exchange of messages in a round."""

    name: str
    answered_by_authority: bool
    """Whether the aggregator's message goes to the key authority, whose answer the clients get."""


@dataclass(frozen=True)
class GradientNoise:
    """DP-SGD: every sample's gradient is clipped to a norm, and the sum of a batch noised by a multiple of it."""

    noise_multiplier: float
    max_grad_norm: float


@dataclass(frozen=True)
class StartingPoint:
    """What a client trains from, and how: float32 parameters (P,) and float buffers (B,)."""

    parameters: FloatVector
    buffers: FloatVector
    scores: str | None = None
    """What training has to bring along for each parameter, see ``LocalUpdate.scores``: a Fisher information
    (``"full-batch"``, ``"batch"``, ``"per-sample"``), what the loss would change without a parameter (``"taylor"``),
    the mean over samples of the gradient's magnitude (``"label"``), the gradient of all data (``"gradient"``), or None.
    """
    noise: GradientNoise | None = None
    """Train by DP-SGD."""
    synthetic: bool = False
    """Train on the synthetic data set instead of the client's own."""
    round: int | None = None
    """The round that begins with it; None for a model that is only looked at, and from which no update is taken."""
    beginning: int = 0
    """How often the client had begun a round by then: one that is begun again may start from another model."""

    def trained(
        self,
        parameters: FloatVector,
        buffers: FloatVector,
        scores: FloatVector | None = None,
        private_steps: PrivateSteps | None = None,
    ) -> LocalUpdate:
        """Return what training from here gave: it belongs to this round and is refused in any other."""
        return LocalUpdate(self.round, parameters, buffers, scores, private_steps, self.beginning)


@dataclass(frozen=True)
class PrivateSteps:
    """What DP-SGD did: so many steps, each on a sample of the data."""

    steps: int
    sample_rate: float


@dataclass(frozen=True)
class LocalUpdate:
    """What training gave a client; made by :meth:`StartingPoint.trained`."""

    round: int | None
    """That it was trained in. Rounds protect differently: an update of an encrypted one must not go out in clear."""
    parameters: FloatVector
    """After training, float32 (P,)."""
    buffers: FloatVector
    """Float buffers (BatchNorm statistics) after training, float32 (B,)."""
    scores: FloatVector | None
    """What ``StartingPoint.scores`` asked for, float32 (P,); None for nothing. Fisher informations are normalised to
    [0, 1] in each layer; gradients are signed."""
    private_steps: PrivateSteps | None = None
    """What training by DP-SGD did."""
    beginning: int = 0
    """The ``StartingPoint.beginning`` that it was trained from."""

    def copied(self) -> LocalUpdate:
        """Return it with vectors of its own, read-only: those that training gave may be written over later."""
        return replace(
            self,
            parameters=_copied(self.parameters),
            buffers=_copied(self.buffers),
            scores=None if self.scores is None else _copied(self.scores),
        )

    def check(self, parameters: int, buffers: int) -> None:
        """Raise ParameterError unless the vectors have these sizes, RangeError for NaN or infinity in the model."""
        scores_fit = self.scores is None or self.scores.shape == (parameters,)
        if not scores_fit or self.parameters.shape != (parameters,) or self.buffers.shape != (buffers,):
            raise ParameterError(
                f"an update of this model has {parameters} parameters, as many scores, and {buffers} buffer "
                "values: make it with the functions of shieldfl.torch_bridge"
            )
        if not (np.isfinite(self.parameters).all() and np.isfinite(self.buffers).all()):
            raise RangeError(
                "training gave NaN or infinity: lower the learning rate or check the client's data"
            )

    def checked_scores(self) -> FloatVector:
        """Return the scores. Raises ParameterError where there are none, RangeError for NaN or infinity."""
        if self.scores is None:
            raise ParameterError("the method needs sensitivity scores: pass them in the LocalUpdate")
        if not np.isfinite(self.scores).all():
            raise RangeError("a sensitivity is NaN or infinite: lower the learning rate or check the data")
        return self.scores


def _copied(vector: FloatVector) -> FloatVector:
    copy = np.array(vector, dtype=np.float32)
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True)
class SyntheticDemand:
    """What synthetic data set a method's rounds train on, if nobody brings one."""

    epsilon: float
    """What it may cost the real data."""
    delta: float
    samples: int | None
    """For all clients together; None for as many as there are real ones."""


class ClientSteps(Reporter, abc.ABC):
    """One client: its own data's update, its own model, the public keys.

    What clients of all methods do alike is in :class:`~shieldfl.methods.training_client.TrainingClient`.
    """

    disclosure: Disclosure
    """What has left the client in its round, and how: each message adds to it, and the begin of another round starts
    from nothing. A round that is begun again goes on with what it had."""

    @abc.abstractmethod
    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Take the round's first message: the global model and, in methods that encrypt, the round's public keys.

        It is what :meth:`AuthoritySteps.begin_round` returned; without a key authority the model alone. Raises
        PolicyError for a missing key, KeyMismatchError for one that the authority did not sign for this round.
        """

    @abc.abstractmethod
    def finish_training(self, update: LocalUpdate) -> None:
        """Take the result of local training.

        Raises PolicyError for one that was trained in another round, or comes after a message has told of another,
        ParameterError and RangeError as :meth:`LocalUpdate.check` and :meth:`LocalUpdate.checked_scores` do.
        """

    @abc.abstractmethod
    def step(self, phase: str, answer: Message | None) -> Message:
        """Make this phase's message from the answer to the phase before (None in the first).

        Asked again, it gives the same bytes again, never fresh noise on the same values.
        """

    @abc.abstractmethod
    def end_round(self, answer: Message) -> None:
        """Take the answer to the last phase: the new global model."""

    @abc.abstractmethod
    def merged_model(self, model: Message) -> StartingPoint:
        """Return the client's own model, given the global one: what it would use for inference."""


class AggregatorSteps(Reporter, abc.ABC):
    """The aggregator: sums what it cannot read.

    What most do alike is in :class:`~shieldfl.methods.collecting_aggregator.CollectingAggregator`.
    """

    def begin_round(self, round_number: int, keys: Message) -> None:
        """Take the round's public keys: of its first message those parts alone, never the model; here there are none.

        They are what :func:`shieldfl.roles.round_key_check.round_key_parts` returns. Raises as
        :meth:`ClientSteps.begin_round` does.
        """

    @abc.abstractmethod
    def begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Forget the phase before and start to collect.

        ``answer`` is what the clients got for the phase before, None in the first: from it the aggregator
        knows what their messages must look like, whichever of them comes first.
        """

    @abc.abstractmethod
    def receive(self, phase: str, client: int, message: Message) -> None:
        """Add one client's message. A refused message raises and changes nothing."""

    @abc.abstractmethod
    def close(self, phase: str) -> Message:
        """Return the phase's result: the answer to the clients, or what goes to the key authority.

        Asked again, it returns the same.
        """


class AuthoritySteps(Reporter, abc.ABC):
    """The key authority: makes each round's keys, opens totals and keeps the global model."""

    @abc.abstractmethod
    def begin_round(self, round_number: int, model: Message) -> Message:
        """Begin a round that starts from this model, and return its first message, for the clients.

        That is the model with the round's public keys, signed; the aggregator gets the keys alone. Secrets of the round
        before are wiped. A round that is begun again has the same keys. Raises PolicyError for a round before the
        newest.
        """

    @abc.abstractmethod
    def answer(self, phase: str, message: Message) -> Message:
        """Turn the aggregator's result into the answer to the clients. Raises PolicyError.

        The same message gets the same answer, so that a lost one can be asked for again.
        """


class Method(abc.ABC):
    """A method that is set up for one federation: makes its roles.

    Every method's class is called with the method's name, the model before the first round, the method's settings (None
    where it has none) and the federation. Every class that is registered declares for itself how its
    figures are to be read and what the aggregator sees: what a base class says was said of another method.
    """

    privacy_reading: ClassVar[PrivacyReading]
    """For whom, against whom and between which neighbours its epsilon is, if it has one."""
    aggregator_sees: ClassVar[str]
    """What the aggregator can read, in words."""

    phases: tuple[Phase, ...]
    """What :meth:`phases_of` returns where a method does not decide it round by round."""
    synthetic_demand: SyntheticDemand | None = None
    """None where no round trains on synthetic data."""
    interleaving: Fraction | None = None
    """The share of the second of two kinds of rounds; None where all are alike."""

    def __init__(self, name: str, federation: Federation) -> None:
        self.name = name
        self.federation = federation
        self.notes: list[str] = []
        """What a reader of the results must know before the first round."""

    @abc.abstractmethod
    def client(self, index: int) -> ClientSteps:
        """Make the client of this index."""

    @abc.abstractmethod
    def aggregator(self) -> AggregatorSteps:
        """Make the aggregator."""

    @abc.abstractmethod
    def authority(self) -> AuthoritySteps | None:
        """Make the key authority; None for a method without one."""

    @abc.abstractmethod
    def initial_model(self) -> Message:
        """Return the message that starts the first round."""

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Return the phases of a round that starts from this model; what was agreed on before travels with it."""
        return self.phases

    def message_for(self, client: int, message: Message) -> Message:
        """Return the part of the last phase's answer, or of an earlier one, that this client gets: here all of it."""
        return message

    def has_model(self, client: int, message: Message) -> bool:
        """Say whether a model of the answer is the client's: not so for one that no cluster has taken in."""
        return True

    def account(self) -> Account:
        """Return an account of a run, of nothing yet: it takes the roles' reports."""
        return Account(self.notes)

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the method's settings as plain data, for reports."""
