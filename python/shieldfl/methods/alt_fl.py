"""Alt-FL: rounds of encryption, of DP-SGD and of synthetic data in turn.

PI alternates S-HE and DP-SGD, SI/HE and SI/DP alternate one of them with training on synthetic data, MP
applies both in every round. S-HE encrypts a mask of the largest mean gradients, fixed for the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from shieldfl.encryption.registry import DEFAULT_ENCRYPTION, DEFAULT_KEY_BITS
from shieldfl.errors import ParameterError
from shieldfl.learning.local_update import GradientNoise
from shieldfl.methods.dp_sgd_rounds import KindsOfRounds, NoisesByDpSgd, RoundKind, read_ratio, sample_delta
from shieldfl.methods.encrypted_update import SCORES, UPDATE, AgreedShare
from shieldfl.methods.encryption_settings import Encryption, PaillierBits
from shieldfl.methods.fedavg import BY_DP_SGD, DpSgdAveraging, MaxGradNorm, SampleDelta
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.methods.noised_sums import OF_NOISY_SUMS, SumNoiseOption
from shieldfl.privacy.events import PrivacyReading
from shieldfl.rounds.method import Method, NamedMethod
from shieldfl.rounds.plan import FederationPlan, SyntheticDemand
from shieldfl.settings import Count, NotNegative, Positive, Probability, about

__path__ = ()  # once a package, below which old names are looked for

_ENCRYPTED = RoundKind(encrypts=True)
_NOISED = RoundKind(noises=True)
_BOTH = RoundKind(encrypts=True, noises=True)
_SYNTHETIC = RoundKind()
_KINDS = {
    "alt-fl-pi": (_ENCRYPTED, _NOISED),
    "alt-fl-si-dp": (_NOISED, _SYNTHETIC),
    "alt-fl-si-he": (_ENCRYPTED, _SYNTHETIC),
    "alt-fl-mp": (_BOTH, _BOTH),
}


@dataclass(frozen=True)
class AltFlSettings(SumNoiseOption):
    """Alt-FL's settings. Raises ParameterError, also for a ratio that is no fraction."""

    of_noise_alone: ClassVar = SumNoiseOption.of_noise_alone - {"delta"}

    encryption: Encryption = DEFAULT_ENCRYPTION
    key_bits: PaillierBits = DEFAULT_KEY_BITS
    max_grad_norm: MaxGradNorm = 4.7
    delta: SampleDelta = None
    noise_multiplier: Annotated[
        NotNegative, about("Noise multiplier of rounds with DP-SGD; 0 for no noise.", symbol="sigma")
    ] = 0.5
    interleaving_ratio: Annotated[
        str,
        about(
            'Share of the rounds of the second kind, as a fraction such as "1/4": rounds with DP-SGD '
            "(PI) or on synthetic data (SI). MP has no such rounds.",
            symbol="rho",
        ),
    ] = "1/2"
    encrypted_share: Annotated[
        Probability,
        about(
            "Share of the parameters that encrypted rounds encrypt: the ones with the largest gradients.",
            symbol="eta",
        ),
    ] = 1.0
    synthetic_epsilon: Annotated[
        Positive,
        about(
            "Epsilon that the built-in synthetic data set may spend on the real data. Unused if another "
            "synthetic set is given."
        ),
    ] = 10.0
    synthetic_samples: Annotated[
        Count | None,
        about("Number of synthetic samples, for all clients together. Default: the number of real samples."),
    ] = None

    synthetic_share: Annotated[
        float,
        Meta(ge=0.0, le=0.95),
        about(
            "Share of synthetic samples in rounds on the clients' own data (augmentation). They are "
            "added to the own samples, and repeated if there are too few.",
            symbol="r",
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        read_ratio(self.interleaving_ratio)


def rounds_of(name: str, settings: AltFlSettings) -> KindsOfRounds:
    noise = GradientNoise(settings.noise_multiplier, settings.max_grad_norm)
    return KindsOfRounds(*_KINDS[name], settings.interleaving_ratio, noise, settings.synthetic_share)


def _state_rounds(
    method: Method, settings: AltFlSettings, rounds: KindsOfRounds, plan: FederationPlan
) -> None:
    """Set what follows from a method's rounds: their alternation, its delta, its demand of synthetic data."""
    method.delta = sample_delta(settings.delta, plan)
    method.interleaving = rounds.ratio if rounds.alternates else None
    if settings.synthetic_share or any(kind.synthetic for kind in rounds.counts(plan.rounds)):
        method.synthetic_demand = SyntheticDemand(
            settings.synthetic_epsilon, method.delta, settings.synthetic_samples
        )


_WITH_NOISY_SUMS = PrivacyReading(
    "sample",
    OF_NOISY_SUMS.adversary,
    BY_DP_SGD.neighbours,
    "ε is for one sample of one client, the largest of all clients. Of rounds that encrypt it is of what "
    "opened sums, and with them the global model, tell: each has the noise of all its clients, and is "
    "charged that of min_clients, less those that may collude, for two updates of the largest norm, since "
    "without a sample a client sends another one, by theorems on sums of Skellam noise (Agarwal, Kairouz and "
    "Liu 2021) or discrete Gaussians (Kairouz, Liu and Steinke 2021). Of the others it is of every update, "
    "by DP-SGD, whose sampling of batches counts, and of the release that synthetic data come from. Single "
    "updates of rounds that encrypt are hidden by encryption alone, from all but the key authority together "
    "with the aggregator; under ckks and paillier as long as the aggregator adds up what it says",
)
_NO_SUM = "so that there is no sum that could have noise: leave out noise on sums"


class AltFl(NoisesByDpSgd, MaskedAverage):
    """``alt-fl-pi``, ``alt-fl-si-he`` and ``alt-fl-mp``.

    If sums have noise, rounds that encrypt do so with a whole update, which is clipped and has a share of the
    noise. Then the model has moved by noised sums alone, and what later rounds send depends on nothing else
    of other clients.

    Raises ParameterError where delta is not known, and for noise on sums where something leaves in the clear
    without any, or where there are no such sums.
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
        f"{BY_DP_SGD.meaning}; ∞ where real values or a mask made of them are readable without noise, and "
        "from the first upload on that depends on a sum opened without noise; what opened sums, and with "
        "them the global model, tell is not counted",
    )
    aggregator_sees = (
        "what a round does not encrypt: updates from DP-SGD or synthetic data, and a mask where eta < 1"
    )

    scores = "gradient"
    phases = (SCORES, UPDATE)
    noisy_reading = _WITH_NOISY_SUMS

    def __init__(self, name: str, settings: AltFlSettings, plan: FederationPlan) -> None:
        rounds = self.dp_sgd = rounds_of(name, settings)
        kinds = rounds.counts(plan.rounds)
        encrypts = any(kind.encrypts for kind in kinds)
        _state_rounds(self, settings, rounds, plan)
        if settings.asked_noise is not None:
            # Where noise on sums would leave epsilon infinite, or where there are no such sums.
            if (why := self.why_no_sum_noise(name)) is not None:
                raise ParameterError(f"{name} {why}")
            if settings.encrypted_share < 1.0:
                raise ParameterError(
                    f"{name}: noise on sums needs encrypted_share = 1: the rest of an update leaves in the "
                    "clear without noise, and so does the mask that says which it is"
                )
            if plan.buffers:
                raise ParameterError(
                    f"{name}: noise on sums needs a model without buffers: batch statistics are averaged "
                    "without noise"
                )
            if not encrypts:
                raise ParameterError(f"{name}: no round of this run encrypts, {_NO_SUM}")
        share = AgreedShare(settings.encrypted_share if rounds.encrypts else 0.0, rounds, plan)
        super().__init__(name, settings, plan, None, share=share)
        if any(kind.encrypts and not kind.noises for kind in kinds) and settings.encrypted_share < 1.0:
            self.notes.append(
                f"{name}: encrypted rounds send a share of {1 - settings.encrypted_share:g} of each update "
                "in the clear, which no epsilon covers; epsilon_of_what_was_charged is that of the other "
                "rounds alone"
            )
        if share.settled is None and encrypts:
            self.notes.append(
                f"{name}: the mask is computed from gradients without noise and travels in the clear, which "
                "no epsilon covers; epsilon_of_what_was_charged is that of DP-SGD alone"
            )

    @classmethod
    def trains_privately(cls, name: str, settings: AltFlSettings) -> bool:
        return rounds_of(name, settings).trains_privately

    @classmethod
    def why_no_sum_noise(cls, name: str) -> str | None:
        """Say why MP's sums have none of this kind."""
        if name == "alt-fl-mp":
            return (
                "trains by DP-SGD in every round, so that its sums have noise already, and a finite ε with "
                "encrypted_share = 1: leave out noise on sums"
            )
        return super().why_no_sum_noise(name)


class AltFlWithoutEncryption(DpSgdAveraging):
    """``alt-fl-si-dp``: nothing is encrypted, so there are no keys."""

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
        super().__init__(name, settings, plan)
        _state_rounds(self, settings, self.dp_sgd, plan)

    @classmethod
    def rounds_of(cls, name: str, settings: AltFlSettings) -> KindsOfRounds:
        return rounds_of(name, settings)

    @classmethod
    def why_no_sum_noise(cls, name: str) -> str:
        return f"encrypts nothing, {_NO_SUM}"
