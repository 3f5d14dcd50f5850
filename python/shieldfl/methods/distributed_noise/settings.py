"""Settings of averages whose sums have noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

from msgspec import Meta

from shieldfl.encryption.registry import (
    DEFAULT_ENCRYPTION,
    DEFAULT_KEY_BITS,
    KeyBits,
    encryptions,
    scheme_named,
)
from shieldfl.errors import ParameterError
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.noised_average.settings import DpFedAvgSettings
from shieldfl.privacy.events import Distribution
from shieldfl.privacy.sum_noise import SumNoise, fewest_honest, multiplier_for, planned_sum_noise
from shieldfl.rounds.plan import FederationPlan
from shieldfl.settings import Delta, NotNegative, Positive, Settings, about

_OF_ADAPTIVE_CLIPPING = frozenset({"clipping", "clip_quantile", "clip_learning_rate", "clip_count_noise"})
_OF_OPTIONAL_NOISE = frozenset({"sum_target_epsilon", "sum_clip_norm", "sum_mechanism", "sum_colluders"})
_OF_FIXED_POINT = frozenset({"value_bits", "fraction_bits", "buffer_range_bits"})

Colluders = Annotated[int, Meta(ge=1, lt=2**31)]


@dataclass(frozen=True)
class AskedNoise:
    """The noise that sums are to have, under whatever names a method's settings ask for it."""

    multiplier: float
    """Of the fewest honest clients' sum, over ``clip_norm``; unused where a target is given."""
    target_epsilon: float | None
    """What the noised sums of all rounds may cost together."""
    clip_norm: float
    mechanism: Distribution
    colluders: int
    count_deviation: float | None = None
    """Of the noise on the share of the clients within ``clip_norm``; None where nobody counts them."""

    def planned(
        self,
        plan: FederationPlan,
        *,
        dimension: int,
        delta: float,
        rounds: int,
        unit: Literal["client", "sample"],
        encryption: str,
    ) -> tuple[float, SumNoise]:
        """Return the multiplier, and the plan of noise with it on sums of ``dimension`` values.

        Where a target is given, the multiplier is the least that keeps ``rounds`` sums within it. Bits are as few as
        the scheme of this name can do with.

        Raises ParameterError for a target that no noise reaches, noise that fits no sum, and more colluders than the
        smallest sum leaves room for.
        """
        honest = fewest_honest(plan.min_clients, self.colluders)
        clients = plan.most_participants if scheme_named(encryption).has_sum_bits else None

        def of(multiplier: float) -> SumNoise:
            return planned_sum_noise(
                self.mechanism,
                multiplier,
                clip_norm=self.clip_norm,
                dimension=dimension,
                honest_clients=honest,
                clients=clients,
                unit=unit,
                count_deviation=self.count_deviation,
            )

        multiplier = self.multiplier
        if self.target_epsilon is not None:
            multiplier = multiplier_for(self.target_epsilon, delta, rounds, of)
        return multiplier, of(multiplier)


@dataclass(frozen=True)
class DdpFedAvgSettings(DpFedAvgSettings):
    """How clients noise the sum of their updates, and encrypt."""

    target_setting: ClassVar[str] = "target_epsilon"

    noise_multiplier: Annotated[
        Positive,
        about(
            "The noise of the fewest honest clients' sum, over the norm that each update is clipped to.",
            symbol="z",
        ),
    ] = 1.0
    target_epsilon: Annotated[
        Positive | None,
        about("Instead of z: what a client that takes part in every round may spend."),
    ] = None
    delta: Annotated[
        Delta,
        about("Of the stated epsilon; a thousandth of it is for draws that are off their distribution."),
    ] = 1e-5
    clipping: Annotated[
        Literal["fixed", "adaptive"],
        about(
            "adaptive: C is that of the first round, and follows a quantile of the updates' norms by noised counts, "
            "which are charged for."
        ),
    ] = "fixed"
    clip_quantile: Annotated[
        Delta, about("Of adaptive clipping: the share of the clients that is to be within C.", symbol="γ")
    ] = 0.5
    clip_learning_rate: Annotated[
        Positive,
        about("Of adaptive clipping: C moves by a factor of exp(-η (share within C - γ)).", symbol="η"),
    ] = 0.2
    clip_count_noise: Annotated[
        Positive,
        about(
            "Of adaptive clipping: the noise of the fewest honest clients' sum on how many of them are within C, over "
            "their number."
        ),
    ] = 0.05
    mechanism: Annotated[Distribution, about("What each client's share of the noise is drawn from.")] = (
        "skellam"
    )
    colluders: Annotated[
        Colluders,
        about(
            "How many clients of a sum may put together what noise they drew: shares are sized for min_clients less "
            "these. A client that looks at a sum alone is one."
        ),
    ] = 1
    encryption: Annotated[str, about("The scheme, and its packing.", choices=encryptions)] = (
        DEFAULT_ENCRYPTION
    )
    key_bits: Annotated[KeyBits, about("Bits of a Paillier modulus.")] = DEFAULT_KEY_BITS

    @property
    def asked_noise(self) -> AskedNoise:
        """What noise sums are to have."""
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
        """Return settings that ask for this noise, and have no target."""
        return replace(self, noise_multiplier=multiplier, target_epsilon=None)


