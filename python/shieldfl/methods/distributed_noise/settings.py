"""Settings of averages whose sums have noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from shieldfl.methods.noised_average.settings import DpFedAvgSettings
from shieldfl.privacy.discrete_sums import Distribution
from shieldfl.scheme.interface import KeyBits
from shieldfl.scheme.registry import DEFAULT_ENCRYPTION, DEFAULT_KEY_BITS, encryptions
from shieldfl.settings import Delta, Positive, about

__all__ = ["DdpFedAvgSettings"]


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
