"""Alt-FL: rounds of encryption, of DP-SGD and of synthetic data in turn.

PI alternates S-HE and DP-SGD, SI/HE and SI/DP alternate one of them with training on synthetic data, MP applies both
in every round. S-HE encrypts a mask of the largest mean gradients, fixed for the run.
"""

from __future__ import annotations

from fractions import Fraction

from shieldfl.methods.agreed_mask import SCORES, AgreedMask
from shieldfl.methods.alt_fl_roles import AltFlAggregator, AltFlAuthority, AltFlClient
from shieldfl.methods.alt_fl_rounds import AltFlRounds, ZonesOfRounds
from shieldfl.methods.alt_fl_settings import AltFlSettings
from shieldfl.methods.dp_sgd_account import DpSgdAccount, DpSgdRounds
from shieldfl.methods.dp_sgd_averaging import BY_DP_SGD, DpSgdAveraging
from shieldfl.methods.federation import Federation
from shieldfl.methods.global_model import GlobalModel
from shieldfl.methods.masked_average import UPDATE
from shieldfl.methods.method import Phase, SyntheticDemand
from shieldfl.privacy.reading import PrivacyReading
from shieldfl.roles.message import Message

__all__ = ["AltFl", "AltFlWithoutEncryption"]


class AltFl(AgreedMask):
    """``alt-fl-pi``, ``alt-fl-si-he`` and ``alt-fl-mp``; arguments as for :class:`MaskedAverage`.

    Raises ParameterError where delta is not known.
    """

    privacy_reading = PrivacyReading(
        "sample",
        "the aggregator, which sees no model",
        BY_DP_SGD.neighbours,
        f"{BY_DP_SGD.meaning}; ∞ where real values or a mask made of them are readable without noise, and from the "
        "first upload on that depends on a sum opened without noise; what opened sums, and with them the global model, "
        "tell is not counted",
    )
    aggregator_sees = (
        "what a round does not encrypt: updates from DP-SGD or synthetic data, and a mask where eta < 1"
    )

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: AltFlSettings,
        federation: Federation,
    ) -> None:
        self.rounds = AltFlRounds(name, settings.interleaving_ratio)
        share = settings.encrypted_share if self.rounds.encrypts else 0.0
        super().__init__(name, initial, settings, federation, ratio=share, kind="gradient")
        self.dp_sgd = DpSgdRounds.of(settings, federation)
        self.interleaving = _interleaving(self.rounds)
        self.synthetic_demand = _synthetic_demand(self.rounds, settings, self.dp_sgd, federation)
        self._zones = ZonesOfRounds(self.rounds, self.zone, initial.parameters.size, initial.buffers.size)
        kinds = self.rounds.kinds(federation.rounds)
        if any(kind.encrypts and not kind.noises for kind in kinds) and settings.encrypted_share < 1.0:
            self.notes.append(
                f"{name}: encrypted rounds send a share of {1 - settings.encrypted_share:g} of each update in the "
                "clear, which no epsilon covers; epsilon_of_what_was_charged is that of the other rounds alone"
            )
        if any(self._zones.needs_mask(number) for number in range(1, federation.rounds + 1)):
            self.notes.append(
                f"{name}: the mask is computed from gradients without noise and travels in the clear, which no "
                "epsilon covers; epsilon_of_what_was_charged is that of DP-SGD alone"
            )

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Scores first in a round that encrypts, until a model comes with the mask."""
        negotiates = self._zones.needs_mask(round_number) and "zone" not in model
        return (SCORES, UPDATE) if negotiates else (UPDATE,)

    def client(self, index: int) -> AltFlClient:
        """Make a client."""
        return AltFlClient(index, self.context, self.ratio, self._zones, self.dp_sgd)

    def aggregator(self) -> AltFlAggregator:
        """Make the aggregator: it gets public keys alone."""
        return AltFlAggregator(self.context, self._zones)

    def authority(self) -> AltFlAuthority:
        """Make the key authority's steps."""
        return AltFlAuthority(
            self.context,
            self.keys,
            self.federation.server_learning_rate,
            self.ratio,
            self._zones,
        )

    def account(self) -> DpSgdAccount:
        """Return an account of DP-SGD and synthetic data; infinite where its events say that no noise covers all."""
        return DpSgdAccount(self.notes, self.dp_sgd.delta, self.federation.clients)


class AltFlWithoutEncryption(DpSgdAveraging):
    """``alt-fl-si-dp``: nothing is encrypted, so there are no keys; arguments as for :class:`MaskedAverage`."""

    privacy_reading = BY_DP_SGD
    aggregator_sees = "every client's update, noised by DP-SGD or from synthetic data"

    def __init__(
        self,
        name: str,
        initial: GlobalModel,
        settings: AltFlSettings,
        federation: Federation,
    ) -> None:
        rounds = AltFlRounds(name, settings.interleaving_ratio)
        super().__init__(name, initial, settings, federation, rounds)
        self.interleaving = _interleaving(rounds)
        self.synthetic_demand = _synthetic_demand(rounds, settings, self.dp_sgd, federation)


def _interleaving(rounds: AltFlRounds) -> Fraction | None:
    return rounds.schedule.ratio if rounds.alternates else None


def _synthetic_demand(
    rounds: AltFlRounds, settings: AltFlSettings, dp_sgd: DpSgdRounds, federation: Federation
) -> SyntheticDemand | None:
    if not any(kind.synthetic for kind in rounds.kinds(federation.rounds)):
        return None
    return SyntheticDemand(settings.synthetic_epsilon, dp_sgd.delta, settings.synthetic_samples)
