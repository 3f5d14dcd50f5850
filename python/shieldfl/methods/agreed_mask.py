"""One mask for the run, of the positions with the highest mean scores: FedML-HE (Jin et al. 2023)."""

from __future__ import annotations

import numpy as np

from shieldfl import ckks
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_positions import encrypted_positions
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.expected_batch import read_expected_batch
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.mask_crypt_consensus import positions_within
from shieldfl.methods.masked_average import UPDATE, MaskedAverage
from shieldfl.methods.masked_average_aggregator import MaskedAverageAggregator
from shieldfl.methods.masked_average_authority import MaskedAverageAuthority
from shieldfl.methods.masked_average_client import MaskedAverageClient
from shieldfl.methods.method import Phase, StartingPoint
from shieldfl.methods.role_context import RoleContext
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.key_authority import KeyAuthority
from shieldfl.roles.message import Message
from shieldfl.selection import top_k

__all__ = ["SCORES", "AgreedMask", "AgreedMaskAggregator", "AgreedMaskAuthority", "AgreedMaskClient"]

SCORES = Phase("scores", answered_by_authority=True)
SCORE_BITS = 40
"""Scores span many orders of magnitude: the widest fixed point that the core has, most of it behind the point."""
SCORE_FRACTION_BITS = 36


class AgreedMaskClient(MaskedAverageClient):
    """Sends its scores, encrypted, in the first round; after that it encrypts what was agreed on."""

    def __init__(self, index: int, context: RoleContext, score_key: ckks.PublicKey, kind: str) -> None:
        super().__init__(index, context, None)
        self._score_encryptor = ckks.Encryptor(score_key, context.threads)
        self._kind = kind

    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Bring scores along until there is a mask."""
        self.scores = None if "zone" in model else self._kind
        return super().begin_round(round_number, participants, model)

    def _speak(self, phase: str) -> Message:
        context = self.context
        with context.clock.stage("negotiate"):
            weight = context.weights[self.index] / max(context.weights)
            # Of equal sign for all, so that a mean cannot cancel.
            batch = self._score_encryptor.encrypt(
                np.abs(self.trained_scores), None, weight, self.round, clip=True
            )
            return Message({"round": Message.from_number(self.round), "scores": batch.to_bytes()})


class AgreedMaskAggregator(MaskedAverageAggregator):
    """Adds encrypted scores, which it cannot read."""

    def __init__(self, context: RoleContext, score_key: ckks.PublicKey) -> None:
        super().__init__(context, None)
        self._score_key = score_key
        self._scores = ckks.Aggregator(score_key, context.threads)

    def _begin(self, phase: str) -> None:
        self._scores = ckks.Aggregator(self._score_key, self.context.threads, round=self.round)

    def _hear(self, phase: str, client: int, message: Message) -> None:
        with self.context.clock.stage("negotiate"):
            positions = Mask.full(self.context.initial.parameters.size)
            self._scores.add(read_expected_batch(message["scores"], positions, self.round, weighted=True))

    def _conclude(self, phase: str) -> Message:
        return Message({"round": Message.from_number(self.round), "total": self._scores.total().to_bytes()})


class AgreedMaskAuthority(MaskedAverageAuthority):
    """Opens the mean of the scores alone, takes the highest, and sends the mask with every model."""

    def __init__(
        self,
        context: RoleContext,
        keys: KeyAuthority,
        score_keys: KeyAuthority,
        server_learning_rate: float,
        ratio: float,
    ) -> None:
        super().__init__(context, keys, server_learning_rate, None)
        self._score_keys = score_keys
        self._ratio = ratio

    def _decide(self, phase: str, message: Message) -> Message:
        if phase == "scores":
            size = self.context.initial.parameters.size
            total = ckks.Total.from_bytes(message["total"])
            if not total.is_of(Mask.full(size)) or total.round != message.number("round"):
                raise WireFormatError(
                    "the total is of another round, or has not one score for each parameter"
                )
            if self.zone is None:
                mean = np.maximum(self._score_keys.open_mean(total), 0.0)
                chosen = top_k(mean, positions_within(self._ratio, size), self.context.threads)
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

    FedML-HE scores by ``"label"`` sensitivity (see :mod:`shieldfl.sensitivity.label_sensitivity`).

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
        kind: str = "label",
    ) -> None:
        super().__init__(name, initial, clock, settings, federation, None)
        self._kind = kind
        self.ratio = ratio
        score_parameters = ckks.Parameters(
            max_clients=federation.clients, value_bits=SCORE_BITS, fraction_bits=SCORE_FRACTION_BITS
        )
        self.score_keys = KeyAuthority(score_parameters, federation.min_clients, threads=federation.threads)

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Scores first, until a model comes with the mask."""
        return (UPDATE,) if "zone" in model else (SCORES, UPDATE)

    def _make_client(self, index: int) -> AgreedMaskClient:
        return AgreedMaskClient(index, self.context, self.score_keys.public_key, self._kind)

    def aggregator(self) -> AgreedMaskAggregator:
        """Make the aggregator: it holds the public keys alone."""
        return AgreedMaskAggregator(self.context, self.score_keys.public_key)

    def authority(self) -> AgreedMaskAuthority:
        """Make the key authority's steps."""
        return AgreedMaskAuthority(
            self.context, self.keys, self.score_keys, self.federation.server_learning_rate, self.ratio
        )
