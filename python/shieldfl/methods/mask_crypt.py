"""MaskCrypt (Hu and Li 2024): each round's positions whose exposure would tell most, agreed on by ranking.

FedML-HE (Jin et al. 2023) has one mask for the run, of the positions with the highest mean scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message, Part
from shieldfl.errors import ParameterError, RangeError, WireFormatError
from shieldfl.masks import Mask, positions_in_budget
from shieldfl.methods.dp_sgd_rounds import KindsOfRounds, RoundKind
from shieldfl.methods.encrypted_update import (
    SCORES,
    UPDATE,
    AgreedShare,
    encrypted_positions,
    read_agreed_positions,
    smallest,
)
from shieldfl.methods.encryption_settings import FedMlHeSettings, MaskCryptSettings
from shieldfl.methods.masked_average.method import (
    MaskedAverage,
    MaskedAverageAggregator,
    MaskedAverageClient,
)
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.plan import FederationPlan, GlobalModel, Phase, RoleContext
from shieldfl.stateful import refuse_unless

Ranking = NDArray[np.int64]
"""Positions, int64 (n,), in the order in which they are to be encrypted."""


def exposure_scores(exposed: FloatVector, new_weights: FloatVector, gradient: FloatVector) -> FloatVector:
    """Return (w_exposed - w_new) * gradient (P,), signed: what the loss grows by if a new weight is hidden.

    ``exposed`` is what each position last showed in the clear, ``gradient`` that of the loss over all local
    data at the new weights. Raises RangeError, with the first position, where a score is NaN or infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scores: FloatVector = (exposed - new_weights) * gradient
    finite = np.isfinite(scores)
    if not finite.all():
        raise RangeError(
            f"the exposure score at position {int(np.argmin(finite)):,} is NaN or infinite: lower the "
            "learning rate or check this client's data"
        )
    return scores


def propose(scores: FloatVector, ratio: float) -> Ranking:
    """Rank the top floor(ratio * P) positions by signed score, highest first.

    Of equal scores the lower position.

    There are as many as keep k / P <= ratio in float64, so that 0.29 of 100 are 29.
    """
    chosen = np.flatnonzero(smallest(-scores, positions_in_budget(ratio, scores.size)))
    # As whole numbers, by float and then by position: NumPy sorts these several times as fast.
    bits = (np.float32(0.0) - scores[chosen]).view(np.int32).astype(np.int64)  # without a negative zero
    ordered = (bits ^ ((bits >> 63) & 0x7FFFFFFF)) << 32 | chosen
    ordered.sort()
    return ordered & 0xFFFFFFFF


def consensus(proposals: Sequence[Ranking], size: int, limit: int | None) -> Mask:
    """Interleave the clients' ranked lists and keep first occurrences: first choices, then second, and so on.

    Within a rank clients stand in the order given, so that the cut may fall between two clients' choices of
    one rank. ``limit`` positions are kept, by the paper's budget; None keeps the whole union.
    """
    clients = len(proposals)
    # When a position first turns up in the interleaved sequence.
    never = np.iinfo(np.int64).max
    turn = np.full(size, never, dtype=np.int64)
    for client, ranking in enumerate(proposals):
        own_turns = np.arange(client, client + clients * ranking.size, clients, dtype=np.int64)
        turn[ranking] = np.minimum(turn[ranking], own_turns)
    count = int(np.count_nonzero(turn != never))
    return Mask.from_bool(smallest(turn, count if limit is None else min(count, limit)))


def read_ranking(message: Message, count: int, size: int) -> Ranking:
    """Read a ranked list, unsigned 32-bit numbers: distinct positions below ``size``, (count,).

    Raises WireFormatError for another number of them, and a position out of range or twice.
    """
    ranking = message.vector("ranking", np.uint32, count).astype(np.int64)
    try:
        Mask.from_indices(ranking, size)
    except ParameterError as error:
        raise WireFormatError(
            "a ranking has a position out of range or twice: it was damaged or altered"
        ) from error
    return ranking


