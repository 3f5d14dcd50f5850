"""One mask for the run, of the positions with the highest mean scores: FedML-HE (Jin et al. 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from shieldfl.authority.message import Message, Part
from shieldfl.encryption.encryption import UnionMask
from shieldfl.encryption.registry import DEFAULT_PUBLIC_KEY_ENCRYPTION, scheme_named, scheme_of
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.learning.local_update import StartingPoint
from shieldfl.masks import Mask, positions_in_budget
from shieldfl.methods.agreed_mask.rule import AgreedMaskRule
from shieldfl.methods.encrypted_update import read_agreed_positions, settled_positions, stated_weight
from shieldfl.methods.encryption_settings import (
    EncryptionSettings,
    FedMlHeSettings,
    FixedPoint,
    update_parameters,
)
from shieldfl.methods.masked_average.method import (
    UPDATE,
    MaskedAverage,
    MaskedAverageAggregator,
    MaskedAverageClient,
)
from shieldfl.privacy.events import NO_NOISE, ClearUpload
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.messages import newest_answer
from shieldfl.rounds.named_method import NamedMethod
from shieldfl.rounds.opening_rule import OpeningRule
from shieldfl.rounds.plan import FederationPlan, Phase
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless

SCORES = Phase("scores", answered_by_authority=True, opens="scores", once=True)
SCORE_BITS = 40
"""Scores span many orders of magnitude: the widest fixed point that the core has, most of it behind the point."""
SCORE_FRACTION_BITS = 36


class AgreedMaskClient(MaskedAverageClient):
    """Sends its scores, encrypted, in the first round; after that it encrypts what was agreed on, once for all rounds.

    Where no scores are encrypted in this federation, nothing is to be agreed on.
    """

    changes: ClassVar = {"_agreed": Mask | None}

    def __init__(
        self,
        index: int,
        weight: int,
        initial: GlobalModel,
        context: RoleContext,
        ratio: float,
        *,
        noise: SumNoise | None = None,
    ) -> None:
        super().__init__(index, weight, initial, context, None, noise=noise)
        self._ratio = ratio
        self._agreed: Mask | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for a mask that this client does not take."""
        if self._agreed is not None:
            refuse_unless(self._agreed == self._read_zone(self._agreed.to_bytes()))

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Bring scores along until there is a mask."""
        start = super()._begin_round(round_number, participants, model)
        self.scores = None if "zone" in model else self.context.scores
        return replace(start, scores=self.scores)

    def _zone_from(self, answer: Message | None) -> Mask | None:
        """Return the mask. Raises PolicyError for an answer with one in a round whose model, signed, brought it."""
        if answer is not None and "zone" in answer and self._begun_with and "zone" in self._begun_with[1]:
            raise PolicyError("the mask came with the round's signed model: no answer brings another one")
        return super()._zone_from(answer)

    def _read_zone(self, frame: Part) -> Mask:
        """Read a mask of the agreed size. Raises PolicyError for others, and for another one than was taken before."""
        if not self.context.encrypts("scores"):
            return super()._read_zone(frame)
        count = positions_in_budget(self._ratio, self._size)
        zone = read_agreed_positions(frame, self._size, self._buffer_count, count)
        if self._agreed is None:
            return zone
        if zone != self._agreed:
            raise PolicyError("another mask was agreed on, and it is for the whole run: nothing was sent")
        return self._agreed

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
            key = self._round_key("scores")
            batch = (
                scheme_of(key)
                .encryptor(key, context.threads, "scores")
                .encrypt(
                    np.abs(self.trained_scores),
                    None,
                    self.weight / context.most_weight,
                    self.round,
                    clip=True,
                )
            )
            # The mask is a function of these scores, without noise, and goes to everybody.
            self.record(ClearUpload(self.round, self.index, "mask"))
            return Message(
                {
                    "round": Message.from_number(self.round),
                    "weight": Message.from_number(self.weight),
                    "scores": batch.to_bytes(),
                }
            )


class AgreedMaskAggregator(MaskedAverageAggregator):
    """Adds encrypted scores, which it cannot read, where there are any."""

    changes: ClassVar = {"_weight": int, "_scores_added": bytes | None}
    sums = (*MaskedAverageAggregator.sums, "_scores_added")

    def __init__(self, context: RoleContext, weights: tuple[int, ...]) -> None:
        super().__init__(context, weights, None)
        self._scores: Any = None
        self._weight = 0

    def check_changed(self) -> None:
        """Raise WireFormatError for a weight that the clients do not have."""
        refuse_unless(0 <= self._weight <= sum(self.weights))

    def check_sums(self) -> None:
        """Raise WireFormatError for scores of other clients than were heard."""
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

    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        super()._begin_phase(phase, round_number, answer)
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
        assert self._scores is not None
        with self.clock.stage("negotiate"):
            weight = stated_weight(client, message, self.weights)
            scheme = scheme_of(self.context.keys.parameters["scores"])
            scheme.add(self._scores, client, message["scores"], weight, None)
            self._weight += weight

    def _conclude(self, phase: str) -> Message:
        assert self._scores is not None
        return Message(
            {
                "round": Message.from_number(self.round),
                "weight": Message.from_number(self._weight),
                "total": self._scores.total().to_bytes(),
            }
        )


class AgreedMask(MaskedAverage):
    """A mask of the highest mean scores, agreed on before the first update; scores travel encrypted.

    Where the ratio covers all parameters, or none, nothing is agreed on: there are no scores, and no keys for them.

    Parameters
    ----------
    name, settings, plan : as for :class:`MaskedAverage`.
    ratio : the share of the parameters that is encrypted.
    encryption : as for :class:`MaskedAverage`.
    """

    phases: tuple[Phase, ...] = (SCORES, UPDATE)

    def __init__(
        self,
        name: str,
        settings: Any,
        plan: FederationPlan,
        *,
        ratio: float,
        encryption: EncryptionSettings | None = None,
    ) -> None:
        settled = settled_positions(ratio, plan.parameters, plan.buffers)
        count = positions_in_budget(ratio, plan.parameters) + plan.buffers
        other_keys = {}
        if settled is None:
            fixed_point = FixedPoint(SCORE_BITS, SCORE_FRACTION_BITS)
            # All under keys of one kind: clients enrol, or they do not.
            own = settings.encryption
            chosen = own if scheme_named(own).enrols else DEFAULT_PUBLIC_KEY_ENCRYPTION
            other_keys["scores"] = update_parameters(chosen, plan.most_participants, fixed_point)
        super().__init__(
            name, settings, plan, settled, encryption=encryption, count=count, other_keys=other_keys
        )
        if not self.agrees:
            self.phases, self.scores = (UPDATE,), None
        self.ratio = ratio

    @property
    def agrees(self) -> bool:
        """Whether there is something to agree on: then scores are encrypted, under keys of their own."""
        return "scores" in self.purposes

    def phases_of(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Scores first, until a model comes with the mask."""
        return self.phases if self.agrees and not is_agreed(model) else (UPDATE,)

    def round_phases(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Let clients tell what scores have opened to, where a round that asked for them ended before its update."""
        phases, answered = super().round_phases(model, round_number), newest_answer(SCORES.name)
        if answered in model and model.number(answered) >= 1:
            phases = tuple(phase for phase in phases if phase != SCORES)
        return phases

    def _client(
        self,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        shared_secret: bytes | None,
    ) -> MaskedAverageClient:
        if not self.agrees:
            return super()._client(context, index, weight, initial, shared_secret)
        return AgreedMaskClient(index, weight, initial, context, self.ratio)

    def _aggregator(
        self, context: RoleContext, weights: tuple[int, ...], initial: GlobalModel | None
    ) -> MaskedAverageAggregator:
        return (
            AgreedMaskAggregator(context, weights)
            if self.agrees
            else super()._aggregator(context, weights, initial)
        )

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> OpeningRule:
        if not self.agrees:
            return super()._opening_rule(initial, context, shared_secret)
        return AgreedMaskRule(context, initial, self.ratio)


def is_agreed(model: Message) -> bool:
    """Say whether a round that begins so has a mask: it comes with the model, or with all rounds that were opened.

    Where there is one to agree on.
    """
    if newest_answer("update") not in model:
        return "zone" in model
    return model.number(newest_answer("update")) >= max(model.number(newest_answer("scores")), 1)


class FedMlHe(AgreedMask):
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

    def __init__(self, name: str, settings: FedMlHeSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan, ratio=settings.ratio)
