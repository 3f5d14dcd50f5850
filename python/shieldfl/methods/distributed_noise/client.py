"""Clients of averages whose sums have noise: each adds its share, and encrypts whole numbers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.errors import WireFormatError
from shieldfl.learning.local_update import StartingPoint
from shieldfl.masks import Mask
from shieldfl.methods.masked_average.method import MaskedAverageClient
from shieldfl.privacy.noise import MOST_EXPONENT, ClipRule
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless

CLIP_EXPONENT = "clip exponent"
"""A signed 64-bit number: see :class:`shieldfl.privacy.noise.ClipRule`."""


def clip_part(exponent: int) -> dict[str, bytes]:
    """Return the part that tells an exponent."""
    return {CLIP_EXPONENT: np.int64(exponent).astype("<i8").tobytes()}


def read_clip_exponent(model: Message) -> int:
    """Read the part. Raises WireFormatError where it is missing, of another length, or beyond what any round has."""
    exponent = int(model.vector(CLIP_EXPONENT, np.int64, 1)[0])
    if abs(exponent) > MOST_EXPONENT:
        raise WireFormatError(
            "the round's clipping norm is not within 2^-16 and 2^16 of the first: nothing is trained or sent"
        )
    return exponent


class NoiseSharingClient(MaskedAverageClient):
    """Encrypts the same parameters in every round, sends nothing else, and keeps its buffers.

    Parameters
    ----------
    index, initial, context : as for :class:`MaskedAverageClient`; it counts 1.
    zone : the N positions, of which parameters alone are encrypted.
    noise : the plan of it, for as many values.
    """

    keeps_buffers = True

    def __init__(
        self, index: int, initial: GlobalModel, context: RoleContext, zone: Mask, noise: SumNoise
    ) -> None:
        super().__init__(
            index, 1, initial, context, zone, sends_rest=False, shares_buffers=False, noise=noise
        )
        self._parameters = zone.resized(self._size)

    def _vector(self, answer: object) -> NDArray[np.float64]:
        """Return whole numbers in the zone, and zeros elsewhere, which is not encrypted; (N,)."""
        vector = np.zeros(self._size + self._buffer_count)
        share = self._share_of(self._parameters.gather(self._difference()))
        self._parameters.resized(vector.size).scatter(share, vector)
        return vector

    def in_the_mean(self, vector: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its part (P,) of what the round's mean is of, by what it has encrypted, as it alone knows it."""
        own = np.zeros(self._size)
        share = self._parameters.gather(np.asarray(vector[: self._size], dtype=np.float64))
        self._parameters.scatter(self._values_of(share), own)
        return own


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
        sent, facts = self._shares.of(self._difference(), self.round, self._clip_norm)
        counted = self._shares.of_count(not facts.was_clipped, self.round)
        return np.concatenate((sent, counted, np.zeros(self._buffer_count)))
