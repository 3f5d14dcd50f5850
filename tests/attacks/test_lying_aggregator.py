"""What an aggregator gets that says what is not so: to clients, or to the key authority."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

import gmpy2
import numpy as np

import shieldfl as sf
from attacks.linear_clients import MeanEstimation, origin, variant_of
from encryption.enrolled_clients import total_of
from encryption.paillier_keys import authority_for, factors_of
from encryption.wire_twin import reseal
from methods.dict_pfl.dict_pfl_run import run_of
from methods.honest_outcome import assert_same_model, honest_outcome, recorded
from methods.method_conformance import SteppedRun, contraction
from methods.selective_shield.selective_shield_twin import SIZE, shield, values_of, zeros
from methods.variants import (
    CLIENTS,
    Variant,
    every_variant,
    labelled,
    opened_by_aggregator,
    opened_by_clients,
)
from reference import paillier as reference_paillier
from shieldfl import _testing
from shieldfl.authority.message import Message
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.lab.audit.protocol.lies import FewTotal, LateTotal, LoneTotal, SecondTotal
from shieldfl.lab.audit.protocol.protocol_attack import LyingAggregator
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.masks import Mask
from shieldfl.rounds.training_client import TrainingClient


def stay(round_number, client, start):
    """An update of zeros: what is uploaded is noise and nothing else."""
    return start.trained(start.parameters, start.buffers, np.zeros(SIZE, dtype=np.float32))


def told(stated_participants: int, min_clients: int = 3) -> SteppedRun:
    """A client of SelectiveShield uploads zeros, told that so many take part; the noise is 10 times the norm of 1."""
    # Clients that enrol are never opened alone, whatever the plan says.
    encryption = "kahe" if min_clients > 1 else "ckks"
    variant = shield(noise_multiplier=10.0, clip_norm=1.0, encryption=encryption)
    run = SteppedRun(variant, initial=zeros(), train=stay, min_clients=min_clients)
    client = run.clients[0]
    # The authority signs no round of fewer: a client that is told of one looks for itself first.
    first = run.begin_round(1, range(stated_participants) if stated_participants >= min_clients else None)
    client.finish_training(stay(1, 0, client.begin_round(1, stated_participants, first)))
    run.sent["negotiate"] = {0: client.step("negotiate", None)}
    answer = Message({"encrypted zone": Mask.empty(SIZE).to_bytes()})
    run.sent["update"] = {0: client.step("update", answer)}
    return run


def deviation_of_noise(stated_participants: int, min_clients: int = 3) -> float:
    """Standard deviation of its 20,000 values."""
    return float(values_of(told(stated_participants, min_clients), 0).std())


def test_a_client_that_is_told_of_too_few_participants_sends_nothing():
    assert deviation_of_noise(4) == pytest.approx(20.0, rel=0.05)
    for stated in (2, 1, 0):
        with pytest.raises(PolicyError, match="at least 3"):
            told(stated)


def test_the_noise_never_falls_below_a_single_clients(monkeypatch: pytest.MonkeyPatch):
    assert deviation_of_noise(1, min_clients=1) == pytest.approx(10.0, rel=0.05)
    with pytest.raises(PolicyError, match="at least 1"):
        told(0, min_clients=1)
    # Even where nothing refused the round.
    monkeypatch.setattr(TrainingClient, "_check_round", lambda client, number, participants: None)
    monkeypatch.setattr("shieldfl.rounds.training_client.check_invited", lambda *ignored: None)
    assert deviation_of_noise(0) == pytest.approx(10.0, rel=0.05)


@every_variant
def test_no_method_begins_a_round_of_fewer_than_the_set_up_says_or_of_no_whole_number(variant):
    """NaN is below no number; noise would follow from whatever it is."""
    run = SteppedRun(variant, min_clients=3)
    client, model = run.clients[0], run.method.message_for(0, run.begin_round(1, [0, 1, 2]))
    few = [(stated, PolicyError, "at least 3") for stated in (0, 2, True)]
    others = [
        (stated, ParameterError, "participants must") for stated in (math.nan, math.inf, 4.0, "4", None, -4)
    ]
    for stated, error, words in few + others:
        with pytest.raises(error, match=words):
            client.begin_round(1, stated, model)
        with pytest.raises(ParameterError, match="before training has finished"):
            client.step(run.method.phases_of(run.model, 1)[0].name, None)
    assert client.round == 0
    client.begin_round(1, 3, model)
    assert client.round == 1


@every_variant
def test_a_refused_round_does_not_change_how_the_running_one_is_protected(variant):
    """Alt-FL's third round is of another kind: its synthetic updates travel in the clear."""
    run = SteppedRun(variant)

    def finish_and_be_lied_to(update, finish, index):
        finish(update)
        for number in range(run._round, run._round + 4):
            with pytest.raises(PolicyError, match="at least 2"):
                run.clients[index].begin_round(number, 0, run.method.message_for(index, run.model))

    for index, client in enumerate(run.clients):
        client.finish_training = partial(finish_and_be_lied_to, finish=client.finish_training, index=index)
    for rounds in (1, 2, 3):
        run.run_round()
        twin = honest_outcome(variant, rounds)
        assert [client.disclosure for client in run.clients] == twin.disclosures
    assert_same_model(run, twin, variant)
    assert recorded(run) == twin.events


