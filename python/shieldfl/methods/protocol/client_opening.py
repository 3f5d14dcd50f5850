"""A client's part in opening: it works each round's model out, from what aggregator and authority say."""

from __future__ import annotations

from typing import Any, ClassVar

from shieldfl.errors import PolicyError
from shieldfl.methods.protocol.list_authority import ANSWER, ANSWERED_ROUND, HISTORY_BYTES, next_history
from shieldfl.methods.protocol.missed_rounds import missed_parts
from shieldfl.methods.protocol.round_authority import RoundAuthority
from shieldfl.roles.granted_keys import GrantedKeys
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import RoundKeyCheck, digest_of_parts
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import scheme_of
from shieldfl.stateful import Stateful, refuse_unless

__all__ = ["ClientOpening", "sum_request"]

_TOTAL = "total"


def _beside(result: Message) -> bytes:
    return digest_of_parts(result, but=[_TOTAL])


def sum_request(parameters: SchemeParameters[Any, Any], result: Message) -> Message:
    """Return what asks the key authority for what opens a phase's total; bound to all of the phase's result."""
    total = scheme_of(parameters).Total.from_bytes(result[_TOTAL])
    return Message({"round": Message.from_number(total.round), "request": total.request(_beside(result))})


class ClientOpening(Stateful):
    """Opens rounds' totals one after the other, and refuses to go on from another history than the authority signed.

    Parameters
    ----------
    opener : what turns totals into models; the same as an authority's where that opens.
    phase : whose total moves the model.
    """

    changes: ClassVar = {"opener": RoundAuthority, "_history": bytes}

    def __init__(self, opener: RoundAuthority, phase: str) -> None:
        self.opener = opener
        self._phase = phase
        self._history = bytes(HISTORY_BYTES)

    def check_changed(self) -> None:
        """Raise WireFormatError for a history that is none."""
        super().check_changed()
        refuse_unless(len(self._history) == HISTORY_BYTES)

    @property
    def keys(self) -> GrantedKeys:
        """What opens the authority's answers."""
        keys = self.opener.keys
        assert isinstance(keys, GrantedKeys)
        return keys

    def model(self) -> Message:
        """Return the newest model that was opened; before that, the initial one."""
        return self.opener.newest_model()

    def begin_round(self, check: RoundKeyCheck, round_number: int, client: int, message: Message) -> Message:
        """Open what was missed, and return the round's model.

        Raises as :meth:`RoundKeyCheck.check_model` does for a message that the authority did not sign for this round,
        PolicyError where what came along is not all that it has answered, and as :meth:`end_round` does.
        """
        first, missed = missed_parts(message)
        check.check_model(first, round_number, client)
        for end in missed:
            self.end_round(end)
        if bytes(first["history"]) != self._history:
            raise PolicyError(
                f"round {round_number} begins from other sums than this client has opened: get the ends of all rounds "
                "that it was not in, with the round's first message"
            )
        return self.opener.begin_round(round_number)

    def end_round(self, message: Message) -> Message:
        """Open a round's total and return the new model; the end of a round that is known changes nothing.

        Raises KeyMismatchError for what the authority did not answer, WireFormatError for what opens to no sums in
        range, PolicyError for a sum of too few; then nothing has changed.
        """
        number = message.number(ANSWERED_ROUND)
        result = Message(
            {name: part for name, part in message.items() if name not in (ANSWER, ANSWERED_ROUND)}
        )
        last, _ = self.opener.newest_reply()
        if number <= last:
            return self.opener.answer(self._phase, result)  # what it was, or refused
        begun = self.keys.newest_round
        try:
            self.opener.begin_round(number)
            self.keys.take(self._phase, message[ANSWER], _beside(result))
            model = self.opener.answer(self._phase, result)
        except BaseException:
            self.keys.go_back(begun)
            raise
        self._history = next_history(self._history, self.keys.newest_request)
        return model
