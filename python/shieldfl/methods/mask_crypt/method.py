"""MaskCrypt (Hu and Li 2024): in each round the positions whose exposure would tell most, agreed on by ranking."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.encryption_settings import MaskCryptSettings
from shieldfl.methods.encrypted_sum.mixed_upload import encrypted_positions, read_agreed_positions
from shieldfl.methods.mask_crypt.consensus import (
    consensus,
    decode_ranking,
    encode_ranking,
    exposure_scores,
    propose,
)
from shieldfl.methods.masked_average.aggregator import MaskedAverageAggregator
from shieldfl.methods.masked_average.client import MaskedAverageClient
from shieldfl.methods.masked_average.method import UPDATE, MaskedAverage
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.named_method import NamedMethod
from shieldfl.methods.protocol.phase import Phase
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.events import NO_NOISE
from shieldfl.roles.message import Message, Part
from shieldfl.selection import positions_in_budget
from shieldfl.stateful import refuse_unless

__all__ = ["MaskCrypt"]


class MaskCryptClient(MaskedAverageClient):
    """Proposes positions, then encrypts those that all agreed on."""

    clear_parts = ("weight", "ranking")

    changes: ClassVar = {"_exposed": NDArray[np.float32]}

    def __init__(
        self, index: int, weight: int, initial: GlobalModel, context: RoleContext, ratio: float, cut: bool
    ) -> None:
        super().__init__(index, weight, initial, context, None)
        self._ratio = ratio
        self._cut = cut
        # What an onlooker fills encrypted positions with: the last values that were sent in the clear.
        self._exposed: NDArray[np.float32] = initial.parameters.copy()

    def check_changed(self) -> None:
        """Raise WireFormatError for values of another model, or that are not finite."""
        super().check_changed()
        refuse_unless(self._exposed.size == self._size and bool(np.isfinite(self._exposed).all()))

    def _speak(self, phase: str) -> Message:
        with self.clock.stage("score"):
            slope = self.trained_scores
            if self.scores is None:
                slope = self.start.parameters - self.update.parameters
            scores = exposure_scores(self._exposed, self.update.parameters, slope)
            ranking = propose(scores, self._ratio)
        return Message({"round": Message.from_number(self.round), "ranking": encode_ranking(ranking)})

    def _zone_from(self, answer: Message | None) -> Mask | None:
        """Return the answer's zone: each round agrees on its own, so there is none without it."""
        return None if answer is None or "zone" not in answer else self._read_zone(answer["zone"])

    def _read_zone(self, frame: Part) -> Mask:
        """Take the aggregator's choice of positions, but not how many: as many as each client proposes, or more."""
        count = positions_in_budget(self._ratio, self._size)
        return read_agreed_positions(frame, self._size, self._buffer_count, count, or_more=not self._cut)

    def _disclose(self, zone: Mask) -> None:
        super()._disclose(zone)
        clear = self.disclosure.clear
        clear.scatter(clear.gather(self.update.parameters), self._exposed)


class MaskCryptAggregator(MaskedAverageAggregator):
    """Takes turns through the clients' rankings (its algorithm 1); it sees them."""

    changes: ClassVar = {"_rankings": dict[int, NDArray[np.int64]]}

    def __init__(self, context: RoleContext, weights: tuple[int, ...], ratio: float, cut: bool) -> None:
        super().__init__(context, weights, None)
        self._proposed = positions_in_budget(ratio, context.plan.parameters)
        self._limit = self._proposed if cut else None
        self._rankings: dict[int, NDArray[np.int64]] = {}

    def check_changed(self) -> None:
        """Raise WireFormatError for rankings of other sizes, of positions or of clients that there are not."""
        super().check_changed()
        positions = range(self.context.plan.parameters)
        refuse_unless(self._rankings.keys() <= set(range(self.context.plan.clients)))
        for ranking in self._rankings.values():
            refuse_unless(ranking.size == self._proposed == np.unique(ranking).size)
            refuse_unless(not ranking.size or (ranking.min() in positions and ranking.max() in positions))

    def check_sums(self) -> None:
        """Raise WireFormatError for rankings of other clients than were heard."""
        super().check_sums()
        refuse_unless(self._phase == UPDATE.name or self._rankings.keys() == self._seen)

    def _begin(self, phase: str, round_number: int) -> None:
        self._rankings = {}

    def _hear(self, phase: str, client: int, message: Message) -> None:
        with self.clock.stage("negotiate"):
            ranking = decode_ranking(message["ranking"], self.context.plan.parameters)
            if ranking.size != self._proposed:
                raise WireFormatError(
                    f"client {client} proposed {ranking.size} positions instead of {self._proposed}"
                )
            self._rankings[client] = ranking

    def _conclude(self, phase: str) -> Message:
        with self.clock.stage("negotiate"):
            # By client, so that the order in which messages arrive does not matter.
            rankings = [self._rankings[client] for client in sorted(self._rankings)]
            plan = self.context.plan
            chosen = consensus(rankings, plan.parameters, self._limit)
            return Message({"zone": encrypted_positions(chosen, plan.buffers).to_bytes()})


class MaskCrypt(MaskedAverage):
    """MaskCrypt for one federation; arguments as for :class:`MaskedAverage`."""

    names = (
        NamedMethod(
            "mask-crypt",
            "a tenth encrypted, another one in each round, the rest in the clear",
            "a baseline of selective encryption",
            "Hu and Li 2024: MaskCrypt, algorithm 1",
            MaskCryptSettings(),
            masks="one share",
            masks_each_round=True,
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "values outside of the mask, every client's ranking of its positions, and weights"

    scores: str | None = "gradient"
    phases = (Phase("ranking", answered_by_authority=False), UPDATE)

    def __init__(self, name: str, settings: MaskCryptSettings, plan: FederationPlan) -> None:
        proposed = positions_in_budget(settings.ratio, plan.parameters)
        # The size of a whole union shows in the round alone.
        super().__init__(name, settings, plan, None, count=proposed + plan.buffers if settings.cut else None)
        self._ratio, self._cut = settings.ratio, settings.cut
        if settings.gradient == "update":
            self.scores = None

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> MaskCryptClient:
        return MaskCryptClient(index, weight, initial, context, self._ratio, self._cut)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> MaskCryptAggregator:
        return MaskCryptAggregator(context, weights, self._ratio, self._cut)
