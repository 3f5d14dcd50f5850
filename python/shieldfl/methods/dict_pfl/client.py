"""A client of DictPFL: encrypts the active positions and holds the others back."""

from __future__ import annotations

import hmac
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import PolicyError, RangeError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.held_back import HeldBack
from shieldfl.methods.dict_pfl.pruning_message import read_history
from shieldfl.methods.dict_pfl.settings import PruningSettings
from shieldfl.methods.distributed_noise.client import NoiseSharing
from shieldfl.methods.encrypted_sum.mixed_upload import encrypted_positions
from shieldfl.methods.masked_average.client import MaskedAverageClient
from shieldfl.methods.masked_average.method import UPDATE
from shieldfl.methods.protocol.disclosure import Disclosure
from shieldfl.methods.protocol.global_model import GlobalModel, joined
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.training_client import LocalBuffers
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.roles.message import Message
from shieldfl.stateful import refuse_unless
from shieldfl.training.local_update import LocalUpdate, StartingPoint

__all__ = ["DictPflClient", "NoiseSharingDictPflClient"]


class DictPflClient(MaskedAverageClient):
    """Finds the active positions from the history that comes with the model, and sends their values close-packed.

    A batch is of n values, positions 0 to n - 1: which of the model's parameters these are stands nowhere in it. What
    was trained elsewhere is held back until its position is active again, and so is an upload whose round was given up
    (:class:`HeldBack`). An update whose values do not fit what is encrypted is forgotten with all that was held back:
    otherwise it would be refused again in every later round.

    Parameters
    ----------
    index, weight, initial, context : as for :class:`MaskedAverageClient`.
    secret : decides who is reactivated; shared with the key authority, unknown to the aggregator.
    settings : of pruning, the same for all.
    shares_buffers : as for :class:`MaskedAverageClient`.
    """

    changes: ClassVar = {"_held": HeldBack, "_active": Mask, "_tag": bytes}

    def __init__(
        self,
        index: int,
        weight: int,
        initial: GlobalModel,
        context: RoleContext,
        secret: bytes,
        settings: PruningSettings,
        *,
        shares_buffers: bool = True,
    ) -> None:
        super().__init__(
            index, weight, initial, context, None, sends_rest=False, shares_buffers=shares_buffers
        )
        self._secret = secret
        self._settings = settings
        self._held = HeldBack(self._size)
        self._active = Mask.full(self._size)
        self._tag = b""

    def check_changed(self) -> None:
        """Raise WireFormatError for active positions of another model."""
        super().check_changed()
        refuse_unless(self._active.size == self._size)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Train from the global model, whose history shows what became of the last upload.

        All positions move, also those that will not be sent.
        """
        history = read_history(model, self._size, self._secret, self._settings)
        active = history.active_mask(round_number)
        start = super()._begin_round(round_number, participants, model)
        self._active, self._tag = active, history.tag(round_number, active)
        spoiled = -1 if self._opening is None else self._opening.newest_spoiled(UPDATE.name)
        self._held.begin_round(round_number, history, spoiled)
        return start

    def _keep(self, update: LocalUpdate) -> None:
        """Add the update to what is held back, in place of an earlier one of this round that was not sent."""
        self._held.train(update.parameters - self.start.parameters)
        super()._keep(update)

    def _speak(self, phase: str) -> Message:
        return Message({"round": Message.from_number(self.round)})

    def _zone_from(self, answer: Message | None) -> Mask:
        count = self._active.count + self._sent_buffers
        if (
            answer is None
            or answer.number("count") != count
            or not hmac.compare_digest(answer["tag"], self._tag)
        ):
            raise PolicyError(
                "the key authority expects the values of other positions than this client has active: "
                "begin the round again from the newest model"
            )
        return Mask.full(count)

    def _vector(self, answer: Message | None) -> NDArray[np.float32] | NDArray[np.float64]:
        """Return the active positions' values, then the differences of buffers, float32 (n,)."""
        buffers = self.update.buffers - self.start.buffers
        return joined(self._held.values_at(self._active), buffers)

    def _make(self, phase: str, answer: Message | None) -> Message:
        try:
            message = super()._make(phase, answer)
        except RangeError as error:
            if error.position is not None:  # of what is sent: tell where in the model
                sent = encrypted_positions(self._active, self._sent_buffers)
                error.position, error.size = int(sent.to_indices()[error.position]), sent.size
            self._held.forget()
            # Zeros in place of what was forgotten would draw the mean towards them.
            self._has_trained = False
            raise
        if phase == "update":
            self._held.mark_uploaded(self._active)
        return message

    def _disclose(self, zone: Mask) -> None:
        nothing = Mask.empty(self._size)
        # How many values the batch holds follows from what was trained before, and the aggregator is told it.
        parts = (*self.clear_parts, "count")
        self._state(Disclosure(self._active, nothing, nothing, parts=parts, buffers="encrypted"))


class NoiseSharingDictPflClient(LocalBuffers, NoiseSharing, DictPflClient):
    """Clips what it has at the active positions as a whole, adds its share of the sum's noise, and keeps its buffers.

    Which positions are active, and how many, follows from the sums that were opened, all of which have noise, and from
    the shared secret, which no data decide: so neither tells more of a client than those sums do. What it holds back is
    its own, and leaves it in later sums alone, each of which is charged for the whole norm. What an upload was clipped
    by does not come back.

    Parameters
    ----------
    index, initial, context, secret, settings : as for :class:`DictPflClient`; it counts 1.
    noise : the plan of it, for all P values. Fewer are within it: the norm is bounded alike, and all that a sum is
        charged for grows with the number of values.
    """

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        context: RoleContext,
        secret: bytes,
        settings: PruningSettings,
        noise: SumNoise,
    ) -> None:
        DictPflClient.__init__(self, index, 1, initial, context, secret, settings, shares_buffers=False)
        self._buffers = initial.buffers
        self._sum_noise = noise

    def _vector(self, answer: Message | None) -> NDArray[np.float64]:
        """Return whole numbers (n,) for the active positions' values."""
        return self._share_of(self._held.values_at(self._active))

    def in_the_mean(self, vector: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its part (P,) of what the round's mean is of, by what it has encrypted, as it alone knows it."""
        own = np.zeros(self._size)
        self._active.scatter(self._values_of(np.asarray(vector, dtype=np.float64)), own)
        return own

    def _disclose(self, zone: Mask) -> None:
        nothing = Mask.empty(self._size)
        self._state(Disclosure(self._active, nothing, nothing, parts=self.clear_parts))
