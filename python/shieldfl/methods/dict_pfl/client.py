"""A client of DictPFL: encrypts the active positions and holds the others back."""

from __future__ import annotations

import hmac
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_unsigned, as_vector
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, PolicyError, RangeError
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.consistent_pruning import PruningHistory, read_history
from shieldfl.methods.dict_pfl.settings import PruningSettings
from shieldfl.methods.encrypted_update import encrypted_positions
from shieldfl.methods.masked_average.method import UPDATE, MaskedAverageClient
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.global_model import GlobalModel, joined
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.rounds.reports import Disclosure
from shieldfl.stateful import refuse_unless


class HeldBack:
    """Values of float32, one a position, in three parts.

    - The update of this round. Another training in the same round, before it is sent, replaces it.
    - What was uploaded last, until it is known what became of it: it counts where its round was observed, is lost where
      that round's sum was of no use, and is sent again where that round was given up.
    - All that earlier rounds trained and did not send.

    Parameters
    ----------
    size : P, the number of trained parameters.
    """

    changes: ClassVar = {
        "_unsent": NDArray[np.float32],
        "_update": NDArray[np.float32],
        "_uploaded": NDArray[np.float32],
        "_round": int,
        "_uploaded_round": int | None,
    }

    def __init__(self, size: int) -> None:
        self._size = as_unsigned(size, "size")
        self._unsent = np.zeros(self._size, dtype=np.float32)
        self._update = np.zeros_like(self._unsent)
        self._uploaded = np.zeros_like(self._unsent)
        self._round = 0
        self._uploaded_round: int | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for values that are not finite, of other sizes, or of rounds before the first."""
        parts = (self._unsent, self._update, self._uploaded)
        refuse_unless(all(one.size == self._size and np.isfinite(one).all() for one in parts))
        refuse_unless(self._round >= 0 and 0 <= (self._uploaded_round or 0) <= self._round)

    def begin_round(self, round_number: int, history: PruningHistory, spoiled: int = -1) -> None:
        """Settle the last upload by the history, and keep the update of the round before, unless it is begun again.

        ``spoiled`` is the newest round whose sum was answered for and of no use to anybody who does as agreed.
        """
        self.settle(history, spoiled)
        if round_number != self._round:
            self._unsent += self._update
            self._update[:] = 0.0
        self._round = round_number

    def train(self, update: Any) -> None:
        """Take this round's update, float32 (P,). Raises ArrayTypeError, ParameterError, or RangeError, unchanged."""
        vector = as_vector(update, (np.float32,), "the update")
        if vector.size != self._unsent.size:
            raise ParameterError(f"the update has {vector.size} values, expected {self._unsent.size}")
        with np.errstate(over="ignore", invalid="ignore"):
            total = self._unsent + vector + self._uploaded
        if not np.isfinite(total).all():
            raise RangeError(
                "the update has NaN or infinity: lower the learning rate or check the client's data"
            )
        self._update[:] = vector

    def values_at(self, active: Mask) -> NDArray[np.float32]:
        """Copy what is held at the active positions, ascending: what an upload has to bring."""
        return active.gather(self._total())

    def mark_uploaded(self, active: Mask) -> None:
        """Note that this round's upload was made, from :meth:`values_at` the active positions."""
        total, is_active = self._total(), active.to_bool()
        self._uploaded = np.where(is_active, total, np.float32(0.0))
        self._unsent = np.where(is_active, np.float32(0.0), total)
        self._update[:] = 0.0
        self._uploaded_round = self._round

    def settle(self, history: PruningHistory, spoiled: int = -1) -> None:
        """Forget what was uploaded, if its round was observed, or may have been spoiled.

        Whoever has spoiled a sum may know by what, and have the sum: what was in it must not come again in another one.
        """
        round_number = self._uploaded_round
        if round_number is not None and (round_number <= spoiled or history.has_observed(round_number)):
            self._uploaded[:] = 0.0

    def forget(self) -> None:
        """Forget everything."""
        for part in (self._unsent, self._update, self._uploaded):
            part[:] = 0.0

    def _total(self) -> NDArray[np.float32]:
        return self._unsent + self._update + self._uploaded


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
    shares_buffers, noise : as for :class:`MaskedAverageClient`.
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
        noise: SumNoise | None = None,
    ) -> None:
        super().__init__(
            index,
            weight,
            initial,
            context,
            None,
            sends_rest=False,
            shares_buffers=shares_buffers,
            noise=noise,
        )
        self._secret = secret
        self._settings = settings
        self._held = HeldBack(self._size)
        self._active = Mask.full(self._size)
        self._tag = b""

    def check_changed(self) -> None:
        """Raise WireFormatError for active positions of another model."""
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


class NoiseSharingDictPflClient(DictPflClient):
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

    keeps_buffers = True

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        context: RoleContext,
        secret: bytes,
        settings: PruningSettings,
        noise: SumNoise,
    ) -> None:
        super().__init__(index, 1, initial, context, secret, settings, shares_buffers=False, noise=noise)

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
