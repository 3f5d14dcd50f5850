"""Averages of encrypted updates whose sums may have noise, of which every client adds a share before it encrypts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.client import NoiseSharingClient
from shieldfl.methods.encrypted_sum.encryption_settings import EncryptionSettings
from shieldfl.methods.masked_average.client import MaskedAverageClient
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.events import PrivacyReading
from shieldfl.privacy.sum_noise import SumNoise

if TYPE_CHECKING:
    from shieldfl.methods.protocol.steps import AuthoritySteps
    from shieldfl.roles.round_signer import RoundSigner

__all__ = ["OF_NOISY_SUMS", "NoisySumAverage", "facts_of_noise"]

OF_NOISY_SUMS = PrivacyReading(
    "client",
    "all but authority and aggregator together",
    "all updates of a client are zeroed out, K stays",
    "ε is of what opened sums, and with them the global model, tell: each has the noise of all its clients, and is "
    "charged that of min_clients, less those that may collude. Single updates are hidden by encryption alone, "
    "from all but the key authority together with the aggregator; under ckks and paillier as long as the "
    "aggregator adds up what it says. Of one client, whose updates are all zeroed out while K stays, by theorems "
    "on sums of Skellam noise (Agarwal, Kairouz and Liu 2021) or discrete Gaussians (Kairouz, Liu and Steinke "
    "2021)",
    "ε against outsiders alone is of the same unit and neighbours: one client, whose updates are all zeroed out "
    "while K stays. It holds against those who see every global model and K, have no part in the federation, and "
    "see neither its messages nor this run's seed, from which its draws follow: key authority, aggregator and "
    "every client learn who takes part. Each round is charged for the share of clients that were drawn, by "
    "the same theorems and advanced joint convexity (Balle, Barthe and Gaboardi 2018)",
)
"""Where everything that leaves a client is in a sum with noise."""


class NoisySumAverage(MaskedAverage):
    """Averaging in which the same positions are encrypted in every round, and whose sums have noise if settings ask.

    With noise, nothing leaves a client but what has a share of it: its buffers stay with it, and all clients count
    alike. Without, it is :class:`MaskedAverage`.

    Parameters
    ----------
    name, plan, sends_rest : as for :class:`MaskedAverage`.
    settings : with ``asked_noise``, None for no noise.
    zone : the N positions that are encrypted, of which buffers are left out where sums have noise.

    Raises ParameterError for a target epsilon that no noise reaches, noise that fits no sum, and more colluders than
    the smallest sum leaves room for.
    """

    noise: SumNoise | None = None
    """The plan of it; None where sums have none."""

    def __init__(
        self, name: str, settings: Any, plan: FederationPlan, zone: Mask, *, sends_rest: bool = True
    ) -> None:
        self._target_epsilon = None
        self.privacy_reading = self.reading_with(settings)
        asked = settings.asked_noise
        if asked is None:
            super().__init__(name, settings, plan, zone, sends_rest=sends_rest)
            return
        self._target_epsilon = asked.target_epsilon
        parameters = zone.resized(plan.parameters)
        dimension = parameters.count
        multiplier = asked.multiplier_under(
            plan, dimension=dimension, delta=settings.delta, rounds=plan.rounds
        )
        settings = settings.with_multiplier(multiplier)
        self.noise = noise = asked.planned(plan, multiplier, dimension=dimension)
        self.weighs_all_alike = True
        self.aggregator_sees = "ciphertexts and their number"
        self.delta = settings.delta
        self.deviation_of_share = noise.deviation_of_share
        encryption = EncryptionSettings(noise.value_bits, 0, settings.encryption, settings.key_bits)
        super().__init__(
            name,
            settings,
            plan,
            parameters.resized(plan.update_size),
            encryption=encryption,
            sends_rest=False,
        )

    @classmethod
    def reading_with(cls, settings: Any) -> PrivacyReading:
        """Return how its figures are to be read under these settings."""
        return cls.privacy_reading if settings.asked_noise is None else OF_NOISY_SUMS

    def _why_alike(self) -> str:
        return f"{self.name} weighs all clients alike: a weight would let one count for more than C"

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> MaskedAverageClient:
        if self.noise is None or self.zone is None:
            return super()._client(context, index, weight, initial, shared_secret)
        return NoiseSharingClient(index, initial, context, self.zone, self.noise)

    def _authority_steps(
        self, initial: GlobalModel, context: RoleContext, keys: RoundSigner, shared_secret: bytes | None
    ) -> AuthoritySteps:
        if self.noise is None or self.zone is None:
            return super()._authority_steps(initial, context, keys, shared_secret)
        from shieldfl.methods.distributed_noise.authority import NoisySumAuthority

        return NoisySumAuthority(context, initial, keys, self.zone, self.noise)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        stated = super().settings(weights)
        if self.noise is None:
            return stated
        return (
            stated
            | {self._settings.target_setting: self._target_epsilon, "weights": "uniform"}
            | facts_of_noise(self.noise, self.plan.rounds, self.delta)
        )


def facts_of_noise(noise: SumNoise, rounds: int, delta: float) -> dict[str, Any]:
    """Return what noise on so many sums comes to, for reports."""
    alone = noise.epsilon_of_single_uploads(rounds, delta)
    return {
        "honest_clients_charged": noise.honest_clients,
        "noise_multiplier_of_one_share": noise.noise_multiplier / math.sqrt(noise.honest_clients),
        "epsilon_if_single_uploads_are_opened": alone if math.isfinite(alone) else None,
        "added_delta": noise.added_delta(rounds, delta),
        "steps_per_unit": noise.steps_per_unit,
        "bits_of_a_value": noise.value_bits,
    }
