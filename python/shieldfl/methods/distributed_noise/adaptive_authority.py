"""Who opens sums of clients whose clipping norm follows a quantile: moves the norm by the count that a sum has."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.authority import NoisySumAuthority, mean_of_shares
from shieldfl.methods.distributed_noise.client import clip_part
from shieldfl.methods.encrypted_sum.mixed_total import MixedTotal
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.reports import Note
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.clip_rule import MOST_EXPONENT, ClipRule
from shieldfl.privacy.noise_share import mean_of_total
from shieldfl.privacy.sum_noise import SumNoise, rotation_seed
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.total_opener import TotalOpener
from shieldfl.stateful import refuse_unless

__all__ = ["AdaptiveSumAuthority"]


class AdaptiveSumAuthority(NoisySumAuthority):
    """Keeps the norm beside the model, and says both at once: a round has one of each, for all its clients.

    It follows from opened sums alone, which are charged for, and is the same for all who open them.

    Parameters
    ----------
    context, initial, keys, noise : as for :class:`NoisySumAuthority`.
    zone : with one position more than there are parameters.
    rule : of the norm.
    """

    changes: ClassVar = {"_clip_exponent": int}

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        keys: RoundSigner,
        zone: Mask,
        noise: SumNoise,
        rule: ClipRule,
    ) -> None:
        super().__init__(context, initial, keys, zone, noise)
        self._rule = rule
        self._clip_exponent = 0

    def check_changed(self) -> None:
        """Raise WireFormatError for a norm that no round has."""
        super().check_changed()
        refuse_unless(abs(self._clip_exponent) <= MOST_EXPONENT)

    @property
    def _clip_norm(self) -> float:
        """What updates of the round that runs are clipped to."""
        return self._rule.norm_at(self._clip_exponent)

    def _first_model(self) -> Message:
        return Message({**super()._first_model(), **clip_part(0)})

    def _kept_message(self) -> Message:
        return Message({**super()._kept_message(), **clip_part(self._clip_exponent)})

    def _decide(self, phase: str, message: Message) -> Message:
        """Open the total, and move model and norm: both, or none where the model that it comes to is refused."""
        before = self._clip_exponent
        try:
            answer = super()._decide(phase, message)
        except BaseException:
            self._clip_exponent = before
            raise
        number = message.number("round")
        text = f"the clipping norm that the sum of round {number} leads to is {self._clip_norm:.4g}"
        self.note(Note(text, "clipping norm", number))
        return answer

    def _open_mean(self, claim: MixedTotal, keys: TotalOpener[Any], message: Message) -> NDArray[np.float64]:
        """Return the mean update (P,), and move the norm by the value behind it."""
        claim.check_weights(1)
        total = claim.union.scatter(keys.open(claim.total))
        mean = mean_of_shares(total, claim, self._noise.steps_per_unit_at(self._clip_norm), self.context)
        count = self.context.plan.parameters
        excess = mean_of_total(
            total[count : count + 1],
            clients=claim.total.clients,
            steps_per_unit=float(self._noise.count_steps),
            rotation_seed=rotation_seed(self.context.keys.session, claim.total.round),
            threads=self.context.threads,
        )
        share_within = (1.0 + float(excess[0])) / 2.0
        self._clip_exponent = self._rule.moved(self._clip_exponent, share_within)
        return mean
