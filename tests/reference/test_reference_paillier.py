"""Paillier's slow twin: against the definition on small keys, and against python-paillier."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reference import paillier as reference_paillier
from reference.paillier import PublicKey, SecretKey, jacobi_symbol, pack_fields, unpack_fields

# Pairs of one length whose members are 3 modulo 4, as the keys of short exponents are.
SMALL_PRIMES = [
    number for number in range(128, 256) if reference_paillier.is_prime(number) and number % 4 == 3
]
PAIRS = list(itertools.permutations(SMALL_PRIMES, 2))


@st.composite
def keys(draw):
    """A small key pair with a base."""
    p, q = draw(st.sampled_from(PAIRS))
    x = draw(st.integers(2, p * q - 1))
    base = reference_paillier.base_of(x, p * q)
    assume(math.gcd(x, p * q) == 1 and base not in (1, p * q - 1))
    return PublicKey(p * q, base), SecretKey(p, q)


integers = st.integers(-(2**40), 2**40)


def randomizer(key, number):
    """One of either kind."""
    if number % 2:
        return key.short_randomizer(number)
    return key.classical_randomizer(number if math.gcd(number, key.modulus) == 1 else 1)


@given(keys=keys(), a=integers, b=integers, factor=integers, r=st.integers(1, 2**20), s=st.integers(1, 2**20))
def test_ciphertexts_can_be_computed_with(keys, a, b, factor, r, s):
    key, secret = keys
    key.check()
    secret.check(key)
    left = key.encrypt(a, randomizer(key, r))
    right = key.encrypt(b, randomizer(key, s))
    assert secret.decrypt(left) == a % key.modulus
    assert secret.decrypt(key.add(left, right)) == (a + b) % key.modulus
    assert secret.decrypt(key.add_plaintext(left, b)) == (a + b) % key.modulus
    assert secret.decrypt(key.multiply(left, factor)) == a * factor % key.modulus


@given(keys=keys(), exponent=st.integers(0, 2**20), plaintext=integers)
def test_short_randomizers_are_classical_ones_of_a_power_of_the_base(keys, exponent, plaintext):
    key, _ = keys
    r = pow(key.base, exponent, key.modulus)
    assert key.short_randomizer(exponent) == key.classical_randomizer(r)


@pytest.mark.parametrize(("p", "q"), PAIRS[:3])
def test_every_unit_modulo_the_square_is_a_ciphertext_of_one_plaintext(p, q):
    key, secret = PublicKey(p * q), SecretKey(p, q)
    rng = random.Random(1)
    for _ in range(50):
        ciphertext = rng.randrange(key.modulus**2)
        if math.gcd(ciphertext, key.modulus) != 1:
            continue
        plaintext = secret.decrypt(ciphertext)
        # What is left when the plaintext is taken away is an n-th residue: its order divides (p-1)(q-1).
        residue = key.add_plaintext(ciphertext, -plaintext)
        assert pow(residue, (p - 1) * (q - 1), key.modulus**2) == 1


def test_primes_are_those_without_divisors():
    for number in range(2000):
        divisible = any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1))
        assert reference_paillier.is_prime(number) == (number >= 2 and not divisible)
    assert reference_paillier.is_prime(2**61 - 1)
    assert not reference_paillier.is_prime((2**31 - 1) * (2**61 - 1))
    assert not reference_paillier.is_prime(3215031751)  # a strong pseudoprime to the bases 2, 3, 5 and 7


def test_jacobi_symbols_of_primes_tell_squares():
    for prime in (3, 5, 7, 11, 127, 131):
        squares = {x * x % prime for x in range(1, prime)}
        for number in range(prime):
            expected = 0 if number == 0 else 1 if number in squares else -1
            assert jacobi_symbol(number, prime) == expected
    for number in range(-50, 50):
        assert jacobi_symbol(number, 131 * 139) == jacobi_symbol(number, 131) * jacobi_symbol(number, 139)


@pytest.mark.parametrize(
    "key",
    [
        PublicKey(131 * 2),
        PublicKey(131),
        PublicKey(131 * 131),
        PublicKey(131 * 139, 0),
        PublicKey(131 * 139, 1),
        PublicKey(131 * 139, 131 * 139 - 1),
        PublicKey(131 * 139, 131),
        PublicKey(131 * 139, 131 * 139 + 4),
        PublicKey(131 * 139, next(x for x in range(131) if jacobi_symbol(x, 131 * 139) == -1)),
    ],
)
def test_malformed_public_keys_are_refused(key):
    with pytest.raises(ValueError, match=r"modulus|base"):
        key.check()


@pytest.mark.parametrize(
    ("secret", "key", "message"),
    [
        (SecretKey(131, 139), PublicKey(131 * 151, 4), "product"),
        (SecretKey(131, 7 * 19), PublicKey(131 * 7 * 19, 4), "two primes"),
        (SecretKey(131, 131), PublicKey(131 * 131, 4), "two primes"),
        (SecretKey(3, 7), PublicKey(21), "divides"),
        (SecretKey(131, 149), PublicKey(131 * 149, 4), "3 modulo 4"),
    ],
)
def test_factors_that_do_not_fit_are_refused(secret, key, message):
    with pytest.raises(ValueError, match=message):
        secret.check(key)


def test_classical_keys_have_no_short_randomizers():
    with pytest.raises(ValueError, match="no base"):
        PublicKey(131 * 139).short_randomizer(3)


@given(field_bits=st.integers(2, 54), data=st.data())
def test_fields_of_either_sign_survive_packing(field_bits, data):
    largest = 2 ** (field_bits - 1) - 1
    modulus = 2**255 + 1
    count = data.draw(st.integers(1, 254 // field_bits))
    field = st.one_of(st.sampled_from([-largest, 0, largest]), st.integers(-largest, largest))
    values = data.draw(st.lists(field, min_size=count, max_size=count))
    plaintext = pack_fields(values, field_bits, modulus)
    assert 0 <= plaintext < modulus
    assert unpack_fields(plaintext, count, field_bits, modulus) == values
    # And sums of packed values are packed sums.
    halves = [value // 2 for value in values]
    rests = [value - half for value, half in zip(values, halves, strict=True)]
    total = (pack_fields(halves, field_bits, modulus) + pack_fields(rests, field_bits, modulus)) % modulus
    assert total == plaintext


@pytest.mark.parametrize("values", [[0, 1], [0, -1], [5, 0, 3]])
def test_fields_behind_the_last_one_are_noticed(values):
    plaintext = pack_fields(values, 8, 2**64 + 1)
    with pytest.raises(ValueError, match="more than these fields"):
        unpack_fields(plaintext, 1, 8, 2**64 + 1)


@pytest.fixture(scope="module")
def phe_keys():
    """A pair of python-paillier's, and the same one as the twin has it."""
    paillier = pytest.importorskip("phe.paillier")
    public, private = paillier.generate_paillier_keypair(n_length=512)
    return public, private, PublicKey(public.n), SecretKey(private.p, private.q)


