"""The lies of this package: sums of too few, a second or late sum, invented clients, a tampered ciphertext.

The last one uses only what the attacker has: frames that it recorded or made itself, and the opened sum.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message
from shieldfl.encryption import ckks
from shieldfl.errors import ParameterError, ShieldError
from shieldfl.lab.audit.protocol.ckks_frames import (
    BatchFrame,
    ask_for_secret,
    open_batch,
    resealed,
    secret_from_sum,
)
from shieldfl.lab.audit.protocol.protocol_attack import LyingAggregator, PlayedFederation, ProtocolAttack
from shieldfl.learning.local_update import contraction
from shieldfl.rounds.plan import OPENED
from shieldfl.rounds.training_client import TrainingClient


class LoneTotal(ProtocolAttack):
    """Asks for the sum of the victim alone: its mean is the victim's update."""

    name = "lone-total"
    source = "docs/explanation/threat-model.md: no sum of fewer than min_clients is opened"

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
        return liar.answer(liar.question(phase, {victim: liar.sent[victim]}), victim)


class FewTotal(ProtocolAttack):
    """Asks for the sum of the victim and the liar's client, and subtracts what its client has sent."""

    name = "few-total"
    source = "docs/explanation/threat-model.md: no sum of fewer than min_clients is opened"
    needs_client = True

    @classmethod
    def inapplicable(cls, federation: PlayedFederation) -> str | None:
        fewest = federation.method.plan.min_clients
        if fewest > 2:
            return None
        return f"min_clients is {fewest}: a sum of two, one of them the liar's client, is not too small"

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
        two = {client: liar.sent[client] for client in (victim, liar.reader)}
        return 2 * liar.answer(liar.question(phase, two), victim) - liar.own_change


class SecondTotal(ProtocolAttack):
    """Asks twice in a round, with the victim and without it."""

    name = "second-total"
    source = "docs/explanation/threat-model.md: a round has one total"

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
        everybody = liar.answer(liar.question(phase), victim)
        others = {client: message for client, message in liar.sent.items() if client != victim}
        without = liar.answer(liar.question(phase, others), victim)
        return len(liar.sent) * everybody - len(others) * without


class LateTotal(ProtocolAttack):
    """Keeps a round's ciphertexts, and asks for a second sum of them when its keys should be gone."""

    name = "late-total"
    source = "docs/explanation/threat-model.md: keys and answers are of one round"
    rounds_back = 1

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector | None:
        earlier = dict(liar.kept)
        for client in liar.sent:
            others = {index: message for index, message in liar.sent.items() if index != client}
            liar.kept[client] = liar.question(phase, others)
        if victim not in earlier:
            return None
        # The model's change by that round's honest sum, and by the sum without the victim.
        everybody = liar.changed_since(earlier[victim], victim)
        count = len(liar.sent)
        return count * everybody - (count - 1) * liar.answer(earlier[victim], victim)


class InventedClients(ProtocolAttack):
    """Replaces all clients but the victim by roles that it makes from the public set-up.

    If clients enrol, it asks the key authority to enrol its roles instead of the others, and continues if
    refused.
    """

    name = "invented-clients"
    source = "Douceur, The Sybil attack, 2002"
    in_first_rounds = True

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
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
            # If clients choose what they encrypt, that is public, and the invented client chooses the same.
            update = replace(update, scores=replaced.trained_scores)
        client.finish_training(update)
        client._opening = None  # it was granted nothing to open, and follows the answers of others
        for earlier, answer in liar.answers.items():
            if earlier != OPENED:
                told = None if answer is None else method.message_for(index, answer)
                message = client.step(earlier, told)
        return message, update.parameters - start.parameters


_LOG2_SIZE = 22
"""Power of two by which the secret is multiplied; the unknown part of the sums is below half of it."""
_PART = "ciphertexts"


class TamperedCiphertext(ProtocolAttack):
    """Has the sum decrypt what its client has altered, and uses it as an oracle.

    Under ``ckks`` the altered ciphertext asks for the round's secret key, which opens the victim's
    ciphertexts that the aggregator has. Under the other schemes no question is known. There one bit is
    flipped, and the answer would be the model's change without the other clients' updates.
    """

    name = "tampered-ciphertext"
    source = "docs/explanation/dishonest-parties.md: one client that tampers with its own ckks ciphertexts"
    needs_client = True

    @classmethod
    def size_for(cls, federation: PlayedFederation) -> int:
        parameters = federation.method.purposes["update"]
        return parameters.ring_degree if isinstance(parameters, ckks.Parameters) else cls.parameters

    @classmethod
    def alter(cls, liar: LyingAggregator, phase: str, client: int, message: Message) -> Message:
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
        """Ask for the sum with the altered ciphertext in it.

        Raises ParameterError if the sum has no room for the secret.
        """
        if liar.refused is not None:
            raise liar.refused
        moved = len(liar.sent) * liar.answer(liar.question(phase), victim)
        parameters = liar.roles.method.purposes["update"]
        if not isinstance(parameters, ckks.Parameters):
            return moved - liar.own_change
        encrypted = liar.roles.clients[victim].disclosure.encrypted
        # Others' changes are close to the own one; they would blur the secret's steps.
        sums = encrypted.gather(moved - len(liar.sent) * liar.own_change)
        if sums.size < parameters.ring_degree:
            raise ParameterError(
                f"the opened sum has {sums.size:,} values, and the secret key {parameters.ring_degree:,}: a "
                "part of it was read, which opens nothing"
            )
        secret = secret_from_sum(sums, parameters, _LOG2_SIZE)
        values = open_batch(bytes(liar.sent[victim][_PART]), parameters, secret)
        told = np.zeros(moved.size, np.float32)
        encrypted.scatter((values / 2.0**parameters.fraction_bits).astype(np.float32), told)
        return told
