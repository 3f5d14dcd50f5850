"""SenseCrypt: each client encrypts what is sensitive and what it has the time for, in clusters of like data.

The steps of the roles are in the modules beside this one; here they are set up. docs/methods/sense-crypt.md says what
it protects, what leaks and how the paper was read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from shieldfl.methods.account import Account
from shieldfl.methods.cluster_registry import ClusterRegistry
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.method import Method, Phase
from shieldfl.methods.sense_crypt_aggregator import SenseCryptAggregator
from shieldfl.methods.sense_crypt_authority import SenseCryptAuthority
from shieldfl.methods.sense_crypt_client import Capability, SenseCryptClient
from shieldfl.methods.sense_crypt_settings import SenseCryptSettings
from shieldfl.methods.update_parameters import FixedPoint, update_parameters
from shieldfl.privacy.gaussian_mechanism import gaussian_noise_multiplier
from shieldfl.privacy.reading import PrivacyReading
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import round_key_parts
from shieldfl.roles.round_keys import RoundKeys

__all__ = ["SenseCrypt"]


class SenseCrypt(Method):
    """SenseCrypt for one federation.

    Parameters
    ----------
    name : the method's name.
    initial : model and float buffers before the first round; buffers are averaged, always encrypted.
    settings : the method's settings.
    federation : its sizes and policies. Clusters of fewer than ``min_clients`` are merged.
    """

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

    phases = (
        Phase("cluster", answered_by_authority=False),
        Phase("mask", answered_by_authority=False),
        Phase("update", answered_by_authority=True),
    )

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: SenseCryptSettings,
        federation: Federation,
    ) -> None:
        super().__init__(name, federation)
        self._initial = initial
        self._settings = settings
        self._clients = federation.clients
        self._weights = federation.client_weights
        self._threads = federation.threads
        self._noise_multiplier = 0.0
        if settings.clustering_epsilon is not None and settings.clustering != "none":
            self._noise_multiplier = gaussian_noise_multiplier(
                settings.clustering_epsilon, settings.clustering_delta
            )
        parameters = update_parameters(
            settings.encryption,
            federation.clients,
            FixedPoint(settings.value_bits, settings.fraction_bits),
            most_weight=max(self._weights),
            mean_weight=sum(self._weights) / len(self._weights),
            key_bits=settings.key_bits,
            takes_clear_values=True,
        )
        self._keys = RoundKeys(
            {"update": parameters},
            federation.min_clients,
            weight_bounds=(1 / max(self._weights), 1.0),
            threads=federation.threads,
        )

    def client(self, index: int) -> SenseCryptClient:
        """Make the client of this index, of a kind that its index picks."""
        settings = self._settings
        return SenseCryptClient(
            index,
            self._initial,
            settings,
            self._noise_multiplier,
            Capability(
                bandwidth=settings.bandwidths[index % len(settings.bandwidths)],
                compute_speed=settings.compute_speeds[index % len(settings.compute_speeds)],
                weight=self._weights[index],
            ),
            self._keys.check,
            self._clients,
            max(self._weights),
            self.federation.min_clients,
            self._threads,
        )

    def aggregator(self) -> SenseCryptAggregator:
        """Make the aggregator: it gets public keys alone."""
        return SenseCryptAggregator(
            self._initial.parameters.size,
            self._initial.buffers.size,
            ClusterRegistry(
                self._clients,
                self._settings.clustering != "none",
                self.federation.min_clients,
                self._settings.least_silhouette,
                self._noise_multiplier * self._settings.clustering_clip_norm,
            ),
            self._keys.check,
            self._weights,
            self._threads,
        )

    def authority(self) -> SenseCryptAuthority:
        """Make the key authority's steps."""
        return SenseCryptAuthority(
            self._initial,
            self._keys,
            self._clients,
            max(self._weights),
            self.federation.server_learning_rate,
        )

    def initial_model(self) -> Message:
        """Return the model that the first round starts from."""
        return self._initial.to_message()

    def message_for(self, client: int, message: Message) -> Message:
        """Return what concerns the client's cluster; the initial model for a client that is in none yet."""
        if "clusters" not in message:
            return message
        cluster = int(message.vector("clusters", np.int64, self._clients)[client])
        if "budgets" in message:
            budget = message.vector("budgets", np.float64, self._clients)[client]
            return Message({"cluster": Message.from_number(cluster), "budget": budget.tobytes()})
        keys = round_key_parts(message)
        if cluster < 0:
            return Message({**self._initial.to_message(), **keys})
        suffix = f" {cluster}"
        own = {name.removesuffix(suffix): part for name, part in message.items() if name.endswith(suffix)}
        return Message({**own, **keys})

    def has_model(self, client: int, message: Message) -> bool:
        """Say whether the client is in a cluster."""
        if "clusters" not in message:
            return True
        return bool(message.vector("clusters", np.int64, self._clients)[client] >= 0)

    def account(self) -> SenseCryptAccount:
        """Return an account: of values and masks in the clear; without them the upload for clustering is charged."""
        epsilon = self._settings.clustering_epsilon if self._noise_multiplier > 0.0 else None
        return SenseCryptAccount(self.notes, self._settings.clustering_delta, epsilon)

    def settings(self) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | {
            "clustering_noise_multiplier": self._noise_multiplier,
            "weights": self.federation.stated_weights,
            "bytes_per_encrypted_value": self._keys.check.parameters["update"].bytes_per_value,
        }


class SenseCryptAccount(Account):
    """Charges a client's one upload for clustering.

    Parameters
    ----------
    notes, delta : as for :class:`Account`.
    epsilon : what that upload costs; None where it has no noise.
    """

    def __init__(self, notes: Iterable[str], delta: float, epsilon: float | None) -> None:
        super().__init__(notes, delta)
        self._epsilon = epsilon

    def _of_noise(self) -> tuple[float, float]:
        if self._epsilon is None:
            return math.nan, math.nan
        # A client that comes again as a new one draws fresh noise, which no figure covers.
        charged = math.inf if self.events.noised_uploads("sensitivity") > 1 else self._epsilon
        return charged, charged
