"""Averaging of updates that are noised and not encrypted, as a whole or in training: no keys; buffers stay local."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError
from shieldfl.learning.local_update import (
    FloatVector,
    GradientNoise,
    LocalUpdate,
    StartingPoint,
    samples_beside,
)
from shieldfl.methods.fedavg import FedAvg, FedAvgAggregator, FedAvgClient
from shieldfl.methods.noised_average.rounds import KindsOfRounds, RoundKind
from shieldfl.methods.noised_average.settings import DpFedAvgSettings, DpSgdSettings
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.events import Noise, PrivacyReading, SummedUploads
from shieldfl.privacy.noise import clip_and_noise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.settings import TrainingSettings
from shieldfl.stateful import refuse_unless


class NoisedAverageClient(FedAvgClient):
    """Sends the whole update of its parameters, noised; keeps its buffers, which are statistics without noise.

    Parameters
    ----------
    index : its number.
    initial, weight, context : as for :class:`FedAvgClient`.
    """

    keeps_buffers = True

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        weight: int,
        context: RoleContext,
    ) -> None:
        super().__init__(index, initial, weight, context, shares_buffers=False)

    def _make(self, phase: str, answer: Message | None) -> Message:
        with self.clock.stage("encrypt"):
            sent = self._protect(self._difference())
        return self._message_of(sent)

    @abc.abstractmethod
    def _protect(self, update: FloatVector) -> FloatVector:
        """Return what is sent, float32 (P,); state it."""


class NoisedAverage(FedAvg):
    """Averaging in the clear of updates that clients noise; their buffers stay with them."""

    @abc.abstractmethod
    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> NoisedAverageClient:
        """Make a client that noises what it sends."""

    def _shared(self, initial: GlobalModel | None) -> GlobalModel:
        model = super()._shared(initial)
        return GlobalModel(model.parameters, model.buffers[:0])


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


_NOISED = RoundKind(noises=True)

BY_DP_SGD = PrivacyReading(
    "sample",
    "everybody else",
    "what a sample contributes is zeroed out, numbers of samples stay",
    "ε is for one sample of one client, by DP-SGD, the largest of all clients; its sampling of batches counts, since "
    "nobody but the client knows who is in them",
)


@dataclass(frozen=True)
class DpSgdRounds:
    """What rounds of DP-SGD ask of clients."""

    noise: GradientNoise
    delta: float
    """What their epsilon belongs to."""
    synthetic_share: float = 0.0
    """Of what any round on a client's own data trains on, see :attr:`StartingPoint.synthetic_share`."""

    @classmethod
    def of(cls, settings: DpSgdSettings, plan: FederationPlan) -> DpSgdRounds:
        """Read settings; delta is 1/N by default. Raises ParameterError where N is not known."""
        if settings.delta is None and plan.samples is None:
            raise ParameterError("delta is 1/N by default: say how many samples there are, or set delta")
        noise = GradientNoise(settings.noise_multiplier, settings.max_grad_norm)
        return cls(noise, settings.delta or 1 / max(plan.samples or 0, 2))

    def deviation(self, training: TrainingSettings, samples: int) -> float:
        """Return what the noise of all steps comes to on each parameter, for a client of so many samples of its own."""
        return self.noise.deviation(training, samples + samples_beside(samples, self.synthetic_share))

    def training(self, start: StartingPoint, kind: RoundKind) -> StartingPoint:
        """Return how a round of this kind is to be trained from its start."""
        return replace(
            start,
            noise=self.noise if kind.noises else None,
            synthetic=kind.synthetic,
            synthetic_share=0.0 if kind.synthetic else self.synthetic_share,
        )

    def noise_of(self, update: LocalUpdate) -> Noise | None:
        """Return what noise an update has; None where the settings add none.

        Raises ParameterError where it was trained by no DP-SGD, or by none that there can be.
        """
        done = update.private_steps
        if done is None:
            raise ParameterError(
                "this round trains by DP-SGD: pass what it did as LocalUpdate.private_steps, see StartingPoint.noise"
            )
        multiplier = self.noise.noise_multiplier
        return Noise(multiplier, "sample", done.sample_rate, done.steps) if multiplier > 0.0 else None

    def may_have(self, noise: Noise | None, kind: RoundKind, *, trained: bool) -> bool:
        """Say whether it is noise as :meth:`noise_of` gives in a round of this kind; before training, an earlier one's.

        None is what training without noise leaves.
        """
        if noise is None:
            return not (trained and kind.noises and self.noise.noise_multiplier > 0.0)
        return (kind.noises or not trained) and (noise.multiplier, noise.unit) == (
            self.noise.noise_multiplier,
            "sample",
        )


class DpSgdClient(NoisedAverageClient):
    """Trains by DP-SGD, or on synthetic data where the round says so; training has noised what it sends."""

    changes: ClassVar = {"_kind": RoundKind, "_noise": Noise | None}

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        weight: int,
        context: RoleContext,
        rounds: KindsOfRounds,
        dp_sgd: DpSgdRounds,
    ) -> None:
        super().__init__(index, initial, weight, context)
        self._rounds = rounds
        self._dp_sgd = dp_sgd
        self._kind = RoundKind()
        self._noise: Noise | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for another kind than the round's, and for noise that its training does not have."""
        kind = self._rounds.kind(self.round) if self.round else RoundKind()
        refuse_unless(self._kind == kind)
        refuse_unless(self._dp_sgd.may_have(self._noise, kind, trained=self._has_trained))

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Ask for DP-SGD or synthetic data."""
        kind = self._rounds.kind(round_number)
        start = super()._begin_round(round_number, participants, model)
        # Only now: a round that is refused must not change how the one that runs is protected.
        self._kind = kind
        return self._dp_sgd.training(start, kind)

    def _keep(self, update: LocalUpdate) -> None:
        """Keep what is to be charged, too; refuse what was not trained by DP-SGD where that was asked for."""
        noise = self._dp_sgd.noise_of(update) if self._kind.noises else None
        super()._keep(update)
        self._noise = noise

    def _protect(self, update: FloatVector) -> FloatVector:
        self._disclose(noise=self._noise, synthetic=self._kind.synthetic)
        return update


class DpSgdAveraging(NoisedAverage):
    """Averaging of what DP-SGD trained.

    Parameters
    ----------
    name, plan : as for :class:`Method`.
    settings : of DP-SGD.
    rounds : what each round does; None for DP-SGD in all.

    Raises ParameterError where delta is not known.
    """

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

    def __init__(
        self,
        name: str,
        settings: DpSgdSettings,
        plan: FederationPlan,
        rounds: KindsOfRounds | None = None,
    ) -> None:
        super().__init__(name, settings, plan)
        self.rounds = rounds or KindsOfRounds(_NOISED, _NOISED)
        self.dp_sgd = DpSgdRounds.of(settings, plan)
        self.delta = self.dp_sgd.delta
        self._settings = settings

    @classmethod
    def trains_privately(cls, name: str, settings: Any) -> bool:
        """It does."""
        return True

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return what the noise of all steps comes to."""
        return self.dp_sgd.deviation(training, samples)

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> DpSgdClient:
        return DpSgdClient(index, initial, weight, context, self.rounds, self.dp_sgd)

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        """Return the settings, with what they come to."""
        return asdict(self._settings) | super().settings(weights)
