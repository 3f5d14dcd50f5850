"""One client that alters its own frames; aggregator and key authority are honest."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from attacks.ckks_cryptanalysis import ask_for_secret, open_batch, secret_from_sum, with_weight
from methods.method_conformance import CLIENTS, SteppedRun, variants
from shieldfl.methods.global_model import GlobalModel
from shieldfl.roles.message import Message

LOG2_SIZE = 22
"""2^k of the secret stands beside sums below 2^(k - 1)."""
ATTACKER = CLIENTS - 1
SIZE = 5000  # Above the largest ring's degree, so that a sum has room for all of the secret.


def quantised(update: np.ndarray) -> np.ndarray:
    return np.rint(update.astype(np.float64) * 2.0**20).astype(np.int64)


def opened_share(
    frame: bytes, parameters: sf.ckks.Parameters, secret: np.ndarray, truth: np.ndarray
) -> float:
    """Return the share of a recorded batch's values that a secret opens to what was encrypted."""
    return float(np.mean(open_batch(frame, parameters, secret) == quantised(truth)))


def test_a_secret_key_is_read_from_an_opened_sum_and_opens_all_rounds_of_its_authority():
    """With the raw API: eight clients, the default parameters. What helps is an authority for each round."""
    parameters = sf.ckks.Parameters()
    authority, next_authority = sf.KeyAuthority(parameters), sf.KeyAuthority(parameters)
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
            assert opened_share(frame, parameters, secret, update) == 1.0
    later = sf.ckks.Encryptor(next_authority.public_key).encrypt(updates[0][0], round=2).to_bytes()
    assert opened_share(later, parameters, secret, updates[0][0]) < 0.01


@pytest.mark.parametrize("label", ["full-he", "selective-shield/clear"])
def test_the_secret_key_of_a_round_opens_that_round_and_no_other(label):
    """As a method: what the attacker has is its own frame, the models, and what it recorded."""
    variant = next(one for one in variants() if one.label == label).with_settings(threshold=-1.0)
    generator = np.random.default_rng(1)
    initial = GlobalModel(generator.normal(0.0, 0.3, SIZE).astype(np.float32), np.empty(0, np.float32))
    run = SteppedRun(variant, initial=initial)
    parameters = run.reader.check.parameters["update"]
    recorded: list[dict[int, bytes]] = []
    updates: list[dict[int, np.ndarray]] = []
    moved: list[np.ndarray] = []

    def tamper(phase, aggregator, messages):
        if phase != "update":
            return
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
    for number, (frames, truth) in enumerate(zip(recorded, updates, strict=True)):
        for index in range(ATTACKER):
            share = opened_share(frames[index], parameters, secret, truth[index])
            assert share == 1.0 if number == 1 else share < 0.01


def test_a_forged_weight_scales_the_mean_of_the_raw_api():
    """Three clients weigh 1, the fourth -3 + 2^-10: the sum of weights is 2^-10."""
    parameters = sf.ckks.Parameters(max_clients=4)
    authority = sf.KeyAuthority(parameters)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    updates = np.random.default_rng(2).normal(0.0, 0.003, (4, 900)).astype(np.float32)
    means = []
    for round_number, forges in enumerate((False, True)):
        aggregator = sf.ckks.Aggregator(authority.public_key)
        frames = [encryptor.encrypt(one, weight=1.0, round=round_number).to_bytes() for one in updates]
        if forges:
            frames[-1] = with_weight(encryptor, frames[-1], updates[-1], -3.0 + 2.0**-10)
        for frame in frames:
            aggregator.add(frame)
        means.append(authority.open_mean(aggregator.total()))
    honest, scaled = (float(np.linalg.norm(mean)) for mean in means)
    assert honest < 0.1
    assert scaled > 150.0


@pytest.mark.parametrize("label", ["full-he", "mask-crypt", "dict-pfl", "sense-crypt/ckks"])
def test_a_forged_weight_scales_the_new_model(label):
    """All weigh 2, the largest; the forged one leaves 2^-10 of the sum. In the clear it states 2 like the others."""
    variant = next(one for one in variants() if one.label == label).with_others(ratio=1.0, small_percent=0.0)
    run, honest = (SteppedRun(variant, weights=(2,) * CLIENTS) for _ in range(2))

    def forge(phase, aggregator, messages):
        if phase == "update":
            own = messages[ATTACKER]
            encryptor = run.clients[ATTACKER]._upload.encryptor
            count = run.batch(own["ciphertexts"]).count
            forged = with_weight(encryptor, own["ciphertexts"], np.zeros(count, np.float32), -3.0 + 2.0**-10)
            messages[ATTACKER] = Message({**own, "ciphertexts": forged})

    run.run_round(intrude=forge)
    honest.run_round()
    moved, expected = (
        float(np.linalg.norm(one.parameters - one.initial.parameters)) for one in (run, honest)
    )
    assert moved > 1000 * expected


def test_a_forged_weight_of_scores_decides_what_is_encrypted():
    """A negative sum of weights turns every mean score below zero: then the first positions are the "highest"."""
    variant = next(one for one in variants() if one.label == "fedml-he").with_others(ratio=0.25)
    run, honest = SteppedRun(variant), SteppedRun(variant)

    def forge(phase, aggregator, messages):
        if phase == "scores":
            own = messages[ATTACKER]
            key = (
                aggregator.round_keys.key(1, "scores")
                if hasattr(aggregator, "round_keys")
                else aggregator._score_key
            )
            count = run.batch(own["scores"]).count
            forged = with_weight(sf.ckks.Encryptor(key), own["scores"], np.zeros(count, np.float32), -7.0)
            messages[ATTACKER] = Message({**own, "scores": forged})

    run.run_round(intrude=forge)
    honest.run_round()
    zones = [
        sf.Mask.from_bytes(one.model["zone"]).to_bool()[: run.initial.parameters.size]
        for one in (run, honest)
    ]
    count = int(zones[0].sum())
    assert zones[0][:count].all()
    assert not zones[1][:count].all()
