"""Noise on encrypted sums, in shares that clients add before they encrypt: settings, plan, shares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.learning.local_update import DoubleVector
from shieldfl.methods.encrypted_update import MixedTotal
from shieldfl.methods.encryption_settings import FixedPoint
from shieldfl.privacy import noise as draws
from shieldfl.privacy.events import Distribution, PrivacyReading
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.opening_rule import RoundSums
from shieldfl.rounds.plan import RoleContext
from shieldfl.settings import Delta, NotNegative, Positive, about

OF_NOISY_SUMS = PrivacyReading(
    "client",
    "key authority or aggregator, not both, with at most the stated colluders",
    "all updates of a client are zeroed out, K stays",
    "ε is of what opened sums, and with them the global model, tell: each has the noise of all its clients, "
    "and is charged that of min_clients, less those that may collude. Single updates are hidden by "
    "encryption alone, from all but the key authority together with the aggregator; under ckks and paillier "
    "as long as the aggregator adds up what it says. Of one client, whose updates are all zeroed out while K "
    "stays, by theorems on sums of Skellam noise (Agarwal, Kairouz and Liu 2021) or discrete Gaussians "
    "(Kairouz, Liu and Steinke 2021)",
    "ε against outsiders alone is of the same unit and neighbours: one client, whose updates are all zeroed "
    "out while K stays. It holds against those who see every global model and K, have no part in the "
    "federation, and see neither its messages nor this run's seed, from which its draws follow: key "
    "authority, aggregator and every client learn who takes part. Each round is charged for the share of "
    "clients that were drawn, by the same theorems and advanced joint convexity (Balle, Barthe and Gaboardi "
    "2018)",
)
"""Reading for methods in which everything that leaves a client is in a sum with noise."""

SumDelta = Annotated[
    Delta,
    about(
        "Delta of the epsilon of sums with noise. A thousandth of it covers draws that deviate from "
        "their distribution."
    ),
]
Colluders = Annotated[
    int,
    Meta(ge=1, lt=2**31),
    about(
        "Clients of a sum that may pool the noise they drew. Shares are sized for min_clients minus "
        "these. A client that inspects a sum on its own counts as one."
    ),
]
OF_FIXED_POINT = frozenset({"value_bits", "fraction_bits", "buffer_range_bits"})


@dataclass(frozen=True)
class AskedNoise:
    """The noise that a method's settings ask for on sums, whatever the settings' names."""

    multiplier: float
    """Deviation of the fewest honest clients' noise together, over ``clip_norm``; unused with a target."""
    target_epsilon: float | None
    """Epsilon that the noised sums of all rounds may spend together; None for no target."""
    clip_norm: float
    mechanism: Distribution
    colluders: int
    count_deviation: float | None = None
    """Deviation of the noise on the share of clients within ``clip_norm``; None if nobody counts them."""


@dataclass(frozen=True)
class SumNoiseOption(FixedPoint):
    """Noise on encrypted sums, for methods that can do without.

    Raises ParameterError for both z and a target.
    """

    target_setting: ClassVar[str] = "sum_target_epsilon"
    of_noise_alone: ClassVar = frozenset(
        {"sum_target_epsilon", "sum_clip_norm", "sum_mechanism", "sum_colluders", "delta"}
    )
    """Names of settings that have no effect without noise."""

    sum_noise_multiplier: Annotated[
        NotNegative,
        about(
            "Noise multiplier of encrypted sums; 0 for no noise. Each client adds a share before it "
            "encrypts. The value is the standard deviation of the noise that the fewest honest clients "
            "add together, divided by the clip norm.",
            symbol="z",
        ),
    ] = 0.0
    sum_target_epsilon: Annotated[
        Positive | None,
        about("Epsilon that the noised sums of all rounds may spend together. It replaces z."),
    ] = None
    sum_clip_norm: Annotated[
        Positive,
        about("L2 norm to which a client's encrypted values are clipped, if sums have noise.", symbol="C"),
    ] = 1.0
    sum_mechanism: Annotated[Distribution, about("Distribution of each client's share of that noise.")] = (
        "skellam"
    )
    sum_colluders: Colluders = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sum_target_epsilon is not None and self.sum_noise_multiplier != 0.0:
            raise ParameterError("give sum_noise_multiplier or sum_target_epsilon, not both")

    @property
    def asked_noise(self) -> AskedNoise | None:
        """The noise that sums are to have; None for none."""
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
        return self.of_noise_alone if self.asked_noise is None else OF_FIXED_POINT

    def with_multiplier(self, multiplier: float) -> Self:
        return replace(self, sum_noise_multiplier=multiplier, sum_target_epsilon=None)


