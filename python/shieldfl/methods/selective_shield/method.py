"""SelectiveShield (Li, Yan, Liu): encrypted, personalised and noised zones, two servers.

The steps of the roles are in the modules beside this one; here they are set up. docs/methods/selective-shield.md
says what it protects, what leaks and how the paper was read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from shieldfl.encryption.registry import weighing_encryptions
from shieldfl.errors import ParameterError
from shieldfl.methods.encryption_settings import FixedPoint, update_parameters
from shieldfl.methods.selective_shield.roles import (
    SelectiveShieldAggregator,
    SelectiveShieldClient,
    SelectiveShieldRule,
)
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.events import Noise, PrivacyReading
from shieldfl.privacy.noise import float32_grid
from shieldfl.rounds.account import Account
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan, Phase
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.settings import TrainingSettings


class SelectiveShield(Method):
    """SelectiveShield for one federation.

    A target epsilon is spread over the plan's rounds; ``server_learning_rate`` is eta_g of eq. 26.
    """

    names = (
        NamedMethod(
            "selective-shield",
            "what many hold sensitive encrypted, what few do kept, the rest noised",
            "personal models",
            "Li, Yan, Liu: SelectiveShield, eqs. 11 to 27",
            SelectiveShieldSettings(),
        ),
    )
    privacy_reading = PrivacyReading(
        "client",
        "the aggregator, which sees no model",
        "all updates of a client are zeroed out, K stays",
        "ε counts the noise zone, by the paper's eq. 22 with a noise of σ; ∞ where masks follow from the data and are "
        "readable, and from the first noised upload on that depends on an encrypted zone opened without noise. Of the "
        "noise alone there are two figures: charged is that of σ; that of σ·√K, which clients add, holds only if the "
        "stated number K of participants was true; what opened sums, and with them the global model, tell is not "
        "counted",
    )
    aggregator_sees = "noised values and their positions, every client's mask or the negotiated zone"

    weighs_all_alike = True
    schemes = weighing_encryptions()
    averages_all = False
    clients_can_open = True
    phases = (Phase("negotiate", answered_by_authority=False), Phase("update", answered_by_authority=True))

    @classmethod
    def why_no_sum_noise(cls, name: str) -> str:
        return (
            "has no noise on sums: who encrypts a position follows from masks of the data, so that a sum may have the "
            "shares of few clients, for whom none is sized, and masks tell of the data without noise: ε would stay "
            "infinite; leave it out, or take full-he or ddp-fedavg"
        )

    def __init__(self, name: str, settings: SelectiveShieldSettings, plan: FederationPlan) -> None:
        if isinstance(settings.threshold, tuple) and len(settings.threshold) != plan.clients:
            raise ParameterError(
                f"there are {len(settings.threshold)} thresholds (tau) for {plan.clients} clients"
            )
        self._target_epsilon = settings.target_epsilon
        if settings.target_epsilon is not None:
            sigma = noise_multiplier_for(settings.target_epsilon, settings.delta, plan.rounds)
            settings = replace(settings, noise_multiplier=sigma, target_epsilon=None)
        if settings.has_discrete_noise:
            _check_grid(settings, plan.most_participants, plan.parameters)
        super().__init__(name, settings, plan)
        self._settings = settings
        self.scores = settings.sensitivity
        self.delta = settings.delta
        encrypted_votes = settings.negotiation == "encrypted"
        if encrypted_votes:
            self.phases = (Phase("negotiate", answered_by_authority=True, opens="votes"), self.phases[1])
            self.notes.append(
                "tallies of votes are opened in every round: where one client more or less takes part in the next, the "
                "difference is its vote at all positions at which the others' votes stay"
            )
        if settings.adaptive_clip and settings.noise_multiplier > 0.0:
            self.notes.append("the clipping norm follows the data, so the stated epsilon is no guarantee")
        if self._target_epsilon is not None:
            self.notes.append(
                "target_epsilon bounds what the noise alone is charged for, not what masks and opened sums tell besides"
            )
        parameters = {
            "update": update_parameters(
                settings.encryption, plan.most_participants, settings, most_count=plan.update_size
            )
        }
        if encrypted_votes:
            # A vote is 0 or 1: two bits with the sign, several to a coefficient.
            parameters["votes"] = update_parameters(
                settings.encryption, plan.most_participants, FixedPoint(2, 0), count=plan.parameters
            )
        self.purposes = parameters
        self.buffer_factor = settings.buffer_factor

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return C sigma sqrt(K) (eq. 21), of the first C where it follows the data."""
        settings = self._settings
        return settings.clip_norm * settings.noise_multiplier * math.sqrt(participants)

    def _why_alike(self) -> str:
        return f"{self.name} weighs all clients alike (its eq. 26), whatever their weights"

    @property
    def _shared_buffers(self) -> int:
        return self.plan.buffers if self._settings.buffers == "encrypted" else 0

    def _client(
        self, context: RoleContext, index: int, weight: int, initial: GlobalModel, shared_secret: bytes | None
    ) -> SelectiveShieldClient:
        return SelectiveShieldClient(index, initial, self._settings, context)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> SelectiveShieldAggregator:
        return SelectiveShieldAggregator(context, self._shared_buffers, self._settings)

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> SelectiveShieldRule:
        shared = GlobalModel(initial.parameters, initial.buffers[: self._shared_buffers])
        return SelectiveShieldRule(shared, self._settings, context)

    def account(self) -> Account:
        """Return an account that charges eq. 22's sigma for every draw, one that is repeated as well."""
        multiplier = self._settings.noise_multiplier
        noise = Noise(multiplier, "client") if multiplier > 0.0 else None
        return Account(self.notes, self.delta, per_draw=noise, target_epsilon=self._target_epsilon)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        return asdict(self._settings) | {
            "target_epsilon": self._target_epsilon,
            "bytes_per_encrypted_value": self.purposes["update"].bytes_per_value,
        }


def _check_grid(settings: SelectiveShieldSettings, clients: int, size: int) -> None:
    """Refuse settings under which a client could not make its discrete noise, before any round starts."""
    deviation = settings.clip_norm * settings.noise_multiplier
    for participants in (1, clients):
        float32_grid(deviation * math.sqrt(participants))
    # Rounding a vector may add sqrt(P) half steps to its norm, and values are clipped to that much less than C.
    # With 2^20 steps to a deviation of C sigma sqrt(K), this keeps it to half of C.
    if settings.noise_multiplier * math.sqrt(clients * size) > 2.0**20:
        raise ParameterError(
            f"noise_multiplier (sigma) {settings.noise_multiplier:g} is too large for discrete-gaussian noise on "
            f"{size} parameters of {clients} clients: its grid would be too coarse for the clipping norm"
        )
