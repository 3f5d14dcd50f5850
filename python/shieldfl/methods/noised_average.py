"""Averaging of updates that are noised and not encrypted: no keys, no key authority; buffers stay local."""

from __future__ import annotations

import abc

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.methods.disclosure import Disclosure
from shieldfl.methods.fedavg import FedAvgAggregator
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import ClientSteps, LocalUpdate, Method, Phase, StartingPoint
from shieldfl.methods.replies import Replies
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.message import Message

__all__ = ["NoisedAverage", "NoisedAverageClient"]


class NoisedAverageClient(ClientSteps):
    """Sends the whole update of its parameters, once; keeps its buffers, which are statistics without noise.

    Parameters
    ----------
    index : its number.
    initial : the model before the first round.
    weight : how much it counts.
    clock : where the time goes.
    """

    def __init__(self, index: int, initial: GlobalModel, weight: int, clock: StageClock) -> None:
        self.index = index
        self.disclosure = Disclosure.of_nothing(initial.parameters.size)
        self.clock = clock
        self.round = 0
        self.start = initial
        self.update = LocalUpdate(initial.parameters, initial.buffers, None)
        self._weight = weight
        self._buffers = initial.buffers
        self._has_trained = False
        self._replies = Replies()

    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Train from the global parameters with the client's own buffers."""
        # A round that is begun again has disclosed what it had: its message is repeated.
        if round_number != self.round:
            self.disclosure = Disclosure.of_nothing(self.start.parameters.size)
        self.round = round_number
        self._has_trained = False
        self.start = GlobalModel.from_message(model, self.start.parameters.size, 0)
        return self.start.starting_point(self._buffers)

    def finish_training(self, update: LocalUpdate) -> None:
        """Keep what training gave."""
        update.check(self.start.parameters.size, self._buffers.size)
        self.update = update
        self._has_trained = True

    def step(self, phase: str, answer: Message | None) -> Message:
        """Send the update; the same bytes when asked again. Raises ParameterError before training has finished."""
        return self._replies.reply(phase, self.round, answer, self._make)

    def _make(self) -> Message:
        if not self._has_trained:
            raise ParameterError("there is nothing to send before training has finished")
        with self.clock.stage("encrypt"):
            sent = self._protect(self.update.parameters - self.start.parameters)
        with self.clock.stage("upload"):
            return Message(
                {
                    "round": Message.from_number(self.round),
                    "update": sent.tobytes(),
                    "weight": np.float64(self._weight).tobytes(),
                }
            )

    @abc.abstractmethod
    def _protect(self, update: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what is sent, float32 (P,); state and charge it."""

    def end_round(self, answer: Message) -> None:
        """Go on with the buffers of this round's training."""
        self._buffers = self.update.buffers

    def merged_model(self, model: Message) -> StartingPoint:
        """The global parameters with the client's own buffers."""
        return GlobalModel.from_message(model, self.start.parameters.size, 0).starting_point(self._buffers)


class NoisedAverage(Method):
    """Averaging in the clear of updates that clients noise.

    Parameters
    ----------
    name : the method's name.
    initial : model and buffers before the first round.
    clock : where the stages' time goes.
    federation : its sizes.
    """

    phases = (Phase("update", answered_by_authority=False),)

    def __init__(self, name: str, initial: GlobalModel, clock: StageClock, federation: Federation) -> None:
        super().__init__(name, clock, federation)
        self.initial = initial
        self._shared = GlobalModel(initial.parameters, initial.buffers[:0])

    def aggregator(self) -> FedAvgAggregator:
        """Make the aggregator: it adds what it gets."""
        federation = self.federation
        return FedAvgAggregator(
            self._shared, federation.server_learning_rate, max(federation.client_weights), self.clock
        )

    def authority(self) -> None:
        """Make none: there are no keys."""

    def initial_model(self) -> Message:
        """Return the model that the first round starts from."""
        return self._shared.to_message()
