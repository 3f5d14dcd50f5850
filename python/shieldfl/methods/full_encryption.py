"""Encryption of all that leaves a client: a whole update, or its last layer, where no other is trained.

With noise on sums, ``full-he`` is what ``ddp-fedavg`` is, by the same steps; ``top-2`` is so on its last
layer. Sources of ``ddp-fedavg``: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for
Federated Learning with Secure Aggregation" (ICML 2021); Agarwal, Kairouz and Liu, "The Skellam Mechanism for
Differentially Private Federated Learning" (NeurIPS 2021). As there, a sum has room for its clients' values,
but for a small chance; buffers stay with the client. A clipping norm that moves is after Andrew, Thakkar,
McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from shieldfl.encryption.registry import DEFAULT_ENCRYPTION, DEFAULT_KEY_BITS
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.methods.compression import CompressionOption
from shieldfl.methods.encryption_settings import Encryption, PaillierBits
from shieldfl.methods.fedavg import DpFedAvgSettings
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.methods.noised_sums import (
    OF_FIXED_POINT,
    OF_NOISY_SUMS,
    AskedNoise,
    Colluders,
    SumDelta,
    SumNoiseOption,
)
from shieldfl.privacy.events import NO_NOISE, Distribution, PrivacyReading
from shieldfl.privacy.noise import LEAST_FIRST_NORM, MOST_FIRST_NORM, ClipRule
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.plan import FederationPlan
from shieldfl.settings import Delta, Positive, about

__path__ = ()  # once a package, below which old names are looked for

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class FullEncryptionSettings(SumNoiseOption, CompressionOption):
    """How updates are encrypted, and whether they are compressed or their sums have noise.

    The bits of a value follow from either. Raises ParameterError for both.
    """

    encryption: Encryption = DEFAULT_ENCRYPTION
    key_bits: PaillierBits = DEFAULT_KEY_BITS
    delta: SumDelta = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compressed_bits is not None and self.asked_noise is not None:
            raise ParameterError(
                "updates are compressed, or their sums have noise: set compressed_bits or noise"
            )

    @property
    def without_effect(self) -> frozenset[str]:
        """Names of settings that decide nothing beside the others."""
        if self.compressed_bits is None:
            return super().without_effect | self.of_compression
        return self.of_noise_alone | OF_FIXED_POINT


_OF_ADAPTIVE_CLIPPING = frozenset({"clipping", "clip_quantile", "clip_learning_rate", "clip_count_noise"})


@dataclass(frozen=True)
class DdpFedAvgSettings(DpFedAvgSettings):
    """How clients noise the sum of their updates, and encrypt."""

    target_setting: ClassVar[str] = "target_epsilon"

    noise_multiplier: Annotated[
        Positive,
        about(
            "Noise multiplier: standard deviation of the noise that the fewest honest clients add "
            "together, divided by the clip norm.",
            symbol="z",
        ),
    ] = 1.0
    target_epsilon: Annotated[
        Positive | None, about("Epsilon that a client in every round may spend. It replaces z.")
    ] = None
    delta: Annotated[
        Delta,
        about(
            "Delta of the stated epsilon. A thousandth of it covers draws that deviate from their "
            "distribution."
        ),
    ] = 1e-5
    clipping: Annotated[
        Literal["fixed", "adaptive"],
        about(
            "fixed: the clip norm stays at C. adaptive: it starts at C and follows a quantile of the "
            "updates' norms, by noised counts that epsilon includes."
        ),
    ] = "fixed"
    clip_quantile: Annotated[
        Delta,
        about("Adaptive clipping: target share of clients whose update has a norm of at most C.", symbol="γ"),
    ] = 0.5
    clip_learning_rate: Annotated[
        Positive,
        about(
            "Adaptive clipping: learning rate of C, which each round multiplies by exp(-η (share within "
            "C - γ)).",
            symbol="η",
        ),
    ] = 0.2
    clip_count_noise: Annotated[
        Positive,
        about(
            "Adaptive clipping: standard deviation of the noise on the share of clients within C, where "
            "the fewest honest clients add it."
        ),
    ] = 0.05
    mechanism: Annotated[Distribution, about("Distribution of each client's share of the noise.")] = "skellam"
    colluders: Colluders = 1
    encryption: Encryption = DEFAULT_ENCRYPTION
    key_bits: PaillierBits = DEFAULT_KEY_BITS

    @property
    def asked_noise(self) -> AskedNoise:
        return AskedNoise(
            self.noise_multiplier,
            self.target_epsilon,
            self.clip_norm,
            self.mechanism,
            self.colluders,
            self.clip_count_noise if self.clipping == "adaptive" else None,
        )

    @property
    def without_effect(self) -> frozenset[str]:
        """Names of settings that decide nothing beside the others."""
        return _OF_ADAPTIVE_CLIPPING if self.clipping == "fixed" else frozenset()

    def with_multiplier(self, multiplier: float) -> Self:
        return replace(self, noise_multiplier=multiplier, target_epsilon=None)


class FullEncryption(MaskedAverage):
    """Everything is encrypted: ``full-he`` by any scheme, ``plain-he`` with a Paillier ciphertext a value."""

    names = (
        NamedMethod(
            "full-he",
            "everything encrypted",
            "hiding single updates; the default choice",
            "what papers on selective encryption compare with",
            FullEncryptionSettings(),
            masks="everything",
        ),
        NamedMethod(
            "plain-he",
            "everything encrypted, a Paillier ciphertext for each value",
            "a baseline of SenseCrypt and BatchCrypt",
            "SenseCrypt, section 4.1",
            FullEncryptionSettings(encryption="paillier-single"),
            masks="everything",
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts, their number, and weights"
    hides_all = True
    clients_keep_nothing = True

    def __init__(self, name: str, settings: FullEncryptionSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan, Mask.full(plan.update_size))


class LastLayerEncryption(MaskedAverage):
    """``top-2``: trains and shares, encrypted, the last layer's weight and bias alone (DictPFL's FedHE-Top2).

    Training leaves the other parameters as they are, and nothing of them is sent. Batch statistics are no
    parameters: those in front of the last layer still follow the data.
    """

    names = (
        NamedMethod(
            "top-2",
            "the last layer, encrypted; nothing else is trained",
            "a baseline of DictPFL",
            "DictPFL, the baseline FedHE-Top2",
            FullEncryptionSettings(),
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts of the last layer, their number, and weights"
    hides_all = True
    clients_keep_nothing = True

    def __init__(self, name: str, settings: FullEncryptionSettings, plan: FederationPlan) -> None:
        offsets = plan.offsets
        if len(offsets) < 3:
            raise ParameterError("top-2 needs a model whose last layer has a weight and a bias")
        zone = Mask.empty(offsets[-3]).resized(plan.update_size, chosen=True)
        self.trained = zone.resized(plan.parameters)
        super().__init__(name, settings, plan, zone, sends_rest=False)

    @classmethod
    def adapted(cls, model: nn.Module, settings: Any) -> nn.Module:
        """Return a copy in which only the last layer's weight and bias are trained.

        Raises ParameterError where the last two parameters are not the weight and the bias of one layer.
        """
        copy = deepcopy(model)
        named = list(copy.named_parameters())
        last = [name.rpartition(".") for name, _ in named[-2:]]
        if [attribute for _, _, attribute in last] != ["weight", "bias"] or last[0][0] != last[1][0]:
            raise ParameterError(
                "top-2 is a method that needs a bias where there is none: give the model's last layer a "
                "weight and a bias"
            )
        for _, parameter in named[:-2]:
            parameter.requires_grad_(False)
        return copy


_OF_COUNTED_SUMS = replace(
    OF_NOISY_SUMS,
    neighbours="all that a client adds to sums is zeroed out, its part in the count too, K stays",
    meaning=f"{OF_NOISY_SUMS.meaning}. Zeros stand for its part in the count of clients within the clipping "
    "norm, too: not for a client that sends an update of zeros, which counts as within it",
    if_participation_hidden=f"{OF_NOISY_SUMS.if_participation_hidden}. Zeros stand for its part in the "
    "count, too",
)
"""Reading if the clipping norm moves by a count of clients."""


class DdpFedAvg(MaskedAverage):
    """Averaging of clipped updates under encryption, with noise on the sum; all clients count alike."""

    names = (
        NamedMethod(
            "ddp-fedavg",
            "everything encrypted, clipped, with a share of the noise that the sum has",
            "a bound for whole clients that costs little accuracy",
            "Kairouz, Liu and Steinke 2021; Agarwal, Kairouz and Liu 2021",
            DdpFedAvgSettings(),
        ),
    )
    privacy_reading = OF_NOISY_SUMS
    aggregator_sees = "ciphertexts and their number"
    hides_all = True
    clients_keep_nothing = True
    weighs_all_alike = True
    noise: SumNoise

    def __init__(self, name: str, settings: DdpFedAvgSettings, plan: FederationPlan) -> None:
        if settings.clipping == "adaptive":
            if not LEAST_FIRST_NORM <= settings.clip_norm <= MOST_FIRST_NORM:
                raise ParameterError(
                    "a clipping norm that moves must be from 2^-84 to 2^84 in the first round"
                )
            self.clip_rule = ClipRule(settings.clip_norm, settings.clip_quantile, settings.clip_learning_rate)
        super().__init__(name, settings, plan, Mask.full(plan.update_size))
        if self.noise.count_multiplier < self.noise.noise_multiplier:
            self.notes.append(
                f"{name}: most of ε is spent on counting clients within the clipping norm, whose noise has a "
                f"multiplier of {self.noise.count_multiplier:.3g}: raise clip_count_noise, or min_clients"
            )

    @classmethod
    def reading_with(cls, settings: DdpFedAvgSettings) -> PrivacyReading:
        """Return how to read the figures: if clients are counted, more is zeroed out."""
        return OF_NOISY_SUMS if settings.clipping == "fixed" else _OF_COUNTED_SUMS

    def settings(self, weights: Sequence[int]) -> dict[str, Any]:
        stated = super().settings(weights)
        if self.clip_rule is None:
            return stated
        return stated | {"noise_multiplier_with_count": self.noise.multiplier_with_count}
