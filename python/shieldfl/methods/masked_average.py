"""Averaging with one zone of encrypted positions for all: full encryption, and what methods with a mask stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from shieldfl import ckks, paillier
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.masked_average_aggregator import MaskedAverageAggregator
from shieldfl.methods.masked_average_authority import MaskedAverageAuthority
from shieldfl.methods.masked_average_client import MaskedAverageClient
from shieldfl.methods.method import Method, Phase
from shieldfl.methods.role_context import RoleContext
from shieldfl.methods.update_parameters import update_parameters
from shieldfl.privacy.reading import NO_NOISE
from shieldfl.roles.message import Message
from shieldfl.roles.round_keys import RoundKeys

__all__ = ["FullEncryption", "LastLayerEncryption", "MaskedAverage"]

UPDATE = Phase("update", answered_by_authority=True)


class MaskedAverage(Method):
    """Federated averaging in which every client encrypts the same positions.

    Parameters
    ----------
    name : the method's name.
    initial : model and float buffers before the first round; buffers are averaged, always encrypted.
    settings : how updates are encrypted.
    federation : its sizes and policies.
    zone : the N positions that are encrypted; None where the clients agree on them.
    count : how many positions are encrypted, where no zone says it and it is known.
    sends_rest : whether values outside of the zone are sent, in the clear.
    other_keys : what else than updates is encrypted, under keys of their own: parameters by purpose.
    """

    phases: tuple[Phase, ...] = (UPDATE,)

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: EncryptionSettings,
        federation: Federation,
        zone: Mask | None,
        *,
        count: int | None = None,
        sends_rest: bool = True,
        other_keys: Mapping[str, ckks.Parameters] | None = None,
    ) -> None:
        super().__init__(name, federation)
        self.zone = zone
        self.sends_rest = sends_rest
        self._settings = settings
        weights = federation.client_weights
        parameters = update_parameters(
            settings.encryption,
            federation.clients,
            settings.fixed_point,
            count=count if zone is None else zone.count,
            most_weight=max(weights),
            mean_weight=sum(weights) / len(weights),
            key_bits=settings.key_bits,
        )
        purposes: dict[str, ckks.Parameters | paillier.Parameters] = {"update": parameters}
        self.keys = RoundKeys(
            purposes | dict(other_keys or {}),
            federation.min_clients,
            weight_bounds=(1 / max(weights), 1.0),
            threads=federation.threads,
        )
        self.context = RoleContext(
            initial,
            self.keys.check,
            weights,
            federation.min_clients,
            federation.threads,
        )

    def client(self, index: int) -> MaskedAverageClient:
        """Make a client."""
        return MaskedAverageClient(index, self.context, self.zone, sends_rest=self.sends_rest)

    def aggregator(self) -> MaskedAverageAggregator:
        """Make the aggregator: it gets public keys alone."""
        return MaskedAverageAggregator(self.context, self.zone, sends_rest=self.sends_rest)

    def authority(self) -> MaskedAverageAuthority:
        """Make the key authority's steps."""
        return MaskedAverageAuthority(
            self.context,
            self.keys,
            self.federation.server_learning_rate,
            self.zone,
            sends_rest=self.sends_rest,
        )

    def initial_model(self) -> Message:
        """Return the model that the first round starts from."""
        return self.context.initial.to_message()

    def settings(self) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | {
            "weights": self.federation.stated_weights,
            "bytes_per_encrypted_value": self.context.parameters.bytes_per_value,
        }


class FullEncryption(MaskedAverage):
    """Everything is encrypted: ``full-he`` under CKKS, ``plain-he`` with a Paillier ciphertext for each value."""

    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts, their number, and weights"

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: EncryptionSettings,
        federation: Federation,
    ) -> None:
        everything = Mask.full(initial.parameters.size + initial.buffers.size)
        super().__init__(name, initial, settings, federation, everything)


class LastLayerEncryption(MaskedAverage):
    """``top-2``: the last layer's weight and bias alone are trained and shared, encrypted (DictPFL's FedHE-Top2).

    Training has to leave the other parameters as they are: :mod:`shieldfl.methods.model_adaptation` freezes them.
    Nothing of them is sent.
    """

    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts of the last layer, their number, and weights"

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: EncryptionSettings,
        federation: Federation,
    ) -> None:
        offsets = federation.offsets_of(initial.parameters.size)
        if len(offsets) < 3:
            raise ParameterError("top-2 needs a model whose last layer has a weight and a bias")
        size = initial.parameters.size + initial.buffers.size
        zone = Mask.full(size) - Mask.from_indices(list(range(offsets[-3])), size)
        super().__init__(name, initial, settings, federation, zone, sends_rest=False)
