"""Paillier keys for tests: the same primes, for each size, with any parameters.

They are no safe primes, which would take long to find; keys that the authority makes have tests of their own.
Public keys are put together here by hand, independently of the core, from the layout in ``docs/wire-format.md``.
"""

from __future__ import annotations

import functools
import secrets
import struct

import gmpy2

import shieldfl as sf
from core.wire_twin import frame, identifier
from shieldfl import _core
from shieldfl.roles import key_authority

PACKINGS = {"single": 1, "dense": 2}
RANDOMIZERS = {"short-exponent": 1, "classical": 2}


def factors_of(authority: sf.KeyAuthority) -> tuple[int, int]:
    """Return the primes of an authority's key."""
    secret = bytes(authority._decryptor.export_secret())
    half = len(secret) // 2
    return int.from_bytes(secret[:half], "big"), int.from_bytes(secret[half:], "big")


def primes(key_bits: int, which: int = 0) -> tuple[int, int]:
    """Two primes that are 3 modulo 4 and have a product of just this length; others for another ``which``."""
    return _primes(key_bits, which)


@functools.cache
def _primes(key_bits: int, which: int) -> tuple[int, int]:
    p, q = (prime_above(3 << (key_bits // 2 - 2), key_bits // 2 - 3) for _ in range(2))
    return p, q


def prime_above(start: int, random_bits: int) -> int:
    prime = gmpy2.next_prime(start + secrets.randbits(random_bits))
    while prime % 4 != 3:
        prime = gmpy2.next_prime(prime)
    return int(prime)


def encode_parameters(parameters: sf.paillier.Parameters) -> bytes:
    return struct.pack(
        "<HBBBBHII",
        parameters.key_bits,
        PACKINGS[parameters.packing],
        RANDOMIZERS[parameters.randomizer],
        parameters.value_bits,
        parameters.fraction_bits,
        0,
        parameters.max_clients,
        parameters.max_weight,
    )


def base_for(parameters: sf.paillier.Parameters, n: int) -> int:
    """-x^2 modulo n for an x that everybody can see; zero where there is no base."""
    return 0 if parameters.randomizer == "classical" else -((3**500) ** 2) % n


def public_key_frame(parameters: sf.paillier.Parameters, n: int, base: int | None = None) -> bytes:
    """Write the frame of a public key, whatever its numbers are."""
    length = parameters.key_bits // 8
    encoded = encode_parameters(parameters)
    h = base_for(parameters, n) if base is None else base
    body = encoded + n.to_bytes(length, "big") + h.to_bytes(length, "big")
    return frame(5, identifier(encoded), identifier(body), body)


def secret_of(p: int, q: int) -> bytes:
    """Encode primes as the authority exports them."""
    length = (p.bit_length() + 7) // 8
    return p.to_bytes(length, "big") + q.to_bytes(length, "big")


def authority_for(
    parameters: sf.paillier.Parameters, *, engine: str | None = None, min_clients: int = 1, which: int = 0
) -> sf.KeyAuthority:
    """Make an authority with these parameters, without searching for a key."""
    p, q = primes(parameters.key_bits, which)
    public_key = _core.PaillierPublicKey.from_bytes(public_key_frame(parameters, p * q), engine)
    decryptor = _core.PaillierDecryptor.import_secret(public_key, secret_of(p, q))
    authority = sf.KeyAuthority.__new__(sf.KeyAuthority)
    scheme = key_authority._scheme_of_parameters(parameters)
    authority._set_up(scheme, decryptor, min_clients, False, {}, None)
    return authority
