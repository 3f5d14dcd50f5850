"""What an aggregator that lies can try."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import shieldfl as sf
from core.paillier_keys import authority_for, factors_of
from core.wire_twin import reseal
from methods.dict_pfl_run import run_of
from methods.method_conformance import contraction
from shieldfl import _testing, reference_paillier
from shieldfl.methods.method import LocalUpdate, StartingPoint

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
        self.field_bits = self.parameters.value_bits + self.parameters._facts["guard_bits"]
        self.fields = self.parameters.values_per_ciphertext

    def total(self) -> sf.paillier.Total:
        """Of 64 clients: one batch, added 63 more times under other names, as a lying aggregator can."""
        update = np.random.default_rng(3).uniform(-8.0, 8.0, self.fields).astype(np.float32)
        aggregator = sf.paillier.Aggregator(self.authority.public_key)
        batch = bytearray(sf.paillier.Encryptor(self.authority.public_key).encrypt(update).to_bytes())
        # The name of the only frame lies before the ciphertext.
        name = len(batch) - 4 - self.parameters._facts["ciphertext_bytes"] - 16
        for client in range(64):
            batch[name] = client
            aggregator.add(reseal(bytes(batch)))
        return aggregator.total()

    def plaintext_of(self, total: sf.paillier.Total) -> int:
        data = total.to_bytes()
        ciphertext = data[-4 - self.parameters._facts["ciphertext_bytes"] : -4]
        return reference_paillier.SecretKey(self.p, self.q).decrypt(int.from_bytes(ciphertext, "big"))

    def total_with(self, total: sf.paillier.Total, plaintext: int) -> sf.paillier.Total:
        """The total with another ciphertext in it: of this plaintext."""
        size = self.parameters._facts["ciphertext_bytes"]
        data = total.to_bytes()
        ciphertext = self.twin.encrypt(plaintext, self.twin.classical_randomizer(5)).to_bytes(size, "big")
        return sf.paillier.Total.from_bytes(reseal(data[: -4 - size] + ciphertext + data[-4:]))

    def passes(self, plaintext: int) -> bool:
        """Whether the range check takes this plaintext for a sum of 64 clients' values."""
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


@pytest.fixture(scope="module")
def paillier_2048() -> Paillier:
    return Paillier(2048)


class GlitchedDecryptor:
    """Right at first; then as a machine whose computation modulo p goes wrong in every further opening."""

    def __init__(self, key: Paillier) -> None:
        self._decryptor = key.authority._decryptor
        self._key = key
        self.openings = 0

    def open(self, total: Any, threads: int) -> Any:
        self.openings += 1
        if self.openings == 1:
            return self._decryptor.open(total, threads)
        key = self._key
        right = key.plaintext_of(sf.paillier.Total.from_bytes(total.frame))
        draw = random.Random(1)
        # Right modulo q, anything modulo p. Most such answers are out of range, and are asked for again.
        wrong = key.first_that_passes(lambda: (right + key.q * draw.randrange(key.p)) % key.n, 100_000)
        assert wrong is not None
        return self._decryptor.open(
            key.total_with(sf.paillier.Total.from_bytes(total.frame), wrong).parsed, threads
        )


def test_a_right_and_a_faulty_answer_to_one_total_factor_the_key(
    paillier_2048: Paillier, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = paillier_2048
    glitched = GlitchedDecryptor(key)
    monkeypatch.setattr(key.authority, "_decryptor", glitched)
    total = key.total()
    right, wrong = (key.plaintext_from(key.authority.open(total)) for _ in range(2))
    assert glitched.openings == 2
    assert math.gcd(right - wrong, key.n) == key.q


def test_random_plaintexts_pass_the_range_check_of_a_full_total() -> None:
    """At the default parameters: once in 2^11 or 2^12 draws."""
    key = Paillier(3072)
    draw = random.Random(2)
    found = key.first_that_passes(lambda: draw.randrange(key.n), 2**16)
    assert found is not None
    opened = key.authority.open(key.total_with(key.total(), found))
    assert key.plaintext_from(opened) == found


def test_a_slots_total_of_random_numbers_is_opened() -> None:
    authority = sf.KeyAuthority(sf.ckks.Parameters(packing="slots", max_clients=4), min_clients=3)
    update = np.linspace(-7.0, 7.0, 100).astype(np.float32)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    batches = [encryptor.encrypt(update, round=1).to_bytes() for _ in range(3)]
    residues = _testing.ciphertext_residues(batches[0])
    rng = np.random.default_rng(4)
    # What the second half holds is multiplied with the key: values of the modulus' size, where 32 is the limit.
    garbage = rng.integers(0, 2**40, residues.size, dtype=np.uint64)
    aggregator = sf.ckks.Aggregator(authority.public_key)
    for batch in (*batches[1:], _testing.batch_from_residues(batches[0], garbage, 5)):
        aggregator.add(batch)
    sums = authority.open(aggregator.total())
    assert np.abs(sums).max() > 3 * 8.0 + 1.0


def test_the_size_of_a_dict_pfl_round_follows_from_the_data_and_nobody_says_so() -> None:
    def repeating(number: int, client: int, start: StartingPoint) -> LocalUpdate:
        return contraction(0, client, start)

    counts = []
    for train in (contraction, repeating):
        run = run_of(train, patience_rounds=2)
        for _ in range(4):
            run.run_round()
        counts.append(run.answers["count"].number("count"))
        assert all("count" not in client.disclosure.parts for client in run.clients)
    # The aggregator is told this number in the clear. Nothing but what the clients trained differs.
    assert counts[0] != counts[1]
