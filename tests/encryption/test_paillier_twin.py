"""The core against Paillier's slow twin: encryptions, frames of real batches, and totals, residue for residue."""

from __future__ import annotations

import functools
import math
import random
import struct
from dataclasses import dataclass

import gmpy2
import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import authority_for, base_for, factors_of, primes, public_key_frame
from encryption.test_paillier_engines import each_engine, encrypt
from encryption.wire_twin import identifier
from reference.paillier import PublicKey, SecretKey, pack_fields, unpack_fields

SIZES = {"dense": 170, "single": 6}  # three dense ciphertexts; the twin takes its time for each
STEP = 2**18
SETTINGS = {"key_bits": 2048, "value_bits": 22, "fraction_bits": 18, "max_clients": 5, "max_weight": 3}
FIELD_BITS = 22 + 4  # guard bits for 15 values


@dataclass(frozen=True)
class Contents:
    """What lies in the frame of a batch or a total."""

    round: int
    positions_id: bytes
    count: int
    flags: int
    clients: int
    total_weight: int
    frame_ids: bytes
    residues: list[int | None]
    """None for a ciphertext that was left out."""


def contents_of(frame, parameters):
    body = frame[48:-4]
    round_, positions_id, count, flags, clients, total_weight = struct.unpack_from("<Q16sQIIQ", body, 16)
    ids_end = 64 + 16 * clients
    per_ciphertext = 1 if parameters.packing == "single" else (parameters.key_bits - 42) // FIELD_BITS
    ciphertexts = math.ceil((count + (flags & 1)) / per_ciphertext)
    present = [True] * ciphertexts
    begin = ids_end
    if flags & 2:
        begin += (ciphertexts + 7) // 8
        bitmap = int.from_bytes(body[ids_end:begin], "little")
        assert bitmap >> ciphertexts == 0
        present = [bool(bitmap >> i & 1) for i in range(ciphertexts)]
    length = parameters.key_bits // 4
    assert len(body) == begin + sum(present) * length
    numbers = (int.from_bytes(body[i : i + length], "big") for i in range(begin, len(body), length))
    residues = [next(numbers) if there else None for there in present]
    return Contents(round_, positions_id, count, flags, clients, total_weight, body[64:ids_end], residues)


def update_for(parameters):
    return np.random.default_rng(1).uniform(-3, 3, SIZES[parameters.packing])


def steps_of(values):
    return [int(step) for step in np.rint(np.asarray(values, dtype=np.float64) * STEP)]


def fields_of(secret, key, residues, parameters, count):
    """Open residues with the factors and take out so many fields; None stands for zeros."""
    per_ciphertext = 1 if parameters.packing == "single" else (parameters.key_bits - 42) // FIELD_BITS
    fields = []
    for residue in residues:
        plaintext = 0 if residue is None else secret.decrypt(residue)
        here = min(per_ciphertext, count - len(fields))
        fields += unpack_fields(plaintext, here, FIELD_BITS, key.modulus)
    assert len(fields) == count
    return fields


def twin_of(authority):
    """The authority's key, as the twin has it, in integers of GMP's: by the twin's formulas, in a tenth of the time.

    ``test_paillier_engines.py`` and ``test_paillier_known_answers.py`` have Python's own integers.
    """
    p, q = (gmpy2.mpz(factor) for factor in factors_of(authority))
    base = base_for(authority.public_key.parameters, int(p * q))
    key = PublicKey(p * q, gmpy2.mpz(base) if base else None)
    secret = SecretKey(p, q)
    key.check()
    secret.check(key)
    return key, secret


@pytest.fixture(
    scope="module",
    params=[("dense", "short-exponent"), ("single", "short-exponent"), ("dense", "classical")],
    ids="-".join,
)
def parameters(request):
    packing, randomizer = request.param
    return sf.paillier.Parameters(packing=packing, randomizer=randomizer, **SETTINGS)


@functools.cache
def authority_of(parameters, engine):
    """One authority for all tests, which only encrypt and add under its key and open what they added."""
    return authority_for(parameters, engine=engine)


@functools.cache
def encryptor_of(parameters, engine):
    """An encryptor with its table of powers."""
    return sf.paillier.Encryptor(authority_of(parameters, engine).public_key)


