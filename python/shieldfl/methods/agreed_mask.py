"""One mask for the run, of the positions with the highest mean scores, as in FedML-HE (Jin et al. 2023)."""

from __future__ import annotations

from shieldfl.methods.dp_sgd_rounds import KindsOfRounds, RoundKind
from shieldfl.methods.encryption_settings import FedMlHeSettings
from shieldfl.methods.masked_average.agreed_share import SCORES, UPDATE, AgreedShare
from shieldfl.methods.masked_average.method import MaskedAverage
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan


class FedMlHe(MaskedAverage):
    """``fedml-he``: scores by label sensitivity (see :mod:`shieldfl.learning.scores`)."""

    names = (
        NamedMethod(
            "fedml-he",
            "a fixed tenth encrypted, the rest in the clear",
            "a baseline of selective encryption",
            "Jin et al. 2023: FedML-HE",
            FedMlHeSettings(),
            masks="one share",
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "values outside of the mask, the mask, and weights"
    scores = "label"
    phases = (SCORES, UPDATE)

    def __init__(self, name: str, settings: FedMlHeSettings, plan: FederationPlan) -> None:
        encrypted = RoundKind(encrypts=True)
        share = AgreedShare(settings.ratio, KindsOfRounds(encrypted, encrypted), plan)
        super().__init__(name, settings, plan, None, share=share)
