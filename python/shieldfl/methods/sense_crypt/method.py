"""SenseCrypt: each client encrypts what is sensitive and what it has the time for, in clusters of like data.

The steps of the roles are in the modules beside this one; here they are set up. docs/methods/sense-crypt.md says what
it protects, what leaks and how the paper was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import INVITED, model_signature_name, round_key_parts
from shieldfl.encryption.registry import encryptions
from shieldfl.errors import WireFormatError
from shieldfl.methods.encryption_settings import update_parameters
from shieldfl.methods.sense_crypt.clustering import ClusterRegistry
from shieldfl.methods.sense_crypt.roles import (
    Capability,
    SenseCryptAggregator,
    SenseCryptClient,
    cluster_model,
)
from shieldfl.methods.sense_crypt.rule import SenseCryptRule
from shieldfl.methods.sense_crypt.settings import SenseCryptSettings
from shieldfl.privacy.accountant import gaussian_noise_multiplier
from shieldfl.privacy.events import PrivacyReading
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan, Phase, stated_weights
from shieldfl.rounds.public_setup import RoleContext


class SenseCrypt(Method):
    """SenseCrypt for one federation.

    Clusters of fewer than ``min_clients`` are merged; buffers are averaged, always encrypted.
    """

    names = (
        NamedMethod(
            "sense-crypt",
            "each client's own share encrypted, the rest in the clear",
            "clients of uneven speed; clients in clusters",
            "SenseCrypt, algorithms 1 and 2, eqs. 2 to 8",
            SenseCryptSettings(),
            masks="budgets",
            masks_each_round=True,
        ),
    )
    privacy_reading = PrivacyReading(
        "client",
        "the aggregator, which sees no model",
        "the sensitivity that a client uploads is zeroed out",
        "ε is ∞ once masks, or values outside of them, are readable; the noise alone counts the one upload for "
        "clustering; what opened sums, and with them the model, tell is not counted",
    )
    aggregator_sees = (
        "values outside of the masks, masks, every client's sensitivity once, speeds and weights"
    )

    scores = "taylor"
    schemes = encryptions()
    phases = (
        Phase("cluster", answered_by_authority=False),
        Phase("mask", answered_by_authority=False),
        Phase("update", answered_by_authority=True),
    )

    def __init__(self, name: str, settings: SenseCryptSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan)
        self._settings = settings
        self.delta = settings.clustering_delta
        self._noise_multiplier = 0.0
        if settings.clustering_epsilon is not None and settings.clustering != "none":
            self._noise_multiplier = gaussian_noise_multiplier(
                settings.clustering_epsilon, settings.clustering_delta
            )
        self.buffer_factor = settings.buffer_factor
        self.purposes = {
            "update": update_parameters(
                settings.encryption,
                plan.most_participants,
                settings,
                most_weight=plan.most_weight,
                mean_weight=plan.mean_weight,
                key_bits=settings.key_bits,
                takes_clear_values=True,
            )
        }

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> SenseCryptClient:
        return SenseCryptClient(
            index,
            initial,
            self._settings,
            self._noise_multiplier,
            Capability(
                bandwidth=self._settings.bandwidths[index % len(self._settings.bandwidths)],
                compute_speed=self._settings.compute_speeds[index % len(self._settings.compute_speeds)],
                weight=weight,
            ),
            context,
        )

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> SenseCryptAggregator:
        return SenseCryptAggregator(
            context,
            weights,
            ClusterRegistry(
                self.plan.clients,
                self._settings.clustering != "none",
                self.plan.min_clients,
                self._settings.least_silhouette,
                self._noise_multiplier * self._settings.clustering_clip_norm,
            ),
        )

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> SenseCryptRule:
        return SenseCryptRule(initial, context)

    def message_for(self, client: int, message: Message) -> Message:
        """Return what concerns the client's cluster; no model for a client that is in none: it has the initial one.

        Raises WireFormatError for clusters that there are not, and a budget for a client that is in none.
        """
        if "clusters" not in message:
            return message
        cluster = self._cluster_of(client, message)
        if "budgets" in message:
            if cluster < 0:
                raise WireFormatError(f"client {client} is in no cluster, so there is no budget for it")
            budget = message.vector("budgets", np.float64, self.plan.clients)[client]
            return Message({"cluster": Message.from_number(cluster), "budget": budget.tobytes()})
        names = (INVITED, model_signature_name(client))
        signed = {name: message[name] for name in names if name in message}
        return Message({**cluster_model(message, cluster), **round_key_parts(message), **signed})

    def has_model(self, client: int, message: Message) -> bool:
        """Say whether the client is in a cluster."""
        if "clusters" not in message:
            return True
        return self._cluster_of(client, message) >= 0

    def _cluster_of(self, client: int, message: Message) -> int:
        cluster = int(message.vector("clusters", np.int64, self.plan.clients)[client])
        if not -1 <= cluster < self.plan.clients:
            raise WireFormatError("there is no cluster of this number")
        return cluster

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | {
            "clustering_noise_multiplier": self._noise_multiplier,
            "weights": stated_weights(weights),
            "bytes_per_encrypted_value": self.purposes["update"].bytes_per_value,
        }
