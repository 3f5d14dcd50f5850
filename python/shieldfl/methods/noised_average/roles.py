"""Averaging of updates that are noised and not encrypted: no keys, no key authority; buffers stay local."""

from __future__ import annotations

import abc

from shieldfl.methods.fedavg import FedAvg, FedAvgClient
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.training_client import LocalBuffers
from shieldfl.roles.message import Message
from shieldfl.training.local_update import FloatVector

__all__ = ["NoisedAverage", "NoisedAverageClient"]


class NoisedAverageClient(LocalBuffers, FedAvgClient):
    """Sends the whole update of its parameters, noised; keeps its buffers, which are statistics without noise.

    Parameters
    ----------
    index : its number.
    initial, weight, context : as for :class:`FedAvgClient`.
    """

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        weight: int,
        context: RoleContext,
    ) -> None:
        super().__init__(index, initial, weight, context, shares_buffers=False)
        self._buffers = initial.buffers

    def _make(self, phase: str, answer: Message | None) -> Message:
        with self.clock.stage("encrypt"):
            sent = self._protect(self._difference())
        return self._message_of(sent)

    @abc.abstractmethod
    def _protect(self, update: FloatVector) -> FloatVector:
        """Return what is sent, float32 (P,); state it."""


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
