"""One mask for the run, of the positions with the highest mean scores, as in FedML-HE (Jin et al. 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from shieldfl.authority.message import Message, Part
from shieldfl.encryption.encryption import UnionMask
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_update import read_agreed_positions, stated_weight
from shieldfl.methods.encryption_settings import FedMlHeSettings
from shieldfl.methods.masked_average.method import (
    SCORES,
    UPDATE,
    AgreedShare,
    MaskedAverage,
    MaskedAverageAggregator,
    MaskedAverageClient,
)
from shieldfl.methods.noised_average import KindsOfRounds, PrivateTraining, RoundKind
from shieldfl.privacy.events import NO_NOISE, ClearUpload
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.plan import FederationPlan
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Disclosure
from shieldfl.stateful import refuse_unless


class AgreedMaskClient(MaskedAverageClient):
    """Trains and encrypts as the round's kind says.

    It sends its scores, encrypted, in the first round that encrypts; after that it encrypts what was agreed
    on, once for all rounds. Where no scores are encrypted in this federation, nothing is to be agreed on.
    What a round of DP-SGD noises and what one on synthetic data tells needs no share of noise.
    """

    changes: ClassVar = {"_agreed": Mask | None, "_training": PrivateTraining | None}

    def __init__(
        self, method: MaskedAverage, context: RoleContext, index: int, weight: int, initial: GlobalModel
    ) -> None:
        super().__init__(method, context, index, weight, initial)
        assert method.share is not None
        self._share = method.share
        self._agreed: Mask | None = None
        self._training = None if method.dp_sgd is None else PrivateTraining(method.dp_sgd)

    def check_changed(self) -> None:
        if self._agreed is not None:
            refuse_unless(self._agreed == self._read_zone(self._agreed.to_bytes()))
        if self._training is not None:
            self._training.check(self.round, trained=self.has_trained)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        start = super()._begin_round(round_number, participants, model)
        # Only now: a round that is refused must not change how the one that runs is protected.
        if "zone" not in model:
            self.zone = None
        self.scores = self.context.scores if self._share.asks(round_number, model) else None
        start = replace(start, scores=self.scores)
        return start if self._training is None else self._training.begin(round_number, start)

    def _keep(self, update: LocalUpdate) -> None:
        """Keep what is to be charged, too; refuse what was not trained by DP-SGD where that was asked for."""
        noise = None if self._training is None else self._training.noise_of(update)
        super()._keep(update)
        if self._training is not None:
            self._training.noise = noise

    def _zone_from(self, answer: Message | None) -> Mask | None:
        """Return the mask. Raises PolicyError for an answer with one in a round whose model, signed, brought it."""
        if answer is not None and "zone" in answer and self._begun_with and "zone" in self._begun_with[1]:
            raise PolicyError("the mask came with the round's signed model: no answer brings another one")
        return self._share.zone(self.round, super()._zone_from(answer))

    def _read_zone(self, frame: Part) -> Mask:
        """Read a mask of the agreed size. Raises PolicyError for others, and for another one than was taken before."""
        if not self.context.encrypts("scores"):
            return super()._read_zone(frame)
        zone = read_agreed_positions(frame, self._size, self._buffer_count, self._share.count)
        if self._agreed not in (None, zone):
            raise PolicyError("another mask was agreed on, and it is for the whole run: nothing was sent")
        return zone if self._agreed is None else self._agreed

    def _make(self, phase: str, answer: Message | None) -> Message:
        """Hold on to the mask that the first update was encrypted by, for the whole run."""
        message = super()._make(phase, answer)
        # A round of another kind encrypts buffers alone.
        agrees = phase == "update" and self.context.encrypts("scores")
        if agrees and self._agreed is None and self.zone is not None:
            self._agreed = self.zone if self.zone.resized(self._size).count else None
        return message

    def _speak(self, phase: str) -> Message:
        if not self.trained_scores.size:
            raise ParameterError("no scores were asked for in this round: begin with the update phase")
        context = self.context
        with self.clock.stage("negotiate"):
            # Of equal sign for all, so that a mean cannot cancel.
            key, scores = self._round_key("scores"), np.abs(self.trained_scores)
            encryptor = scheme_of(key).encryptor(key, context.threads, "scores")
            batch = encryptor.encrypt(scores, None, self.weight / context.most_weight, self.round, clip=True)
            # The mask is a function of these scores, without noise, and goes to everybody.
            self.record(ClearUpload(self.round, self.index, "mask"))
            return Message(
                {
                    "round": Message.from_number(self.round),
                    "weight": Message.from_number(self.weight),
                    "scores": batch.to_bytes(),
                }
            )

    @property
    def _shares_noise(self) -> bool:
        return self.noise_shares is not None and self._share.rounds.kind(self.round).encrypts

    def _disclose(self, zone: Mask) -> None:
        noise = None if self._training is None else self._training.noise
        self._state(
            Disclosure.of_zone(
                zone,
                self._size,
                rest="clear" if noise is None else "noised",
                parts=self.clear_parts,
                synthetic=self._training is not None and self._training.kind.synthetic,
                noise=noise,
            )
        )


class AgreedMaskAggregator(MaskedAverageAggregator):
    """Sums over the positions of the round's kind; adds encrypted scores, where there are any, unread."""

    changes: ClassVar = {"_agreed": Mask | None, "_weight": int, "_scores_added": bytes | None}
    sums = (*MaskedAverageAggregator.sums, "_scores_added")

    def __init__(self, method: MaskedAverage, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(method, context, weights)
        assert method.share is not None
        self._share = method.share
        self._agreed: Mask | None = None
        self._scores: Any = None
        self._weight = 0

    def check_changed(self) -> None:
        refuse_unless(self._agreed is None or self._agreed.size == self.context.plan.update_size)
        refuse_unless(0 <= self._weight <= sum(self.weights))

    def check_sums(self) -> None:
        super().check_sums()
        refuse_unless(self._scores is None or self._scores.clients == len(self._seen))

    @property
    def _scores_added(self) -> bytes | None:
        if self._scores is None or not self._scores.clients:
            return None
        return bytes(self._scores.total().to_bytes())

    @_scores_added.setter
    def _scores_added(self, total: bytes | None) -> None:
        if total is not None and self._scores is not None:
            self._scores.add_total(total)

    def _zone_from(self, round_number: int, answer: Message | None) -> Mask | None:
        return self._share.zone(round_number, self._agreed)

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Keep the mask that was agreed on, for later rounds of its kind. Raises PolicyError for another one."""
        before = self._agreed
        try:
            if answer is not None and "zone" in answer:
                size = self.context.plan.update_size
                self._agreed = Mask.from_bytes(answer["zone"], expected_size=size)
                if before not in (None, self._agreed):
                    raise PolicyError("another mask was agreed on, and it is for the whole run")
            super()._begin_phase(phase, round_number, answer)
        except BaseException:
            self._agreed = before
            raise
        if phase == UPDATE.name:
            self._scores = None

    def _begin(self, phase: str, round_number: int) -> None:
        key = self._round_key(round_number, "scores")
        everything = UnionMask(Mask.full(self.context.plan.parameters))
        self._scores = scheme_of(key).aggregator(
            key, self.context.threads, round_number, everything, weighted=True, purpose="scores"
        )
        self._weight = 0

    def _hear(self, phase: str, client: int, message: Message) -> None:
        with self.clock.stage("negotiate"):
            weight = stated_weight(client, message, self.weights)
            scheme = scheme_of(self.context.keys.parameters["scores"])
            scheme.add(self._scores, client, message["scores"], weight, None)
            self._weight += weight

    def _conclude(self, phase: str) -> Message:
        return Message(
            {
                "round": Message.from_number(self.round),
                "weight": Message.from_number(self._weight),
                "total": self._scores.total().to_bytes(),
            }
        )


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
    client_kind = AgreedMaskClient
    aggregator_kind = AgreedMaskAggregator

    def __init__(self, name: str, settings: FedMlHeSettings, plan: FederationPlan) -> None:
        encrypted = RoundKind(encrypts=True)
        share = AgreedShare(settings.ratio, KindsOfRounds(encrypted, encrypted), plan)
        super().__init__(name, settings, plan, None, share=share)
