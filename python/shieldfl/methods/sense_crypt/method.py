"""SenseCrypt: each client encrypts what is sensitive and what it has the time for, in clusters of like data.

The roles are in the module beside this one. docs/methods/sense-crypt.md says what it protects, what leaks and
how the paper was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import INVITED, digest_of_parts, model_signature_name, round_key_parts
from shieldfl.encryption.registry import encryptions
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.methods.encrypted_update import MixedTotal, with_buffers_times
from shieldfl.methods.encryption_settings import update_parameters
from shieldfl.methods.sense_crypt.clustering import ClusterRegistry
from shieldfl.methods.sense_crypt.roles import (
    SenseCryptAggregator,
    SenseCryptClient,
    cluster_model,
    cluster_round,
)
from shieldfl.methods.sense_crypt.settings import SenseCryptSettings
from shieldfl.privacy.accountant import gaussian_noise_multiplier
from shieldfl.privacy.events import PrivacyReading
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.method import Method
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.plan import FederationPlan, Phase, stated_weights
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless


class SenseCryptRule(OpeningRule):
    """One total for each cluster moves that cluster's model (algorithm 3)."""

    changes: ClassVar = {"_models": dict[int, GlobalModel], "_clusters": NDArray[np.int64]}

    def __init__(self, initial: GlobalModel, context: RoleContext) -> None:
        super().__init__(context)
        self._initial = initial
        self._models: dict[int, GlobalModel] = {}
        self._clusters: NDArray[np.int64] = np.full(context.plan.clients, -1)
        self._clients = context.plan.clients

    def check_changed(self) -> None:
        refuse_unless(self._clusters.size == self._clients)
        refuse_unless(self._clusters.min() >= -1 and self._clusters.max() < self._clients)
        refuse_unless(all(0 <= cluster < self._clients for cluster in self._models))
        refuse_unless(all(model.is_like(self._initial) for model in self._models.values()))

    def first_model(self) -> Message:
        return self._initial.to_message()

    def keeps(self, model: Message) -> bool:
        return model == (self._models_of_clusters() if "clusters" in model else self._initial.to_message())

    def digests(self, model: Message) -> Mapping[int | None, bytes]:
        """Return for each client the digest of its cluster's model, and that it is in none where it is."""
        if "clusters" not in model:
            return super().digests(model)
        digests = {
            int(cluster): digest_of_parts(cluster_model(model, int(cluster)))
            for cluster in np.unique(self._clusters)
        }
        return {client: digests[int(cluster)] for client, cluster in enumerate(self._clusters)}

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        clusters = message.vector("clusters", np.int64, self._clients)
        if clusters.min() < -1 or clusters.max() >= self._clients:
            raise WireFormatError("there is no cluster of this number")
        if ((self._clusters >= 0) & (clusters != self._clusters)).any():
            raise PolicyError(
                "a client has changed its cluster: totals of changing groups would single clients out"
            )
        round_number = message.number("round")
        known = range(int(clusters.max(initial=-1)) + 1)
        claims = {
            cluster: MixedTotal.read(
                message,
                f" {cluster}",
                self.context.parameters,
                self.context.plan.update_size,
                cluster_round(self.context, round_number, cluster),
            )
            for cluster in known
            if f"total {cluster}" in message
        }
        if any(
            client >= self._clients or clusters[client] != cluster
            for cluster, claim in claims.items()
            for client in claim.total.named_clients
        ):
            raise PolicyError("the total of a cluster has an update of a client that is not in it")
        least, learning_rate = sums.min_clients, self.context.plan.server_learning_rate
        notes = [
            f"round {round_number}: {claim.total.clients} client(s) of cluster {cluster} sent an update, too few to "
            "open: its model stays"
            for cluster, claim in claims.items()
            if claim.total.clients < least
        ]
        large = {cluster: one for cluster, one in claims.items() if one.total.clients >= least}
        # What came in the clear is looked at, of all clusters, before anything is opened.
        for cluster, claim in large.items():
            claim.check_weights(self.context.most_weight)
            if claim.sums.size:
                self._model_of(cluster).moved_finite(claim.clear_mean(), learning_rate)
        moved = {}
        for cluster, claim in large.items():
            stated = claim.stated_weight(self.context.most_weight)
            with sums.opening(claim.total) as opener:
                mean = claim.mean_of(opener.open_mean(claim.total, stated_weight=stated))
            mean = with_buffers_times(mean, self._initial.buffers.size, 1.0 / self.context.buffer_factor)
            moved[cluster] = self._model_of(cluster).moved_finite(mean, learning_rate)
        self._models = self._models | moved
        for text in notes:
            sums.note(text)
        self._clusters = clusters
        return self._models_of_clusters()

    def _models_of_clusters(self) -> Message:
        parts: dict[str, Part] = {"clusters": self._clusters.tobytes()}
        for cluster in range(int(self._clusters.max(initial=-1)) + 1):
            model = self._model_of(cluster).to_message()
            parts |= {f"{name} {cluster}": part for name, part in model.items()}
        return Message(parts)

    def _model_of(self, cluster: int) -> GlobalModel:
        return self._models.get(cluster, self._initial)


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
        self, context: RoleContext, index: int, weight: int, initial: GlobalModel, shared_secret: bytes | None
    ) -> SenseCryptClient:
        return SenseCryptClient(index, initial, self._settings, self._noise_multiplier, weight, context)

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
        if "clusters" not in message:
            return True
        return self._cluster_of(client, message) >= 0

    def _cluster_of(self, client: int, message: Message) -> int:
        cluster = int(message.vector("clusters", np.int64, self.plan.clients)[client])
        if not -1 <= cluster < self.plan.clients:
            raise WireFormatError("there is no cluster of this number")
        return cluster

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        return asdict(self._settings) | {
            "clustering_noise_multiplier": self._noise_multiplier,
            "weights": stated_weights(weights),
            "bytes_per_encrypted_value": self.purposes["update"].bytes_per_value,
        }
