"""Paillier's frames (kinds 5 to 8) of wire version 2, for ever: written by hand, read and added by the core."""

from __future__ import annotations

import functools
import hashlib
import struct

import gmpy2
import pytest

import shieldfl as sf
from encryption.paillier_keys import encode_parameters, public_key_frame
from encryption.wire_twin import frame, identifier
from reference.paillier import PublicKey, SecretKey, base_of, pack_fields
from shieldfl import _core, _testing

STEP = 2**20
FIELD_BITS = 24 + 4  # guard bits for 12 values
CAPACITIES = {"dense": 2046 // FIELD_BITS, "single": 1}
ROUND = 3
LEFT_OUT = 2  # the flag of a batch with a bitmap


def known_bits(label, bits):
    """Bits that everybody can make."""
    return int.from_bytes(hashlib.shake_256(label.encode()).digest(bits // 8), "big")


@functools.cache
def known_primes():
    """Two primes that are 3 modulo 4, far apart, with a product of just 2048 bits."""
    primes = []
    for top in (6, 7):
        prime = gmpy2.next_prime(top << 1021)
        while prime % 4 != 3:
            prime = gmpy2.next_prime(prime)
        primes.append(int(prime))
    return tuple(primes)


class KnownKey:
    """A key pair from primes that everybody can compute: nothing that is encrypted under it is secret."""

    def __init__(self, packing, randomizer):
        # Without spare bits, which came later: such frames stay what they were.
        self.parameters = sf.paillier.Parameters._wrap(
            _core.PaillierParameters(
                key_bits=2048,
                packing=packing,
                randomizer=randomizer,
                max_clients=4,
                value_bits=24,
                fraction_bits=20,
                max_weight=3,
                spare_bits=0,
            )
        )
        p, q = known_primes()
        n = p * q
        # In GMP's integers, by the twin's formulas.
        base = None if randomizer == "classical" else base_of(3**500, n)
        self.twin = PublicKey(gmpy2.mpz(n), base)
        self.frame = public_key_frame(self.parameters, n, base or 0)
        self.capacity = CAPACITIES[packing]
        self.public_key = sf.paillier.PublicKey.from_bytes(self.frame)

    def encrypt(self, label, fields):
        plaintext = pack_fields(fields, FIELD_BITS, self.twin.modulus)
        if self.twin.base is None:
            return self.twin.encrypt(plaintext, self.twin.classical_randomizer(known_bits(label, 2040)))
        return self.twin.encrypt(plaintext, self.twin.short_randomizer(known_bits(label, 1024)))

    def batch(self, label, fields, positions_id, *, weight=None, present=None):
        """Write the frame of a batch: a weight is one field more, ``present`` says which ciphertexts are there."""
        everything = [*fields] if weight is None else [*fields, weight]
        blocks = [everything[i : i + self.capacity] for i in range(0, len(everything), self.capacity)]
        encoded = encode_parameters(self.parameters)
        flags = (weight is not None) | (LEFT_OUT if present is not None else 0)
        body = encoded + struct.pack("<Q", ROUND) + positions_id
        body += struct.pack("<QIIQ", len(fields), flags, 1, 1) + identifier(label.encode())
        if present is not None:
            bitmap = sum(1 << place for place in present)
            body += bitmap.to_bytes((len(blocks) + 7) // 8, "little")
        for place in range(len(blocks)) if present is None else present:
            body += self.encrypt(f"{label} {place}", blocks[place]).to_bytes(512, "big")
        return frame(6, identifier(encoded), self.frame[32:48], body)

    def decrypt(self, residues):
        """By the twin: these primes are not safe, as the core's keys with short exponents must be."""
        twin = SecretKey(*map(gmpy2.mpz, known_primes()))
        numbers = [int.from_bytes(residues[at : at + 512], "little") for at in range(0, len(residues), 512)]
        return b"".join(twin.decrypt(number).to_bytes(256, "little") for number in numbers)

    def open(self, total):
        """Open a total, whose sums come in steps."""
        sums, weight_sum = _testing.open_paillier_by(self.frame, total.to_bytes(), self.decrypt)
        return (sums * STEP).tolist(), weight_sum


@pytest.fixture(
    scope="module", params=[("dense", "short-exponent"), ("single", "classical")], ids=["dense", "single"]
)
def key(request):
    return KnownKey(*request.param)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def known_fields(key, factor):
    """Fields of either sign, in three ciphertexts of which the last one is not full where they are dense."""
    count = 2 * key.capacity + 1
    return [(-1) ** i * (i * factor + 5) % (2**23 - 1) - 2**22 for i in range(count)]


def all_positions(count):
    return identifier(b"", key=struct.pack("<Q", count))


@functools.cache
def two_batches(key, weight=None):
    fields = [known_fields(key, factor) for factor in (65537, 99991)]
    batches = [
        key.batch(f"{name} of {key.parameters.packing}", values, all_positions(len(values)), weight=weight)
        for name, values in zip(("first", "second"), fields, strict=True)
    ]
    return fields, batches


def total_of(key, batches, weights=(1, 1)):
    aggregator = sf.paillier.Aggregator(key.public_key)
    for batch, weight in zip(batches, weights, strict=True):
        aggregator.add(batch, weight=weight)
    return aggregator.total()


# Of the public key, the first batch, the total, that with the weights 3 and 2, that with encrypted weights.
DIGESTS = {
    "dense": (
        "33c23e8575caf5ba",
        "8825ed68f2f7473f",
        "d2ced683ab65aa7c",
        "b7d2e0eb4732f557",
        "b1030d3c8f516100",
    ),
    "single": (
        "d782ed85687645be",
        "ef381ab5679ccd29",
        "4ee541bc14beca56",
        "773ec38ed1718217",
        "68b1942b996ddfb5",
    ),
}


def test_public_keys_are_what_they_were(key):
    assert digest(key.frame) == DIGESTS[key.parameters.packing][0]
    assert key.public_key.to_bytes() == key.frame
    assert key.public_key.id == identifier(key.frame[48:-4])
    assert key.public_key.parameters == key.parameters


def test_batches_are_what_they_were(key):
    fields, batches = two_batches(key)
    assert digest(batches[0]) == DIGESTS[key.parameters.packing][1]
    for batch, values in zip(batches, fields, strict=True):
        parsed = sf.paillier.CiphertextBatch.from_bytes(batch)
        assert parsed.to_bytes() == batch
        assert parsed.is_of(sf.Mask.full(len(values)))
        alone = sf.paillier.Aggregator(key.public_key)
        alone.add(parsed)
        assert key.open(alone.total()) == (values, None)


@pytest.mark.parametrize(("weights", "place"), [((1, 1), 2), ((3, 2), 3)])
def test_totals_are_what_they_were(key, weights, place):
    (first, second), batches = two_batches(key)
    total = total_of(key, batches, weights)
    assert digest(total.to_bytes()) == DIGESTS[key.parameters.packing][place]
    assert sf.paillier.Total.from_bytes(total.to_bytes()).total_weight == sum(weights)
    sums = [weights[0] * a + weights[1] * b for a, b in zip(first, second, strict=True)]
    assert key.open(total) == (sums, None)
    # Neither the order of additions nor totals on the way show.
    again = sf.paillier.Aggregator(key.public_key)
    for batch, weight in zip(reversed(batches), reversed(weights), strict=True):
        part = sf.paillier.Aggregator(key.public_key)
        part.add(batch, weight=weight)
        again.add_total(part.total())
    assert again.total().to_bytes() == total.to_bytes()


def test_totals_with_encrypted_weights_are_what_they_were(key):
    (first, second), batches = two_batches(key, weight=STEP // 2)
    total = total_of(key, batches)
    assert digest(total.to_bytes()) == DIGESTS[key.parameters.packing][4]
    assert key.open(total) == ([a + b for a, b in zip(first, second, strict=True)], 1.0)


def known_order():
    masks = [[3, 9, 17, 64], [9, 80, 3], [9]]
    return sf.paillier.UnionOrder.from_masks([sf.Mask.from_indices(mask, 100) for mask in masks])


def test_union_orders_are_what_they_were():
    """9 was selected three times, 3 twice, 17, 64 and 80 once: the runs are 9; 3, 17, 64, 80."""
    order = known_order()
    mask = sf.Mask.from_indices([3, 9, 17, 64, 80], 100).to_bytes()
    runs = bytes([0b11101])  # one bit for each of 3, 9, 17, 64 and 80
    body = struct.pack("<Q", len(mask)) + mask + struct.pack("<I", 2) + runs
    expected = frame(8, bytes(16), bytes(16), body)
    assert order.to_bytes() == expected
    assert sf.paillier.UnionOrder.from_bytes(expected) == order
    assert order.positions.tolist() == [9, 3, 17, 64, 80]
    assert order.id == identifier(struct.pack("<5I", 9, 3, 17, 64, 80), key=struct.pack("<QQ", 100, 5))
    assert expected[56:].hex() == (
        "5348464c020001001600000000000000000000000000000000000000000000000000000000000000"
        "00000000000000006400000000000000050000000000000001"
        "04673dfa07142f1da5020000001d9651b2a6"
    )


def test_batches_in_a_unions_order_are_what_they_were(key):
    """One client has every ciphertext, one none, and one the first alone, where there are several."""
    values = [7, -8, 9, -10, 11]
    order = known_order()
    first = min(key.capacity, 5)
    blocks = -(-5 // key.capacity)
    few = values[:first] + [0] * (5 - first)
    batches = [key.batch("whole", values, order.id), key.batch("none", [0] * 5, order.id, present=[])]
    if blocks > 1:
        batches.append(key.batch("few", few, order.id, present=[0]))
    aggregator = sf.paillier.Aggregator(key.public_key, order=order)
    for batch in batches:
        assert sf.paillier.CiphertextBatch.from_bytes(batch).is_of(order)
        aggregator.add(batch, weight=2)
    sums = [2 * (a + b * (blocks > 1)) for a, b in zip(values, few, strict=True)]
    assert key.open(aggregator.total()) == (sums, None)
    expected = {"dense": "c5c4fd1afa654094", "single": "144f9e5960e3a4ad"}
    assert digest(aggregator.total().to_bytes()) == expected[key.parameters.packing]