@every_variant
def test_a_refused_round_leaves_the_running_one_as_it_was(variant):
    run = SteppedRun(variant, min_clients=3)
    client = run.clients[0]
    run.train_client(0, 1, 3, run.method.message_for(0, run.begin_round(1, [0, 1, 2])))
    with pytest.raises(PolicyError, match="at least 3"):
        client.begin_round(2, 2, run.method.message_for(0, run.begin_round(2)))
    phase = run.method.phases_of(run.model, 1)[0].name
    assert set(client.step(phase, None)) == honest_outcome(variant).sent_parts[phase]


@pytest.mark.parametrize("method", ["alt-fl-pi", "alt-fl-si-he"])
def test_a_refused_zone_does_not_bare_the_update_of_the_round_that_runs(method):
    """The next round's first message is genuine but for one part; its kind encrypts nothing."""
    samples = {
        client: np.random.default_rng([7, client]).normal(0.0, 0.5, (5, 6)) for client in range(CLIENTS)
    }
    train = MeanEstimation(samples, synthetic=samples[0])
    run = SteppedRun(variant_of(method, interleaving_ratio="1/2"), initial=origin(), train=train)
    run.run_round()
    victim = run.clients[0]
    start = victim.begin_round(2, CLIENTS, run.begin_round(2))
    third = run.authority.begin_round(3)
    with pytest.raises(KeyMismatchError, match="not signed"):
        victim.begin_round(3, CLIENTS, Message({**third, "zone": b"anything"}))
    victim.finish_training(train(2, 0, start))
    sent = victim.step("update", None)
    assert sent.number("round") == 2
    assert len(sent["values"]) == 0
    assert victim.disclosure.encrypted.count == 6


# --- What the key authority answers: faults, plaintexts that are none, made-up slots, the size of a round ---

STEP = 2.0**20


