"""What an opened sum that has noise makes of the model: of whole numbers only once they are summed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.client import clip_part
from shieldfl.methods.encrypted_update import MixedTotal
from shieldfl.methods.masked_average.rule import MaskedAverageRule
from shieldfl.privacy import draws
from shieldfl.privacy.noise import MOST_EXPONENT, ClipRule
from shieldfl.privacy.noise_share import mean_of_total
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.opening_rule import RoundSums
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless


def noisy_mean(
    noise: SumNoise, context: RoleContext, claim: MixedTotal, sums: RoundSums, message: Message
) -> NDArray[np.float64]:
    """Open a total of shares and return the mean that it tells of, zero where nothing is encrypted.

    It is of the update's P parameters, or of as many values as the total is of, where those are fewer.

    Raises as :meth:`MixedTotal.check_weights` and the opening of a total do.
    """
    claim.check_weights(1)
    total = claim.union.scatter(sums.open(claim.total))
    return _mean_of_shares(total, claim, noise.steps_per_unit, context)


def _mean_of_shares(
    total: NDArray[np.float64], claim: MixedTotal, steps_per_unit: float, context: RoleContext
) -> NDArray[np.float64]:
    """Return the same mean of a total (N,) that is open."""
    positions = claim.positions.resized(min(claim.positions.size, context.plan.parameters))
    mean = np.zeros(positions.size)
    values = mean_of_total(
        positions.gather(total[: positions.size]),
        clients=claim.total.clients,
        steps_per_unit=steps_per_unit,
        rotation_seed=draws.rotation_seed(context.keys.session, claim.total.round),
        threads=context.threads,
    )
    positions.scatter(values, mean)
    return mean


class AdaptiveSumRule(MaskedAverageRule):
    """A clipping norm that follows a quantile moves beside the model, by the count that a sum has.

    It follows from opened sums alone, which are charged for, and is the same for all who open them.

    Parameters
    ----------
    context : what all roles of the federation know.
    initial : the model before the first round; its buffers stay with the clients.
    zone : with one position more than there are parameters.
    noise : what sums have.
    rule : of the norm.
    """

    changes: ClassVar = {"_clip_exponent": int}

    def __init__(
        self, context: RoleContext, initial: GlobalModel, zone: Mask, noise: SumNoise, rule: ClipRule
    ) -> None:
        shared = GlobalModel(initial.parameters, initial.buffers[:0])
        super().__init__(context, shared, zone, sends_rest=False)
        self._noise = noise
        self._rule = rule
        self._clip_exponent = 0

    def check_changed(self) -> None:
        """Raise WireFormatError for a norm that no round has."""
        refuse_unless(abs(self._clip_exponent) <= MOST_EXPONENT)

    @property
    def _clip_norm(self) -> float:
        """What updates of the round that runs are clipped to."""
        return self._rule.norm_at(self._clip_exponent)

    def first_model(self) -> Message:
        """Return the initial model and norm."""
        return Message({**super().first_model(), **clip_part(0)})

    def _kept_message(self) -> Message:
        return Message({**super()._kept_message(), **clip_part(self._clip_exponent)})

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return new model and norm at once: a round has one of each, for all its clients."""
        answer = super().answer(phase, message, sums)
        number = message.number("round")
        text = f"the clipping norm that the sum of round {number} leads to is {self._clip_norm:.4g}"
        sums.note(text, "clipping norm")
        return answer

    def _opened_mean(self, claim: MixedTotal, sums: RoundSums, message: Message) -> NDArray[np.float64]:
        """Return the mean update (P,), and move the norm by the value behind it."""
        claim.check_weights(1)
        total = claim.union.scatter(sums.open(claim.total))
        mean = _mean_of_shares(total, claim, self._noise.steps_per_unit_at(self._clip_norm), self.context)
        count = self.context.plan.parameters
        excess = mean_of_total(
            total[count : count + 1],
            clients=claim.total.clients,
            steps_per_unit=float(self._noise.count_steps),
            rotation_seed=draws.rotation_seed(self.context.keys.session, claim.total.round),
            threads=self.context.threads,
        )
        share_within = (1.0 + float(excess[0])) / 2.0
        self._clip_exponent = self._rule.moved(self._clip_exponent, share_within)
        return mean
