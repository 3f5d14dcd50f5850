"""Clients with masks of their own, the rest in the clear, against NumPy; keys that are none are refused."""

from __future__ import annotations

import pickle

import gmpy2
import numpy as np
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import authority_for, primes, public_key_frame, secret_of
from encryption.wire_twin import reseal

SIZE = 1000
STEP = 2.0**20


@pytest.fixture(scope="module", params=["dense", "single"])
def authority(request):
    return authority_for(
        sf.paillier.Parameters(key_bits=2048, packing=request.param, max_clients=8, max_weight=5)
    )


def clients_of(rng, number, size=SIZE, most=0.1):
    """Masks that overlap, some of them empty or contained in others, and updates."""
    shares = rng.uniform(0, most, number)
    shares[0] = 0
    chosen = [rng.random(size) < share for share in shares]
    chosen.append(chosen[-1] & (rng.random(size) < 0.5))
    return [sf.Mask.from_bool(c) for c in chosen], [rng.uniform(-3, 3, size) for _ in chosen]


def quantised(update):
    return np.rint(np.asarray(update, dtype=np.float64) * STEP) / STEP


def most_popular_first(masks):
    """The order by its definition: by how many masks have a position, then by position."""
    votes = sum(mask.to_bool().astype(int) for mask in masks)
    positions = np.flatnonzero(votes)
    return positions[np.lexsort((positions, -votes[positions]))]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_clients_with_different_masks(authority, seed, dtype):
    rng = np.random.default_rng(seed)
    masks, updates = clients_of(rng, 4)
    updates = [update.astype(dtype) for update in updates]
    weights = [int(weight) for weight in rng.integers(1, 6, len(masks))]
    order = sf.paillier.UnionOrder.from_masks(masks)
    encryptor = sf.paillier.Encryptor(authority.public_key)
    aggregator = sf.paillier.Aggregator(authority.public_key, order=order)
    for update, mask, weight in zip(updates, masks, weights, strict=True):
        batch = encryptor.encrypt_in_union(update, order, mask, round=2)
        clear = order.clear_fields(update, mask)
        assert clear.dtype == dtype
        aggregator.add(batch, weight=weight, clear=clear)
    total = aggregator.total()
    assert (total.clients, total.total_weight, total.count) == (len(masks), sum(weights), order.count)
    assert total.is_of(order)
    expected = sum(w * quantised(u) for u, w in zip(updates, weights, strict=True))[order.positions]
    np.testing.assert_array_equal(authority.open(total), expected)
    np.testing.assert_allclose(authority.open_mean(total), expected / sum(weights), rtol=1e-15)


