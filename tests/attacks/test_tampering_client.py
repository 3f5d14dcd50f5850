"""One client that alters its own frames; aggregator and key authority are honest."""

from __future__ import annotations

import numpy as np

import shieldfl as sf
from attacks.ckks_cryptanalysis import ask_for_secret, open_batch, secret_from_sum
from methods.method_conformance import CLIENTS, SteppedRun, variants
from shieldfl.methods.global_model import GlobalModel
from shieldfl.roles.message import Message

LOG2_SIZE = 22
"""2^k of the secret stands beside sums below 2^(k - 1)."""
ATTACKER = CLIENTS - 1
SIZE = 5000  # Above the largest ring's degree, so that a sum has room for all of the secret.


def quantised(update: np.ndarray) -> np.ndarray:
    return np.rint(update.astype(np.float64) * 2.0**20).astype(np.int64)


def test_a_secret_key_is_read_from_an_opened_sum_and_opens_all_rounds_under_it():
    """With the raw API: eight clients and the default parameters, one authority for two rounds."""
    parameters = sf.ckks.Parameters()
    authority = sf.KeyAuthority(parameters)
    generator = np.random.default_rng(3)
    updates = generator.normal(0.0, 0.05, (2, 8, parameters.ring_degree)).astype(np.float32)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    recorded = [[encryptor.encrypt(one, round=r).to_bytes() for one in updates[r]] for r in (0, 1)]

    aggregator = sf.ckks.Aggregator(authority.public_key)
    for frame in recorded[1][:-1]:
        aggregator.add(frame)
    aggregator.add(ask_for_secret(recorded[1][-1], parameters, LOG2_SIZE))
    mean = authority.open_mean(aggregator.total()).astype(np.float32)

    secret = secret_from_sum(8.0 * mean, parameters, LOG2_SIZE)
    exported = np.frombuffer(authority._decryptor.export_secret(), dtype=np.int8)
    assert np.array_equal(secret, exported[: parameters.ring_degree])
    for round_number in (0, 1):
        for frame, update in zip(recorded[round_number], updates[round_number], strict=True):
            assert np.array_equal(open_batch(frame, parameters, secret), quantised(update))


def test_a_client_reads_the_secret_key_from_the_new_model_and_opens_all_rounds():
    """As a method: what the attacker has is its own frame, the models, and what it recorded."""
    variant = next(one for one in variants() if one.label == "full-he")
    generator = np.random.default_rng(1)
    initial = GlobalModel(generator.normal(0.0, 0.3, SIZE).astype(np.float32), np.empty(0, np.float32))
    run = SteppedRun(variant, initial=initial)
    parameters = run.encryptor.public_key.parameters
    recorded: list[dict[int, bytes]] = []
    updates: list[dict[int, np.ndarray]] = []
    moved: list[np.ndarray] = []

    def tamper(phase, aggregator, messages):
        recorded.append({index: message["ciphertexts"] for index, message in messages.items()})
        updates.append({index: client._difference() for index, client in enumerate(run.clients)})
        if len(recorded) == 2:
            altered = ask_for_secret(messages[ATTACKER]["ciphertexts"], parameters, LOG2_SIZE)
            messages[ATTACKER] = Message({**messages[ATTACKER], "ciphertexts": altered})

    for _ in range(3):
        before = run.parameters.astype(np.float64)
        run.run_round(intrude=tamper)
        moved.append(run.parameters - before)

    secret = secret_from_sum(CLIENTS * moved[1], parameters, LOG2_SIZE)
    assert set(np.unique(secret)) == {-1, 0, 1}
    for frames, truth in zip(recorded, updates, strict=True):
        for index in range(ATTACKER):
            assert np.array_equal(open_batch(frames[index], parameters, secret), quantised(truth[index]))
