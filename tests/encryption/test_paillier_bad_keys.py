"""Keys that are none are refused, whichever half they are: nobody encrypts or decrypts with them."""

from __future__ import annotations

import gmpy2
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import primes, public_key_frame, secret_of
from encryption.wire_twin import reseal

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