@pytest.mark.every_run("2048", "3072-ifma")
@each_engine
@pytest.mark.parametrize("key_bits", [2048, 3072])
def test_encryption_is_the_twins(engine, key_bits):
    p, q = map(gmpy2.mpz, primes(key_bits))
    parameters = sf.paillier.Parameters(key_bits=key_bits)
    key = PublicKey(p * q, gmpy2.mpz(base_for(parameters, int(p * q))))
    key.check()
    source = random.Random(key_bits)
    exponents = [0, 1, 2 ** (key_bits // 2) - 1, *(source.getrandbits(key_bits // 2) for _ in range(2))]
    values = [[0], [-1], [1], *([source.randrange(-(2**21), 2**21) for _ in range(70)] for _ in range(2))]
    plaintexts = [pack_fields(value, FIELD_BITS, key.modulus) for value in values]
    expected = [
        key.encrypt(plaintext, key.short_randomizer(exponent))
        for plaintext, exponent in zip(plaintexts, exponents, strict=True)
    ]
    n, base, power = (int(number) for number in (key.modulus, key.base, key.short_randomizer(1)))
    assert encrypt(engine, n, power, exponents, plaintexts, key_bits // 2) == expected
    # And so is what makes the table's base: h to the power n.
    assert encrypt(engine, n, base, [n], [0], key_bits) == [power]


@pytest.mark.every_run(
    "single-short-exponent-0.375-True",
    "dense-short-exponent-None-False",
    "dense-classical-0.375-False",
    "dense-short-exponent-0.375-True",
)
@each_engine
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weight", [None, 0.375])
def test_the_twin_opens_batches(parameters, engine, masked, weight):
    authority, update = authority_of(parameters, engine), update_for(parameters)
    key, secret = twin_of(authority)
    chosen = np.ones(update.size, dtype=bool)
    mask = None
    if masked:
        chosen[::3] = False
        mask = sf.Mask.from_bool(chosen)
    frame = encryptor_of(parameters, engine).encrypt(update, mask, weight=weight, round=9)
    contents = contents_of(frame.to_bytes(), parameters)
    bitmap = b"" if mask is None else np.packbits(chosen, bitorder="little").tobytes()
    padding = bytes(-len(bitmap) % 8)
    assert contents.positions_id == identifier(bitmap + padding, key=struct.pack("<Q", update.size))
    assert (contents.round, contents.count, contents.flags) == (9, chosen.sum(), weight is not None)
    assert (contents.clients, contents.total_weight) == (1, 1)
    expected = steps_of(update[chosen] * (weight or 1))
    assert min(expected) < 0 < max(expected)
    if weight is not None:
        expected.append(int(weight * STEP))
    assert fields_of(secret, key, contents.residues, parameters, len(expected)) == expected
    assert len(set(contents.residues)) == len(contents.residues)


@each_engine
def test_randomizers_are_powers_of_the_nth_power_of_the_base(engine):
    """With an h that is 1 modulo p every h_n^a is 1 modulo p^2, which hides nothing and shows where s is from."""
    p, q = primes(2048)
    n = p * q
    h = (1 + p * (3 * pow(p, -1, q) % q)) % n  # 1 modulo p, 4 modulo q
    PublicKey(n, h).check()
    parameters = sf.paillier.Parameters(**SETTINGS)
    update = update_for(parameters)
    key = sf.paillier.PublicKey(
        _core.PaillierPublicKey.from_bytes(public_key_frame(parameters, n, base=h), engine)
    )
    twin = PublicKey(n, h)
    frame = sf.paillier.Encryptor(key).encrypt(update).to_bytes()
    steps = steps_of(update)
    per_ciphertext = parameters.values_per_ciphertext
    residues = contents_of(frame, parameters).residues
    assert len(residues) == 3
    for place, residue in enumerate(residues):
        packed = pack_fields(steps[place * per_ciphertext :][:per_ciphertext], FIELD_BITS, n)
        randomizer = twin.add_plaintext(residue, -packed)
        assert randomizer % p**2 == 1
        assert pow(randomizer, q - 1, q**2) == 1
        assert randomizer != 1


@pytest.fixture(scope="module")
def masks(parameters):
    """The second client selects none of the positions that no other client did, and so leaves ciphertexts out."""
    size = SIZES[parameters.packing]
    popular = list(range(size // 3))
    rare = list(range(size // 2, size))
    return [sf.Mask.from_indices(popular + rare, size), sf.Mask.from_indices(popular, size)]


@each_engine
def test_the_twin_opens_batches_in_a_unions_order(parameters, masks, engine):
    authority, update = authority_of(parameters, engine), update_for(parameters)
    key, secret = twin_of(authority)
    order = sf.paillier.UnionOrder.from_masks(masks)
    encryptor = encryptor_of(parameters, engine)
    left_out = []
    for mask in masks:
        frame = encryptor.encrypt_in_union(update, order, mask).to_bytes()
        contents = contents_of(frame, parameters)
        sizes = struct.pack("<QQ", update.size, order.count)
        assert contents.positions_id == identifier(order.positions.astype("<u4").tobytes(), key=sizes)
        assert contents.count == order.count
        selected = np.where(mask.to_bool(), update, 0)[order.positions]
        fields = fields_of(secret, key, contents.residues, parameters, order.count)
        assert fields == steps_of(selected)
        left_out.append(contents.residues.count(None))
        assert contents.flags == 2 * (left_out[-1] > 0)
    assert left_out[0] == 0 < left_out[1]


@each_engine
def test_totals_are_the_twins_products(parameters, engine):
    authority, update = authority_of(parameters, engine), update_for(parameters)
    key, secret = twin_of(authority)
    encryptor = encryptor_of(parameters, engine)
    weights = [3, 1, 2]
    batches = [encryptor.encrypt(update * scale).to_bytes() for scale in (1.0, -0.5, 0.25)]
    aggregator = sf.paillier.Aggregator(authority.public_key)
    for batch, weight in zip(batches, weights, strict=True):
        aggregator.add(batch, weight=weight)
    total = contents_of(aggregator.total().to_bytes(), parameters)
    parsed = [contents_of(batch, parameters) for batch in batches]
    products = [1] * len(total.residues)
    for batch, weight in zip(parsed, weights, strict=True):
        products = [
            key.add(product, key.multiply(residue, weight))
            for product, residue in zip(products, batch.residues, strict=True)
        ]
    assert total.residues == products
    assert (total.clients, total.total_weight, total.flags) == (3, 6, 0)
    assert total.frame_ids == b"".join(sorted(batch.frame_ids for batch in parsed))
    parts = (steps_of(update * scale) for scale in (1.0, -0.5, 0.25))
    sums = [sum(w * s for w, s in zip(weights, steps, strict=True)) for steps in zip(*parts, strict=True)]
    assert fields_of(secret, key, total.residues, parameters, update.size) == sums
    np.testing.assert_array_equal(authority.open(aggregator.total()) * STEP, sums)


@each_engine
def test_totals_with_clear_values_are_the_twins_products(parameters, masks, engine):
    """A batch counts as (c (1 + k n))^w, and what it left out as an encryption of zero with randomiser 1."""
    authority, update = authority_of(parameters, engine), update_for(parameters)
    key, secret = twin_of(authority)
    order = sf.paillier.UnionOrder.from_masks(masks)
    encryptor = encryptor_of(parameters, engine)
    aggregator = sf.paillier.Aggregator(authority.public_key, order=order)
    capacity = parameters.values_per_ciphertext
    products = [1] * math.ceil(order.count / capacity)
    updates, weights = (update, -update / 3), (1, 3)
    for update, mask, weight in zip(updates, masks, weights, strict=True):
        batch = encryptor.encrypt_in_union(update, order, mask).to_bytes()
        clear = order.clear_fields(update, mask)
        aggregator.add(batch, weight=weight, clear=clear)
        steps = steps_of(clear)
        for place, residue in enumerate(contents_of(batch, parameters).residues):
            addend = pack_fields(steps[place * capacity :][:capacity], FIELD_BITS, key.modulus)
            both = key.add_plaintext(1 if residue is None else residue, addend)
            products[place] = key.add(products[place], key.multiply(both, weight))
    total = contents_of(aggregator.total().to_bytes(), parameters)
    assert total.residues == products
    assert (total.clients, total.total_weight, total.flags) == (2, 4, 4)
    parts = (steps_of(update[order.positions]) for update in updates)
    sums = [sum(w * s for w, s in zip(weights, steps, strict=True)) for steps in zip(*parts, strict=True)]
    assert fields_of(secret, key, total.residues, parameters, order.count) == sums
