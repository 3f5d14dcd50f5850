"""Averaging with one zone of encrypted positions for all: what full encryption and methods with a mask stand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.encryption_settings import EncryptionSettings, update_parameters
from shieldfl.methods.masked_average.aggregator import MaskedAverageAggregator
from shieldfl.methods.masked_average.client import MaskedAverageClient
from shieldfl.methods.masked_average.rule import MaskedAverageRule
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.method import Method
from shieldfl.methods.protocol.opening_rule import OpeningRule
from shieldfl.methods.protocol.phase import Phase
from shieldfl.methods.protocol.plan import FederationPlan, stated_weights
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import encryptions

__all__ = ["UPDATE", "MaskedAverage"]

UPDATE = Phase("update", answered_by_authority=True)


class MaskedAverage(Method):
    """Federated averaging in which every client encrypts the same positions.

    Parameters
    ----------
    name, plan : as for :class:`Method`; buffers are averaged, always encrypted.
    settings : of the method.
    encryption : how updates are encrypted; None for what the settings say.
    zone : the N positions that are encrypted; None where the clients agree on them.
    count : how many positions are encrypted, where no zone says it and it is known.
    sends_rest : whether values outside of the zone are sent, in the clear.
    other_keys : what else than updates is encrypted, under keys of their own: parameters by purpose.
    """

    phases: tuple[Phase, ...] = (UPDATE,)
    clients_can_open = True
    schemes: ClassVar[tuple[str, ...]] = encryptions()
    sum_bits: int | None = None
    """Of a sum of updates, where fewer than any sum takes are enough."""

    def __init__(
        self,
        name: str,
        settings: Any,
        plan: FederationPlan,
        zone: Mask | None,
        *,
        encryption: EncryptionSettings | None = None,
        count: int | None = None,
        sends_rest: bool = True,
        other_keys: Mapping[str, SchemeParameters[Any, Any]] | None = None,
    ) -> None:
        super().__init__(name, settings, plan)
        self.zone = zone
        self.sends_rest = sends_rest
        self._settings = settings
        chosen: EncryptionSettings = settings if encryption is None else encryption
        if chosen.encryption not in self.schemes:
            raise ParameterError(
                f"{name} encrypts by {' or '.join(self.schemes)}, not by {chosen.encryption}"
            )
        parameters = update_parameters(
            chosen.encryption,
            plan.most_participants,
            chosen,
            count=count if zone is None else zone.count,
            most_count=self.positions,
            most_weight=self.most_weight,
            mean_weight=1.0 if self.weighs_all_alike else plan.mean_weight,
            key_bits=chosen.key_bits,
            sum_bits=self.sum_bits,
        )
        self.purposes = {"update": parameters, **(other_keys or {})}
        self.buffer_factor = chosen.buffer_factor

    @property
    def update_parameters(self) -> SchemeParameters[Any, Any]:
        """How updates are encrypted."""
        return self.purposes["update"]

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> MaskedAverageClient:
        return MaskedAverageClient(index, weight, initial, context, self.zone, sends_rest=self.sends_rest)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> MaskedAverageAggregator:
        return MaskedAverageAggregator(context, weights, self.zone, sends_rest=self.sends_rest)

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> OpeningRule:
        return MaskedAverageRule(context, initial, self.zone, sends_rest=self.sends_rest)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | {
            "weights": stated_weights(weights),
            "bytes_per_encrypted_value": self.update_parameters.bytes_per_value,
        }
