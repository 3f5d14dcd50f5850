"""Central DP-FedAvg, to compare with: a trusted aggregator gets clipped updates in the clear and noises their sum.

McMahan, Ramage, Talwar, Zhang, "Learning differentially private recurrent language models" (ICLR 2018). Clipping, noise
and averaging are the package's own parts. It is not offered as a method: whoever aggregates reads every update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message
from shieldfl.methods.fedavg import DpFedAvgSettings, FedAvg, FedAvgAggregator, FedAvgClient
from shieldfl.privacy.events import NO_NOISE
from shieldfl.privacy.noise import clip_and_noise, gaussian_noise
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.plan import FederationPlan, GlobalModel, RoleContext

__all__ = ["CentralDpFedAvg"]


class _ClippingClient(FedAvgClient):
    """Clips its update to C and sends it as it is."""

    def __init__(
        self, method: CentralDpFedAvg, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        super().__init__(method, context, index, weight, initial)
        self._clip_norm = method.clip_norm

    def _protect(self, update: FloatVector) -> FloatVector:
        with self.clock.stage("encrypt"):
            self._disclose()
            clipped, _, _ = clip_and_noise(update, self._clip_norm, 0.0, threads=self.context.threads)
            return clipped


class _NoisingAggregator(FedAvgAggregator):
    """Adds N(0, (z C)^2) to every value of the sum, and divides by the number of clients."""

    def __init__(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel, deviation: float
    ) -> None:
        super().__init__(context, weights, initial)
        self._deviation = deviation

    def _result(self, phase: str) -> Message:
        noised = gaussian_noise(self._sum.astype(np.float32), self._deviation, threads=self.context.threads)
        self._moved = self._model.moved_finite(noised.astype(np.float64) / self._weight, self._learning_rate)
        return self._moved.to_message()


class CentralDpFedAvg(FedAvg):
    """Averaging of clipped updates whose sum a trusted aggregator noises; z is ``noise_multiplier``."""

    names = (
        NamedMethod(
            "central-dp-fedavg",
            "clipped updates, in the clear",
            "what distributed noise is compared with",
            "McMahan et al. 2018",
            DpFedAvgSettings(),
        ),
    )
    # The account speaks of what the aggregator reads, which is everything.
    privacy_reading = NO_NOISE
    aggregator_sees = "every client's update, clipped"
    weighs_all_alike = True
    shares_buffers = False
    client_kind = _ClippingClient

    def __init__(self, name: str, settings: DpFedAvgSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan)
        self._settings = settings
        self.clip_norm = settings.clip_norm

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> _NoisingAggregator:
        deviation = self._settings.noise_multiplier * self._settings.clip_norm
        assert initial is not None
        shared = GlobalModel(initial.parameters, initial.buffers[:0])
        return _NoisingAggregator(context, weights, shared, deviation)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings."""
        return asdict(self._settings) | {"weights": "uniform"}
