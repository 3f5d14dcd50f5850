"""Settings of DictPFL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from shieldfl.methods.distributed_noise.settings import OnlySumNoiseOption
from shieldfl.methods.encryption_settings import WeighedEncryption
from shieldfl.settings import Count, Probability, Settings, Share, about


@dataclass(frozen=True)
class PruningSettings(Settings):
    """When positions are pruned and come back."""

    small_percent: Annotated[
        float,
        Meta(ge=0.0, lt=100.0),
        about(
            "How many positions a round's update counts as small, of those ranked; 0 prunes nothing.",
            symbol="s",
        ),
    ] = 70.0
    patience_rounds: Annotated[
        int,
        Meta(ge=1, le=2**16 - 1),
        about("A position is pruned when it was small in so many rounds running.", symbol="tau"),
    ] = 3
    decay: Annotated[
        Share, about("What a vain reactivation multiplies a position's probability by.", symbol="beta")
    ] = 0.2
    first_probability: Annotated[
        Probability,
        about(
            "Of a reactivation, for a position that is pruned for the first time; 0 never tries one again. The summary "
            "does not state it; beta is as if the tau small rounds were a vain reactivation.",
            symbol="p",
        ),
    ] = 0.2
    ranked: Annotated[
        Literal["all", "sent"],
        about(
            "Of which positions s % are small. all: a position that was not sent has the update 0 and counts as small, "
            "so at most s % are pruned. sent: of those sent in the round, so pruning goes on without a limit."
        ),
    ] = "all"


@dataclass(frozen=True)
class FactorisationSettings(Settings):
    """How layers are factorised. What the model's layers allow is checked where they are known."""

    rank: Annotated[
        Count,
        about("At most the smaller side of every weight matrix that is factorised.", symbol="r"),
    ] = 4
    train_fully: Annotated[
        tuple[str, ...],
        about(
            "Modules, by their names in the model, whose weights are trained themselves and not factorised."
        ),
    ] = ()


@dataclass(frozen=True)
class DictPflSettings(OnlySumNoiseOption, WeighedEncryption, FactorisationSettings, PruningSettings):
    """How layers are factorised, positions pruned and values encrypted, and whether sums have noise."""
