"""What an opened sum makes of the model where all clients encrypt the same positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.errors import WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_update import MixedTotal, with_buffers_times
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless

Mean = Callable[[MixedTotal, RoundSums, Message], NDArray[np.float64]]
"""Opens a total, whose message comes along, and returns the mean update, float64 (N,)."""


def weighted_mean(
    context: RoleContext, buffers: int, claim: MixedTotal, sums: RoundSums, message: Message
) -> NDArray[np.float64]:
    """Open the weighted mean (N,) of plain updates, whose last values are buffers."""
    mean = claim.open_mean(sums, context.most_weight)
    return with_buffers_times(mean, buffers, 1.0 / context.buffer_factor)


class MaskedAverageRule(OpeningRule):
    """The global model moves by the mean.

    Parameters
    ----------
    context : what all roles of the federation know.
    initial : the model before the first round.
    zone : the N positions that every total must cover; None where the aggregator says which.
    sends_rest : whether clients send the values outside of it.
    mean : what opens a total; None for :func:`weighted_mean`.
    """

    changes: ClassVar = {"model": GlobalModel, "zone": Mask | None, "_is_replaced": bool}

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        zone: Mask | None,
        *,
        sends_rest: bool = True,
        mean: Mean | None = None,
    ) -> None:
        super().__init__(context)
        self.zone = self._settled = zone
        self.model = self._initial = initial
        self._size = context.plan.update_size if zone is None else zone.size
        self._learning_rate = context.plan.server_learning_rate
        self._sends_rest = sends_rest
        self._mean = mean or partial(weighted_mean, context, initial.buffers.size)
        self._is_replaced = False
        """Whether the model is another one than the last answer."""

    def check_changed(self) -> None:
        """Raise WireFormatError for a model unlike the first, and a zone of another size or than is settled."""
        refuse_unless(self.model.is_like(self._initial))
        refuse_unless(self.zone is None or self.zone.size == self._size)
        refuse_unless(self._settled is None or self.zone == self._settled)

    def first_model(self) -> Message:
        """Return the initial model."""
        return self._initial.to_message()

    def keeps(self, model: Message) -> bool:
        """Say whether a newest model is the one that is moved."""
        return model == self._kept_message()

    def _kept_message(self) -> Message:
        """Return what is kept, as the next round starts from it: the model."""
        return self.model.to_message()

    def next_model(self, newest: Message | None) -> Message:
        """Return what the next round starts from."""
        model = super().next_model(newest)
        return Message({**model, **self.model.to_message()}) if self._is_replaced else model

    def replace_model(self, model: GlobalModel, newest: Message) -> None:
        """Go on from another model than the last sum came to."""
        kept = model.kept_in_place_of(self._initial)
        if newest.keys() != GlobalModel.parts:
            super().replace_model(model, newest)
        self.model, self._is_replaced = kept, True

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the new global model for the total of the update."""
        number = message.number("round")
        parameters, has_rest = self.context.parameters, self._sends_rest
        claim = MixedTotal.read(message, "", parameters, self._size, number, has_rest=has_rest)
        zone = self._zone_of(number)
        if zone is not None and claim.positions != zone:
            raise WireFormatError("the total covers other positions than those that were agreed on")
        # What came in the clear is looked at before anything is opened.
        if claim.sums.size:
            self.model.moved_finite(claim.clear_mean(), self._learning_rate)
        mean = self._opened_mean(claim, sums, message)
        self.model = self.model.moved_finite(mean, self._learning_rate)
        self._is_replaced = False
        return self._kept_message()

    def _zone_of(self, round_number: int) -> Mask | None:
        """Return the positions that the round's total must cover."""
        return self.zone

    def _opened_mean(self, claim: MixedTotal, sums: RoundSums, message: Message) -> NDArray[np.float64]:
        """Return the mean update, float64 (N,)."""
        return self._mean(claim, sums, message)
