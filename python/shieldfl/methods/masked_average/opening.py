"""What an opened total does in averages whose clients all encrypt the same positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.learning.local_update import DoubleVector
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_update import SCORES, MixedTotal, opened_mean
from shieldfl.methods.noised_sums import NORM_EXPONENT, opened_shares
from shieldfl.privacy.noise import MOST_EXPONENT
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.plan import GlobalModel, RoleContext
from shieldfl.stateful import refuse_unless

Reader = Callable[[DoubleVector], DoubleVector]
"""Turns the opened sums of a total into a mean update."""


class MaskedAverageRule(OpeningRule):
    """The global model moves by the mean; a clipping norm that follows a quantile moves beside it.

    If clients agree on the zone by scores, only the scores' mean is opened, and the zone goes with every
    model.
    """

    changes: ClassVar = {
        "model": GlobalModel,
        "zone": Mask | None,
        "_is_replaced": bool,
        "_clip_exponent": int,
    }

    def __init__(self, method: Any, context: RoleContext, initial: GlobalModel) -> None:
        super().__init__(context)
        self._method = method
        self.zone = self._settled = method.zone
        self.model = self._initial = initial
        self._size = context.plan.update_size if method.zone is None else method.zone.size
        self._is_replaced = False
        """Whether the model is no longer that of the last answer, since another one replaced it."""
        self._clip_exponent = 0

    def check_changed(self) -> None:
        refuse_unless(self.model.is_like(self._initial))
        refuse_unless(self.zone is None or self.zone.size == self._size)
        refuse_unless(self._settled is None or self.zone == self._settled)
        refuse_unless(abs(self._clip_exponent) <= MOST_EXPONENT)

    def first_model(self) -> Message:
        return self._beside(self._initial, 0)

    def keeps(self, model: Message) -> bool:
        # A zone that is agreed on comes after the model of the rounds before it.
        return model == self._beside(self.model, self._clip_exponent, with_zone="zone" in model)

    def _beside(self, model: GlobalModel, exponent: int, *, with_zone: bool = False) -> Message:
        parts = {**model.to_message()}
        if self._method.moving_norm is not None:
            parts[NORM_EXPONENT] = np.int64(exponent).astype("<i8").tobytes()
        if with_zone and self.zone is not None:
            parts["zone"] = self.zone.to_bytes()
        return Message(parts)

    def next_model(self, newest: Message | None) -> Message:
        model = super().next_model(newest)
        return Message({**model, **self.model.to_message()}) if self._is_replaced else model

    def replace_model(self, model: GlobalModel, newest: Message) -> None:
        """Continue from another model than the last sum led to."""
        kept = model.kept_in_place_of(self._initial)
        if newest.keys() != GlobalModel.parts:
            super().replace_model(model, newest)
        self.model, self._is_replaced = kept, True

    def purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        share = self._method.share
        return ("update",) if share is None or not share.asks(round_number, model) else ("update", "scores")

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        method, share = self._method, self._method.share
        if phase == SCORES.name and share is not None:
            self.zone = share.opened(self.context, message, sums, self.zone)
            return Message({"zone": self.zone.to_bytes()})
        number = message.number("round")
        learning_rate = self.context.plan.server_learning_rate
        claim = MixedTotal.read(
            message, "", self.context.parameters, self._size, number, has_rest=method.sends_rest
        )
        zone = self.zone if share is None else share.zone(number, self.zone)
        if zone is None and share is not None:
            raise PolicyError("no mask has been agreed on: send the scores first")
        if zone is not None and claim.positions != zone:
            raise WireFormatError("the total covers other positions than those that were agreed on")
        # What came in the clear is looked at before anything is opened.
        if claim.sums.size:
            self.model.moved_finite(claim.clear_mean(), learning_rate)
        noise = method.noise_in(number)
        if method.compression is not None:
            of_total = (self.context, claim, sums, self._clip_exponent)
            mean, self._clip_exponent = _opened_levels(method, *of_total)
        elif noise is not None:
            mean = self._opened_shares(noise, claim, sums)
        elif (read := method.reader(self.context, claim, message)) is not None:
            mean = read(sums.open(claim.total))
        else:
            mean = opened_mean(claim, self.context, sums)
        self.model = self.model.moved_finite(mean, learning_rate)
        self._is_replaced = False
        return self._beside(self.model, self._clip_exponent, with_zone=self._settled is None)

    def _opened_shares(self, noise: SumNoise, claim: MixedTotal, sums: RoundSums) -> DoubleVector:
        """Return the mean update (P,); move the clipping norm, if it moves, by opened sums alone."""
        rule, norm = self._method.clip_rule, noise.clip_norm
        if rule is not None:
            norm = rule.norm_at(self._clip_exponent)
        mean, share_within = opened_shares(noise, self.context, claim, sums, norm)
        if rule is not None:
            self._clip_exponent = rule.moved(self._clip_exponent, share_within)
            led_to = rule.norm_at(self._clip_exponent)
            text = f"the clipping norm that the sum of round {claim.total.round} leads to is {led_to:.4g}"
            sums.note(text, "clipping norm")
        return mean


def mean_of_levels(
    method: Any,
    levels: NDArray[Any],
    clients: Sequence[int],
    round_number: int,
    exponent: int,
    threads: int | None,
) -> tuple[DoubleVector, int]:
    """Return the mean (P,) of levels as clients send them or sums have them, and the next exponent.

    It is 0 where the method compresses nothing.
    """
    compressed, mean = method.compressed, np.zeros(method.compressed.size)
    of_round = (round_number, exponent, threads, compressed.count)
    of_compressed, moved = method.compression.mean(levels, clients, *of_round)
    compressed.scatter(of_compressed, mean)
    return mean, moved


def _opened_levels(
    method: Any, context: RoleContext, claim: MixedTotal, sums: RoundSums, exponent: int
) -> tuple[DoubleVector, int]:
    """Open a total of levels; return its mean (P,), and the next exponent.

    Raises as :meth:`MixedTotal.check_weights` and the opening of a total do.
    """
    claim.check_weights(1)
    levels = claim.positions.gather(claim.union.scatter(sums.open(claim.total)))
    number = claim.total.round
    of_round = (claim.total.named_clients, number, exponent, context.threads)
    mean, moved = mean_of_levels(method, levels, *of_round)
    norm = method.compression.norm.norm_at(moved)
    sums.note(f"the mean norm of updates that the sum of round {number} leads to is {norm:.4g}", "norm")
    return mean, moved
