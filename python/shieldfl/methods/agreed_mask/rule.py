"""What opened sums make of mask and model where clients agree on a mask by their scores."""

from __future__ import annotations

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.masks import Mask, positions_in_budget, top_k
from shieldfl.methods.encrypted_update import encrypted_positions
from shieldfl.methods.masked_average.rule import MaskedAverageRule, Mean
from shieldfl.methods.noised_average.rounds import KindsOfRounds
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.opening_rule import RoundSums
from shieldfl.rounds.public_setup import RoleContext


class ZonesOfRounds:
    """Which of the N positions a round encrypts: buffers always, parameters by its kind.

    Parameters
    ----------
    rounds : the kinds.
    settled : what rounds that encrypt do where nothing is to be agreed on, see ``settled_positions``; None otherwise.
    parameters, buffers : how many there are.
    """

    def __init__(self, rounds: KindsOfRounds, settled: Mask | None, parameters: int, buffers: int) -> None:
        self.rounds = rounds
        self._buffers_alone = encrypted_positions(Mask.empty(parameters), buffers)
        self._settled = settled

    def needs_mask(self, round_number: int) -> bool:
        """Say whether the round encrypts what only a mask that is agreed on can tell."""
        return self.rounds.kind(round_number).encrypts and self._settled is None

    def of(self, round_number: int, agreed: Mask | None) -> Mask | None:
        """Return the round's positions; None where they are not agreed on yet."""
        if not self.rounds.kind(round_number).encrypts:
            return self._buffers_alone
        return agreed if self._settled is None else self._settled


class AgreedMaskRule(MaskedAverageRule):
    """The mean of the scores alone is opened; the mask of the highest goes with every model.

    Parameters
    ----------
    ratio : the share of the parameters that the mask has.
    zones : what rounds of each kind encrypt, where there are several.
    """

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        ratio: float,
        zones: ZonesOfRounds | None = None,
        mean: Mean | None = None,
    ) -> None:
        super().__init__(context, initial, None, mean=mean)
        self._ratio = ratio
        self._zones = zones

    def purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        """Return what a round encrypts: scores, too, where a mask is needed and was not agreed on."""
        needs_mask = self._zones is None or self._zones.needs_mask(round_number)
        scored = needs_mask and self.context.encrypts("scores") and "zone" not in model
        return ("update", "scores") if scored else ("update",)

    def keeps(self, model: Message) -> bool:
        """Say whether a newest model is the one that is moved."""
        # What is agreed on comes after the model of the rounds before it.
        zone = {} if self.zone is None or "zone" not in model else {"zone": self.zone.to_bytes()}
        return model == Message({**self.model.to_message(), **zone})

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the mask that the scores come to, or the new model with it."""
        if phase == "scores":
            return self._agreed(message, sums)
        answer = super().answer(phase, message, sums)
        return answer if self.zone is None else Message({**answer, "zone": self.zone.to_bytes()})

    def _agreed(self, message: Message, sums: RoundSums) -> Message:
        size = self.context.plan.parameters
        total = scheme_of(self.context.keys.parameters["scores"]).Total.from_bytes(message["total"])
        stated, most = message.number("weight"), self.context.most_weight
        if not total.is_of(Mask.full(size)) or total.round != message.number("round"):
            raise WireFormatError("the total is of another round, or has not one score for each parameter")
        if not total.weighted or not total.clients <= stated <= total.clients * most:
            raise WireFormatError(
                f"the weights of the scores are missing, or not between 1 and {most} for each client"
            )
        sums.check_runs()
        # Where it is known, scores of a round that was given up were opened: the mask stays, and nothing is opened.
        if self.zone is None:
            mean = np.maximum(sums.open_mean(total, stated_weight=stated / most), 0.0)
            chosen = top_k(mean, positions_in_budget(self._ratio, size), self.context.threads)
            self.zone = encrypted_positions(chosen, self.context.plan.buffers)
        return Message({"zone": self.zone.to_bytes()})

    def _zone_of(self, round_number: int) -> Mask:
        zone = self.zone if self._zones is None else self._zones.of(round_number, self.zone)
        if zone is None:
            raise PolicyError("no mask has been agreed on: send the scores first")
        return zone
