"""Averaging of updates that are noised, as a whole or in training, and not encrypted; buffers stay local.

What each round asks of clients, encryption, noise in training, or neither, on synthetic data, is Alt-FL's:
algorithms 1 to 3, line 2, and section IV-B. The ratio ρ = ρ_a / ρ_tot, in lowest terms, is the share of
rounds of the *second* kind: ρ_a of every ρ_tot rounds. The first kind is the authentic round of SI/DP and
SI/HE and the encrypted round of PI, the second kind their synthetic round and PI's DP round.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar

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
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.events import Noise, PrivacyReading, SummedUploads
from shieldfl.privacy.noise import clip_and_noise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.settings import Delta, NotNegative, Positive, Settings, TrainingSettings, about
from shieldfl.stateful import refuse_unless

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


@dataclass(frozen=True)
class RoundKind:
    """How a round protects what clients send; one with neither protection trains on synthetic data."""

    encrypts: bool = False
    """The most sensitive share of the update is encrypted (S-HE)."""
    noises: bool = False
    """Clients train by DP-SGD."""

    @property
    def synthetic(self) -> bool:
        """Whether clients train on synthetic data, whose updates need no protection."""
        return not (self.encrypts or self.noises)


class KindsOfRounds:
    """Of which of two kinds each round is, in a fixed alternation by ρ, such as "1/4" or "0.25".

    Rounds count from 1, and round t is of the first kind if and only if t mod ρ_tot < ρ_tot - ρ_a, as the
    algorithms have it. So ρ = 1/4 makes rounds 3, 7, 11, … the second kind, and from ρ = 1/2 on the run starts
    with it. With ρ = 0 every round is of the first kind, with ρ = 1 none is.
    """

    def __init__(self, first: RoundKind, second: RoundKind, ratio: str = "0") -> None:
        self.ratio = read_ratio(ratio)
        self._first, self._second = first, second
        self.alternates = first != second
        # Of a run that is long enough.
        kinds = (first,) * (self.ratio < 1) + (second,) * (self.ratio > 0)
        self.trains_privately = any(kind.noises for kind in kinds)
        self.encrypts = any(kind.encrypts for kind in kinds)

    def kind(self, round_number: int) -> RoundKind:
        """Return what this round does, counted from 1."""
        period = self.ratio.denominator
        return self._first if round_number % period < period - self.ratio.numerator else self._second

    def counts(self, total: int) -> Counter[RoundKind]:
        """Return how many of rounds 1 to ``total`` are of each kind; a kind that none has is not there."""
        # A formula: whoever proposes a run chooses its rounds.
        periods, rest = divmod(total, self.ratio.denominator)
        of_period = self.ratio.denominator - self.ratio.numerator
        firsts = periods * of_period + max(min(rest, of_period - 1), 0)
        return Counter({self._first: firsts}) + Counter({self._second: total - firsts})


def read_ratio(ratio: str) -> Fraction:
    """Return ρ in lowest terms. Raises ParameterError for what is no fraction, or lies outside of [0, 1]."""
    # Fraction would read "1e-99999999" too, and compute for ever.
    if not re.fullmatch(r"-?[0-9]{1,9}([/.][0-9]{1,9})?", ratio.strip()):
        raise ParameterError(f'the interleaving ratio {ratio[:32]!r} is no fraction: write it as in "1/4"')
    try:
        read = Fraction(ratio)
    except ZeroDivisionError as error:
        raise ParameterError(
            "the interleaving ratio has a schedule of zero rounds (denominator 0)"
        ) from error
    if not 0 <= read <= 1:
        raise ParameterError(f"the interleaving ratio must lie in [0, 1], got {read}")
    return read


class DpFedAvgClient(FedAvgClient):
    """Clips its update to C and adds N(0, (sigma C)^2) to every value."""

    def __init__(
        self, method: DpFedAvg, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        super().__init__(method, context, index, weight, initial)
        self._clip_norm, multiplier = method.clip_norm, method.noise_multiplier
        self._deviation = multiplier * self._clip_norm
        self._noise = Noise(multiplier, "client") if multiplier > 0.0 else None

    def _protect(self, update: FloatVector) -> FloatVector:
        with self.clock.stage("encrypt"):
            self._disclose(noise=self._noise)
            threads = self.context.threads
            sent, _, _ = clip_and_noise(update, self._clip_norm, self._deviation, threads=threads)
            return sent


class DpFedAvgAggregator(FedAvgAggregator):
    """Adds what it gets, and tells how many clients' noise a mean has."""

    def _result(self, phase: str) -> Message:
        answer = super()._result(phase)
        self.record(SummedUploads(self.round, len(self._seen)))
        return answer


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
    client_kind = DpFedAvgClient
    aggregator_kind = DpFedAvgAggregator

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
        return self.noise_multiplier * self.clip_norm

    def _why_alike(self) -> str:
        return f"{self.name} weighs all clients alike: a weight would let one count for more than C"

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        return super().settings(weights) | {"target_epsilon": self._target_epsilon, "weights": "uniform"}


