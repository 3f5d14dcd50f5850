"""Averaging of updates that are noised and not encrypted: no keys, no key authority; buffers stay local."""

from __future__ import annotations

import abc
from typing import ClassVar

import numpy as np

from shieldfl.methods.fedavg import FedAvg, FedAvgClient
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.roles.message import Message
from shieldfl.stateful import refuse_unless
from shieldfl.training.local_update import FloatVector, StartingPoint

__all__ = ["NoisedAverage", "NoisedAverageClient"]


class NoisedAverageClient(FedAvgClient):
    """Sends the whole update of its parameters, noised; keeps its buffers, which are statistics without noise.

    Parameters
    ----------
    index : its number.
    initial, weight, context : as for :class:`FedAvgClient`.
    """

    changes: ClassVar = {"_buffers": FloatVector}

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        weight: int,
        context: RoleContext,
    ) -> None:
        super().__init__(index, initial, weight, context, shares_buffers=False)
        self._buffers = initial.buffers

    def check_changed(self) -> None:
        """Raise WireFormatError for buffers of another model, or that are not finite."""
        super().check_changed()
        refuse_unless(self._buffers.size == self._buffer_count and bool(np.isfinite(self._buffers).all()))

    def _make(self, phase: str, answer: Message | None) -> Message:
        with self.clock.stage("encrypt"):
            sent = self._protect(self._difference())
        return self._message_of(sent)

    @abc.abstractmethod
    def _protect(self, update: FloatVector) -> FloatVector:
        """Return what is sent, float32 (P,); state it."""

    def _end_round(self, answer: Message) -> None:
        """Go on with the buffers of this round's training."""
        self._buffers = self.update.buffers

    def _merged_model(self, current: GlobalModel) -> StartingPoint:
        """The global parameters with the client's own buffers."""
        return current.starting_point(self._buffers)


class NoisedAverage(FedAvg):
    """Averaging in the clear of updates that clients noise; their buffers stay with them."""

    @abc.abstractmethod
    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> NoisedAverageClient:
        """Make a client that noises what it sends."""

    def _shared(self, initial: GlobalModel | None) -> GlobalModel:
        model = super()._shared(initial)
        return GlobalModel(model.parameters, model.buffers[:0])