class Paillier:
    """An authority whose totals may hold as many clients as there can be, and whose factors the test knows."""

    def __init__(self, key_bits: int) -> None:
        self.parameters = sf.paillier.Parameters(key_bits=key_bits, max_clients=64)
        self.authority = authority_for(self.parameters)
        self.authority.one_total_per_round = True
        self.p, self.q = factors_of(self.authority)
        self.n = self.p * self.q
        self.twin = reference_paillier.PublicKey(self.n)
        self.secret = reference_paillier.SecretKey(gmpy2.mpz(self.p), gmpy2.mpz(self.q))
        self.field_bits = self.parameters.value_bits + self.parameters._facts["guard_bits"]
        self.fields = self.parameters.values_per_ciphertext

    def total(self, number: int = 0) -> sf.paillier.Total:
        """Of 64 clients in this round: one batch, added 63 more times under other names, as a liar can."""
        update = np.random.default_rng(3).uniform(-8.0, 8.0, self.fields).astype(np.float32)
        aggregator = sf.paillier.Aggregator(self.authority.public_key)
        batch = bytearray(
            sf.paillier.Encryptor(self.authority.public_key).encrypt(update, round=number).to_bytes()
        )
        # The name of the only frame lies before the ciphertext.
        name = len(batch) - 4 - self.parameters._facts["ciphertext_bytes"] - 16
        for client in range(64):
            batch[name] = client
            aggregator.add(reseal(bytes(batch)))
        return aggregator.total()

    def total_with(self, total: sf.paillier.Total, plaintext: int) -> sf.paillier.Total:
        """The total with another ciphertext in it: of this plaintext."""
        size = self.parameters._facts["ciphertext_bytes"]
        data = total.to_bytes()
        ciphertext = self.twin.encrypt(plaintext, self.twin.classical_randomizer(5)).to_bytes(size, "big")
        return sf.paillier.Total.from_bytes(reseal(data[: -4 - size] + ciphertext + data[-4:]))

    def passes(self, plaintext: int) -> bool:
        """Whether the range check takes this plaintext for a sum of 64 clients' values."""
        # Of most numbers the length tells, without taking field after field out: the values make up no longer one.
        if min(plaintext, self.n - plaintext) >> (self.fields * self.field_bits):
            return False
        try:
            fields = reference_paillier.unpack_fields(plaintext, self.fields, self.field_bits, self.n)
        except ValueError:
            return False
        return max(map(abs, fields)) <= 64 * (2**23 - 1)

    def first_that_passes(self, plaintexts: Any, tries: int) -> int | None:
        return next(
            (plaintext for plaintext in (plaintexts() for _ in range(tries)) if self.passes(plaintext)), None
        )

    def plaintext_from(self, sums: np.ndarray) -> int:
        """What anybody who gets the sums knows of the plaintext: all of it."""
        return reference_paillier.pack_fields(
            [int(value) for value in np.rint(sums * STEP)], self.field_bits, self.n
        )


