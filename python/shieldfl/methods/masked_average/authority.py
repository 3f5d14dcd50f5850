"""The key authority of methods in which all clients encrypt the same positions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.mixed_total import MixedTotal
from shieldfl.methods.encrypted_sum.mixed_upload import with_buffers_times
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.round_authority import RoundAuthority
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.total_opener import TotalOpener
from shieldfl.stateful import refuse_unless

__all__ = ["MaskedAverageAuthority"]


class MaskedAverageAuthority(RoundAuthority):
    """Opens the round's total and keeps the global model.

    Parameters
    ----------
    context : what all roles of the federation know.
    initial : the model before the first round.
    keys : the rounds' keys, which open the totals.
    zone : the N positions that every total must cover; None where the aggregator says which.
    sends_rest : whether clients send the values outside of it.
    """

    changes: ClassVar = {"model": GlobalModel, "zone": Mask | None, "_is_replaced": bool}

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        keys: RoundSigner,
        zone: Mask | None,
        *,
        sends_rest: bool = True,
    ) -> None:
        super().__init__(context, keys)
        self.zone = self._settled = zone
        self.model = self._initial = initial
        self._size = context.plan.update_size if zone is None else zone.size
        self._learning_rate = context.plan.server_learning_rate
        self._sends_rest = sends_rest
        self._is_replaced = False
        """Whether the model is another one than the last answer."""

    def check_changed(self) -> None:
        """Raise WireFormatError for a model unlike the first, and a zone of another size or than is settled."""
        super().check_changed()
        refuse_unless(self.model.is_like(self._initial))
        refuse_unless(self.zone is None or self.zone.size == self._size)
        refuse_unless(self._settled is None or self.zone == self._settled)

    def _first_model(self) -> Message:
        return self._initial.to_message()

    def _keeps(self, model: Message) -> bool:
        return model == self._kept_message()

    def _kept_message(self) -> Message:
        """Return what is kept, as the next round starts from it: the model."""
        return self.model.to_message()

    def newest_model(self) -> Message:
        """Return what the next round starts from."""
        with self._lock:
            newest = super().newest_model()
            return Message({**newest, **self.model.to_message()}) if self._is_replaced else newest

    def replace_model(self, model: GlobalModel) -> None:
        """Go on from another model than the last sum came to."""
        kept = model.kept_in_place_of(self._initial)
        with self._lock:
            if self.newest_model().keys() != GlobalModel.parts:
                super().replace_model(model)
            self.model, self._is_replaced = kept, True

    def _answer(self, phase: str, message: Message) -> Message:
        """Answer a total with the new global model."""
        with self.clock.stage("open" if phase == "update" else "negotiate"):
            # A phase is named as the purpose of what it encrypts.
            number = message.number("round")
            return self._reply(phase, number, message, phase, lambda: self._decide(phase, message))

    def _decide(self, phase: str, message: Message) -> Message:
        """Open the total of the update; other phases are for methods that agree on the zone."""
        number = message.number("round")
        parameters, has_rest = self.context.parameters, self._sends_rest
        claim = MixedTotal.read(message, "", parameters, self._size, number, has_rest=has_rest)
        zone = self._zone_of(number)
        if zone is not None and claim.positions != zone:
            raise WireFormatError("the total covers other positions than those that were agreed on")
        # What came in the clear is looked at before anything is opened.
        if claim.sums.size:
            self.model.moved_finite(claim.clear_mean(), self._learning_rate)
        keys = self.keys.authority(number)
        with self._recording(number, keys, claim.total):
            mean = self._open_mean(claim, keys, message)
        self.model = self.model.moved_finite(mean, self._learning_rate)
        self._is_replaced = False
        return self._kept_message()

    def _zone_of(self, round_number: int) -> Mask | None:
        """Return the positions that the round's total must cover."""
        return self.zone

    def _open_mean(self, claim: MixedTotal, keys: TotalOpener[Any], message: Message) -> NDArray[np.float64]:
        """Return the mean update, float64 (N,)."""
        mean = claim.open_mean(keys, self.context.most_weight)
        return with_buffers_times(mean, self.model.buffers.size, 1.0 / self.context.buffer_factor)
