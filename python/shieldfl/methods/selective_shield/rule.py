"""SelectiveShield: what opened sums make of the global model (its section 4.5, step 2)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.authority.message import Message
from shieldfl.encryption.encryption import SchemeTotal
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import PolicyError, RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.encrypted_update import encrypted_positions, read_clear_sums
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.rounds.global_model import GlobalModel, joined
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.public_setup import RoleContext
from shieldfl.stateful import refuse_unless


class SelectiveShieldRule(OpeningRule):
    """Tallies of votes say what is encrypted; sums, divided, move the global model.

    Parameters
    ----------
    initial : the global model; its buffers are empty where buffers stay local.
    settings : the method's settings.
    context : what all roles of the federation know.
    """

    changes: ClassVar = {
        "_model": GlobalModel,
        "_tallies": NDArray[np.float64],
        "_voters": int,
        "_voted_round": int,
        "_encrypted_zone": Mask,
    }

    def __init__(
        self,
        initial: GlobalModel,
        settings: SelectiveShieldSettings,
        context: RoleContext,
    ) -> None:
        super().__init__(context)
        self._model = self._initial = initial
        self._settings = settings
        self._votes_in_clear = not context.encrypts("votes")
        self._learning_rate = context.plan.server_learning_rate
        self._tallies: NDArray[np.float64] = np.zeros(0)
        self._voters = 0
        self._voted_round = 0
        self._encrypted_zone = Mask.empty(initial.parameters.size)

    def check_changed(self) -> None:
        """Raise WireFormatError for a model, tallies or a zone of other sizes, or of voters that there are not."""
        size, plan = self._initial.parameters.size, self.context.plan
        refuse_unless(self._model.is_like(self._initial) and self._encrypted_zone.size == size)
        refuse_unless(0 <= self._voters <= plan.most_participants and 0 <= self._voted_round <= plan.rounds)
        refuse_unless(self._tallies.size in (0, size))
        refuse_unless(bool(((self._tallies >= 0.0) & (self._tallies <= self._voters)).all()))

    def first_model(self) -> Message:
        """Return the initial model."""
        return self._initial.to_message()

    def keeps(self, model: Message) -> bool:
        """Say whether a newest model is the one that is moved."""
        return model == self._model.to_message()

    def purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        """Return what a round encrypts: votes, too, in an encrypted negotiation."""
        return tuple(self.context.keys.parameters)

    def _total(self, phase: str, message: Message) -> SchemeTotal:
        purpose = "votes" if phase == "negotiate" else "update"
        total: SchemeTotal = scheme_of(self.context.keys.parameters[purpose]).Total.from_bytes(
            message["total"]
        )
        return total

    def round_of(self, phase: str, message: Message) -> int:
        """Return the round of the total."""
        return self._total(phase, message).round

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the encrypted zone for votes, the new global model for sums."""
        total = self._total(phase, message)
        if phase == "negotiate":
            return self._open_votes(total, sums)
        return self._open_update(total, message, sums)

    def _open_votes(self, total: SchemeTotal, sums: RoundSums) -> Message:
        if not total.is_of(Mask.full(self._model.parameters.size)):
            raise WireFormatError("the total does not have one tally for each parameter")
        tallies = sums.open(total)
        if tallies.min(initial=0.0) < 0.0 or tallies.max(initial=0.0) > total.clients:
            raise RangeError("a tally is not between 0 and the number of clients: a vote was forged")
        self._tallies = tallies
        self._voters = total.clients
        self._voted_round = total.round
        needed = _core.votes_needed(self._settings.consensus, self._voters)
        self._encrypted_zone = Mask.from_bool(self._tallies >= needed)
        return Message({"encrypted zone": self._encrypted_zone.to_bytes()})

    def _open_update(self, total: SchemeTotal, message: Message, opened_sums: RoundSums) -> Message:
        size, buffers = self._model.parameters.size, self._model.buffers.size
        if not self._votes_in_clear and total.round != self._voted_round:
            raise PolicyError(f"the encrypted zone of round {total.round} has not been negotiated")
        zone = self._encrypted_zone
        if self._votes_in_clear:
            zone = Mask.from_bytes(message["encrypted zone"], expected_size=size)
        if not total.is_of(encrypted_positions(zone, buffers)):
            raise WireFormatError("the total's values do not belong to the positions of the encrypted zone")
        # Everything that the aggregator says is looked at before a total is opened.
        sums, contributors = self._noise_zone(message, zone, total.clients)
        if contributors.max(initial=0.0) > total.clients:
            raise WireFormatError("a position has more contributors than there are clients")
        divisors = np.full(size, float(total.clients))
        if self._settings.divisor == "contributors":
            # Nobody contributed: the sum is zero (or hidden clients' noise), and the old value stays.
            divisors = np.where(contributors > 0.0, contributors, np.inf)
        mean = joined(sums / divisors, np.zeros(buffers))
        zone.scatter(np.zeros(zone.count), mean[:size])
        self._model.moved_finite(mean, self._learning_rate)
        opened = opened_sums.open(total) / total.clients
        zone.scatter(opened[: zone.count], mean[:size])
        mean[size:] = opened[zone.count :] / self.context.buffer_factor
        self._model = self._model.moved_finite(mean, self._learning_rate)
        self._encrypted_zone = zone
        if self._settings.hide_personalised and total.clients != self._voters:
            opened_sums.note(
                "clients dropped out after voting: the number of contributors was scaled, not counted"
            )
        return self._model.to_message()

    def _noise_zone(
        self, message: Message, zone: Mask, clients: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return sums and number of contributors by position, float64 (P,) each."""
        size = self._model.parameters.size
        if not self._settings.hide_personalised:
            of_clients = np.min_scalar_type(self.context.plan.most_participants).type
            counts = message.vector("contributors", of_clients, size)
            return read_clear_sums(message, "sums", size), counts.astype(np.float64)
        rest = ~zone
        sums = np.zeros(size)
        rest.scatter(read_clear_sums(message, "sums", rest.count), sums)
        contributors = self._voters - self._tallies
        if clients != self._voters:
            # Which of the voters are missing is hidden as well, so their votes cannot be taken back.
            contributors = contributors * (clients / self._voters)
        return sums, contributors
