"""A simulation protects as a federation of machines does: what it counts was encrypted, and opens by all keys alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import shieldfl as sf
from lab.simulation.test_federation import CLIENTS, federation_of, model_of
from methods.variants import labelled, twins, variants
from rounds.test_set_up_apart import bytes_of_keys, own_keys, reachable
from shieldfl.authority.message import Message
from shieldfl.lab.simulation.federation import EmbeddedFederation

ENCRYPTING = [one for one in variants() + twins(variants()) if one.encryption is not None]
OF_UPDATES = "ciphertexts"


def sent_by(federation: EmbeddedFederation, change: Callable[[int, Message], Message]) -> list[Message]:
    """Run a round whose messages are changed on their way; return those that the aggregator gets."""
    got, receive = [], federation.aggregator.receive

    def receive_changed(phase: str, client: int, message: Message) -> None:
        got.append(change(client, message))
        receive(phase, client, got[-1])

    federation.aggregator.receive = receive_changed
    federation.run_round(1, range(CLIENTS), 2)
    return got


@pytest.mark.parametrize("variant", ENCRYPTING, ids=lambda one: one.label)
def test_a_flipped_bit_in_a_frame_fails_the_round(variant):
    draws = np.random.default_rng(0)

    def flip(client: int, message: Message) -> Message:
        names = [name for name, part in message.items() if bytes(part[:2]) == b"SH" and len(part) > 64]
        if client != CLIENTS - 1 or not names:
            return message
        name = str(draws.choice(names))
        altered = bytearray(message[name])
        altered[draws.integers(len(altered))] ^= 1 << draws.integers(8)
        return Message({**message, name: bytes(altered)})

    with pytest.raises(sf.ShieldError):
        sent_by(federation_of(variant), flip)


def test_without_the_key_of_one_client_a_sum_is_noise():
    federation = federation_of(labelled("full-he"))
    before = model_of(federation)

    def encrypt_by_another_key(client: int, message: Message) -> Message:
        if client:
            return message
        key = federation.clients[0]._round_key("update").public_key
        own = sf.kahe.CiphertextBatch.from_bytes(message[OF_UPDATES])
        stranger = sf.kahe.Encryptor(sf.kahe.ClientKey(key, 0, bytes(range(32)), 1))
        frame = stranger.encrypt(np.zeros(own.count, np.float32), round=1).to_bytes()
        return Message({**message, OF_UPDATES: frame})

    sent_by(federation, encrypt_by_another_key)
    assert any("does not open to sums of values in range" in note for note in federation.account.notes)
    assert model_of(federation) == before


def test_what_is_counted_as_sent_is_a_frame_for_each_update():
    variant = labelled("full-he")
    federation = federation_of(variant)
    frames = [len(one[OF_UPDATES]) for one in sent_by(federation, lambda client, message: message)]
    key = sf.kahe.ClientKey(federation.clients[0]._round_key("update").public_key, 0, bytes(range(32)), 1)
    alone = sf.kahe.Encryptor(key).encrypt(np.zeros(federation.method.plan.update_size, np.float32), round=1)
    assert frames == [alone.nbytes] * CLIENTS
    assert federation.run_round(2, range(CLIENTS), 2).bytes_up > sum(frames)


@pytest.mark.parametrize("label", ["full-he", "selective-shield/encrypted", "dict-pfl", "ddp-fedavg"])
def test_clients_that_open_together_hold_no_key_of_one_another(label):
    federation = federation_of(labelled(label))
    for number in (1, 2):
        federation.run_round(number, range(CLIENTS), 2)
    for role in (*federation.clients, federation.aggregator):
        held = reachable(role)
        places, kept = {id(one) for one in held}, [one for one in held if isinstance(one, bytes | bytearray)]
        for other in federation.clients:
            if other is not role:
                assert places.isdisjoint(map(id, own_keys(other)))
                assert not any(secret in one for secret in bytes_of_keys(other) for one in kept)
