"""Alt-FL: rounds of encryption, of DP-SGD and of synthetic data in turn.

PI alternates S-HE and DP-SGD, SI/HE and SI/DP alternate one of them with training on synthetic data, MP applies both
in every round. S-HE encrypts a mask of the largest mean gradients, fixed for the run.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError
from shieldfl.methods.agreed_mask.method import SCORES, AgreedMask, is_agreed
from shieldfl.methods.agreed_mask.rule import AgreedMaskRule, ZonesOfRounds
from shieldfl.methods.alt_fl.roles import (
    AltFlAggregator,
    AltFlClient,
    rounds_of,
)
from shieldfl.methods.alt_fl.settings import AltFlSettings
from shieldfl.methods.distributed_noise.average import SumNoised
from shieldfl.methods.distributed_noise.rule import noisy_mean
from shieldfl.methods.encrypted_update import MixedTotal
from shieldfl.methods.masked_average.method import UPDATE
from shieldfl.methods.masked_average.rule import Mean, weighted_mean
from shieldfl.methods.noised_average.method import BY_DP_SGD, DpSgdAveraging, DpSgdRounds
from shieldfl.methods.noised_average.rounds import KindsOfRounds
from shieldfl.privacy.events import PrivacyReading
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan, Phase, SyntheticDemand
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.settings import TrainingSettings

_WITH_NOISY_SUMS = PrivacyReading(
    "sample",
    "all but authority and aggregator together",
    BY_DP_SGD.neighbours,
    "ε is for one sample of one client, the largest of all clients. Of rounds that encrypt it is of what opened sums, "
    "and with them the global model, tell: each has the noise of all its clients, and is charged that of min_clients, "
    "less those that may collude, for two updates of the largest norm, since without a sample a client sends another "
    "one, by theorems on sums of Skellam noise (Agarwal, Kairouz and Liu 2021) or discrete Gaussians (Kairouz, Liu and "
    "Steinke 2021). Of the others it is of every update, by DP-SGD, whose sampling of batches counts, and of the "
    "release that synthetic data come from. Single updates of rounds that encrypt are hidden by encryption alone, from "
    "all but the key authority together with the aggregator; under ckks and paillier as long as the aggregator adds up "
    "what it says",
)
_NO_SUM = "so that there is no sum that could have noise: leave out noise on sums"


class AltFl(SumNoised, AgreedMask):
    """``alt-fl-pi``, ``alt-fl-si-he`` and ``alt-fl-mp``; arguments as for :class:`MaskedAverage`.

    Where sums have noise, rounds that encrypt do so with all of an update, which is clipped as a whole and has a share
    of it. Then the model has moved by noised sums alone, and what later rounds send depends on nothing else of others.

    Raises ParameterError where delta is not known, and for noise on sums where something leaves in the clear without
    any, or where there are no such sums.
    """

    names = (
        NamedMethod(
            "alt-fl-pi",
            "rounds under encryption and rounds with DP-SGD by turns",
            "less noise than DP-SGD alone",
            "Wang, Chiasserini, Schiller: Alt-FL, algorithms 1 to 3",
            AltFlSettings(),
            takes_synthetic=True,
        ),
        NamedMethod(
            "alt-fl-si-he",
            "encrypted rounds, and rounds on synthetic data in the clear by turns",
            "fewer ciphertexts",
            "Wang, Chiasserini, Schiller: Alt-FL, algorithms 1 to 3",
            AltFlSettings(),
            takes_synthetic=True,
        ),
        NamedMethod(
            "alt-fl-mp",
            "a share encrypted, and DP-SGD, in every round",
            "both at once",
            "Wang, Chiasserini, Schiller: Alt-FL, section IV",
            AltFlSettings(),
            takes_synthetic=True,
        ),
    )
    privacy_reading = PrivacyReading(
        "sample",
        "the aggregator, which sees no model",
        BY_DP_SGD.neighbours,
        f"{BY_DP_SGD.meaning}; ∞ where real values or a mask made of them are readable without noise, and from the "
        "first upload on that depends on a sum opened without noise; what opened sums, and with them the global model, "
        "tell is not counted",
    )
    aggregator_sees = (
        "what a round does not encrypt: updates from DP-SGD or synthetic data, and a mask where eta < 1"
    )

    scores = "gradient"

    def __init__(self, name: str, settings: AltFlSettings, plan: FederationPlan) -> None:
        self.rounds = rounds_of(name, settings.interleaving_ratio)
        self.dp_sgd = _asked_of_training(settings, plan)
        self.delta = self.dp_sgd.delta
        share, encryption = settings.encrypted_share if self.rounds.encrypts else 0.0, None
        self.privacy_reading = self.reading_with(settings)
        if settings.asked_noise is not None:
            noisy = sum(count for kind, count in self.rounds.counts(plan.rounds).items() if kind.encrypts)
            self._check_noise(name, settings, plan, noisy)
            settings, encryption = self._noise_sums(
                settings, plan, dimension=plan.parameters, delta=self.delta, rounds=noisy, unit="sample"
            )
        super().__init__(name, settings, plan, ratio=share, encryption=encryption)
        self.interleaving = _interleaving(self.rounds)
        self.synthetic_demand = _synthetic_demand(self.rounds, settings, self.dp_sgd, plan)
        self._zones = ZonesOfRounds(self.rounds, self.zone, plan.parameters, plan.buffers)
        kinds = self.rounds.counts(plan.rounds)
        if any(kind.encrypts and not kind.noises for kind in kinds) and settings.encrypted_share < 1.0:
            self.notes.append(
                f"{name}: encrypted rounds send a share of {1 - settings.encrypted_share:g} of each update in the "
                "clear, which no epsilon covers; epsilon_of_what_was_charged is that of the other rounds alone"
            )
        if self.zone is None and any(kind.encrypts for kind in kinds):
            self.notes.append(
                f"{name}: the mask is computed from gradients without noise and travels in the clear, which no "
                "epsilon covers; epsilon_of_what_was_charged is that of DP-SGD alone"
            )

    @classmethod
    def trains_privately(cls, name: str, settings: AltFlSettings) -> bool:
        """Say whether the method and its ratio have rounds with DP-SGD."""
        return rounds_of(name, settings.interleaving_ratio).trains_privately

    @classmethod
    def why_no_sum_noise(cls, name: str) -> str | None:
        """Say why MP's sums have none of this kind."""
        if name == "alt-fl-mp":
            return (
                "trains by DP-SGD in every round, so that its sums have noise already, and a finite ε with "
                "encrypted_share = 1: leave out noise on sums"
            )
        return super().why_no_sum_noise(name)

    @classmethod
    def reading_with(cls, settings: AltFlSettings) -> PrivacyReading:
        """Return how its figures are to be read under these settings."""
        return cls.privacy_reading if settings.asked_noise is None else _WITH_NOISY_SUMS

    @classmethod
    def _check_noise(cls, name: str, settings: AltFlSettings, plan: FederationPlan, noisy_sums: int) -> None:
        """Raise ParameterError where noise on sums would leave epsilon infinite, or where there are no such sums."""
        if (why := cls.why_no_sum_noise(name)) is not None:
            raise ParameterError(f"{name} {why}")
        if settings.encrypted_share < 1.0:
            raise ParameterError(
                f"{name}: noise on sums needs encrypted_share = 1: the rest of an update leaves in the clear without "
                "noise, and so does the mask that says which it is"
            )
        if plan.buffers:
            raise ParameterError(
                f"{name}: noise on sums needs a model without buffers: batch statistics are averaged without noise"
            )
        if not noisy_sums:
            raise ParameterError(f"{name}: no round of this run encrypts, {_NO_SUM}")

    def noise_deviation(self, training: TrainingSettings, samples: int, participants: int) -> float:
        """Return what the noise of all steps comes to, in rounds with DP-SGD."""
        return self.dp_sgd.deviation(training, samples)

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Scores first in a round that encrypts, until a model comes with the mask."""
        negotiates = self._zones.needs_mask(round_number) and not is_agreed(model)
        return (SCORES, UPDATE) if negotiates else (UPDATE,)

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> AltFlClient:
        return AltFlClient(index, weight, initial, context, self.ratio, self._zones, self.dp_sgd, self.noise)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> AltFlAggregator:
        return AltFlAggregator(context, weights, self._zones)

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> AgreedMaskRule:
        mean = None
        if self.noise is not None:
            noisy, plain = (
                partial(noisy_mean, self.noise, context),
                partial(weighted_mean, context, initial.buffers.size),
            )
            mean = partial(_mean_by_kind, self._zones, noisy, plain)
        return AgreedMaskRule(context, initial, self.ratio, self._zones, mean)


def _mean_by_kind(zones: ZonesOfRounds, noisy: Mean, plain: Mean, claim: MixedTotal, *opened: Any) -> Any:
    """Open the sum of a round that encrypts, which has noise, or of one of the other kind."""
    return (noisy if zones.rounds.kind(claim.total.round).encrypts else plain)(claim, *opened)


class AltFlWithoutEncryption(DpSgdAveraging):
    """``alt-fl-si-dp``: nothing is encrypted, so there are no keys; arguments as for :class:`MaskedAverage`."""

    names = (
        NamedMethod(
            "alt-fl-si-dp",
            "rounds with DP-SGD, and rounds on synthetic data in the clear by turns",
            "few bytes",
            "Wang, Chiasserini, Schiller: Alt-FL, algorithms 1 to 3",
            AltFlSettings(),
            takes_synthetic=True,
        ),
    )
    privacy_reading = BY_DP_SGD
    aggregator_sees = "every client's update, noised by DP-SGD or from synthetic data"

    def __init__(self, name: str, settings: AltFlSettings, plan: FederationPlan) -> None:
        if settings.asked_noise is not None:
            raise ParameterError(f"{name} {self.why_no_sum_noise(name)}")
        rounds = rounds_of(name, settings.interleaving_ratio)
        super().__init__(name, settings, plan, rounds)
        self.dp_sgd = _asked_of_training(settings, plan)
        self.interleaving = _interleaving(rounds)
        self.synthetic_demand = _synthetic_demand(rounds, settings, self.dp_sgd, plan)

    @classmethod
    def why_no_sum_noise(cls, name: str) -> str:
        """Say why there is none."""
        return f"encrypts nothing, {_NO_SUM}"

    @classmethod
    def trains_privately(cls, name: str, settings: AltFlSettings) -> bool:
        """Say whether the ratio has rounds with DP-SGD."""
        return rounds_of(name, settings.interleaving_ratio).trains_privately


def _asked_of_training(settings: AltFlSettings, plan: FederationPlan) -> DpSgdRounds:
    return replace(DpSgdRounds.of(settings, plan), synthetic_share=settings.synthetic_share)


def _interleaving(rounds: KindsOfRounds) -> Fraction | None:
    return rounds.schedule.ratio if rounds.alternates else None


def _synthetic_demand(
    rounds: KindsOfRounds, settings: AltFlSettings, dp_sgd: DpSgdRounds, plan: FederationPlan
) -> SyntheticDemand | None:
    if not settings.synthetic_share and not any(kind.synthetic for kind in rounds.counts(plan.rounds)):
        return None
    return SyntheticDemand(settings.synthetic_epsilon, dp_sgd.delta, settings.synthetic_samples)
