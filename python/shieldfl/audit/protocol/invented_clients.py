"""All clients but one are the aggregator's own: what they send is known, and the rest of the sum is the victim's."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from shieldfl.audit.protocol.lying_aggregator import LyingAggregator
from shieldfl.audit.protocol.protocol_attack import ProtocolAttack
from shieldfl.errors import ShieldError
from shieldfl.methods.protocol.messages import OPENED
from shieldfl.methods.protocol.training_client import TrainingClient
from shieldfl.roles.message import Message
from shieldfl.training.drawn_update import contraction
from shieldfl.training.local_update import FloatVector

__all__ = ["InventedClients"]


class InventedClients(ProtocolAttack):
    """Takes the place of all clients but the victim, by roles that it makes from the public set-up.

    Where clients enrol it asks the key authority to enrol these in the others' places, and goes on where it is refused.
    """

    name: ClassVar[str] = "invented-clients"
    source: ClassVar[str] = "Douceur, The Sybil attack, 2002"
    in_first_rounds: ClassVar[bool] = True

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
        """Ask for a sum of which the victim has sent one part, and the liar all others."""
        messages = dict(liar.sent)
        own: list[FloatVector] = []
        for index in messages:
            if index != victim:
                client = liar.roles.new_client(index)
                messages[index], change = cls._message_of(client, liar, index)
                own.append(change)
        count = len(messages)
        return count * liar.answer(liar.question(phase, messages), victim) - sum(own)

    @staticmethod
    def _message_of(client: TrainingClient, liar: LyingAggregator, index: int) -> tuple[Message, FloatVector]:
        authority, method = liar.roles.authority, liar.roles.method
        assert authority is not None
        request = client.enrolment()
        if request:
            with suppress(ShieldError):  # without it frames are made all the same
                client.enrolled(authority.enrol(index, request))
        model = method.message_for(index, liar.first)
        start = client.begin_round(liar.round, len(liar.sent), model)
        update = contraction(liar.round, len(liar.sent) + index, start)
        replaced = liar.roles.clients[index]
        if replaced.trained_scores.size:
            # Where each client chooses what it encrypts, that is public, and the same is chosen in its place.
            update = replace(update, scores=replaced.trained_scores)
        client.finish_training(update)
        client._opening = None  # it was granted nothing to open, and goes on by what others say of it
        for earlier, answer in liar.answers.items():
            if earlier != OPENED:
                told = None if answer is None else method.message_for(index, answer)
                message = client.step(earlier, told)
        return message, update.parameters - start.parameters