@dataclass(frozen=True)
class SumNoiseOption(Settings):
    """Noise on encrypted sums, for methods that can do without. Raises ParameterError for both z and a target."""

    target_setting: ClassVar[str] = "sum_target_epsilon"

    sum_noise_multiplier: Annotated[
        NotNegative,
        about(
            "Each client adds a share of noise before it encrypts: the noise of the fewest honest clients' sum, over "
            "the norm that what each encrypts is clipped to; 0 for none.",
            symbol="z",
        ),
    ] = 0.0
    sum_target_epsilon: Annotated[
        Positive | None,
        about("Instead of z: what the sums of all rounds that have this noise may cost together."),
    ] = None
    sum_clip_norm: Annotated[
        Positive,
        about("The L2 norm that what a client encrypts is clipped to, where sums have noise.", symbol="C"),
    ] = 1.0
    sum_mechanism: Annotated[Distribution, about("What each client's share of that noise is drawn from.")] = (
        "skellam"
    )
    sum_colluders: Annotated[
        Colluders,
        about(
            "How many clients of a sum may put together what noise they drew: shares are sized for min_clients less "
            "these. A client that looks at a sum alone is one."
        ),
    ] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sum_target_epsilon is not None and self.sum_noise_multiplier != 0.0:
            raise ParameterError("give sum_noise_multiplier or sum_target_epsilon, not both")

    @property
    def asked_noise(self) -> AskedNoise | None:
        """What noise sums are to have; None for none."""
        if self.sum_noise_multiplier == 0.0 and self.sum_target_epsilon is None:
            return None
        return AskedNoise(
            self.sum_noise_multiplier,
            self.sum_target_epsilon,
            self.sum_clip_norm,
            self.sum_mechanism,
            self.sum_colluders,
        )

    @property
    def without_effect(self) -> frozenset[str]:
        """Names of settings that decide nothing beside the others: bits of a value follow from the noise."""
        return _OF_OPTIONAL_NOISE if self.asked_noise is None else _OF_FIXED_POINT

    def with_multiplier(self, multiplier: float) -> Self:
        """Return settings that ask for this noise, and have no target."""
        return replace(self, sum_noise_multiplier=multiplier, sum_target_epsilon=None)


@dataclass(frozen=True)
class OnlySumNoiseOption(SumNoiseOption):
    """The same for methods that have no other noise, and so no delta of another."""

    delta: Annotated[
        Delta,
        about(
            "Of the epsilon of sums with noise; a thousandth of it is for draws that are off their distribution."
        ),
    ] = 1e-5

    @property
    def without_effect(self) -> frozenset[str]:
        """Names of settings that decide nothing beside the others: without noise, also what epsilon belongs to."""
        return super().without_effect | ({"delta"} if self.asked_noise is None else set())


@dataclass(frozen=True)
class FullEncryptionSettings(OnlySumNoiseOption, EncryptionSettings):
    """How updates are encrypted, and whether their sums have noise: then the bits of a value follow from it."""
