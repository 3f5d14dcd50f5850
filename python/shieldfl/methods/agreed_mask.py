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
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.masked_average import UPDATE, MaskedAverage
from shieldfl.methods.masked_average_aggregator import MaskedAverageAggregator
from shieldfl.methods.masked_average_authority import MaskedAverageAuthority
from shieldfl.methods.masked_average_client import MaskedAverageClient
from shieldfl.methods.method import Phase, StartingPoint
from shieldfl.methods.mixed_sum import stated_weight
from shieldfl.methods.role_context import RoleContext
from shieldfl.privacy.events import ClearUpload
from shieldfl.privacy.reading import NO_NOISE
from shieldfl.roles.message import Message
from shieldfl.roles.round_keys import RoundKeys
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


def has_scores(context: RoleContext) -> bool:
    """Say whether there is something to agree on: then scores are encrypted, under keys of their own."""
    return "scores" in context.keys.parameters


class AgreedMaskClient(MaskedAverageClient):
    """Sends its scores, encrypted, in the first round; after that it encrypts what was agreed on, once for all rounds.

    Where no scores are encrypted in this federation, nothing is to be agreed on.
    """

    phase_names = ("scores", "update")

    def __init__(self, index: int, context: RoleContext, kind: str, ratio: float) -> None:
        super().__init__(index, context, None)
        self._kind = kind
        self._ratio = ratio
        self._agreed: Mask | None = None

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Bring scores along until there is a mask."""
        start = super()._begin_round(round_number, participants, model)
        self.scores = None if "zone" in model else self._kind
        return replace(start, scores=self.scores)

    def _read_zone(self, frame: bytes) -> Mask:
        """Read a mask of the agreed size. Raises PolicyError for others, and for another one than was taken before."""
        if not has_scores(self.context):
            return super()._read_zone(frame)
        count = positions_in_budget(self._ratio, self._size)
        zone = read_agreed_positions(frame, self._size, self._buffer_count, count)
        if self._agreed is None:
            return zone
        if zone != self._agreed:
            raise PolicyError("another mask was agreed on, and it is for the whole run: nothing was sent")
        return self._agreed

    def _make(self, phase: str, answer: Message | None) -> Message:
        """Hold on to the mask that the first update was encrypted by, for the whole run."""
        message = super()._make(phase, answer)
        # A round of another kind encrypts buffers alone.
        if phase == "update" and self._agreed is None and self.zone is not None:
            self._agreed = self.zone if self.zone.resized(self._size).count else None
        return message

    def _speak(self, phase: str) -> Message:
        if not self.trained_scores.size:
            raise ParameterError("no scores were asked for in this round: begin with the update phase")
        context = self.context
        with self.clock.stage("negotiate"):
            weight = context.weights[self.index]
            # Of equal sign for all, so that a mean cannot cancel.
            key = self._round_key("scores")
            batch = ckks.Encryptor(key, context.threads).encrypt(
                np.abs(self.trained_scores), None, weight / max(context.weights), self.round, clip=True
            )
            # The mask is a function of these scores, without noise, and goes to everybody.
            self.record(ClearUpload(self.round, self.index, "mask"))
            return Message(
                {
                    "round": Message.from_number(self.round),
                    "weight": Message.from_number(weight),
                    "scores": batch.to_bytes(),
                }
            )


class AgreedMaskAggregator(MaskedAverageAggregator):
    """Adds encrypted scores, which it cannot read, where there are any."""

    phase_names = ("scores", "update")

    def __init__(self, context: RoleContext) -> None:
        super().__init__(context, None)
        self._scores: ckks.Aggregator | None = None
        self._weight = 0

    def _begin(self, phase: str, round_number: int) -> None:
        if not has_scores(self.context):
            raise ParameterError("there is nothing to agree on: begin with the update phase")
        self._scores = ckks.Aggregator(
            self.round_keys.key(round_number, "scores"),
            self.context.threads,
            round=round_number,
            positions=Mask.full(self.context.initial.parameters.size),
            weighted=True,
        )
        self._weight = 0

    def _hear(self, phase: str, client: int, message: Message) -> None:
        assert self._scores is not None
        with self.clock.stage("negotiate"):
            weight = stated_weight(client, message, self.context.weights)
            self._scores.add(message["scores"])
            self._weight += weight

    def _conclude(self, phase: str) -> Message:
        assert self._scores is not None
        return Message(
            {
                "round": Message.from_number(self.round),
                "weight": Message.from_number(self._weight),
                "total": self._scores.total().to_bytes(),
            }
        )


class AgreedMaskAuthority(MaskedAverageAuthority):
    """Opens the mean of the scores alone, takes the highest, and sends the mask with every model."""

    def __init__(
        self, context: RoleContext, keys: RoundKeys, server_learning_rate: float, ratio: float
    ) -> None:
        super().__init__(context, keys, server_learning_rate, None)
        self._ratio = ratio

    def _purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        return ("update", "scores") if has_scores(self.context) and "zone" not in model else ("update",)

    def _decide(self, phase: str, message: Message) -> Message:
        if phase == "scores" and has_scores(self.context):
            size = self.context.initial.parameters.size
            total = ckks.Total.from_bytes(message["total"])
            stated, most = message.number("weight"), max(self.context.weights)
            if not total.is_of(Mask.full(size)) or total.round != message.number("round"):
                raise WireFormatError(
                    "the total is of another round, or has not one score for each parameter"
                )
            if not total.weighted or not total.clients <= stated <= total.clients * most:
                raise WireFormatError(
                    f"the weights of the scores are missing, or not between 1 and {most} for each client"
                )
            if self.zone is None:
                keys = self.keys.authority(total.round, "scores")
                mean = np.maximum(keys.open_mean(total, stated_weight=stated / most), 0.0)
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
    name, initial, settings, federation : as for :class:`MaskedAverage`.
    ratio : the share of the parameters that is encrypted.
    kind : of the scores, see ``StartingPoint.scores``.
    """

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: EncryptionSettings,
        federation: Federation,
        *,
        ratio: float,
        kind: str,
    ) -> None:
        settled = settled_positions(ratio, initial.parameters.size, initial.buffers.size)
        count = positions_in_budget(ratio, initial.parameters.size) + initial.buffers.size
        other_keys = {}
        if settled is None:
            other_keys["scores"] = ckks.Parameters(
                max_clients=federation.clients, value_bits=SCORE_BITS, fraction_bits=SCORE_FRACTION_BITS
            )
        super().__init__(name, initial, settings, federation, settled, count=count, other_keys=other_keys)
        self._kind = kind
        self.ratio = ratio

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Scores first, until a model comes with the mask."""
        return (SCORES, UPDATE) if has_scores(self.context) and "zone" not in model else (UPDATE,)

    def client(self, index: int) -> MaskedAverageClient:
        """Make a client."""
        if not has_scores(self.context):
            return super().client(index)
        return AgreedMaskClient(index, self.context, self._kind, self.ratio)

    def aggregator(self) -> MaskedAverageAggregator:
        """Make the aggregator: it gets public keys alone."""
        if not has_scores(self.context):
            return super().aggregator()
        return AgreedMaskAggregator(self.context)

    def authority(self) -> MaskedAverageAuthority:
        """Make the key authority's steps."""
        if not has_scores(self.context):
            return super().authority()
        return AgreedMaskAuthority(self.context, self.keys, self.federation.server_learning_rate, self.ratio)


class FedMlHe(AgreedMask):
    """``fedml-he``: scores by label sensitivity (see :mod:`shieldfl.sensitivity.label_sensitivity`)."""

    privacy_reading = NO_NOISE
    aggregator_sees = "values outside of the mask, the mask, and weights"

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: FedMlHeSettings,
        federation: Federation,
    ) -> None:
        super().__init__(name, initial, settings, federation, ratio=settings.ratio, kind="label")
