"""``ddp-fedavg``: the encrypted sum of a round has noise, of which each client adds a share before it encrypts.

Sources: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation" (ICML 2021); Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated
Learning" (NeurIPS 2021). There a sum wraps around a modulus of secure aggregation; here it has room for whatever is
drawn, and buffers stay with the client. A clipping norm that moves is after Andrew, Thakkar, McMahan and Ramaswamy,
"Differentially Private Learning with Adaptive Clipping" (NeurIPS 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.methods.distributed_noise.adaptive_client import AdaptiveClient
from shieldfl.methods.distributed_noise.client import NoiseSharingClient
from shieldfl.methods.distributed_noise.settings import OF_ADAPTIVE_CLIPPING, DdpFedAvgSettings
from shieldfl.methods.encrypted_sum.encryption_settings import EncryptionSettings
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.named_method import NamedMethod
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.clip_rule import LEAST_FIRST_NORM, MOST_FIRST_NORM, ClipRule
from shieldfl.privacy.events import PrivacyReading
from shieldfl.privacy.sum_noise import fewest_honest, multiplier_for, planned_sum_noise
from shieldfl.settings import TrainingSettings

if TYPE_CHECKING:
    from shieldfl.methods.protocol.steps import AuthoritySteps
    from shieldfl.roles.round_signer import RoundSigner

__all__ = ["DdpFedAvg"]


class DdpFedAvg(MaskedAverage):
    """Averaging of clipped updates under encryption, with noise on the sum; all clients count alike.

    Parameters
    ----------
    name, plan : as for :class:`Method`.
    settings : of clipping, noise and encryption.

    Raises ParameterError for a target epsilon that no noise reaches, noise that fits no sum, and more colluders than
    the smallest sum leaves room for.
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
    privacy_reading = PrivacyReading(
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
    aggregator_sees = "ciphertexts and their number"
    hides_all = True

    weighs_all_alike = True

    def __init__(self, name: str, settings: DdpFedAvgSettings, plan: FederationPlan) -> None:
        self._target_epsilon = settings.target_epsilon
        planned = partial(
            planned_sum_noise,
            settings.mechanism,
            clip_norm=settings.clip_norm,
            dimension=plan.parameters,
            honest_clients=fewest_honest(plan.min_clients, settings.colluders),
            count_deviation=settings.clip_count_noise if settings.clipping == "adaptive" else None,
        )
        if settings.target_epsilon is not None:
            multiplier = multiplier_for(settings.target_epsilon, settings.delta, plan.rounds, planned)
            settings = replace(settings, noise_multiplier=multiplier, target_epsilon=None)
        self.noise = planned(settings.noise_multiplier)
        self._rule = _clip_rule(settings)
        encrypted = Mask.full(plan.parameters + (self._rule is not None))
        zone = encrypted.resized(encrypted.size + plan.buffers)
        encryption = EncryptionSettings(self.noise.value_bits, 0, settings.encryption, settings.key_bits)
        super().__init__(name, settings, plan, zone, encryption=encryption, sends_rest=False)
        self._zone = zone
        self.delta = settings.delta
        if self.noise.count_multiplier < self.noise.noise_multiplier:
            self.notes.append(
                f"{name}: most of ε is spent on counting clients within the clipping norm, whose noise has a "
                f"multiplier of {self.noise.count_multiplier:.3g}: raise clip_count_noise, or min_clients"
            )

    @property
    def positions(self) -> int:
        """How many an update has as it is sent: one more than the model's where clients are counted."""
        return self._zone.size

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return the deviation of one client's share; turning it back changes nothing of it.

        Where the clipping norm moves, that of the first round: it moves alike.
        """
        return math.sqrt(self.noise.share_variance) / self.noise.steps_per_unit

    def _why_alike(self) -> str:
        return f"{self.name} weighs all clients alike: a weight would let one count for more than C"

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> NoiseSharingClient:
        common = index, initial, context, self._zone, self.noise
        return NoiseSharingClient(*common) if self._rule is None else AdaptiveClient(*common, rule=self._rule)

    def _authority_steps(
        self, initial: GlobalModel, context: RoleContext, keys: RoundSigner, shared_secret: bytes | None
    ) -> AuthoritySteps:
        from shieldfl.methods.distributed_noise.adaptive_authority import AdaptiveSumAuthority
        from shieldfl.methods.distributed_noise.authority import NoisySumAuthority

        common = context, initial, keys, self._zone, self.noise
        return (
            NoisySumAuthority(*common)
            if self._rule is None
            else AdaptiveSumAuthority(*common, rule=self._rule)
        )

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        noise, rounds = self.noise, self.plan.rounds
        alone = noise.epsilon_of_single_uploads(rounds, self.delta)
        stated = asdict(self._settings)
        if self._rule is None:
            stated = {name: value for name, value in stated.items() if name not in OF_ADAPTIVE_CLIPPING}
        else:
            stated["noise_multiplier_with_count"] = noise.multiplier_with_count
        return stated | {
            "target_epsilon": self._target_epsilon,
            "weights": "uniform",
            "honest_clients_charged": noise.honest_clients,
            "noise_multiplier_of_one_share": noise.noise_multiplier / math.sqrt(noise.honest_clients),
            "epsilon_if_single_uploads_are_opened": alone if math.isfinite(alone) else None,
            "added_delta": noise.added_delta(rounds, self.delta),
            "steps_per_unit": noise.steps_per_unit,
            "bits_of_a_value": noise.value_bits,
            "bytes_per_encrypted_value": self.update_parameters.bytes_per_value,
        }


def _clip_rule(settings: DdpFedAvgSettings) -> ClipRule | None:
    """Return how the clipping norm moves; None where it does not. Raises ParameterError for one that cannot."""
    if settings.clipping == "fixed":
        return None
    if not LEAST_FIRST_NORM <= settings.clip_norm <= MOST_FIRST_NORM:
        raise ParameterError("a clipping norm that moves must be from 2^-84 to 2^84 in the first round")
    return ClipRule(settings.clip_norm, settings.clip_quantile, settings.clip_learning_rate)
