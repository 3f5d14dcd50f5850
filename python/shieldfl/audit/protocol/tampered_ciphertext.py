"""The liar's client alters its own ciphertexts, so that the opened sum answers a question about the key."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shieldfl import ckks
from shieldfl.audit.protocol.ckks_frames import (
    BatchFrame,
    ask_for_secret,
    open_batch,
    resealed,
    secret_from_sum,
)
from shieldfl.audit.protocol.lying_aggregator import LyingAggregator
from shieldfl.audit.protocol.played_federation import PlayedFederation
from shieldfl.audit.protocol.protocol_attack import ProtocolAttack
from shieldfl.errors import ParameterError
from shieldfl.roles.message import Message
from shieldfl.training.local_update import FloatVector

__all__ = ["TamperedCiphertext"]

_LOG2_SIZE = 22
"""Of the secret beside what is not known of the sums, which is below half of it."""
_PART = "ciphertexts"


class TamperedCiphertext(ProtocolAttack):
    """Has the sum decrypt what its client has altered, and takes it for an oracle.

    Under ``ckks`` the alteration asks for the round's secret key, with which the victim's ciphertexts are read that the
    aggregator has. Under the other schemes no question is known: there one bit is flipped, and what the model moves by
    beside the other clients' updates would be the answer.
    """

    name: ClassVar[str] = "tampered-ciphertext"
    source: ClassVar[str] = "docs/threat-model.md: one client that tampers with its own ckks ciphertexts"
    needs_client: ClassVar[bool] = True

    @classmethod
    def size_for(cls, federation: PlayedFederation) -> int:
        """Take a model with room for a whole secret key beside its sums."""
        parameters = federation.method.purposes["update"]
        return parameters.ring_degree if isinstance(parameters, ckks.Parameters) else cls.parameters

    @classmethod
    def alter(cls, liar: LyingAggregator, phase: str, client: int, message: Message) -> Message:
        """Alter the own client's ciphertexts."""
        if client != liar.reader or _PART not in message or phase != liar.roles.method.phases[-1].name:
            return message
        parameters = liar.roles.method.purposes["update"]
        frame = bytes(message[_PART])
        if isinstance(parameters, ckks.Parameters):
            if not BatchFrame(frame, parameters).count:
                return message  # of a round in which nothing is encrypted
            altered = ask_for_secret(frame, parameters, _LOG2_SIZE)
        else:
            flipped = bytearray(frame)
            flipped[(len(flipped) + 48) // 2] ^= 1
            altered = resealed(bytes(flipped))
        return Message({**message, _PART: altered})

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
        """Ask for the sum with what was altered in it. Raises ParameterError where it has no room for the secret."""
        if liar.refused is not None:
            raise liar.refused
        moved = len(liar.sent) * liar.answer(liar.question(phase), victim)
        parameters = liar.roles.method.purposes["update"]
        if not isinstance(parameters, ckks.Parameters):
            return moved - liar.own_change
        encrypted = liar.roles.clients[victim].disclosure.encrypted
        # What the others' training added is close to what the own one did: it would blur the secret's steps.
        sums = encrypted.gather(moved - len(liar.sent) * liar.own_change)
        if sums.size < parameters.ring_degree:
            raise ParameterError(
                f"the opened sum has {sums.size:,} values, and the secret key {parameters.ring_degree:,}: a part of it "
                "was read, which opens nothing"
            )
        secret = secret_from_sum(sums, parameters, _LOG2_SIZE)
        values = open_batch(bytes(liar.sent[victim][_PART]), parameters, secret)
        told = np.zeros(moved.size, np.float32)
        encrypted.scatter((values / 2.0**parameters.fraction_bits).astype(np.float32), told)
        return told
