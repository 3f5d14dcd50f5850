"""The key authority of DictPFL: opens the active positions, and keeps the history that all find them by."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.consistent_pruning import PruningHistory, model_message
from shieldfl.methods.distributed_noise.authority import open_noisy_mean
from shieldfl.methods.encrypted_sum.mixed_total import MixedTotal
from shieldfl.methods.encrypted_sum.mixed_upload import encrypted_positions
from shieldfl.methods.masked_average.authority import MaskedAverageAuthority
from shieldfl.methods.masked_average.method import UPDATE
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.reports import Note
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.total_opener import TotalOpener
from shieldfl.stateful import refuse_unless

__all__ = ["DictPflAuthority"]


class DictPflAuthority(MaskedAverageAuthority):
    """Opens the mean at the active positions, and sends the history that follows from it with the model.

    ``noise`` is the plan of what sums have; buffers then stay with the clients. None for no noise.
    """

    changes: ClassVar = {"_history": PruningHistory}

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        keys: RoundSigner,
        history: PruningHistory,
        noise: SumNoise | None = None,
    ) -> None:
        shared = initial if noise is None else GlobalModel(initial.parameters, initial.buffers[:0])
        super().__init__(context, shared, keys, None, sends_rest=False)
        self._history = history
        self._noise = noise
        self._buffers = shared.buffers.size
        """How many clients send."""

    def check_changed(self) -> None:
        """Raise WireFormatError for rounds that the plan does not have."""
        super().check_changed()
        refuse_unless(0 <= self._history.last_round <= self.context.plan.rounds)

    def _first_model(self) -> Message:
        return model_message(self._initial, self._history)

    def _keeps(self, model: Message) -> bool:
        return model == model_message(self.model, self._history)

    def _answer(self, phase: str, message: Message) -> Message:
        """Answer a total with the new global model, and the question for a round's count from the history.

        Raises PolicyError for rounds that do not run or were answered.
        """
        if phase == UPDATE.name:
            return super()._answer(phase, message)
        with self.clock.stage("negotiate"):
            number = message.number("round")
            self._check_runs(number)
            if number <= self._history.last_round:
                raise PolicyError(f"round {number} has been answered: begin a later round")
            return self._reply(phase, number, message, None, lambda: self._counted(number))

    def _counted(self, number: int) -> Message:
        active = self._history.active_mask(number)
        count = active.count + self._buffers
        return Message({"count": Message.from_number(count), "tag": self._history.tag(number, active)})

    def _decide(self, phase: str, message: Message) -> Message:
        number = message.number("round")
        # Clients who have begun a later round may have sent what the total of this one holds again.
        self._check_runs(number)
        active = self._history.active_mask(number)
        count = active.count + self._buffers
        claim = MixedTotal.read(message, "", self.context.parameters, count, number, has_rest=False)
        if claim.positions != Mask.full(count):
            raise WireFormatError("the total leaves out values that every client sends")
        keys = self.keys.authority(number)
        with self._recording(number, keys, claim.total):
            values = self._open_mean(claim, keys, message)
        moved = self.model.moved_finite(self._spread(values, active), self._learning_rate)
        # In a copy: should the answer not leave, what is here is what it was.
        history = copy.deepcopy(self._history)
        history.observe(number, values[: active.count])
        self._history, self.model = history, moved
        self._tell_of_pruning()
        return model_message(self.model, self._history)

    def _open_mean(self, claim: MixedTotal, keys: TotalOpener[Any], message: Message) -> NDArray[np.float64]:
        """Return the mean of what every client sends, float64 (n,)."""
        if self._noise is None:
            return super()._open_mean(claim, keys, message)
        return open_noisy_mean(claim, keys, self._noise, self.context)

    def _tell_of_pruning(self) -> None:
        history, trained = self._history, self.context.plan.parameters
        text = (
            f"{history.pruned:,} of {trained:,} trained positions are pruned after round {history.last_round}; pruned "
            f"ones were tried again {history.tried:,} times, and {history.returned:,} times became active again"
        )
        self.note(Note(text, "pruning", history.last_round))

    def _spread(self, values: NDArray[np.float64], active: Mask) -> NDArray[np.float64]:
        """Put the values back to their positions, float64 (N,); the others stay where they are."""
        mean = np.zeros(active.size + self._buffers)
        encrypted_positions(active, self._buffers).scatter(values, mean)
        return mean