class GlitchedMachine:
    """Decrypts by the book, but for the half modulo p of the plaintext that stands at ``place`` among all."""

    def __init__(self, key: Paillier, place: int | None) -> None:
        self._key = key
        self._place = place
        self._decrypted = 0

    def decrypt(self, residues: bytes) -> bytes:
        key = self._key
        size = key.parameters._facts["ciphertext_bytes"]
        plaintexts = b""
        for at in range(0, len(residues), size):
            ciphertext = int.from_bytes(residues[at : at + size], "little")
            plaintext = int(key.secret.decrypt(ciphertext))
            if self._decrypted == self._place:
                plaintext = (plaintext + key.q) % key.n
            self._decrypted += 1
            plaintexts += plaintext.to_bytes(size // 2, "little")
        return plaintexts

    def open(self, total: sf.paillier.Total) -> np.ndarray:
        frame = self._key.authority.public_key.to_bytes()
        sums, _ = _testing.open_paillier_by(frame, total.to_bytes(), self.decrypt)
        return sums


def test_a_faulty_answer_never_leaves() -> None:
    key = Paillier(2048)
    total = key.total()
    right = key.authority.open(total)
    np.testing.assert_array_equal(GlitchedMachine(key, None).open(total), right)
    # What it is about: with a wrong half, the right answer and the faulty one give the factor.
    faulty = key.plaintext_from(right) + key.q
    assert math.gcd(key.plaintext_from(right) - faulty, key.n) == key.q
    # The first plaintext is the total's, the second one the check's own.
    for place in (0, 1):
        with pytest.raises(sf.ShieldError, match=r"computed wrongly.*withheld"):
            GlitchedMachine(key, place).open(total)


def test_random_plaintexts_do_not_pass_the_range_check_of_a_full_total() -> None:
    """Without spare bits, as it was, once in 2^11 or 2^12 draws at the default parameters."""
    key = Paillier(3072)
    draw = random.Random(2)
    assert key.first_that_passes(lambda: draw.randrange(key.n), 2**16) is None
    # A share of 2^-41 of all plaintexts at most is a sum, though every field may be full: 2^40 and the sign are spare.
    assert key.n >> (key.fields * key.field_bits) >= 2**40
    with pytest.raises(sf.WireFormatError, match="does not open to sums"):
        key.authority.open(key.total_with(key.total(), draw.randrange(key.n)))
    full = reference_paillier.pack_fields([64 * (2**23 - 1)] * key.fields, key.field_bits, key.n)
    opened = key.authority.open(key.total_with(key.total(2), full))
    assert key.plaintext_from(opened) == full
    # As many fields as would fit without spare bits.
    key.fields = (3072 - 2) // key.field_bits
    assert key.first_that_passes(lambda: draw.randrange(key.n), 2**16) is not None


def test_a_slots_total_of_random_numbers_is_refused() -> None:
    authority = sf.KeyAuthority(sf.ckks.Parameters(packing="slots", max_clients=4), one_total_per_round=False)
    update = np.linspace(-7.0, 7.0, 100).astype(np.float32)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    batches = [encryptor.encrypt(update, round=1).to_bytes() for _ in range(3)]
    residues = _testing.ciphertext_residues(batches[0])
    rng = np.random.default_rng(4)
    # What the second half holds is multiplied with the key: values of the modulus' size, where 24 is the limit.
    garbage = rng.integers(0, 2**40, residues.size, dtype=np.uint64)
    for third, refused in ((batches[0], False), (_testing.batch_from_residues(batches[0], garbage, 5), True)):
        total = total_of(authority.public_key, (*batches[1:], third))
        if refused:
            with pytest.raises(sf.WireFormatError, match="does not open to sums"):
                authority.open(total)
        else:
            np.testing.assert_allclose(authority.open(total), 3 * update, atol=2.0**-19)


def test_the_size_of_a_dict_pfl_round_follows_from_the_data_and_is_disclosed() -> None:
    def repeating(number: int, client: int, start: StartingPoint) -> LocalUpdate:
        return contraction(0, client, start)

    counts = []
    for train in (contraction, repeating):
        run = run_of(train, patience_rounds=2)
        for _ in range(4):
            run.run_round()
        counts.append(run.answers["count"].number("count"))
        assert all("count" in client.disclosure.parts for client in run.clients)
    # The aggregator is told this number in the clear. Nothing but what the clients trained differs.
    assert counts[0] != counts[1]


READER = CLIENTS - 1
ROUNDS = 3
BY_AUTHORITY = ["full-he/ckks", "fedml-he", "selective-shield/encrypted", "batch-crypt", "dict-pfl"]
BY_CLIENTS = ["full-he", "fedml-he", "selective-shield/encrypted", "dict-pfl"]
VARIANTS = [
    *map(labelled, BY_AUTHORITY),
    *opened_by_clients([labelled(label) for label in BY_CLIENTS]),
    *opened_by_aggregator([labelled("full-he"), labelled("fedml-he")]),
]


@pytest.mark.every_run(
    "selective-shield/encrypted/opened by clients by clients",
    "dict-pfl by authority",
    "full-he/opened by the aggregator by aggregator",
    "full-he/ckks by authority",
)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant.label} by {variant.opener}")
def test_lies_about_sums_are_refused_and_change_nothing(variant: Variant):
    run = SteppedRun(variant, min_clients=3)
    refused: dict[str, int] = {}

    def tell(liar: LyingAggregator, phase: str) -> None:
        for attack in (LoneTotal, FewTotal, LateTotal, SecondTotal):
            victim = (liar.round + 1) % READER
            try:
                told = attack.obtain(liar, phase, victim)
            except PolicyError:
                refused[attack.name] = refused.get(attack.name, 0) + 1
            else:
                assert told is None  # of the first round, which a later one comes back to
                assert attack is LateTotal

    def changes():
        return {client: one.parameters - run.starts[client].parameters for client, one in run.updates.items()}

    LyingAggregator(run, READER, changes, tell, LoneTotal.alter)
    for _ in range(ROUNDS):
        run.run_round()
    assert refused == {
        "lone-total": ROUNDS,
        "few-total": ROUNDS,
        "late-total": ROUNDS - 1,
        "second-total": ROUNDS,
    }
    assert_same_model(run, honest_outcome(variant, ROUNDS), variant)