def test_ciphertexts_that_would_be_all_zero_are_left_out(authority):
    """The one position of the second client is the most popular, so it needs one ciphertext, the first."""
    per_ciphertext = authority.public_key.parameters.values_per_ciphertext
    wide = sf.Mask.from_indices(np.arange(0, 600, 5), SIZE)
    narrow = sf.Mask.from_indices([15], SIZE)
    nothing = sf.Mask.empty(SIZE)
    order = sf.paillier.UnionOrder.from_masks([wide, narrow, nothing])
    assert order.positions[0] == 15
    encryptor = sf.paillier.Encryptor(authority.public_key)
    update = np.ones(SIZE)
    whole, small, empty = (
        encryptor.encrypt_in_union(update, order, mask) for mask in (wide, narrow, nothing)
    )
    blocks = -(-120 // per_ciphertext)
    ciphertexts = [batch.parsed.present_ciphertexts for batch in (whole, small, empty)]
    assert ciphertexts == [blocks, 1, 0]
    assert all(batch.parsed.ciphertexts == blocks for batch in (whole, small, empty))
    ciphertext_bytes = 512
    assert whole.nbytes - empty.nbytes == pytest.approx(blocks * ciphertext_bytes, abs=64)
    aggregator = sf.paillier.Aggregator(authority.public_key, order=order)
    for batch in (empty, small, whole):
        aggregator.add(batch.to_bytes(), weight=3)
    expected = 3 * (wide.to_bool().astype(int) + narrow.to_bool())[order.positions]
    np.testing.assert_array_equal(authority.open(aggregator.total()), expected)


def test_order_is_by_popularity_and_then_by_position():
    for seed in range(5):
        masks, _ = clients_of(np.random.default_rng(seed), 6, size=3000, most=0.3)
        order = sf.paillier.UnionOrder.from_masks(masks, threads=2)
        np.testing.assert_array_equal(order.positions, most_popular_first(masks))
        assert order.positions.dtype == np.uint32
        assert not order.positions.flags.writeable
        united = masks[0]
        for mask in masks[1:]:
            united = united | mask
        assert order.mask == united
        assert (order.size, order.count) == (3000, united.count)


def test_orders_travel_and_are_compared():
    masks, _ = clients_of(np.random.default_rng(1), 5)
    order = sf.paillier.UnionOrder.from_masks(masks)
    again = sf.paillier.UnionOrder.from_bytes(order.to_bytes(), expected_size=SIZE)
    for copied in (again, pickle.loads(pickle.dumps(order))):
        assert copied == order
        assert hash(copied) == hash(order)
        np.testing.assert_array_equal(copied.positions, order.positions)
    other = sf.paillier.UnionOrder.from_masks([order.mask])
    assert other != order  # the same positions in ascending order
    assert other != order.mask
    assert f"{order.count:,} of 1,000" in repr(order)
    with pytest.raises(sf.WireFormatError, match="999"):
        sf.paillier.UnionOrder.from_bytes(order.to_bytes(), expected_size=999)


def test_damaged_orders():
    masks, _ = clients_of(np.random.default_rng(2), 5, size=300)
    frame = sf.paillier.UnionOrder.from_masks(masks).to_bytes()
    for bit in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(sf.WireFormatError):
            sf.paillier.UnionOrder.from_bytes(damaged)
        try:
            order = sf.paillier.UnionOrder.from_bytes(reseal(bytes(damaged)))
        except sf.WireFormatError:
            continue
        assert sorted(order.positions.tolist()) == order.mask.to_indices().tolist()
    for bad in (b"", frame[:-1], frame + b"\0", masks[1].to_bytes(), None, 10**15, "frame", np.zeros(4)):
        with pytest.raises(sf.WireFormatError):
            sf.paillier.UnionOrder.from_bytes(bad)


def test_bad_unions(authority):
    with pytest.raises(sf.ParameterError):
        sf.paillier.UnionOrder.from_masks([])
    with pytest.raises(sf.ParameterError):
        sf.paillier.UnionOrder.from_masks([sf.Mask.full(3), sf.Mask.full(4)])
    with pytest.raises(sf.ArrayTypeError):
        sf.paillier.UnionOrder.from_masks([np.ones(3, dtype=bool)])
    order = sf.paillier.UnionOrder.from_masks([sf.Mask.from_indices([1, 2], 5)])
    encryptor = sf.paillier.Encryptor(authority.public_key)
    with pytest.raises(sf.ParameterError, match="outside"):
        encryptor.encrypt_in_union(np.zeros(5), order, sf.Mask.from_indices([1, 3], 5))
    longer = sf.Mask.from_indices([1], 6)
    for count, mask in ((5, sf.Mask.full(6)), (5, longer), (6, longer)):
        update = np.zeros(count)
        with pytest.raises(sf.ParameterError):
            encryptor.encrypt_in_union(update, order, mask)
        with pytest.raises(sf.ParameterError):
            order.clear_fields(update, mask)
    with pytest.raises(sf.ParameterError):
        encryptor.encrypt_in_union(np.zeros(6), order, sf.Mask.from_indices([1], 5))


def test_scatter_puts_values_where_they_belong():
    masks = [sf.Mask.from_indices([4, 1, 3], 6), sf.Mask.from_indices([4], 6)]
    order = sf.paillier.UnionOrder.from_masks(masks)
    for dtype in (np.float32, np.float64):
        dense = order.scatter(np.array([10, 20, 30], dtype=dtype))
        assert dense.dtype == dtype
        np.testing.assert_array_equal(dense, [0, 20, 0, 30, 10, 0])
    for sums in (np.zeros(2), np.zeros(4), np.zeros(3, dtype=np.int64), [0.0] * 3):
        with pytest.raises(sf.ParameterError):
            order.scatter(sums)


PARAMETERS = sf.paillier.Parameters(key_bits=2048)
CLASSICAL = sf.paillier.Parameters(key_bits=2048, randomizer="classical")
P, Q = primes(2048)
N = P * Q


def legendre(number, prime):
    return 1 if pow(number, (prime - 1) // 2, prime) == 1 else -1


@pytest.mark.parametrize(
    ("n", "base", "said"),
    [
        (N + 1, 4, "two large primes"),
        (65521 * int(gmpy2.next_prime(2**2047 // 65521 + 1)), 4, "two large primes"),
        (P * P, 4, "two large primes"),
        (int(gmpy2.next_prime(3 * 2**2046)), 4, "two large primes"),
        (N >> 1 | 1, 4, "2048 bits"),
        (P, 4, "2048 bits"),
        (0, 4, None),
        *((N, base, "base") for base in (0, 1, N - 1, P, Q, N, N + 4)),
        # One whose Jacobi symbol is not 1.
        (N, next(b for b in range(2, 1000) if legendre(b, P) * legendre(b, Q) == -1), "base"),
    ],
    ids=[
        "even",
        "small factor",
        "equal primes",
        "prime",
        "shorter",
        "half",
        "zero",
        *"abcdefg",
        "no residue",
    ],
)
def test_a_public_key_that_is_none_is_refused(n, base, said):
    """Whoever gives clients such a key learns their updates."""
    sf.paillier.PublicKey.from_bytes(public_key_frame(PARAMETERS, N))
    with pytest.raises(sf.ParameterError, match=said):
        sf.paillier.PublicKey.from_bytes(public_key_frame(PARAMETERS, n, base))


def test_what_else_is_no_public_key():
    sf.paillier.PublicKey.from_bytes(public_key_frame(CLASSICAL, N))
    with pytest.raises(sf.ParameterError, match="base"):
        sf.paillier.PublicKey.from_bytes(public_key_frame(CLASSICAL, N, 4))
    frame = public_key_frame(PARAMETERS, N)
    with pytest.raises(sf.ParameterError, match="gmp or ifma"):
        _core.PaillierPublicKey.from_bytes(frame, engine="fast")
    damaged = bytearray(frame)
    damaged[-60] ^= 1
    foreign = sf.KeyAuthority(sf.ckks.Parameters()).public_key.to_bytes()
    for bad in (b"", frame[:-1], frame + b"\0", bytes(damaged), reseal(bytes(damaged)), foreign):
        with pytest.raises(sf.WireFormatError):
            sf.paillier.PublicKey.from_bytes(bad)
    with pytest.raises(sf.WireFormatError):
        sf.ckks.PublicKey.from_bytes(frame)


def composite_above(start, salt):
    """A number without small factors that is not prime: what a wrong search might stop at."""
    first = gmpy2.next_prime(gmpy2.isqrt(start) + salt)
    second = gmpy2.next_prime(first)
    while first * second % 4 != 3:
        second = gmpy2.next_prime(second)
    return int(first * second)


def prime_above(start, modulus, rest):
    prime = int(gmpy2.next_prime(start))
    while prime % modulus != rest:
        prime = int(gmpy2.next_prime(prime))
    return prime


# 15 divides p - 1, so that what holds for short exponents is not known of them.
UNSAFE = [prime_above(start, 60, 31) for start in (3 << 1022, 7 << 1021)]
CLOSE = prime_above(2**1023 + 2**1022, 4, 3)


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        # Their product is the n of a public key that nobody can tell from a good one without them.
        ((composite_above(2**1023 + 2**1022, 7), composite_above(2**1023 + 2**1021 + 2**1022, 11)), "prime"),
        (UNSAFE, r"safe primes.*classical"),
        ((P, UNSAFE[1]), "safe primes"),
        ((CLOSE, prime_above(CLOSE, 4, 3)), None),
    ],
    ids=["composite", "not safe", "one not safe", "close"],
)
def test_factors_that_make_no_secret_key_are_refused(factors, said):
    key = _core.PaillierPublicKey.from_bytes(public_key_frame(PARAMETERS, factors[0] * factors[1]))
    with pytest.raises(sf.ParameterError, match=said):
        _core.PaillierDecryptor.import_secret(key, secret_of(*factors))


def test_factors_of_another_key_are_refused_and_primes_that_are_not_safe_do_without_short_exponents():
    key, good = _core.PaillierPublicKey.from_bytes(public_key_frame(PARAMETERS, N)), secret_of(P, Q)
    _core.PaillierDecryptor.import_secret(key, good)
    for bad in (good[:-1], good + b"\0", b"", good[:128] * 2, bytes(256)):
        with pytest.raises(sf.KeyMismatchError):
            _core.PaillierDecryptor.import_secret(key, bad)
    key = _core.PaillierPublicKey.from_bytes(public_key_frame(CLASSICAL, UNSAFE[0] * UNSAFE[1]))
    _core.PaillierDecryptor.import_secret(key, secret_of(*UNSAFE))