NORM_EXPONENT = "clip exponent"
"""Name of a model's message part with a norm's exponent, a signed 64-bit number: see :class:`MovingNorm`."""


def read_exponent(model: Message) -> int:
    """Return the exponent of a round's norm. Raises WireFormatError for one out of range."""
    exponent = int(model.vector(NORM_EXPONENT, np.int64, 1)[0])
    if abs(exponent) > draws.MOST_EXPONENT:
        raise WireFormatError(
            "the round's norm is not within 2^-16 and 2^16 of the first: nothing is trained or sent"
        )
    return exponent


def share_of(
    noise: SumNoise,
    context: RoleContext,
    values: FloatVector,
    round_number: int,
    clip_norm: float,
    *,
    counts: bool = False,
) -> tuple[NDArray[np.int32], bool]:
    """Return whole numbers (n,) for values, clipped, rotated and rounded, and whether they were longer.

    ``counts`` says that they are one value: 1 if an update is within its norm, else -1. It is a vector in its
    own right, whose bound is kept in the same way.
    """
    steps, count_steps = noise.steps_per_unit_at(clip_norm), noise.count_steps
    return draws.noise_share(
        values,
        clip_norm=clip_norm,
        steps_per_unit=float(count_steps) if counts else steps,
        rotation_seed=draws.rotation_seed(context.keys.session, round_number),
        norm_bound_squared=count_steps**2 if counts else noise.norm_bound_squared,
        most_rounded=count_steps if counts else noise.most_rounded,
        most_sent=noise.most_sent,
        table=noise.table,
        threads=context.threads,
    )


def mean_of_shares(
    context: RoleContext,
    total: DoubleVector,
    clients: int,
    round_number: int,
    steps_per_unit: float,
) -> DoubleVector:
    """Return the mean (n,) from a total of so many clients' shares."""
    return draws.mean_of_total(
        np.ascontiguousarray(total),
        clients=clients,
        steps_per_unit=steps_per_unit,
        rotation_seed=draws.rotation_seed(context.keys.session, round_number),
        threads=context.threads,
    )


def opened_shares(
    noise: SumNoise, context: RoleContext, claim: MixedTotal, sums: RoundSums, clip_norm: float
) -> tuple[DoubleVector, float]:
    """Open a total; return its mean, 0 where nothing is encrypted, and the share of clients within the norm.

    The mean is of the update's P parameters, or of the total's values, if those are fewer. The share of
    clients within the norm is NaN if nobody counts them.

    Raises as :meth:`MixedTotal.check_weights` and the opening of a total do.
    """
    claim.check_weights(1)
    total = claim.union.scatter(sums.open(claim.total))
    size = min(claim.positions.size, context.plan.parameters)
    positions, of_total = claim.positions.resized(size), (claim.total.clients, claim.total.round)
    mean, steps = np.zeros(size), noise.steps_per_unit_at(clip_norm)
    positions.scatter(mean_of_shares(context, positions.gather(total[:size]), *of_total, steps), mean)
    if not noise.count_steps:
        return mean, math.nan
    excess = mean_of_shares(context, total[size : size + 1], *of_total, float(noise.count_steps))
    return mean, (1.0 + float(excess[0])) / 2.0
