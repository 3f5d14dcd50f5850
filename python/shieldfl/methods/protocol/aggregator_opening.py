"""An aggregator's part in opening, where it opens sums: it works each round's model out, and begins rounds with it."""

from __future__ import annotations

from typing import ClassVar

from shieldfl.errors import PolicyError
from shieldfl.methods.protocol.client_opening import beside_total
from shieldfl.methods.protocol.list_authority import ANSWER, ANSWERED_PHASE, ANSWERED_ROUND
from shieldfl.methods.protocol.round_authority import RoundAuthority
from shieldfl.roles.granted_keys import GrantedKeys, GrantRequest
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import digest_of_parts
from shieldfl.stateful import Stateful

__all__ = ["AggregatorOpening"]


class AggregatorOpening(Stateful):
    """Opens totals by answers that are sealed for the aggregator alone.

    Parameters
    ----------
    opener : what turns totals into models, by keys that open answers; the same as an authority's where that opens.
    """

    changes: ClassVar = {"opener": RoundAuthority, "_grant": GrantRequest}

    def __init__(self, opener: RoundAuthority) -> None:
        self.opener = opener
        self._grant = GrantRequest(self._keys.check)

    @property
    def _keys(self) -> GrantedKeys:
        keys = self.opener.keys
        assert isinstance(keys, GrantedKeys)
        return keys

    def enrolment(self) -> Message:
        """Return what asks the key authority for what opens its answers."""
        return Message({"enrolment": self._grant.request})

    def granted(self, answer: Message) -> None:
        """Take what opens them. Raises KeyMismatchError for what was granted to others."""
        self._keys.grant(self._grant.granted(answer["grant"]))

    def model_digest(self) -> bytes:
        """Return what the authority signs of the newest model, 32 bytes."""
        return digest_of_parts(self.opener.newest_model())

    def open(self, phase: str, purpose: str, result: Message, answer: Message) -> Message:
        """Open a phase's total, and return what an authority would have answered, unsigned.

        What is open already gets its answer again. Raises PolicyError for the answer to another phase, and as the
        opener does; then nothing has changed.
        """
        number = answer.number(ANSWERED_ROUND)
        if answer[ANSWERED_PHASE] != phase.encode():
            raise PolicyError(f"this is no answer to phase {phase!r}: nothing was opened")
        if number <= self.opener.newest_answer(phase):
            return self.opener.answer(phase, result)
        begun = self._keys.newest_round
        try:
            self.opener.enter_round(number)
            self._keys.take(purpose, answer[ANSWER], beside_total(result))
            return self.opener.answer(phase, result)
        except BaseException:
            self._keys.go_back(begun)
            raise
