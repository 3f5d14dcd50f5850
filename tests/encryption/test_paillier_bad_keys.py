"""Keys that are none are refused, whichever half they are: nobody encrypts or decrypts with them."""

from __future__ import annotations

import gmpy2
import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import primes, public_key_frame, secret_of
from encryption.wire_twin import reseal

PARAMETERS = sf.paillier.Parameters(key_bits=2048)


def test_unknown_engine():
    p, q = primes(2048)
    with pytest.raises(sf.ParameterError, match="gmp or ifma"):
        _core.PaillierPublicKey.from_bytes(public_key_frame(PARAMETERS, p * q), engine="fast")


class TestKeysThatAreNone:
    """Whoever gives clients such a key learns their updates, so it is refused."""

    p, q = primes(2048)

    def refuse(self, n, base=None, match=None):
        with pytest.raises(sf.ParameterError, match=match):
            sf.paillier.PublicKey.from_bytes(public_key_frame(PARAMETERS, n, base))

    def test_the_real_one_is_accepted(self):
        sf.paillier.PublicKey.from_bytes(public_key_frame(PARAMETERS, self.p * self.q))

    def test_even_modulus(self):
        self.refuse(self.p * self.q + 1, 4, match="two large primes")

    def test_small_factor(self):
        n = 65521 * int(gmpy2.next_prime(2**2047 // 65521 + 1))
        assert n.bit_length() == 2048
        self.refuse(n, 4, match="two large primes")

    def test_modulus_of_another_size(self):
        self.refuse(self.p * self.q >> 1 | 1, 4, match="2048 bits")
        self.refuse(self.p, 4, match="2048 bits")
        self.refuse(0, 4)

    def test_equal_primes(self):
        self.refuse(self.p * self.p, 4, match="two large primes")

    def test_prime_modulus(self):
        self.refuse(int(gmpy2.next_prime(3 * 2**2046)), 4, match="two large primes")

    def test_trivial_and_foreign_bases(self):
        n = self.p * self.q
        for base in (0, 1, n - 1, self.p, self.q, n, n + 4):
            self.refuse(n, base, match="base")

    def test_base_whose_jacobi_symbol_is_not_1(self):
        n = self.p * self.q
        base = next(b for b in range(2, 1000) if legendre(b, self.p) * legendre(b, self.q) == -1)
        self.refuse(n, base, match="base")

    def test_classical_key_with_a_base(self):
        parameters = sf.paillier.Parameters(key_bits=2048, randomizer="classical")
        n = self.p * self.q
        sf.paillier.PublicKey.from_bytes(public_key_frame(parameters, n))
        with pytest.raises(sf.ParameterError, match="base"):
            sf.paillier.PublicKey.from_bytes(public_key_frame(parameters, n, 4))

    def test_altered_and_foreign_frames(self):
        frame = public_key_frame(PARAMETERS, self.p * self.q)
        damaged = bytearray(frame)
        damaged[-60] ^= 1
        foreign = sf.KeyAuthority(sf.ckks.Parameters()).public_key.to_bytes()
        for bad in (b"", frame[:-1], frame + b"\0", bytes(damaged), reseal(bytes(damaged)), foreign):
            with pytest.raises(sf.WireFormatError):
                sf.paillier.PublicKey.from_bytes(bad)
        with pytest.raises(sf.WireFormatError):
            sf.ckks.PublicKey.from_bytes(frame)


def legendre(number, prime):
    return 1 if pow(number, (prime - 1) // 2, prime) == 1 else -1


class TestSecretsThatAreNone:
    def test_other_factors(self):
        p, q = primes(2048)
        key = _core.PaillierPublicKey.from_bytes(public_key_frame(PARAMETERS, p * q))
        good = secret_of(p, q)
        _core.PaillierDecryptor.import_secret(key, good)
        for bad in (good[:-1], good + b"\0", b"", good[:128] * 2, bytes(256)):
            with pytest.raises(sf.KeyMismatchError):
                _core.PaillierDecryptor.import_secret(key, bad)

    def test_factors_that_are_not_prime(self):
        """Their product is the n of a public key that nobody can tell from a good one without them."""
        a, b = composite_above(2**1023 + 2**1022, 7), composite_above(2**1023 + 2**1021 + 2**1022, 11)
        key = _core.PaillierPublicKey.from_bytes(public_key_frame(PARAMETERS, a * b))
        with pytest.raises(sf.ParameterError, match="prime"):
            _core.PaillierDecryptor.import_secret(key, secret_of(a, b))

    def test_primes_that_are_not_safe_are_refused_where_exponents_are_short(self):
        """They have small factors in p - 1, so that what holds for short exponents is not known of them."""
        p, q = (unsafe_prime_above(start) for start in (3 << 1022, 7 << 1021))
        key = _core.PaillierPublicKey.from_bytes(public_key_frame(PARAMETERS, p * q))
        with pytest.raises(sf.ParameterError, match=r"safe primes.*classical"):
            _core.PaillierDecryptor.import_secret(key, secret_of(p, q))
        # One of each kind is not enough either.
        safe = primes(2048)[0]
        key = _core.PaillierPublicKey.from_bytes(public_key_frame(PARAMETERS, safe * q))
        with pytest.raises(sf.ParameterError, match="safe primes"):
            _core.PaillierDecryptor.import_secret(key, secret_of(safe, q))
        classical = sf.paillier.Parameters(key_bits=2048, randomizer="classical")
        key = _core.PaillierPublicKey.from_bytes(public_key_frame(classical, p * q))
        _core.PaillierDecryptor.import_secret(key, secret_of(p, q))

    def test_close_primes(self):
        found = []
        p = gmpy2.mpz(2**1023 + 2**1022)
        while len(found) < 2:
            p = gmpy2.next_prime(p)
            if p % 4 == 3:
                found.append(int(p))
        key = _core.PaillierPublicKey.from_bytes(public_key_frame(PARAMETERS, found[0] * found[1]))
        with pytest.raises(sf.ParameterError):
            _core.PaillierDecryptor.import_secret(key, secret_of(*found))


def composite_above(start, salt):
    """A number without small factors that is not prime: what a wrong search might stop at."""
    first = gmpy2.next_prime(gmpy2.isqrt(start) + salt)
    second = gmpy2.next_prime(first)
    while first * second % 4 != 3:
        second = gmpy2.next_prime(second)
    return int(first * second)


def unsafe_prime_above(start):
    """A prime p that is 3 modulo 4 and for which 15 divides p - 1."""
    prime = int(gmpy2.next_prime(start))
    while prime % 60 != 31:
        prime = int(gmpy2.next_prime(prime))
    return prime
