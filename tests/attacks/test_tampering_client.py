"""One client that alters its own frames; aggregator and key authority are honest."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

import shieldfl as sf
from attacks.ckks_cryptanalysis import with_weight
from encryption.enrolled_clients import total_of
from encryption.wire_twin import reseal
from methods.honest_outcome import assert_same_model, honest_outcome
from methods.method_conformance import SteppedRun
from methods.variants import CLIENTS, every_variant, labelled
from shieldfl.authority.message import Message
from shieldfl.lab.audit.protocol.ckks_frames import BatchFrame, ask_for_secret, open_batch, secret_from_sum
from shieldfl.rounds.plan import GlobalModel

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

    asking = ask_for_secret(recorded[1][-1], parameters, LOG2_SIZE)
    total = total_of(authority.public_key, [*recorded[1][:-1], asking])
    mean = authority.open_mean(total).astype(np.float32)

    secret = secret_from_sum(8.0 * mean, parameters, LOG2_SIZE)
    exported = np.frombuffer(authority._decryptor.export_secret(), dtype=np.int8)
    assert np.array_equal(secret, exported[: parameters.ring_degree])
    for round_number in (0, 1):
        for frame, update in zip(recorded[round_number], updates[round_number], strict=True):
            assert opened_share(frame, parameters, secret, update) == 1.0
    later = sf.ckks.Encryptor(next_authority.public_key).encrypt(updates[0][0], round=2).to_bytes()
    assert opened_share(later, parameters, secret, updates[0][0]) < 0.01


@pytest.mark.parametrize("label", ["full-he/ckks", "selective-shield/clear/ckks"])
def test_the_secret_key_of_a_round_opens_that_round_and_no_other(label):
    """As a method: what the attacker has is its own frame, the models, and what it recorded."""
    variant = labelled(label).with_settings(threshold=-1.0)
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


@pytest.mark.parametrize("states", [False, True])
def test_a_forged_weight_does_not_scale_the_mean_of_the_raw_api(states):
    """Three clients weigh 1, the fourth -3 + w: by 2^-10 the sum of weights is out of bounds, by 1/2 misstated."""
    parameters = sf.ckks.Parameters(max_clients=4)
    authority = sf.KeyAuthority(parameters)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    updates = np.random.default_rng(2).normal(0.0, 0.003, (4, 900)).astype(np.float32)
    stated = 4.0 if states else None

    def open_mean(round_number: int, rest: float | None) -> np.ndarray:
        frames = [encryptor.encrypt(one, weight=1.0, round=round_number).to_bytes() for one in updates]
        if rest is not None:
            frames[-1] = with_weight(encryptor, frames[-1], updates[-1], -3.0 + rest)
        return authority.open_mean(total_of(authority.public_key, frames), stated_weight=stated)

    honest = float(np.linalg.norm(open_mean(0, None)))
    assert 0.0 < honest < 0.1
    for number, rest in enumerate((2.0**-10, 0.0, -1.0, 5.0), start=1):
        with pytest.raises(sf.RangeError, match="weight_bounds"):
            open_mean(number, rest)
    if states:
        with pytest.raises(sf.RangeError, match="stated"):
            open_mean(5, 0.5)
    else:
        # Within the bounds nothing but what was stated tells: the mean grows by at most their ratio, 64.
        assert float(np.linalg.norm(open_mean(5, 0.5))) == pytest.approx(8 * honest)


@pytest.mark.parametrize("label", ["full-he/ckks", "mask-crypt/ckks", "dict-pfl/ckks", "sense-crypt/ckks"])
def test_a_forged_weight_does_not_scale_the_new_model(label):
    """All weigh 2, the largest. Sums of 2 and 6 are what honest clients could have; the stated ones tell them apart."""
    variant = labelled(label).with_others(ratio=1.0, small_percent=0.0)
    run = SteppedRun(variant, weights=(2,) * CLIENTS)

    def forge(phase, aggregator, messages, rest):
        if phase == "update":
            own = messages[ATTACKER]
            encryptor = run.clients[ATTACKER]._upload.encryptor
            count = run.batch(own["ciphertexts"]).count
            # In units of the largest weight.
            weight = -3.0 + rest / 2 if rest > 1.0 else -3.0 + rest
            forged = with_weight(encryptor, own["ciphertexts"], np.zeros(count, np.float32), weight)
            messages[ATTACKER] = Message({**own, "ciphertexts": forged})

    for rest in (2.0**-10, 2.0, 6.0):
        with pytest.raises(sf.RangeError, match="weight"):
            run.run_round(intrude=partial(forge, rest=rest))
        np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    # The next round, of which all messages are honest, gives its model.
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)


def batches_of_another_layout(run: SteppedRun, part: str, own: bytes) -> list[bytes]:
    """Batches that name the own one's positions: one has a weight where that has none, or none; one half its values."""
    purpose = "update" if part == "ciphertexts" else part
    batch = run.batch(own, purpose)
    if isinstance(batch, sf.paillier.CiphertextBatch):
        encryptor = run.clients[ATTACKER]._upload.encryptor
    else:
        encryptor = run.encryptor(purpose, ATTACKER)
    zeros = np.zeros(batch.count, np.float32)
    others = (
        encryptor.encrypt(zeros, weight=None if batch.weighted else 1.0, round=batch.round),
        encryptor.encrypt(
            zeros[: batch.count // 2], weight=1.0 if batch.weighted else None, round=batch.round
        ),
    )
    forged = [
        reseal(other.to_bytes().replace(other.parsed.mask_id, batch.parsed.mask_id)) for other in others
    ]
    assert all(batch.parsed.mask_id in frame for frame in forged)
    return forged


@every_variant
def test_the_first_client_does_not_keep_all_others_out_of_the_sum(variant):
    """What is added first decides nothing: neither how many values belong to the positions nor whether weights do."""
    run = SteppedRun(variant)
    refused = []

    def forge(phase, aggregator, messages):
        own = messages[ATTACKER]
        for part in {"ciphertexts", "scores", "votes"} & set(own):
            for forged in batches_of_another_layout(run, part, own[part]):
                with pytest.raises(sf.ParameterError):
                    aggregator.receive(phase, ATTACKER, Message({**own, part: forged}))
                refused.append(part)

    run.run_round(intrude=forge)
    assert_same_model(run, honest_outcome(variant), variant)
    assert ("ciphertexts" in refused) == (run.authority is not None)


@pytest.mark.parametrize("forged_weight", [-7.0, 0.5])
def test_a_forged_weight_of_scores_does_not_decide_what_is_encrypted(forged_weight):
    """A negative sum of weights would turn every mean score below zero: then the first positions are the "highest"."""
    variant = labelled("fedml-he/ckks").with_others(ratio=0.25)
    run = SteppedRun(variant)

    def forge(phase, aggregator, messages):
        if phase == "scores":
            own = messages[ATTACKER]
            count = run.batch(own["scores"], "scores").count
            zeros = np.zeros(count, np.float32)
            forged = with_weight(run.encryptor("scores"), own["scores"], zeros, forged_weight)
            messages[ATTACKER] = Message({**own, "scores": forged})

    with pytest.raises(sf.RangeError, match="weight"):
        run.run_round(intrude=forge)
    assert run.authority.opener.rule.zone is None
    run.run_round()
    chosen = sf.Mask.from_bytes(run.model["zone"]).to_bool()[: run.initial.parameters.size]
    assert not chosen[: int(chosen.sum())].all()


def votes_of(run: SteppedRun, number: int, votes: np.ndarray, more: int) -> bytes:
    """Encrypt votes of at most 1 in magnitude, and then add so many to the first one: to a coefficient of c0."""
    frame = run.encryptor("votes", ATTACKER).encrypt(votes, round=number).to_bytes()
    if not more:
        return frame
    batch = BatchFrame(frame, run.reader.check.parameters["votes"])
    first = batch.half(0, 0)
    first[0] = (first[0] + (more << batch.facts["log2_scale"])) % math.prod(batch.primes)
    return batch.with_half(0, 0, first)


NO_VOTE = (-1.0, 0, sf.RangeError, "a vote was forged")
SIX_VOTES = (1.0, 5, sf.WireFormatError, "does not open to sums of values in range")


@pytest.mark.parametrize(
    ("label", "lies"),
    [
        ("selective-shield/encrypted", [NO_VOTE]),
        ("selective-shield/encrypted/ckks", [SIX_VOTES, NO_VOTE]),
        ("selective-shield/hidden/ckks", [SIX_VOTES, NO_VOTE]),
    ],
)
def test_a_forged_vote_does_not_decide_what_is_encrypted(label, lies):
    """The aggregator sees ciphertexts alone. Of four clients one votes six times for a position, or against them."""
    variant = labelled(label)
    run = SteppedRun(variant)

    def forge(phase, aggregator, messages, vote, more):
        if phase == "negotiate":
            votes = np.full(variant.size, vote, dtype=np.float32)
            number = run.batch(messages[ATTACKER]["votes"], "votes").round
            forged = votes_of(run, number, votes, more)
            messages[ATTACKER] = Message({**messages[ATTACKER], "votes": forged})

    for vote, more, error, words in lies:
        with pytest.raises(error, match=words):
            run.run_round(intrude=partial(forge, vote=vote, more=more))
        assert "update" not in run.sent
        np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    # One vote for each position, made the same way, is taken, and the round gives its model.
    run.run_round(intrude=partial(forge, vote=1.0, more=0))
    assert not np.array_equal(run.parameters, run.initial.parameters)


@pytest.mark.parametrize(
    "label", ["full-he", "full-he/paillier-dense", "fedml-he", "mask-crypt", "dict-pfl", "sense-crypt/single"]
)
def test_a_stated_weight_that_is_not_the_clients_is_refused(label):
    """Also one that others have: its share of the mean would be theirs."""
    variant = labelled(label)
    run, honest = (SteppedRun(variant, weights=(1, 2, 1, 2)) for _ in range(2))
    refused = []

    def state(phase, aggregator, messages):
        if "weight" in messages[ATTACKER]:
            for weight in (0, 1, 3, 2**63):
                altered = Message({**messages[ATTACKER], "weight": Message.from_number(weight)})
                with pytest.raises(sf.RangeError, match="weight"):
                    aggregator.receive(phase, ATTACKER, altered)
            refused.append(phase)

    run.run_round(intrude=state)
    honest.run_round()
    assert "update" in refused
    np.testing.assert_array_equal(run.parameters, honest.parameters)


@pytest.mark.parametrize(
    ("label", "weight"), [("full-he", 0.5), ("full-he/ckks", 0.5), ("full-he", 2.0**-10)]
)
def test_a_weight_that_is_encrypted_otherwise_than_stated_is_refused(label, weight):
    """All weigh 2, the largest, and one encrypts half of that, or next to nothing: the sums tell, and nobody else."""
    run = SteppedRun(labelled(label), weights=(2,) * CLIENTS)

    def forge(phase, aggregator, messages):
        size = run.initial.parameters.size + run.initial.buffers.size
        forged = run.encryptor("update", ATTACKER).encrypt(np.zeros(size, np.float32), weight=weight, round=1)
        messages[ATTACKER] = Message({**messages[ATTACKER], "ciphertexts": forged.to_bytes()})

    with pytest.raises(sf.RangeError, match="stated"):
        run.run_round(intrude=forge)
    np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)