class MaskCryptClient(MaskedAverageClient):
    """Proposes positions, then encrypts those that all agreed on."""

    method: MaskCrypt
    clear_parts = ("weight", "ranking")

    changes: ClassVar = {"_exposed": FloatVector}

    def __init__(
        self, method: MaskCrypt, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        super().__init__(method, context, index, weight, initial)
        # What an onlooker fills encrypted positions with: the last values that were sent in the clear.
        self._exposed: FloatVector = initial.parameters

    def check_changed(self) -> None:
        refuse_unless(self._exposed.size == self._size and bool(np.isfinite(self._exposed).all()))

    def _speak(self) -> Message:
        with self.clock.stage("score"):
            slope = self.trained_scores
            if self.scores is None:
                slope = self.start.parameters - self.update.parameters
            scores = exposure_scores(self._exposed, self.update.parameters, slope)
            ranking = propose(scores, self.method.ratio)
        return Message({"ranking": ranking.astype("<u4").tobytes()})

    def _zone_from(self, answer: Message | None) -> Mask | None:
        """Return the answer's zone: each round agrees on its own, so there is none without it."""
        return None if answer is None or "zone" not in answer else self._read_zone(answer["zone"])

    def _read_zone(self, frame: Part) -> Mask:
        """Take the positions that the aggregator chose, but not how many: a client's own number, or more."""
        count, or_more = positions_in_budget(self.method.ratio, self._size), not self.method.cut
        return read_agreed_positions(frame, self._size, self._buffer_count, count, or_more=or_more)

    def _disclose(self, zone: Mask) -> None:
        super()._disclose(zone)
        clear, self._exposed = self.disclosure.clear, self._exposed.copy()
        clear.scatter(clear.gather(self.update.parameters), self._exposed)


class MaskCryptAggregator(MaskedAverageAggregator):
    """Takes turns through the clients' rankings (its algorithm 1); it sees them."""

    changes: ClassVar = {"_rankings": dict[int, Ranking]}

    def __init__(self, method: MaskCrypt, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(method, context, weights)
        self._proposed = positions_in_budget(method.ratio, context.plan.parameters)
        self._limit = self._proposed if method.cut else None
        self._rankings: dict[int, Ranking] = {}

    def check_changed(self) -> None:
        positions = range(self.context.plan.parameters)
        refuse_unless(self._rankings.keys() <= set(range(self.context.plan.clients)))
        for ranking in self._rankings.values():
            refuse_unless(ranking.size == self._proposed == np.unique(ranking).size)
            refuse_unless(not ranking.size or (ranking.min() in positions and ranking.max() in positions))

    def check_sums(self) -> None:
        super().check_sums()
        refuse_unless(self._phase == UPDATE.name or self._rankings.keys() == self._seen)

    def _begin(self, round_number: int) -> None:
        self._rankings = {}

    def _hear(self, client: int, message: Message) -> None:
        with self.clock.stage("negotiate"):
            size = self.context.plan.parameters
            self._rankings[client] = read_ranking(message, self._proposed, size)

    def _conclude(self) -> Message:
        # By client, so that the order in which messages arrive does not matter.
        rankings = [self._rankings[client] for client in sorted(self._rankings)]
        plan = self.context.plan
        chosen = consensus(rankings, plan.parameters, self._limit)
        return Message({"zone": encrypted_positions(chosen, plan.buffers).to_bytes()})


class MaskCrypt(MaskedAverage):
    """MaskCrypt for one federation."""

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
    client_kind = MaskCryptClient
    aggregator_kind = MaskCryptAggregator

    def __init__(self, name: str, settings: MaskCryptSettings, plan: FederationPlan) -> None:
        proposed = positions_in_budget(settings.ratio, plan.parameters)
        # The size of a whole union shows in the round alone.
        super().__init__(name, settings, plan, None, count=proposed + plan.buffers if settings.cut else None)
        self.ratio, self.cut = settings.ratio, settings.cut
        if settings.gradient == "update":
            self.scores = None


class FedMlHe(MaskedAverage):
    """``fedml-he``: scores by label sensitivity (see :mod:`shieldfl.learning.scores`)."""

    names = (
        NamedMethod(
            "fedml-he",
            "a fixed tenth encrypted, the rest in the clear",
            "a baseline of selective encryption",
            "Jin et al. 2023: FedML-HE",
            FedMlHeSettings(),
            masks="one share",
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "values outside of the mask, the mask, and weights"
    scores = "label"
    phases = (SCORES, UPDATE)

    def __init__(self, name: str, settings: FedMlHeSettings, plan: FederationPlan) -> None:
        encrypted = RoundKind(encrypts=True)
        share = AgreedShare(settings.ratio, KindsOfRounds(encrypted, encrypted), plan)
        super().__init__(name, settings, plan, None, share=share)
