"""Averaging of updates that are noised, as a whole or in training, and not encrypted; buffers stay local."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from shieldfl.learning.local_update import GradientNoise
from shieldfl.methods.dp_sgd_rounds import KindsOfRounds, RoundKind, sample_delta
from shieldfl.methods.fedavg import FedAvg
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.events import PrivacyReading
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.plan import FederationPlan
from shieldfl.settings import Delta, NotNegative, Positive, Settings, TrainingSettings, about

MaxGradNorm = Annotated[
    Positive, about("What the gradient of every sample is clipped to; the default is Alt-FL's.", symbol="C")
]
SampleDelta = Annotated[
    Delta | None, about("Of the stated epsilon; None for 1/N, N the samples of all clients.")
]


@dataclass(frozen=True)
class DpSgdSettings(Settings):
    """How clients train by DP-SGD."""

    noise_multiplier: Annotated[
        NotNegative,
        about(
            "The noise on a batch's summed gradients over the norm that each is clipped to; 0 for none.",
            symbol="sigma",
        ),
    ] = 1.0
    max_grad_norm: MaxGradNorm = 4.7
    delta: SampleDelta = None


@dataclass(frozen=True)
class DpFedAvgSettings(Settings):
    """How clients noise their updates."""

    noise_multiplier: Annotated[
        NotNegative,
        about(
            "The noise that each client adds, over the norm that its update is clipped to; 0 for none.",
            symbol="sigma",
        ),
    ] = 1.0
    target_epsilon: Annotated[
        Positive | None,
        about(
            "Instead of sigma: what a client that takes part in every round may spend against the aggregator."
        ),
    ] = None
    clip_norm: Annotated[
        Positive, about("The L2 norm that a client's whole update is clipped to.", symbol="C")
    ] = 1.0
    delta: Annotated[Delta, about("Of both stated epsilons.")] = 1e-5


class DpFedAvg(FedAvg):
    """Averaging of clipped and noised updates; all clients count alike.

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
    shares_buffers = False

    def __init__(self, name: str, settings: DpFedAvgSettings, plan: FederationPlan) -> None:
        self._target_epsilon = settings.target_epsilon
        if settings.target_epsilon is not None:
            sigma = noise_multiplier_for(settings.target_epsilon, settings.delta, plan.rounds)
            settings = replace(settings, noise_multiplier=sigma, target_epsilon=None)
        super().__init__(name, settings, plan)
        self.clip_norm, self.noise_multiplier = settings.clip_norm, settings.noise_multiplier
        self.delta = settings.delta

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return sigma C."""
        assert self.clip_norm is not None
        return self.noise_multiplier * self.clip_norm

    def _why_alike(self) -> str:
        return f"{self.name} weighs all clients alike: a weight would let one count for more than C"

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        return super().settings(weights) | {"target_epsilon": self._target_epsilon}


BY_DP_SGD = PrivacyReading(
    "sample",
    "everybody else",
    "what a sample contributes is zeroed out, numbers of samples stay",
    "ε is for one sample of one client, by DP-SGD, the largest of all clients; its sampling of batches counts, since "
    "nobody but the client knows who is in them",
)


class DpSgdAveraging(FedAvg):
    """Averaging of what DP-SGD trained. Raises ParameterError where delta is not known."""

    names = (
        NamedMethod(
            "dp-sgd",
            "updates trained with noise on every sample's gradient, in the clear",
            "a bound for single samples",
            "Abadi et al. 2016, algorithm 1",
            DpSgdSettings(),
        ),
    )
    privacy_reading = BY_DP_SGD
    aggregator_sees = "every client's update, noised by DP-SGD"

    shares_buffers = False
    dp_sgd: KindsOfRounds

    def __init__(self, name: str, settings: Any, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan)
        self.dp_sgd = self.rounds_of(name, settings)
        self.delta = sample_delta(settings.delta, plan)

    @classmethod
    def rounds_of(cls, name: str, settings: Any) -> KindsOfRounds:
        noised = RoundKind(noises=True)
        return KindsOfRounds(
            noised, noised, noise=GradientNoise(settings.noise_multiplier, settings.max_grad_norm)
        )

    @classmethod
    def trains_privately(cls, name: str, settings: Any) -> bool:
        return cls.rounds_of(name, settings).trains_privately

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        return self.dp_sgd.deviation(training, samples)