def spoil(run: SteppedRun, phase: str, aggregator: object, messages: dict[int, Message]) -> None:
    """In place of the attacker's frame of round 1: one that does not fit the secret which the authority has."""
    if phase == "update":
        public_key = run.reader.check.session_key("update")
        stranger = sf.kahe.ClientKey(public_key, ATTACKER, bytes(range(32)), 1)
        own = run.batch(messages[ATTACKER]["ciphertexts"])
        forged = sf.kahe.Encryptor(stranger).encrypt(np.zeros(own.count, np.float32), round=1).to_bytes()
        named = reseal(forged.replace(run.batch(forged).parsed.mask_id, own.parsed.mask_id))
        messages[ATTACKER] = Message({**messages[ATTACKER], "ciphertexts": named})


@pytest.mark.parametrize("label", ["full-he", "selective-shield/clear", "dict-pfl", "sense-crypt/clusters"])
def test_a_frame_that_no_secret_of_its_client_fits_spoils_its_round_and_tells_nothing(label):
    """Elsewhere it could read a key out of the sum: here a sum opens by what is made for its frames, or not at all."""
    run = SteppedRun(labelled(label))
    with pytest.raises(sf.WireFormatError, match="does not open to sums of values in range"):
        run.run_round(intrude=partial(spoil, run))
    np.testing.assert_array_equal(run.parameters, run.initial.parameters)
    # The same list was answered: no other one is, in which this client is left out.
    asked = kahe_request_without(run, ATTACKER)
    with pytest.raises(sf.PolicyError, match="with another list"):
        run.authority.keys._authorities["update"].sum_key(asked)
    run.run_round()
    assert not np.array_equal(run.parameters, run.initial.parameters)


def kahe_request_without(run: SteppedRun, left_out: int) -> bytes:
    """Ask for what opens the sum of the others' updates of the newest round."""
    others = [one["ciphertexts"] for client, one in run.sent["update"].items() if client != left_out]
    return total_of(run.reader.check.session_key("update"), others).request()
