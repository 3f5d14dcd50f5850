"""Settings of averages whose sums have noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from shieldfl.methods.noised_average.settings import DpFedAvgSettings
from shieldfl.privacy.discrete_sums import Distribution
from shieldfl.scheme.interface import KeyBits
from shieldfl.scheme.registry import DEFAULT_ENCRYPTION, DEFAULT_KEY_BITS, encryptions
from shieldfl.settings import Delta, Positive, about

__all__ = ["OF_ADAPTIVE_CLIPPING", "DdpFedAvgSettings"]

OF_ADAPTIVE_CLIPPING = ("clipping", "clip_quantile", "clip_learning_rate", "clip_count_noise")
"""Names of settings that say nothing where the clipping norm stays as it is."""


@dataclass(frozen=True)
class DdpFedAvgSettings(DpFedAvgSettings):
    """How clients noise the sum of their updates, and encrypt."""

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
        int,
        Meta(ge=1, lt=2**31),
        about(
            "How many clients of a sum may put together what noise they drew: shares are sized for min_clients less "
            "these. A client that looks at a sum alone is one."
        ),
    ] = 1
    encryption: Annotated[str, about("The scheme, and its packing.", choices=encryptions)] = (
        DEFAULT_ENCRYPTION
    )
    key_bits: Annotated[KeyBits, about("Bits of a Paillier modulus.")] = DEFAULT_KEY_BITS
