"""The roles of Alt-FL's methods with encryption: the kind of the round decides what is encrypted and how to train."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.masks import Mask
from shieldfl.methods.agreed_mask.method import AgreedMaskAggregator, AgreedMaskClient
from shieldfl.methods.agreed_mask.rule import ZonesOfRounds
from shieldfl.methods.noised_average.method import DpSgdRounds
from shieldfl.methods.noised_average.rounds import KindsOfRounds, RoundKind
from shieldfl.privacy.events import Noise
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Disclosure
from shieldfl.stateful import refuse_unless

_ENCRYPTED = RoundKind(encrypts=True)
_NOISED = RoundKind(noises=True)
_BOTH = RoundKind(encrypts=True, noises=True)
_SYNTHETIC = RoundKind()
_KINDS = {
    "alt-fl-pi": (_ENCRYPTED, _NOISED),
    "alt-fl-si-dp": (_NOISED, _SYNTHETIC),
    "alt-fl-si-he": (_ENCRYPTED, _SYNTHETIC),
    "alt-fl-mp": (_BOTH, _BOTH),
}


def rounds_of(method: str, ratio: str) -> KindsOfRounds:
    """Return the kinds of rounds of one of the four, under a ratio as of :class:`AlternatingSchedule`."""
    return KindsOfRounds(*_KINDS[method], ratio)


class AltFlClient(AgreedMaskClient):
    """Trains and encrypts as the round's kind says.

    With ``noise``, for a model without buffers, its whole update has a share of it in rounds that encrypt. What a round
    of DP-SGD noises and what one on synthetic data tells needs no other.
    """

    changes: ClassVar = {"_kind_of_round": RoundKind, "_noise": Noise | None}

    def __init__(
        self,
        index: int,
        weight: int,
        initial: GlobalModel,
        context: RoleContext,
        share: float,
        zones: ZonesOfRounds,
        dp_sgd: DpSgdRounds,
        noise: SumNoise | None,
    ) -> None:
        super().__init__(index, weight, initial, context, share, noise=noise)
        self._zones = zones
        self._dp_sgd = dp_sgd
        self._kind_of_round = RoundKind()
        self._noise: Noise | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for another kind than the round's, and for noise that its training does not have."""
        kind = self._zones.rounds.kind(self.round) if self.round else RoundKind()
        refuse_unless(self._kind_of_round == kind)
        refuse_unless(self._dp_sgd.may_have(self._noise, kind, trained=self._has_trained))

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Ask for DP-SGD or synthetic data, and for scores before the first mask."""
        kind = self._zones.rounds.kind(round_number)
        start = super()._begin_round(round_number, participants, model)
        # Only now: a round that is refused must not change how the one that runs is protected.
        self._kind_of_round = kind
        if "zone" not in model:
            self.zone = None
        if not self._zones.needs_mask(round_number):
            self.scores = None
        return self._dp_sgd.training(replace(start, scores=self.scores), kind)

    def _keep(self, update: LocalUpdate) -> None:
        """Keep what is to be charged, too; refuse what was not trained by DP-SGD where that was asked for."""
        noise = self._dp_sgd.noise_of(update) if self._kind_of_round.noises else None
        super()._keep(update)
        self._noise = noise

    def _zone_from(self, answer: Message | None) -> Mask | None:
        return self._zones.of(self.round, super()._zone_from(answer))

    def _vector(self, answer: Message | None) -> NDArray[np.float32] | NDArray[np.float64]:
        """Return whole numbers (P,) in a round that encrypts with noise, and the update otherwise."""
        update = self._difference()
        return self._share_of(update) if self._shares_noise else update

    def in_the_mean(self, vector: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its part (P,) of what the round's mean is of, by what it has sent, as it alone knows it."""
        sent = np.asarray(vector, dtype=np.float64)
        return self._values_of(sent) if self._shares_noise else sent

    @property
    def _shares_noise(self) -> bool:
        return self.noise_shares is not None and self._kind_of_round.encrypts

    def _disclose(self, zone: Mask) -> None:
        self._state(
            Disclosure.of_zone(
                zone,
                self._size,
                rest="clear" if self._noise is None else "noised",
                parts=self.clear_parts,
                synthetic=self._kind_of_round.synthetic,
                noise=self._noise,
            )
        )


class AltFlAggregator(AgreedMaskAggregator):
    """Sums over the positions of the round's kind."""

    changes: ClassVar = {"_agreed": Mask | None}

    def __init__(self, context: RoleContext, weights: tuple[int, ...], zones: ZonesOfRounds) -> None:
        super().__init__(context, weights)
        self._zones = zones
        self._agreed: Mask | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for a mask of another size."""
        refuse_unless(self._agreed is None or self._agreed.size == self.context.plan.update_size)

    def _zone_from(self, round_number: int, answer: Message | None) -> Mask | None:
        """Return what a round of its kind encrypts."""
        return self._zones.of(round_number, self._agreed)

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Keep the mask that was agreed on, for later rounds of its kind. Raises PolicyError for another one."""
        before = self._agreed
        if answer is not None and "zone" in answer:
            self._agreed = Mask.from_bytes(answer["zone"], expected_size=self.context.plan.update_size)
            if before not in (None, self._agreed):
                self._agreed = before
                raise PolicyError("another mask was agreed on, and it is for the whole run")
        try:
            super()._begin_phase(phase, round_number, answer)
        except BaseException:
            self._agreed = before
            raise
