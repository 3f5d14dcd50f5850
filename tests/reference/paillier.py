"""Paillier's scheme once more, slowly, in Python's integers: what the core's is tested against.

Nothing here is constant-time or meant for use. Names are those of the headers in ``cpp/paillier``: a key's modulus
is n = p q, a ciphertext of m is (1 + m n) s modulo n^2, where s is an n-th residue at random. With classical
randomisers s is r^n (Paillier 1999); with short exponents it is a power of h^n, where h is minus a square
(Damgard, Jurik and Nielsen 2010, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def is_prime(number: int) -> bool:
    """Test a number by Miller and Rabin's rounds to the first 20 primes, which is proven below 2^81."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
    if number < 2 or any(number % base == 0 for base in bases):
        return number in bases
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    for base in bases:
        power = pow(base, (number - 1) >> twos, number)
        squares = [pow(power, 1 << i, number) for i in range(twos)]
        if power != 1 and number - 1 not in squares:
            return False
    return True


def jacobi_symbol(number: int, modulus: int) -> int:
    """Return the Jacobi symbol (number / modulus) for an odd modulus, by the law of reciprocity."""
    number %= modulus
    sign = 1
    while number:
        while number % 2 == 0:
            number //= 2
            if modulus % 8 in (3, 5):
                sign = -sign
        number, modulus = modulus, number
        if number % 4 == 3 and modulus % 4 == 3:
            sign = -sign
        number %= modulus
    return sign if modulus == 1 else 0


def base_of(x: int, modulus: int) -> int:
    """Return h = -x^2, of which short-exponent randomisers are powers."""
    return -x * x % modulus


@dataclass(frozen=True)
class PublicKey:
    """n and, where exponents are short, h."""

    modulus: int
    base: int | None = None

    def check(self) -> None:
        """Raise ValueError for an n or an h that the core refuses, whatever its length."""
        n, h = self.modulus, self.base
        if n % 2 == 0 or is_prime(n) or math.isqrt(n) ** 2 == n:
            raise ValueError("the modulus is not the product of two odd primes")
        if h is None:
            return
        if not 1 < h < n - 1 or math.gcd(h, n) != 1 or jacobi_symbol(h, n) != 1:
            raise ValueError("the base is trivial, not invertible, or has the wrong Jacobi symbol")

    def classical_randomizer(self, r: int) -> int:
        """Return r^n, for an r below n without a factor in common with it."""
        return pow(r, self.modulus, self.modulus**2)

    def short_randomizer(self, exponent: int) -> int:
        """Return (h^n)^exponent, for an exponent of half the modulus' length."""
        if self.base is None:
            raise ValueError("a key for classical randomisers has no base")
        square = self.modulus**2
        return pow(pow(self.base, self.modulus, square), exponent, square)

    def encrypt(self, plaintext: int, randomizer: int) -> int:
        """Hide a plaintext modulo n behind an n-th residue: (1 + m n) s."""
        return (1 + plaintext % self.modulus * self.modulus) * randomizer % self.modulus**2

    def add(self, left: int, right: int) -> int:
        """Return a ciphertext of the sum of two ciphertexts' plaintexts."""
        return left * right % self.modulus**2

    def add_plaintext(self, ciphertext: int, plaintext: int) -> int:
        """Return a ciphertext of the sum of a ciphertext's plaintext and another one."""
        return self.add(ciphertext, self.encrypt(plaintext, 1))

    def multiply(self, ciphertext: int, factor: int) -> int:
        """Return a ciphertext of the plaintext times an integer, which may be negative."""
        return pow(ciphertext, factor, self.modulus**2)


@dataclass(frozen=True)
class SecretKey:
    """The factors of n."""

    p: int
    q: int

    def check(self, key: PublicKey) -> None:
        """Raise ValueError unless these are the factors of the key's modulus, and fit for it."""
        if self.p * self.q != key.modulus:
            raise ValueError("the product of the factors is not the modulus")
        if not (is_prime(self.p) and is_prime(self.q)) or self.p == self.q:
            raise ValueError("the factors are not two primes")
        if math.gcd(key.modulus, (self.p - 1) * (self.q - 1)) != 1:
            raise ValueError("a factor divides the other one less 1")
        if key.base is not None and (self.p % 4 != 3 or self.q % 4 != 3):
            raise ValueError("short exponents need factors that are 3 modulo 4")

    def decrypt(self, ciphertext: int) -> int:
        """Return the plaintext, from 0 to n - 1: L(c^k) / L((1 + n)^k) with k = lcm(p-1, q-1), L(x) = (x-1) / n."""
        n = self.p * self.q
        exponent = math.lcm(self.p - 1, self.q - 1)
        hidden = (pow(ciphertext, exponent, n**2) - 1) // n
        unit = (pow(1 + n, exponent, n**2) - 1) // n
        return hidden * pow(unit, -1, n) % n


def pack_fields(values: Sequence[int], field_bits: int, modulus: int) -> int:
    """Add up values of either sign, value j times 2^(j field_bits): the plaintext that holds them."""
    return sum(int(value) << (j * field_bits) for j, value in enumerate(values)) % modulus


def unpack_fields(plaintext: int, count: int, field_bits: int, modulus: int) -> list[int]:
    """Take the fields out again, lowest first. Raises ValueError when there is more than they hold."""
    rest = plaintext - modulus if plaintext > modulus // 2 else plaintext
    fields = []
    for _ in range(count):
        field = rest & ((1 << field_bits) - 1)
        if field >> (field_bits - 1):
            field -= 1 << field_bits
        fields.append(field)
        rest = (rest - field) >> field_bits
    if rest:
        raise ValueError("the plaintext holds more than these fields")
    return fields
