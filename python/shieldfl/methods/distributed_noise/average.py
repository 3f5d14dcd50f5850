"""Averages of encrypted updates whose sums may have noise, of which every client adds a share before it encrypts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from shieldfl.encryption.registry import DEFAULT_KEY_BITS
from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.client import NoiseSharingClient
from shieldfl.methods.distributed_noise.rule import noisy_mean
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.masked_average.method import MaskedAverage, MaskedAverageClient
from shieldfl.methods.masked_average.rule import MaskedAverageRule
from shieldfl.privacy.events import PrivacyReading
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.opening_rule import OpeningRule
from shieldfl.rounds.plan import FederationPlan
from shieldfl.rounds.public_setup import RoleContext

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


class SumNoised(MaskedAverage):
    """Averaging whose encrypted sums may have noise: what such methods have in common.

    Where settings ask for noise, whoever derives calls ``_noise_sums`` before the constructor of its base, whose
    settings and encryption follow from that.
    """

    noise: SumNoise | None = None
    """The plan of it; None where sums have none."""
    _target_epsilon: float | None = None
    _noisy_rounds = 0

    def _noise_sums(
        self,
        settings: Any,
        plan: FederationPlan,
        *,
        dimension: int,
        delta: float,
        rounds: int | None = None,
        unit: Literal["client", "sample"] = "client",
    ) -> tuple[Any, EncryptionSettings]:
        """Plan the noise; return settings with the multiplier that a target comes to, and how shares are encrypted.

        Parameters
        ----------
        settings : that ask for noise.
        dimension : values of a sum, at most.
        delta : of the epsilon.
        rounds : whose sums have noise; None for all.
        unit : whose part in a sum is charged.

        Raises ParameterError as :meth:`AskedNoise.planned` does.
        """
        asked = settings.asked_noise
        self._target_epsilon = asked.target_epsilon
        self._noisy_rounds = plan.rounds if rounds is None else rounds
        multiplier, self.noise = asked.planned(
            plan,
            dimension=dimension,
            delta=delta,
            rounds=self._noisy_rounds,
            unit=unit,
            encryption=settings.encryption,
        )
        self.delta = delta
        self.weighs_all_alike = True
        self.sum_bits = self.noise.sum_bits
        key_bits = getattr(settings, "key_bits", DEFAULT_KEY_BITS)
        encryption = EncryptionSettings(
            self.noise.value_bits, 0, 0, encryption=settings.encryption, key_bits=key_bits
        )
        return settings.with_multiplier(multiplier), encryption

    @property
    def derived(self) -> dict[str, Any]:
        """What has to be the same with everybody: also how large noise is, and on which grid."""
        return super().derived | ({} if self.noise is None else {"noise": self.noise.agreed})

    def _why_alike(self) -> str:
        if self.noise is None:
            return super()._why_alike()
        return f"{self.name} weighs all clients alike: a weight would let one count for more than C"

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings that decide something, with what they come to."""
        unused = self._settings.without_effect
        stated = {name: value for name, value in super().settings(weights).items() if name not in unused}
        if (noise := self.noise) is None:
            return stated
        alone = noise.epsilon_of_single_uploads(self._noisy_rounds, self.delta)
        too_large = noise.log2_chance_of_too_large_sum
        return stated | {
            self._settings.target_setting: self._target_epsilon,
            "weights": "uniform",
            "honest_clients_charged": noise.honest_clients,
            "noise_multiplier_of_one_share": noise.noise_multiplier / math.sqrt(noise.honest_clients),
            "epsilon_if_single_uploads_are_opened": alone if math.isfinite(alone) else None,
            "added_delta": noise.added_delta(self._noisy_rounds, self.delta),
            "steps_per_unit": noise.steps_per_unit,
            "bits_of_a_value": noise.value_bits,
            "bits_of_a_sum": noise.sum_bits,
            "log2_chance_that_a_sum_is_too_large": too_large if math.isfinite(too_large) else None,
        }


class NoisySumAverage(SumNoised):
    """Averaging in which the same positions are encrypted in every round, and whose sums have noise if settings ask.

    With noise, nothing leaves a client but what has a share of it: its buffers stay with it, and all clients count
    alike. Without, it is :class:`MaskedAverage`.

    Parameters
    ----------
    name, plan, sends_rest : as for :class:`MaskedAverage`.
    settings : with ``asked_noise``, None for no noise.
    zone : the N positions that are encrypted, of which buffers are left out where sums have noise.

    Raises ParameterError as :meth:`AskedNoise.planned` does.
    """

    clients_keep_nothing = True

    def __init__(
        self, name: str, settings: Any, plan: FederationPlan, zone: Mask, *, sends_rest: bool = True
    ) -> None:
        self.privacy_reading = self.reading_with(settings)
        encryption = None
        if settings.asked_noise is not None:
            parameters = zone.resized(plan.parameters)
            settings, encryption = self._noise_sums(
                settings, plan, dimension=parameters.count, delta=settings.delta
            )
            # A count is one position more, behind the parameters.
            counted = self.noise is not None and self.noise.count_steps > 0
            encrypted = parameters.resized(parameters.size + counted, chosen=True)
            zone, sends_rest = encrypted.resized(encrypted.size + plan.buffers), False
            self.aggregator_sees = "ciphertexts and their number"
        super().__init__(name, settings, plan, zone, encryption=encryption, sends_rest=sends_rest)

    @classmethod
    def reading_with(cls, settings: Any) -> PrivacyReading:
        """Return how its figures are to be read under these settings."""
        return cls.privacy_reading if settings.asked_noise is None else OF_NOISY_SUMS

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

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> OpeningRule:
        if self.noise is None or self.zone is None:
            return super()._opening_rule(initial, context, shared_secret)
        shared = GlobalModel(initial.parameters, initial.buffers[:0])  # which stay with the clients
        mean = partial(noisy_mean, self.noise, context)
        return MaskedAverageRule(context, shared, self.zone, sends_rest=False, mean=mean)
