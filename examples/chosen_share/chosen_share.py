"""``chosen-share``: every client encrypts the share of the model that settings say; the rest is in the clear."""

from dataclasses import dataclass
from typing import Annotated

from shieldfl import Mask
from shieldfl.methods.encrypted_update import encrypted_positions
from shieldfl.methods.encryption_settings import EncryptionSettings
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.plan import FederationPlan
from shieldfl.settings import Share, about


@dataclass(frozen=True)
class ChosenShareSettings(EncryptionSettings):
    """How much is encrypted, and how."""

    share: Annotated[Share, about("Of the parameters that is encrypted: the last ones.")] = 0.25


class ChosenShare(MaskedAverage):
    """Averaging in which the last parameters are encrypted; buffers are, always."""

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
        clear = Mask.full(plan.parameters - round(settings.share * plan.parameters))
        last = ~clear.resized(plan.parameters)
        super().__init__(name, settings, plan, encrypted_positions(last, plan.buffers))
