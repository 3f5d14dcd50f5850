"""Federated averaging in the clear (McMahan et al. 2017), and of noised updates.

In the clear it is the baseline that protects nothing. Updates are noised as a whole, or in training, and not
encrypted; buffers then stay local.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.local_update import DoubleVector, GradientNoise
from shieldfl.masks import Mask
from shieldfl.methods.dp_sgd_rounds import DpSgdClient, KindsOfRounds, NoisesByDpSgd, RoundKind, sample_delta
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.events import NO_NOISE, Noise, PrivacyReading, SummedUploads
from shieldfl.privacy.noise import clip_and_noise
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.method import Method, NamedMethod
from shieldfl.rounds.plan import FederationPlan, GlobalModel, Phase, RoleContext
from shieldfl.rounds.reports import Disclosure
from shieldfl.rounds.training_client import TrainingClient
from shieldfl.settings import Delta, NotNegative, Positive, Settings, TrainingSettings, about
from shieldfl.stateful import refuse_unless

__path__ = ()  # once a package, below which old names are looked for

__all__ = ["FedAvg"]


class FedAvgClient(DpSgdClient):
    """Sends its whole update, float32, and its weight; where buffers are not shared, it keeps its own."""

    method: FedAvg

    def _make(self, phase: str, answer: Message | None) -> Message:
        update = self._protect(self._difference())
        with self.clock.stage("upload"):
            return Message({"update": update.tobytes(), "weight": np.float64(self.weight).tobytes()})

    def _protect(self, update: FloatVector) -> FloatVector:
        """Clip it to C and add N(0, (sigma C)^2) to every value, where the method has such a norm."""
        norm, multiplier = self.method.clip_norm, self.method.noise_multiplier
        if norm is None:
            self._disclose(noise=self._noise, synthetic=self._is_synthetic)
            return update
        with self.clock.stage("encrypt"):
            self._disclose(noise=Noise(multiplier, "client") if multiplier > 0.0 else None)
            return clip_and_noise(update, norm, multiplier * norm, threads=self.context.threads)[0]

    def _disclose(self, *, noise: Noise | None = None, synthetic: bool = False) -> None:
        """State that the whole update leaves."""
        everything, nothing = Mask.full(self._size), Mask.empty(self._size)
        noised = noise is not None
        self.disclosure = Disclosure(
            nothing,
            everything if noised else nothing,
            nothing if noised else everything,
            parts=("weight",),
            buffers="clear" if self._shares_buffers else "local",
            synthetic=synthetic,
            noise=noise,
        )


class FedAvgAggregator(CollectingAggregator):
    """Adds weighted updates in float64 and takes the server step."""

    changes: ClassVar = {
        "_model": GlobalModel,
        "_moved": GlobalModel,
        "_sum": DoubleVector,
        "_weight": float,
    }

    def __init__(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel, *, noised: bool = False
    ) -> None:
        super().__init__(context)
        self._noised = noised
        """Whether clients noise their updates; if so, it reports how many clients' noise a mean has."""
        self._initial = self._model = self._moved = initial
        self._learning_rate = context.plan.server_learning_rate
        self._weights = weights
        self._sum: DoubleVector = np.zeros(initial.parameters.size + initial.buffers.size)
        self._weight = 0.0

    def check_changed(self) -> None:
        sizes = {(one.parameters.size, one.buffers.size) for one in (self._initial, self._model, self._moved)}
        refuse_unless(len(sizes) == 1 and self._sum.size == sum(*sizes))
        refuse_unless(bool(np.isfinite(self._sum).all()) and 0.0 <= self._weight <= sum(self._weights))

    def check_sums(self) -> None:
        super().check_sums()
        refuse_unless(self._weight == sum(self._weights[client] for client in self._seen))

    def newest_model(self) -> Message:
        """Return the model that the last closed round gave; before that, the initial one."""
        return self._moved.to_message()

    def replace_model(self, model: GlobalModel) -> None:
        """Begin the next round with another model than the last sum led to."""
        kept = model.kept_in_place_of(self._initial)
        with self._lock:
            self._moved = kept

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start from zero; a round that is begun again, from the same model as before."""
        if round_number != self.round:
            self._model = self._moved
        self._sum = np.zeros_like(self._sum)
        self._weight = 0.0

    def _collect(self, phase: str, client: int, message: Message) -> None:
        """Add one update.

        Raises WireFormatError, and RangeError for NaN, infinity or a weight that is not the client's.
        """
        with self.clock.stage("upload"):
            update = message.vector("update", np.float32, self._sum.size)
            weight = float(message.vector("weight", np.float64, 1)[0])
        if weight != self._weights[client]:
            raise RangeError(f"client {client} sent another weight than the plan gives it: nothing was added")
        if not np.isfinite(update).all():
            raise RangeError(f"client {client} sent NaN or infinity: its update was not added")
        with self.clock.stage("aggregate"):
            self._sum += np.multiply(update, weight, dtype=np.float64)
            self._weight += weight

    def _result(self, phase: str) -> Message:
        with self.clock.stage("aggregate"):
            self._moved = self._model.moved_finite(self._sum / self._weight, self._learning_rate)
            if self._noised:
                self.record(SummedUploads(self.round, len(self._seen)))
            return self._moved.to_message()


class FedAvg(Method):
    """Plain averaging; there are no keys, and no settings of its own."""

    names = (
        NamedMethod(
            "fedavg",
            "everything in the clear",
            "the baseline",
            "McMahan et al. 2017, algorithm 1",
            masks="nothing",
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "every client's update"

    phases = (Phase("update", answered_by_authority=False),)

    client_kind: Callable[..., TrainingClient] = FedAvgClient
    clip_norm: float | None = None
    """L2 norm to which clients clip their whole updates before they noise them; None if they do neither."""
    noise_multiplier: float = 0.0
    dp_sgd: KindsOfRounds | None = None
    """What rounds ask of training, if some are of DP-SGD or on synthetic data; otherwise None."""

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> CollectingAggregator:
        if initial is None:
            raise ParameterError(f"the aggregator of {self.name} holds the model: pass the initial one")
        noised = self.clip_norm is not None
        return FedAvgAggregator(context, weights, self._shared(initial), noised=noised)


MaxGradNorm = Annotated[
    Positive,
    about("L2 norm to which each sample's gradient is clipped. The default is Alt-FL's.", symbol="C"),
]
SampleDelta = Annotated[
    Delta | None, about("Delta of the stated epsilon. Default: 1/N for N samples of all clients together.")
]


@dataclass(frozen=True)
class DpSgdSettings(Settings):
    """How clients train by DP-SGD."""

    noise_multiplier: Annotated[
        NotNegative,
        about(
            "Noise multiplier: standard deviation of the noise on a batch's summed gradients, divided by "
            "the clip norm; 0 for no noise.",
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
            "Noise multiplier: standard deviation of the noise that each client adds, divided by the "
            "clip norm; 0 for no noise.",
            symbol="sigma",
        ),
    ] = 1.0
    target_epsilon: Annotated[
        Positive | None,
        about("Epsilon that a client in every round may spend against the aggregator. It replaces sigma."),
    ] = None
    clip_norm: Annotated[
        Positive, about("L2 norm to which a client's whole update is clipped.", symbol="C")
    ] = 1.0
    delta: Annotated[Delta, about("Delta of both stated epsilons.")] = 1e-5


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
        "ε is against the aggregator, which sees every update with its own noise of σ; the figure with σ·√K "
        "is against who sees models alone, if the stated number K of participants was true; the noise is "
        "drawn in floating point, which the proof leaves out",
    )
    aggregator_sees = "every client's update, clipped and noised"

    weighs_all_alike = True
    why_alike = ": a weight would let one count for more than C"
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

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        return super().settings(weights) | {"target_epsilon": self._target_epsilon}


BY_DP_SGD = PrivacyReading(
    "sample",
    "everybody else",
    "what a sample contributes is zeroed out, numbers of samples stay",
    "ε is for one sample of one client, by DP-SGD, the largest of all clients; its sampling of batches "
    "counts, since nobody but the client knows who is in them; the noise is drawn in floating point, which "
    "the proof leaves out",
)


class DpSgdAveraging(NoisesByDpSgd, FedAvg):
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
