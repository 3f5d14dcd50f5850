"""MaskCrypt (Hu and Li 2024): in each round the positions whose exposure would tell most, agreed on by ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_real, as_unsigned, as_vector, frame_buffer
from shieldfl.authority.message import Message, Part
from shieldfl.errors import ParameterError, RangeError, WireFormatError
from shieldfl.masks import Mask, positions_in_budget
from shieldfl.methods.encrypted_update import encrypted_positions, read_agreed_positions
from shieldfl.methods.encryption_settings import MaskCryptSettings
from shieldfl.methods.masked_average.method import (
    UPDATE,
    MaskedAverage,
    MaskedAverageAggregator,
    MaskedAverageClient,
)
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan, Phase
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless

_WIRE_TYPE = np.dtype("<u4")


def exposure_scores(exposed: Any, new_weights: Any, gradient: Any) -> NDArray[np.float32]:
    """Return (w_exposed - w_new) * gradient: how much the loss grows where the new weight stays hidden.

    Parameters
    ----------
    exposed : float32 vector, shape (P,)
        What each position last showed in the clear.
    new_weights : float32 vector, shape (P,)
        The client's weights after training.
    gradient : float32 vector, shape (P,)
        Gradient of the loss over all local data at the new weights.

    Returns
    -------
    ndarray of float32, shape (P,)
        Signed scores.

    Raises
    ------
    ArrayTypeError
        If a vector is not contiguous float32 of one dimension.
    ParameterError
        If sizes differ.
    RangeError
        If a score is NaN or infinite, as it is wherever an input is; the message gives the first position.
    """
    old, new, slope = (
        as_vector(vector, (np.float32,), what)
        for vector, what in (
            (exposed, "the exposed weights"),
            (new_weights, "the new weights"),
            (gradient, "the gradient"),
        )
    )
    if not old.size == new.size == slope.size:
        raise ParameterError(
            f"exposed weights, new weights and gradient have {old.size:,}, {new.size:,} and {slope.size:,} values: "
            "all three must be of the same model"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        scores: NDArray[np.float32] = old - new
        scores *= slope
    _reject_non_finite(scores)
    return scores


def propose(scores: Any, ratio: float) -> NDArray[np.int64]:
    """Rank the top floor(ratio * P) positions by signed score, highest first; of equal scores the lower position.

    Parameters
    ----------
    scores : float32 vector, shape (P,)
        From :func:`exposure_scores`.
    ratio : float
        Share of positions to encrypt, in (0, 1].

    Returns
    -------
    ndarray of int64, shape (k,)
        Distinct positions. k is the most with k / P <= ratio in float64, so that 0.29 of 100 are 29.

    Raises
    ------
    ArrayTypeError
        If the scores are not a contiguous float32 vector.
    ParameterError
        If the ratio is outside (0, 1].
    RangeError
        If a score is NaN or infinite; the message gives the first position.
    """
    values = as_vector(scores, (np.float32,), "the scores")
    share = as_real(ratio, "the encryption ratio")
    if not 0.0 < share <= 1.0:
        raise ParameterError("the encryption ratio must be above 0 and at most 1")
    _reject_non_finite(values)
    count = positions_in_budget(share, values.size)
    if count == 0:
        return np.empty(0, dtype=np.int64)
    least = np.partition(values, values.size - count)[values.size - count]
    above = np.flatnonzero(values > least)
    equal = np.flatnonzero(values == least)[: count - above.size]
    chosen = np.concatenate((above, equal))
    # Equal scores stand in ascending order of position, which a stable sort keeps.
    return chosen[np.argsort(-values[chosen], kind="stable")].astype(np.int64, copy=False)


def consensus(proposals: Sequence[Any], size: int, limit: int | None) -> Mask:
    """Interleave the clients' ranked lists and keep first occurrences: every first choice, every second, and so on.

    Within a rank clients stand in the order given, so that the cut may fall between two clients' choices of one
    rank.

    Parameters
    ----------
    proposals : sequence of int64 vectors
        One list for each client, best position first; lengths may differ, also be 0.
    size : int
        Number of positions P.
    limit : int or None
        How many positions to keep, floor(ratio * P) by the paper's budget; None keeps the whole union.

    Returns
    -------
    Mask
        Of ``size`` positions, at most ``limit`` of them chosen.

    Raises
    ------
    ArrayTypeError
        If a list is not a contiguous int64 vector.
    ParameterError
        For no lists, or a list with a position out of range or given twice.
    """
    if not proposals:
        raise ParameterError("no client has proposed positions: wait for at least one")
    positions = as_unsigned(size, "size")
    most = positions if limit is None else as_unsigned(limit, "limit")
    clients = len(proposals)
    # When a position first turns up in the interleaved sequence.
    never = np.iinfo(np.int64).max
    turn = np.full(positions, never, dtype=np.int64)
    for client, proposal in enumerate(proposals):
        ranking = as_vector(proposal, (np.int64,), "a proposal")
        Mask.from_indices(ranking, positions)  # refuses what is out of range or there twice
        own_turns = np.arange(client, client + clients * ranking.size, clients, dtype=np.int64)
        turn[ranking] = np.minimum(turn[ranking], own_turns)
    turns = turn[turn != never]
    if turns.size <= most:
        return Mask.from_bool(turn != never)
    if most == 0:
        return Mask.empty(positions)
    return Mask.from_bool(turn <= np.partition(turns, most - 1)[most - 1])


def encode_ranking(ranking: Any) -> bytes:
    """Encode a ranked list, int64 of shape (k,), as k little-endian unsigned 32-bit numbers.

    Raises ArrayTypeError, and ParameterError for a position that is negative or does not fit 32 bits.
    """
    positions = as_vector(ranking, (np.int64,), "the ranking")
    if positions.size and not (positions.min() >= 0 and positions.max() < 2**32):
        raise ParameterError("a position of a ranking must lie between 0 and 2**32 - 1")
    return positions.astype(_WIRE_TYPE).tobytes()


def decode_ranking(data: Buffer, size: int) -> NDArray[np.int64]:
    """Read what :func:`encode_ranking` wrote: distinct positions below ``size``, int64 of shape (k,).

    Raises WireFormatError for bytes that are truncated, too many, or hold a position out of range or twice.
    """
    frame = frame_buffer(data)
    positions = as_unsigned(size, "size")
    count, rest = divmod(len(frame), _WIRE_TYPE.itemsize)
    if rest or count > positions:
        raise WireFormatError(
            f"a ranking of {len(frame):,} bytes is truncated or longer than {positions:,} positions of 4 bytes each"
        )
    ranking = np.frombuffer(frame, dtype=_WIRE_TYPE).astype(np.int64)
    try:
        Mask.from_indices(ranking, positions)
    except ParameterError as error:
        raise WireFormatError(
            "a ranking has a position out of range or twice: it was damaged or altered"
        ) from error
    return ranking


def _reject_non_finite(scores: NDArray[np.float32]) -> None:
    finite = np.isfinite(scores)
    if not finite.all():
        raise RangeError(
            f"the exposure score at position {int(np.argmin(finite)):,} is NaN or infinite: lower the learning rate "
            "or check this client's data"
        )


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