BY_DP_SGD = PrivacyReading(
    "sample",
    "everybody else",
    "what a sample contributes is zeroed out, numbers of samples stay",
    "ε is for one sample of one client, by DP-SGD, the largest of all clients; its sampling of batches counts, since "
    "nobody but the client knows who is in them",
)


@dataclass(frozen=True)
class DpSgdRounds:
    """What rounds of DP-SGD, or of other kinds beside them, ask of clients."""

    rounds: KindsOfRounds
    noise: GradientNoise
    delta: float
    """What their epsilon belongs to."""
    synthetic_share: float = 0.0
    """Of what any round on a client's own data trains on, see :attr:`StartingPoint.synthetic_share`."""

    @classmethod
    def of(
        cls, settings: Any, plan: FederationPlan, rounds: KindsOfRounds, synthetic_share: float = 0.0
    ) -> DpSgdRounds:
        """Read settings; delta is 1/N by default. Raises ParameterError where N is not known."""
        if settings.delta is None and plan.samples is None:
            raise ParameterError("delta is 1/N by default: say how many samples there are, or set delta")
        noise = GradientNoise(settings.noise_multiplier, settings.max_grad_norm)
        return cls(rounds, noise, settings.delta or 1 / max(plan.samples or 0, 2), synthetic_share)

    def deviation(self, training: TrainingSettings, samples: int) -> float:
        """Return what the noise of all steps comes to on a parameter, for a client of so many samples."""
        return self.noise.deviation(training, samples + samples_beside(samples, self.synthetic_share))


class PrivateTraining:
    """A client's part of such rounds: how it trains in the one that runs, and what noise its update has."""

    changes: ClassVar = {"kind": RoundKind, "noise": Noise | None}

    def __init__(self, dp_sgd: DpSgdRounds) -> None:
        self._dp_sgd = dp_sgd
        self.kind = RoundKind()
        self.noise: Noise | None = None

    def check(self, round_number: int, *, trained: bool) -> None:
        """Raise WireFormatError for another kind than the round's, and noise that its training does not have.

        Before training, it is that of an earlier round; none is what training without noise leaves.
        """
        kind = self._dp_sgd.rounds.kind(round_number) if round_number else RoundKind()
        refuse_unless(self.kind == kind)
        multiplier, noise = self._dp_sgd.noise.noise_multiplier, self.noise
        if noise is None:
            refuse_unless(not (trained and kind.noises and multiplier > 0.0))
        else:
            refuse_unless(
                (kind.noises or not trained) and (noise.multiplier, noise.unit) == (multiplier, "sample")
            )

    def begin(self, round_number: int, start: StartingPoint) -> StartingPoint:
        """Begin a round that is not refused any more; return how it is to be trained from its start."""
        kind = self.kind = self._dp_sgd.rounds.kind(round_number)
        return replace(
            start,
            noise=self._dp_sgd.noise if kind.noises else None,
            synthetic=kind.synthetic,
            synthetic_share=0.0 if kind.synthetic else self._dp_sgd.synthetic_share,
        )

    def noise_of(self, update: LocalUpdate) -> Noise | None:
        """Return what noise an update has; None where the round or the settings add none.

        Raises ParameterError where it was trained by no DP-SGD, or by none that there can be.
        """
        if not self.kind.noises:
            return None
        done, multiplier = update.private_steps, self._dp_sgd.noise.noise_multiplier
        if done is None:
            raise ParameterError(
                "this round trains by DP-SGD: pass what it did as LocalUpdate.private_steps, see StartingPoint.noise"
            )
        return Noise(multiplier, "sample", done.sample_rate, done.steps) if multiplier > 0.0 else None


class DpSgdClient(FedAvgClient):
    """Trains by DP-SGD, or on synthetic data where the round says so; training has noised what it sends."""

    changes: ClassVar = {"_training": PrivateTraining}

    def __init__(
        self, method: DpSgdAveraging, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        super().__init__(method, context, index, weight, initial)
        self._training = PrivateTraining(method.dp_sgd)

    def check_changed(self) -> None:
        self._training.check(self.round, trained=self.has_trained)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        start = super()._begin_round(round_number, participants, model)
        # Only now: a round that is refused must not change how the one that runs is protected.
        return self._training.begin(round_number, start)

    def _keep(self, update: LocalUpdate) -> None:
        """Keep what is to be charged, too; refuse what was not trained by DP-SGD where that was asked for."""
        noise = self._training.noise_of(update)
        super()._keep(update)
        self._training.noise = noise

    def _protect(self, update: FloatVector) -> FloatVector:
        with self.clock.stage("encrypt"):
            self._disclose(noise=self._training.noise, synthetic=self._training.kind.synthetic)
        return update


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
    client_kind = DpSgdClient

    def __init__(self, name: str, settings: DpSgdSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan)
        noised = RoundKind(noises=True)
        self.dp_sgd = DpSgdRounds.of(settings, plan, KindsOfRounds(noised, noised))
        self.delta = self.dp_sgd.delta

    @classmethod
    def trains_privately(cls, name: str, settings: Any) -> bool:
        return True

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        return self.dp_sgd.deviation(training, samples)
