"""DictPFL: what a sum of the active positions makes of the model, and of the history that all find them by."""

from __future__ import annotations

import copy
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.consistent_pruning import PruningHistory, model_message
from shieldfl.methods.distributed_noise.rule import noisy_mean
from shieldfl.methods.encrypted_update import MixedTotal, encrypted_positions
from shieldfl.methods.masked_average.rule import weighted_mean
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless


class DictPflRule(OpeningRule):
    """The mean at the active positions moves the model, and the history, which is sent with it.

    ``noise`` is the plan of what sums have; buffers then stay with the clients. None for no noise.
    """

    changes: ClassVar = {"model": GlobalModel, "_history": PruningHistory}

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        history: PruningHistory,
        noise: SumNoise | None = None,
    ) -> None:
        super().__init__(context)
        shared = initial if noise is None else GlobalModel(initial.parameters, initial.buffers[:0])
        self.model = self._initial = shared
        self._history = history
        self._buffers = shared.buffers.size
        """How many clients send."""
        self._mean = (
            partial(weighted_mean, context, self._buffers)
            if noise is None
            else partial(noisy_mean, noise, context)
        )

    def check_changed(self) -> None:
        """Raise WireFormatError for a model unlike the first, and rounds that the plan does not have."""
        refuse_unless(self.model.is_like(self._initial))
        refuse_unless(0 <= self._history.last_round <= self.context.plan.rounds)

    def first_model(self) -> Message:
        """Return the initial model, and a history of nothing yet."""
        return model_message(self._initial, self._history)

    def keeps(self, model: Message) -> bool:
        """Say whether a newest model is the one that is moved."""
        return model == model_message(self.model, self._history)

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the new global model for a total, and for a question how many values a round encrypts.

        Raises PolicyError for rounds that do not run or were answered.
        """
        number = message.number("round")
        # Clients who have begun a later round may have sent what the total of this one holds again.
        sums.check_runs()
        if phase == "update":
            return self._moved(number, message, sums)
        if number <= self._history.last_round:
            raise PolicyError(f"round {number} has been answered: begin a later round")
        return self._counted(number)

    def _counted(self, number: int) -> Message:
        active = self._history.active_mask(number)
        count = active.count + self._buffers
        return Message({"count": Message.from_number(count), "tag": self._history.tag(number, active)})

    def _moved(self, number: int, message: Message, sums: RoundSums) -> Message:
        active = self._history.active_mask(number)
        count = active.count + self._buffers
        claim = MixedTotal.read(message, "", self.context.parameters, count, number, has_rest=False)
        if claim.positions != Mask.full(count):
            raise WireFormatError("the total leaves out values that every client sends")
        values = self._mean(claim, sums, message)
        moved = self.model.moved_finite(self._spread(values, active), self.context.plan.server_learning_rate)
        # In a copy: should the answer not leave, what is here is what it was.
        history = copy.deepcopy(self._history)
        history.observe(number, values[: active.count])
        self._history, self.model = history, moved
        self._tell_of_pruning(sums)
        return model_message(self.model, self._history)

    def _tell_of_pruning(self, sums: RoundSums) -> None:
        history, trained = self._history, self.context.plan.parameters
        text = (
            f"{history.pruned:,} of {trained:,} trained positions are pruned after round {history.last_round}; pruned "
            f"ones were tried again {history.tried:,} times, and {history.returned:,} times became active again"
        )
        sums.note(text, "pruning")

    def _spread(self, values: NDArray[np.float64], active: Mask) -> NDArray[np.float64]:
        """Put the values back to their positions, float64 (N,); the others stay where they are."""
        mean = np.zeros(active.size + self._buffers)
        encrypted_positions(active, self._buffers).scatter(values, mean)
        return mean
