"""Clients that keep their buffers: statistics of their data, which no noise covers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.training_client import TrainingClient
from shieldfl.roles.message import Message
from shieldfl.stateful import refuse_unless
from shieldfl.training.local_update import FloatVector, StartingPoint

__all__ = ["LocalBuffers"]


class LocalBuffers(TrainingClient):
    """Goes on from round to round with the buffers of its own training, beside the global parameters.

    Whoever derives sets ``_buffers`` to those of the model before the first round.
    """

    changes: ClassVar = {"_buffers": FloatVector}

    _buffers: FloatVector

    def check_changed(self) -> None:
        """Raise WireFormatError for buffers of another model, or that are not finite."""
        super().check_changed()
        refuse_unless(self._buffers.size == self._buffer_count and bool(np.isfinite(self._buffers).all()))

    def _end_round(self, answer: Message) -> None:
        """Go on with the buffers of this round's training."""
        super()._end_round(answer)
        self._buffers = self.update.buffers

    def _merged_model(self, current: GlobalModel) -> StartingPoint:
        """The global parameters with the client's own buffers."""
        return current.starting_point(self._buffers)
