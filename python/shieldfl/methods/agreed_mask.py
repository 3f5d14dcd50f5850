"""One mask for the run, of the positions with the highest mean scores: FedML-HE (Jin et al. 2023)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shieldfl import ckks
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_positions import (
    encrypted_positions,
    read_agreed_positions,
    settled_positions,
)
from shieldfl.methods.encryption_settings import EncryptionSettings, FedMlHeSettings
from shieldfl.methods.expected_batch import read_expected_batch
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.masked_average import UPDATE, MaskedAverage
from shieldfl.methods.masked_average_aggregator import MaskedAverageAggregator
from shieldfl.methods.masked_average_authority import MaskedAverageAuthority
from shieldfl.methods.masked_average_client import MaskedAverageClient
from shieldfl.methods.method import Phase, StartingPoint
from shieldfl.methods.role_context import RoleContext
from shieldfl.privacy.events import ClearUpload
from shieldfl.privacy.reading import NO_NOISE
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.roles.message import Message
from shieldfl.selection import positions_in_budget, top_k

__all__ = [
    "SCORES",
    "AgreedMask",
    "AgreedMaskAggregator",
    "AgreedMaskAuthority",
    "AgreedMaskClient",
    "FedMlHe",
]

SCORES = Phase("scores", answered_by_authority=True)
SCORE_BITS = 40
"""Scores span many orders of magnitude: the widest fixed point that the core has, most of it behind the point."""
SCORE_FRACTION_BITS = 36


class AgreedMaskClient(MaskedAverageClient):
    """Sends its scores, encrypted, in the first round; after that it encrypts what was agreed on, once for all rounds.

    Without a ``score_key`` nothing is to be agreed on.
    """

    def __init__(
        self, index: int, context: RoleContext, score_key: ckks.PublicKey | None, kind: str, ratio: float
    ) -> None:
        super().__init__(index, context, None)
        self._score_key = score_key
        self._kind = kind
        self._ratio = ratio
        self._agreed: tuple[bytes, Mask] | None = None

    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Bring scores along until there is a mask."""
        start = super().begin_round(round_number, participants, model)
        self.scores = None if "zone" in model else self._kind
        return replace(start, scores=self.scores)

    def _read_zone(self, frame: bytes) -> Mask:
        """Take the first mask that has the agreed size. Raises PolicyError for others, and for another one later."""
        if self._score_key is None:
            return super()._read_zone(frame)
        if self._agreed is None:
            count = positions_in_budget(self._ratio, self._size)
            self._agreed = frame, read_agreed_positions(frame, self._size, self._buffer_count, count)
        elif frame != self._agreed[0]:
            raise PolicyError("another mask was agreed on, and it is for the whole run: nothing was sent")
        return self._agreed[1]

    def _speak(self, phase: str) -> Message:
        if self._score_key is None:
            return super()._speak(phase)
        context = self.context
        with context.clock.stage("negotiate"):
            weight = context.weights[self.index] / max(context.weights)
            # Of equal sign for all, so that a mean cannot cancel.
            batch = ckks.Encryptor(self._score_key, context.threads).encrypt(
                np.abs(self.trained_scores), None, weight, self.round, clip=True
            )
            # The mask is a function of these scores, without noise, and goes to everybody.
            self.events.add(ClearUpload(self.round, self.index, "mask"))
            return Message({"round": Message.from_number(self.round), "scores": batch.to_bytes()})


class AgreedMaskAggregator(MaskedAverageAggregator):
    """Adds encrypted scores, which it cannot read; without a ``score_key`` there are none."""

    def __init__(self, context: RoleContext, score_key: ckks.PublicKey | None) -> None:
        super().__init__(context, None)
        self._score_key = score_key
        self._scores: ckks.Aggregator | None = None

    def _begin(self, phase: str) -> None:
        if self._score_key is None:
            raise ParameterError("there is nothing to agree on: begin with the update phase")
        self._scores = ckks.Aggregator(self._score_key, self.context.threads, round=self.round)

    def _hear(self, phase: str, client: int, message: Message) -> None:
        assert self._scores is not None
        with self.context.clock.stage("negotiate"):
            positions = Mask.full(self.context.initial.parameters.size)
            self._scores.add(read_expected_batch(message["scores"], positions, self.round, weighted=True))

    def _conclude(self, phase: str) -> Message:
        assert self._scores is not None
        return Message({"round": Message.from_number(self.round), "total": self._scores.total().to_bytes()})


