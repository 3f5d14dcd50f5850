"""Settings of Alt-FL's four methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from shieldfl.methods.distributed_noise.settings import SumNoiseOption
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.noised_average.rounds import AlternatingSchedule
from shieldfl.methods.noised_average.settings import DpSgdSettings
from shieldfl.settings import Count, NotNegative, Positive, Probability, about


@dataclass(frozen=True)
class AltFlSettings(DpSgdSettings, SumNoiseOption, EncryptionSettings):
    """Alt-FL's settings. Raises ParameterError for a ratio that is no fraction too."""

    noise_multiplier: Annotated[NotNegative, about("Of rounds with DP-SGD; 0 for none.", symbol="sigma")] = (
        0.5
    )
    interleaving_ratio: Annotated[
        str,
        about(
            'A fraction such as "1/4": the share of rounds of the second kind, with DP-SGD (PI) or synthetic data '
            "(SI). MP has none.",
            symbol="rho",
        ),
    ] = "1/2"
    encrypted_share: Annotated[
        Probability,
        about(
            "The share of the parameters that encrypted rounds encrypt, those with the largest gradients.",
            symbol="eta",
        ),
    ] = 1.0
    synthetic_epsilon: Annotated[
        Positive,
        about(
            "What the built-in synthetic data set may cost the real one; no matter where another set is given."
        ),
    ] = 10.0
    synthetic_samples: Annotated[
        Count | None,
        about("How many of them to make, for all clients together; None for as many as there are real ones."),
    ] = None

    synthetic_share: Annotated[
        float,
        Meta(ge=0.0, le=0.95),
        about(
            "Of what clients train on in rounds on their own data, the share that is synthetic (augmentation): it is "
            "laid beside their own, and repeated where there is too little.",
            symbol="r",
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        AlternatingSchedule(self.interleaving_ratio)
