"""Key-additive encryption once more, slowly, in plain Python: what the fast core is tested against.

Nothing here is constant-time or meant for use. Names and orders of bytes are those of the headers in ``cpp/kahe`` and
of docs/reference/wire-format.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reference.ckks import chacha20_words, sample_error
from reference.enrolled import derive

BLOCKS_PER_SECRET = 32
"""Ciphertexts that share a secret polynomial, and public polynomials of a session."""

Multiply = Callable[[Sequence[int], Sequence[int]], list[int]]


def polynomials_of_block(block: int) -> tuple[int, int]:
    """Return u and v: the numbers of the public and of the secret polynomial that hide a ciphertext of a frame."""
    v, u = divmod(block, BLOCKS_PER_SECRET)
    return u, v


def public_row(
    parameter_id: bytes, manifest: bytes, u: int, prime_index: int, primes: Sequence[int], degree: int
) -> list[int]:
    """Draw public polynomial u modulo a prime, as its values in the order of the transform."""
    seed = derive("kahe", "public polynomials", parameter_id + manifest)
    prime = primes[prime_index]
    words = chacha20_words(seed, u * len(primes) + prime_index)
    row: list[int] = []
    while len(row) < degree:
        residue = next(words) >> (64 - prime.bit_length())
        if residue < prime:
            row.append(residue)
    return row


def sample_small(words: Iterator[int], count: int) -> list[int]:
    """Draw a secret or an error: the sum of two centred binomials of 21 + 21 coins."""
    first, second = sample_error(words, count), sample_error(words, count)
    return [int(a) + int(b) for a, b in zip(first, second, strict=True)]


def pack(integers: Sequence[int], degree: int, log2_scale: int, field_bits: int) -> list[int]:
    """Put value v into field v // (N - 1) of coefficient v % (N - 1); the last coefficient is zero."""
    message = [0] * degree
    for index, value in enumerate(integers):
        field, coefficient = divmod(index, degree - 1)
        message[coefficient] += int(value) << (log2_scale + field * field_bits)
    return message


def encrypt(
    a: Sequence[int],
    secret: Sequence[int],
    error: Sequence[int],
    message: Sequence[int],
    modulus: int,
    multiply: Multiply,
) -> list[int]:
    """Return a s + e + m modulo q; all polynomials as coefficients, ``multiply`` in Z_q[X] / (X^N + 1)."""
    product = multiply(a, secret)
    return [(p + e + m) % modulus for p, e, m in zip(product, error, message, strict=True)]


def read_sums(
    message: Sequence[int], fields: int, modulus: int, log2_scale: int, field_bits: int
) -> list[int]:
    """Round the noise away and take the fields apart: all values that a ciphertext has room for.

    Raises ValueError where the last coefficient is not zero, or something lies beyond the last field.
    """
    degree = len(message)
    sums = [0] * (fields * (degree - 1))
    for index, coefficient in enumerate(message):
        centred = coefficient - modulus if coefficient > modulus // 2 else coefficient
        rest = (centred + (1 << (log2_scale - 1))) >> log2_scale
        for field in range(fields if index < degree - 1 else 0):
            value = rest & ((1 << field_bits) - 1)
            if value >> (field_bits - 1):
                value -= 1 << field_bits
            sums[field * (degree - 1) + index] = value
            rest = (rest - value) >> field_bits
        if rest:
            raise ValueError("this is no sum")
    return sums