class AgreedMaskAuthority(MaskedAverageAuthority):
    """Opens the mean of the scores alone, takes the highest, and sends the mask with every model.

    Without ``score_keys`` there is none.
    """

    def __init__(
        self,
        context: RoleContext,
        keys: KeyAuthority,
        score_keys: KeyAuthority | None,
        server_learning_rate: float,
        ratio: float,
    ) -> None:
        super().__init__(context, keys, server_learning_rate, None)
        self._score_keys = score_keys
        self._ratio = ratio

    def _decide(self, phase: str, message: Message) -> Message:
        if phase == "scores" and self._score_keys is not None:
            size = self.context.initial.parameters.size
            total = ckks.Total.from_bytes(message["total"])
            if not total.is_of(Mask.full(size)) or total.round != message.number("round"):
                raise WireFormatError(
                    "the total is of another round, or has not one score for each parameter"
                )
            if self.zone is None:
                mean = np.maximum(self._score_keys.open_mean(total), 0.0)
                chosen = top_k(mean, positions_in_budget(self._ratio, size), self.context.threads)
                self.zone = encrypted_positions(chosen, self.context.initial.buffers.size)
            return Message({"zone": self.zone.to_bytes()})
        answer = super()._decide(phase, message)
        return answer if self.zone is None else Message({**answer, "zone": self.zone.to_bytes()})

    def _zone_of(self, round_number: int) -> Mask:
        if self.zone is None:
            raise PolicyError("no mask has been agreed on: send the scores first")
        return self.zone


class AgreedMask(MaskedAverage):
    """A mask of the highest mean scores, agreed on before the first update; scores travel encrypted.

    Where the ratio covers all parameters, or none, nothing is agreed on: there are no scores, and no keys for them.

    Parameters
    ----------
    name, initial, clock, settings, federation : as for :class:`MaskedAverage`.
    ratio : the share of the parameters that is encrypted.
    kind : of the scores, see ``StartingPoint.scores``.
    """

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        clock: StageClock,
        settings: EncryptionSettings,
        federation: Federation,
        *,
        ratio: float,
        kind: str,
    ) -> None:
        settled = settled_positions(ratio, initial.parameters.size, initial.buffers.size)
        count = positions_in_budget(ratio, initial.parameters.size) + initial.buffers.size
        super().__init__(name, initial, clock, settings, federation, settled, count=count)
        self._kind = kind
        self.ratio = ratio
        self.score_keys: KeyAuthority | None = None
        if settled is not None:
            return
        score_parameters = ckks.Parameters(
            max_clients=federation.clients, value_bits=SCORE_BITS, fraction_bits=SCORE_FRACTION_BITS
        )
        self.score_keys = KeyAuthority(score_parameters, federation.min_clients, threads=federation.threads)

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Scores first, until a model comes with the mask."""
        return (UPDATE,) if self.score_keys is None or "zone" in model else (SCORES, UPDATE)

    @property
    def score_key(self) -> ckks.PublicKey | None:
        """What scores are encrypted under, if any are sent."""
        return None if self.score_keys is None else self.score_keys.public_key

    def client(self, index: int) -> MaskedAverageClient:
        """Make a client."""
        if self.score_keys is None:
            return super().client(index)
        return AgreedMaskClient(index, self.context, self.score_key, self._kind, self.ratio)

    def aggregator(self) -> MaskedAverageAggregator:
        """Make the aggregator: it holds the public keys alone."""
        if self.score_keys is None:
            return super().aggregator()
        return AgreedMaskAggregator(self.context, self.score_key)

    def authority(self) -> MaskedAverageAuthority:
        """Make the key authority's steps."""
        if self.score_keys is None:
            return super().authority()
        return AgreedMaskAuthority(
            self.context, self.keys, self.score_keys, self.federation.server_learning_rate, self.ratio
        )


class FedMlHe(AgreedMask):
    """``fedml-he``: scores by label sensitivity (see :mod:`shieldfl.sensitivity.label_sensitivity`)."""

    privacy_reading = NO_NOISE
    aggregator_sees = "values outside of the mask, the mask, and weights"

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        clock: StageClock,
        settings: FedMlHeSettings,
        federation: Federation,
    ) -> None:
        super().__init__(name, initial, clock, settings, federation, ratio=settings.ratio, kind="label")
