"""``chosen-share``: every client encrypts the share of the model that settings choose; the rest is in the clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.encryption_settings import EncryptionSettings
from shieldfl.methods.encrypted_sum.mixed_upload import encrypted_positions
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.methods.protocol.named_method import NamedMethod
from shieldfl.methods.protocol.plan import FederationPlan
from shieldfl.privacy.events import NO_NOISE
from shieldfl.selection import positions_in_budget
from shieldfl.settings import Share, about

__all__ = ["ChosenShare", "ChosenShareSettings"]


@dataclass(frozen=True)
class ChosenShareSettings(EncryptionSettings):
    """Which positions are encrypted, and how."""

    share: Annotated[Share, about("Of the parameters that is encrypted.")] = 0.25
    place: Annotated[
        Literal["end", "start", "spread"],
        about("Where they are: at the end of the model, at its start, or spread evenly."),
    ] = "end"


def chosen_positions(settings: ChosenShareSettings, parameters: int) -> Mask:
    """Return the positions that are encrypted, of as many parameters."""
    count = positions_in_budget(settings.share, parameters)
    if settings.place == "spread":
        positions = np.arange(count) * parameters // max(count, 1)
    else:
        positions = np.arange(count) + (parameters - count if settings.place == "end" else 0)
    return Mask.from_indices(positions, parameters)


class ChosenShare(MaskedAverage):
    """Averaging in which a share that depends on no data is encrypted; buffers are, always.

    Clients, aggregator and key authority are those of :class:`MaskedAverage`, which know the positions from the start.
    """

    names = (
        NamedMethod(
            "chosen-share",
            "a share of your choice encrypted, the rest in the clear",
            "an example of a method in a package of its own",
            "examples/chosen_share",
            ChosenShareSettings(),
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "values outside of the share, and weights"

    def __init__(self, name: str, settings: ChosenShareSettings, plan: FederationPlan) -> None:
        zone = encrypted_positions(chosen_positions(settings, plan.parameters), plan.buffers)
        super().__init__(name, settings, plan, zone)