def test_python_paillier_agrees(phe_keys):
    public, private, key, secret = phe_keys
    key.check()
    secret.check(key)
    rng = random.Random(2)
    plaintexts = [0, 1, public.n - 1, public.n // 2, *(rng.randrange(public.n) for _ in range(20))]
    for plaintext in plaintexts:
        r = rng.randrange(1, public.n)
        ciphertext = key.encrypt(plaintext, key.classical_randomizer(r))
        assert ciphertext == public.raw_encrypt(plaintext, r_value=r)
        assert private.raw_decrypt(ciphertext) == secret.decrypt(ciphertext) == plaintext


def test_python_paillier_opens_what_short_exponents_hide(phe_keys):
    public, private, key, secret = phe_keys
    rng = random.Random(3)
    # phe does not choose primes that are 3 modulo 4, which hiding needs and arithmetic does not.
    short = PublicKey(key.modulus, reference_paillier.base_of(rng.randrange(key.modulus), key.modulus))
    for _ in range(10):
        plaintext, addend = rng.randrange(public.n), rng.randrange(public.n)
        ciphertext = short.encrypt(plaintext, short.short_randomizer(rng.getrandbits(256)))
        total = short.add_plaintext(short.multiply(ciphertext, 3), addend)
        assert private.raw_decrypt(total) == secret.decrypt(total) == (3 * plaintext + addend) % public.n
