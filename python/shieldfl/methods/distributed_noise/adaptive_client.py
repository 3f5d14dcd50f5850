"""A client whose clipping norm follows a quantile: it also sends whether it is within it, with noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.client import NoiseSharingClient
from shieldfl.methods.distributed_noise.clip_part import read_clip_exponent
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy import draws
from shieldfl.privacy.clip_rule import MOST_EXPONENT, ClipRule
from shieldfl.privacy.noise_share import noise_share
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.roles.message import Message
from shieldfl.stateful import refuse_unless
from shieldfl.training.local_update import StartingPoint

__all__ = ["AdaptiveClient"]


class AdaptiveClient(NoiseSharingClient):
    """Takes each round's norm with its model, and encrypts one value more: plus where its update is within it.

    Parameters
    ----------
    index, initial, context, noise : as for :class:`NoiseSharingClient`.
    zone : with one position more than there are parameters.
    rule : of the norm.
    """

    changes: ClassVar = {"_clip_exponent": int}

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        context: RoleContext,
        zone: Mask,
        noise: SumNoise,
        rule: ClipRule,
    ) -> None:
        super().__init__(index, initial, context, zone, noise)
        self._rule = rule
        self._clip_exponent = 0

    def check_changed(self) -> None:
        """Raise WireFormatError for a norm that no round has."""
        super().check_changed()
        refuse_unless(abs(self._clip_exponent) <= MOST_EXPONENT)

    @property
    def _clip_norm(self) -> float:
        return self._rule.norm_at(self._clip_exponent)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        # Read before anything changes: a round that is refused leaves the one that runs its norm.
        exponent = read_clip_exponent(model)
        start = super()._begin_round(round_number, participants, model)
        self._clip_exponent = exponent
        return start

    def _vector(self, answer: object) -> NDArray[np.float64]:
        """Return whole numbers of its update, and of whether it was clipped, and zeros where buffers would be."""
        noise = self._sum_noise
        sent, facts = self._noised(self._difference())
        # A vector of one value in its own right: what keeps the bound of the others keeps that of this one.
        counted, _ = noise_share(
            np.array([-1.0 if facts.was_clipped else 1.0], dtype=np.float32),
            clip_norm=1.0,
            steps_per_unit=float(noise.count_steps),
            rotation_seed=draws.rotation_seed(self.context.keys.session, self.round),
            norm_bound_squared=noise.count_steps**2,
            most_rounded=noise.count_steps,
            most_sent=noise.most_sent,
            table=noise.table,
            threads=self.context.threads,
        )
        return np.concatenate((sent, counted, np.zeros(self._buffer_count)))
