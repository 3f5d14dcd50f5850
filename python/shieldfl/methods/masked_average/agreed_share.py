"""A share of the parameters that all clients encrypt alike, agreed on by encrypted scores; the phases of a round."""

from __future__ import annotations

from typing import Any

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import DEFAULT_PUBLIC_KEY_ENCRYPTION, scheme_named, scheme_of
from shieldfl.errors import WireFormatError
from shieldfl.masks import Mask, positions_in_budget, top_k
from shieldfl.methods.dp_sgd_rounds import KindsOfRounds
from shieldfl.methods.encrypted_update import encrypted_positions, settled_positions
from shieldfl.methods.encryption_settings import FixedPoint, update_parameters
from shieldfl.rounds.messages import newest_answer
from shieldfl.rounds.opening_rule import RoundSums
from shieldfl.rounds.plan import FederationPlan, Phase
from shieldfl.rounds.public_setup import RoleContext

UPDATE = Phase("update", answered_by_authority=True)
SCORES = Phase("scores", answered_by_authority=True, opens="scores", once=True)
SCORE_POINT = FixedPoint(40, 36)
"""Scores span many orders of magnitude: the widest fixed point that the core has, most of it behind the point."""


class AgreedShare:
    """A share of the parameters of which clients agree by encrypted scores which these are, once for a run.

    Where the share is of all parameters, or none, nothing is agreed on: there are no scores, and no keys for
    them. Rounds of a kind that does not encrypt do so with buffers alone.
    """

    def __init__(self, ratio: float, rounds: KindsOfRounds, plan: FederationPlan) -> None:
        self.ratio, self.rounds, self._plan = ratio, rounds, plan
        self.count = positions_in_budget(ratio, plan.parameters)
        self._buffers_alone = encrypted_positions(Mask.empty(plan.parameters), plan.buffers)
        self.settled = settled_positions(ratio, plan.parameters, plan.buffers)
        """What rounds that encrypt do where nothing is to be agreed on."""

    def keys(self, encryption: str) -> dict[str, SchemeParameters[Any]]:
        """Return how scores are encrypted, beside updates by this scheme."""
        if self.settled is not None:
            return {}
        # All under keys of one kind: clients enrol, or they do not.
        chosen = encryption if scheme_named(encryption).enrols else DEFAULT_PUBLIC_KEY_ENCRYPTION
        return {"scores": update_parameters(chosen, self._plan.most_participants, SCORE_POINT)}

    def asks(self, round_number: int, model: Message) -> bool:
        """Say whether a round that starts from this model lacks a mask that it needs."""
        return self.needs_mask(round_number) and "zone" not in model

    def needs_mask(self, round_number: int) -> bool:
        """Say whether a round encrypts what only a mask can tell."""
        return self.rounds.kind(round_number).encrypts and self.settled is None

    def zone(self, round_number: int, agreed: Mask | None) -> Mask | None:
        """Return a round's positions; None where they are not agreed on yet."""
        if not self.rounds.kind(round_number).encrypts:
            return self._buffers_alone
        return agreed if self.settled is None else self.settled

    def phases(self, model: Message, round_number: int) -> tuple[Phase, ...]:
        """Return a round's phases: scores first, until a mask comes with its model or what was opened."""
        if not self.needs_mask(round_number):
            return (UPDATE,)
        is_agreed = "zone" in model
        if newest_answer("update") in model:
            most = max(model.number(newest_answer("scores")), 1)
            is_agreed = model.number(newest_answer("update")) >= most
        return (UPDATE,) if is_agreed else (SCORES, UPDATE)

    def opened(self, context: RoleContext, message: Message, sums: RoundSums, zone: Mask | None) -> Mask:
        """Return the mask that the scores' mean, which alone is opened, comes to; itself where it is known.

        Scores of a round that was given up were opened: then nothing is opened again.
        """
        total = scheme_of(context.keys.parameters["scores"]).Total.from_bytes(message["total"])
        stated, most = message.number("weight"), context.most_weight
        if not total.is_of(Mask.full(self._plan.parameters)) or total.round != message.number("round"):
            raise WireFormatError("the total is of another round, or has not one score for each parameter")
        if not total.weighted or not total.clients <= stated <= total.clients * most:
            raise WireFormatError(
                f"the weights of the scores are missing, or not between 1 and {most} for each client"
            )
        sums.check_runs()
        if zone is not None:
            return zone
        with sums.opening(total) as opener:
            mean = np.maximum(opener.open_mean(total, stated_weight=stated / most), 0.0)
        return encrypted_positions(top_k(mean, self.count, context.threads), self._plan.buffers)
