"""Federated averaging in the clear (McMahan et al. 2017): the baseline that protects nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, RangeError, WireFormatError
from shieldfl.learning.local_update import FloatVector
from shieldfl.masks import Mask
from shieldfl.privacy.events import NO_NOISE, Noise
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import Phase, stated_weights
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Disclosure
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.stateful import refuse_unless

__all__ = ["FedAvg"]


class FedAvgClient(TrainingClient):
    """Sends its whole update, float32, and its weight.

    Parameters
    ----------
    index, initial, context, shares_buffers : as for :class:`TrainingClient`.
    weight : how much it counts.
    """

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        weight: int,
        context: RoleContext,
        *,
        shares_buffers: bool = True,
    ) -> None:
        super().__init__(index, initial, context, shares_buffers=shares_buffers)
        self._weight = weight

    def _make(self, phase: str, answer: Message | None) -> Message:
        self._disclose()
        return self._message_of(self._difference())

    def _disclose(self, *, noise: Noise | None = None, synthetic: bool = False) -> None:
        """State that the whole update leaves."""
        everything, nothing = Mask.full(self._size), Mask.empty(self._size)
        noised = noise is not None
        self.disclosure = Disclosure(
            nothing,
            everything if noised else nothing,
            nothing if noised else everything,
            parts=("weight",),
            buffers="clear" if self._shares_buffers else "local",
            synthetic=synthetic,
            noise=noise,
        )

    def _message_of(self, update: FloatVector) -> Message:
        with self.clock.stage("upload"):
            return Message(
                {
                    "round": Message.from_number(self.round),
                    "update": update.tobytes(),
                    "weight": np.float64(self._weight).tobytes(),
                }
            )


class FedAvgAggregator(CollectingAggregator):
    """Adds weighted updates in float64 and takes the server step.

    Parameters
    ----------
    context : what all roles of the federation know.
    weights : how much each client counts.
    initial : the model before the first round.
    """

    changes: ClassVar = {
        "_model": GlobalModel,
        "_moved": GlobalModel,
        "_sum": NDArray[np.float64],
        "_weight": float,
    }

    def __init__(self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel) -> None:
        super().__init__(context)
        self._initial = initial
        self._model = initial
        self._moved = initial
        self._learning_rate = context.plan.server_learning_rate
        self._weights = weights
        self._sum: NDArray[np.float64] = np.zeros(initial.parameters.size + initial.buffers.size)
        self._weight = 0.0

    def check_changed(self) -> None:
        """Raise WireFormatError for a sum or a model of other sizes, or a weight that the clients do not have."""
        sizes = {(one.parameters.size, one.buffers.size) for one in (self._initial, self._model, self._moved)}
        if (
            len(sizes) > 1
            or self._sum.size != sum(*sizes)
            or not np.isfinite(self._sum).all()
            or not 0.0 <= self._weight <= sum(self._weights)
        ):
            raise WireFormatError("the state holds a sum or a model that this aggregator cannot have")

    def check_sums(self) -> None:
        """Raise WireFormatError for a sum of other clients than were heard."""
        super().check_sums()
        refuse_unless(self._weight == sum(self._weights[client] for client in self._seen))

    def newest_model(self) -> Message:
        """Return the model that the last closed round gave; before that, the initial one."""
        return self._moved.to_message()

    def replace_model(self, model: GlobalModel) -> None:
        """Begin the next round with another model than the last sum came to."""
        kept = model.kept_in_place_of(self._initial)
        with self._lock:
            self._moved = kept

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start from zero; a round that is begun again, from the same model as before."""
        if round_number != self.round:
            self._model = self._moved
        self._sum = np.zeros_like(self._sum)
        self._weight = 0.0

    def _collect(self, phase: str, client: int, message: Message) -> None:
        """Add one update. Raises WireFormatError, RangeError for NaN, infinity or a weight that is not the client's."""
        with self.clock.stage("upload"):
            update = message.vector("update", np.float32, self._sum.size)
            weight = float(message.vector("weight", np.float64, 1)[0])
        if weight != self._weights[client]:
            raise RangeError(f"client {client} sent another weight than the plan gives it: nothing was added")
        if not np.isfinite(update).all():
            raise RangeError(f"client {client} sent NaN or infinity: its update was not added")
        with self.clock.stage("aggregate"):
            self._sum += np.multiply(update, weight, dtype=np.float64)
            self._weight += weight

    def _result(self, phase: str) -> Message:
        """Return the new global model. Raises RangeError where it is not finite."""
        with self.clock.stage("aggregate"):
            self._moved = self._model.moved_finite(self._sum / self._weight, self._learning_rate)
            return self._moved.to_message()


class FedAvg(Method):
    """Plain averaging; there are no settings and no keys."""

    names = (
        NamedMethod(
            "fedavg",
            "everything in the clear",
            "the baseline",
            "McMahan et al. 2017, algorithm 1",
            masks="nothing",
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "every client's update"

    phases = (Phase("update", answered_by_authority=False),)

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> TrainingClient:
        return FedAvgClient(index, initial, weight, context)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> CollectingAggregator:
        return FedAvgAggregator(context, weights, self._shared(initial))

    def _shared(self, initial: GlobalModel | None) -> GlobalModel:
        """Return what of the model is averaged. Raises ParameterError where there is none."""
        if initial is None:
            raise ParameterError(f"the aggregator of {self.name} holds the model: pass the initial one")
        return initial

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the method's settings."""
        return {"weights": stated_weights(weights)}
