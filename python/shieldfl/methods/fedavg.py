"""Federated averaging in the clear (McMahan et al. 2017): the baseline that protects nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import DuplicateFrameError, ParameterError, PolicyError, RangeError
from shieldfl.masks import Mask
from shieldfl.methods.disclosure import Disclosure
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import AggregatorSteps, ClientSteps, LocalUpdate, Method, Phase, StartingPoint
from shieldfl.privacy.accounting import PrivacySpent
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.message import Message

__all__ = ["FedAvg"]

_PHASES = (Phase("update", answered_by_authority=False),)


class FedAvgClient(ClientSteps):
    """Sends its whole update, parameters and buffers, as float32."""

    def __init__(self, initial: GlobalModel, weight: float, clock: StageClock) -> None:
        size = initial.parameters.size
        self.disclosure = Disclosure(
            Mask.empty(size), Mask.empty(size), Mask.full(size), ("weight",), "clear"
        )
        self._sizes = initial.parameters.size, initial.buffers.size
        self._weight = weight
        self._clock = clock
        self._start = initial
        self._round = 0
        self._update: NDArray[np.float32] = np.empty(0, dtype=np.float32)

    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Train from the global model."""
        self._round = round_number
        self._start = GlobalModel.from_message(model, *self._sizes)
        return self._start.starting_point()

    def finish_training(self, update: LocalUpdate) -> None:
        """Keep the difference to the starting point."""
        update.check_sizes(*self._sizes)
        self._update = np.concatenate(
            (update.parameters - self._start.parameters, update.buffers - self._start.buffers)
        )
        if not np.isfinite(self._update).all():
            raise RangeError(
                "training gave NaN or infinity: lower the learning rate or check the client's data"
            )

    def step(self, phase: str, answer: Message | None) -> Message:
        """Send the update and its weight."""
        with self._clock.stage("upload"):
            return Message(
                {
                    "round": Message.from_number(self._round),
                    "update": self._update.tobytes(),
                    "weight": np.float64(self._weight).tobytes(),
                }
            )

    def end_round(self, answer: Message) -> None:
        """Nothing is kept from round to round."""

    def merged_model(self, model: Message) -> StartingPoint:
        """The global model is everybody's."""
        return GlobalModel.from_message(model, *self._sizes).starting_point()


class FedAvgAggregator(AggregatorSteps):
    """Adds weighted updates in float64 and takes the server step."""

    def __init__(self, initial: GlobalModel, learning_rate: float, clock: StageClock) -> None:
        self._model = initial
        self._moved = initial
        self._learning_rate = learning_rate
        self._clock = clock
        self._begin(0)

    def _begin(self, round_number: int) -> None:
        self._round = round_number
        self._sum: NDArray[np.float64] = np.zeros(self._model.parameters.size + self._model.buffers.size)
        self._weight = 0.0
        self._seen: set[int] = set()

    def begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start from zero."""
        self._model = self._moved
        self._begin(round_number)

    def receive(self, phase: str, client: int, message: Message) -> None:
        """Add one update.

        Raises DuplicateFrameError for a client's second, PolicyError for another round's, WireFormatError,
        RangeError.
        """
        if client in self._seen:
            raise DuplicateFrameError(f"client {client} has sent its update already: it was not added again")
        if message.number("round") != self._round:
            raise PolicyError(f"client {client} sent an update of another round: it was not added")
        with self._clock.stage("upload"):
            update = message.vector("update", np.float32, self._sum.size)
            weight = float(message.vector("weight", np.float64, 1)[0])
        if not (math.isfinite(weight) and weight > 0.0 and np.isfinite(update).all()):
            raise RangeError(f"client {client} sent NaN, infinity or a weight that is not positive")
        with self._clock.stage("aggregate"):
            self._sum += weight * update.astype(np.float64)
            self._weight += weight
            self._seen.add(client)

    def close(self, phase: str) -> Message:
        """Return the new global model. Raises ParameterError when nobody sent an update."""
        if not self._seen:
            raise ParameterError("no update has arrived, so there is no mean: wait for at least one client")
        with self._clock.stage("aggregate"):
            self._moved = self._model.moved(self._sum / self._weight, self._learning_rate)
            return self._moved.to_message()


class FedAvg(Method):
    """Plain averaging.

    Parameters
    ----------
    initial : the model that the first round starts from.
    clock : where the stages' time goes.
    server_learning_rate : 1 for FedAvg.
    weights : one positive weight for each client, such as its number of samples; None weighs all alike, as
        SelectiveShield's eq. 26 does.
    """

    name = "fedavg"
    phases = _PHASES

    def __init__(
        self,
        initial: GlobalModel,
        clock: StageClock,
        *,
        server_learning_rate: float = 1.0,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__(clock)
        if weights is not None and not all(math.isfinite(weight) and weight > 0.0 for weight in weights):
            raise ParameterError("every client's weight must be positive and finite")
        self._initial = initial
        self._learning_rate = server_learning_rate
        self._weights = weights
        self._rounds = 0

    def client(self, index: int) -> FedAvgClient:
        """Make a client."""
        weight = 1.0 if self._weights is None else self._weights[index]
        return FedAvgClient(self._initial, weight, self.clock)

    def aggregator(self) -> FedAvgAggregator:
        """Make the aggregator."""
        return FedAvgAggregator(self._initial, self._learning_rate, self.clock)

    def authority(self) -> None:
        """Make none: there are no keys."""

    def initial_model(self) -> Message:
        """Return the model that the first round starts from."""
        return self._initial.to_message()

    def charge_draw(self, participants: int) -> None:
        """Count the round: without noise its cost is infinite whoever takes part."""
        self._rounds += 1

    def privacy_spent(self) -> PrivacySpent:
        """Updates leave in the clear: no bound holds."""
        epsilon = math.inf if self._rounds else 0.0
        return PrivacySpent(paper=epsilon, added=epsilon, delta=math.nan, rounds=self._rounds)

    def settings(self) -> dict[str, Any]:
        """Return the method's settings."""
        return {"weights": "uniform" if self._weights is None else list(self._weights)}
