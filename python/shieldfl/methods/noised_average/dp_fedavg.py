"""``dp-fedavg``: every client clips its whole update and noises it, so that a round hides who took part.

Source: McMahan, Ramage, Talwar, Zhang, "Learning differentially private recurrent language models" (ICLR 2018). There
a trusted server clips and noises; here each client does it itself and trusts nobody. Buffers stay with the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from shieldfl.methods.fedavg import FedAvgAggregator
from shieldfl.methods.noised_average.roles import NoisedAverage, NoisedAverageClient
from shieldfl.methods.noised_average.settings import DpFedAvgSettings
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.named_method import NamedMethod
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.events import Noise, PrivacyReading, SummedUploads
from shieldfl.privacy.mechanisms import clip_and_noise
from shieldfl.roles.message import Message
from shieldfl.settings import TrainingSettings
from shieldfl.training.local_update import FloatVector

__all__ = ["DpFedAvg"]


class DpFedAvgClient(NoisedAverageClient):
    """Clips its update to C and adds N(0, (sigma C)^2) to every value."""

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        context: RoleContext,
        clip_norm: float,
        noise_multiplier: float,
    ) -> None:
        super().__init__(index, initial, 1, context)
        self._clip_norm = clip_norm
        self._deviation = noise_multiplier * clip_norm
        self._noise = Noise(noise_multiplier, "client") if noise_multiplier > 0.0 else None

    def _protect(self, update: FloatVector) -> FloatVector:
        self._disclose(noise=self._noise)
        sent, _, _ = clip_and_noise(update, self._clip_norm, self._deviation, threads=self.context.threads)
        return sent


class DpFedAvgAggregator(FedAvgAggregator):
    """Adds what it gets, and tells how many clients' noise a mean has."""

    def _result(self, phase: str) -> Message:
        """Return the new global model."""
        answer = super()._result(phase)
        self.record(SummedUploads(self.round, len(self._seen)))
        return answer


class DpFedAvg(NoisedAverage):
    """Averaging of clipped and noised updates; all clients count alike.

    Parameters
    ----------
    name, plan : as for :class:`Method`.
    settings : of clipping and noise.

    Raises ParameterError for a target epsilon that no noise reaches.
    """

    names = (
        NamedMethod(
            "dp-fedavg",
            "clipped and noised updates, in the clear",
            "a bound for whole clients",
            "McMahan et al. 2018, with the noise added by clients",
            DpFedAvgSettings(),
        ),
    )
    privacy_reading = PrivacyReading(
        "client",
        "everybody else",
        "all updates of a client are zeroed out, K stays",
        "ε is against the aggregator, which sees every update with its own noise of σ; the figure with σ·√K is against "
        "who sees models alone, if the stated number K of participants was true",
    )
    aggregator_sees = "every client's update, clipped and noised"

    weighs_all_alike = True

    def __init__(self, name: str, settings: DpFedAvgSettings, plan: FederationPlan) -> None:
        self._target_epsilon = settings.target_epsilon
        if settings.target_epsilon is not None:
            sigma = noise_multiplier_for(settings.target_epsilon, settings.delta, plan.rounds)
            settings = replace(settings, noise_multiplier=sigma, target_epsilon=None)
        super().__init__(name, settings, plan)
        self._settings = settings
        self.delta = settings.delta

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return sigma C."""
        return self._settings.noise_multiplier * self._settings.clip_norm

    def _why_alike(self) -> str:
        return f"{self.name} weighs all clients alike: a weight would let one count for more than C"

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> DpFedAvgClient:
        settings = self._settings
        return DpFedAvgClient(index, initial, context, settings.clip_norm, settings.noise_multiplier)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> DpFedAvgAggregator:
        return DpFedAvgAggregator(context, weights, self._shared(initial))

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | {"target_epsilon": self._target_epsilon, "weights": "uniform"}
