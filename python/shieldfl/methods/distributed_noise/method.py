"""``ddp-fedavg``: the encrypted sum of a round has noise, of which each client adds a share before it encrypts.

Sources: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation" (ICML 2021); Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated
Learning" (NeurIPS 2021). As there, a sum has room for what its clients come to, but for a small chance; buffers stay
with the client. A clipping norm that moves is after Andrew, Thakkar, McMahan and Ramaswamy, "Differentially Private
Learning with Adaptive Clipping" (NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.average import OF_NOISY_SUMS, NoisySumAverage
from shieldfl.methods.distributed_noise.client import AdaptiveClient
from shieldfl.methods.distributed_noise.rule import AdaptiveSumRule
from shieldfl.methods.distributed_noise.settings import DdpFedAvgSettings
from shieldfl.methods.masked_average.method import MaskedAverageClient
from shieldfl.privacy.events import PrivacyReading
from shieldfl.privacy.noise import LEAST_FIRST_NORM, MOST_FIRST_NORM, ClipRule
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.opening_rule import OpeningRule
from shieldfl.rounds.plan import FederationPlan
from shieldfl.rounds.public_setup import RoleContext

_OF_COUNTED_SUMS = replace(
    OF_NOISY_SUMS,
    neighbours="all that a client adds to sums is zeroed out, its part in the count too, K stays",
    meaning=f"{OF_NOISY_SUMS.meaning}. Zeros stand for its part in the count of clients within the clipping norm, too: "
    "not for a client that sends an update of zeros, which counts as within it",
    if_participation_hidden=f"{OF_NOISY_SUMS.if_participation_hidden}. Zeros stand for its part in the count, too",
)
"""Where the clipping norm moves by a count."""


class DdpFedAvg(NoisySumAverage):
    """Averaging of clipped updates under encryption, with noise on the sum; all clients count alike.

    Parameters
    ----------
    name, plan : as for :class:`Method`.
    settings : of clipping, noise and encryption.

    Raises as :class:`NoisySumAverage` does.
    """

    names = (
        NamedMethod(
            "ddp-fedavg",
            "everything encrypted, clipped, with a share of the noise that the sum has",
            "a bound for whole clients that costs little accuracy",
            "Kairouz, Liu and Steinke 2021; Agarwal, Kairouz and Liu 2021",
            DdpFedAvgSettings(),
        ),
    )
    privacy_reading = OF_NOISY_SUMS
    aggregator_sees = "ciphertexts and their number"
    hides_all = True

    weighs_all_alike = True
    noise: SumNoise

    def __init__(self, name: str, settings: DdpFedAvgSettings, plan: FederationPlan) -> None:
        self._rule = _clip_rule(settings)
        super().__init__(name, settings, plan, Mask.full(plan.update_size))
        if self.noise.count_multiplier < self.noise.noise_multiplier:
            self.notes.append(
                f"{name}: most of ε is spent on counting clients within the clipping norm, whose noise has a "
                f"multiplier of {self.noise.count_multiplier:.3g}: raise clip_count_noise, or min_clients"
            )

    @classmethod
    def reading_with(cls, settings: DdpFedAvgSettings) -> PrivacyReading:
        """Return how its figures are to be read: where clients are counted, what is zeroed out is more."""
        return OF_NOISY_SUMS if settings.clipping == "fixed" else _OF_COUNTED_SUMS

    @property
    def positions(self) -> int:
        """How many an update has as it is sent: one more than the model's where clients are counted."""
        return self.plan.update_size + (self._rule is not None)

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> MaskedAverageClient:
        if self._rule is None or self.zone is None:
            return super()._client(context, index, weight, initial, shared_secret)
        return AdaptiveClient(index, initial, context, self.zone, self.noise, rule=self._rule)

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> OpeningRule:
        if self._rule is None or self.zone is None:
            return super()._opening_rule(initial, context, shared_secret)
        return AdaptiveSumRule(context, initial, self.zone, self.noise, self._rule)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings that decide something, with what they come to."""
        stated = super().settings(weights)
        if self._rule is None:
            return stated
        return stated | {"noise_multiplier_with_count": self.noise.multiplier_with_count}


def _clip_rule(settings: DdpFedAvgSettings) -> ClipRule | None:
    """Return how the clipping norm moves; None where it does not. Raises ParameterError for one that cannot."""
    if settings.clipping == "fixed":
        return None
    if not LEAST_FIRST_NORM <= settings.clip_norm <= MOST_FIRST_NORM:
        raise ParameterError("a clipping norm that moves must be from 2^-84 to 2^84 in the first round")
    return ClipRule(settings.clip_norm, settings.clip_quantile, settings.clip_learning_rate)
