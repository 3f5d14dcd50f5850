"""Paillier keys for tests: the same primes, for each size, with any parameters.

They are safe primes, whose places everybody can see: what a search for others would take seconds for. Keys that the
authority makes have tests of their own.
Public keys are put together by hand, independently of the core, from the layout in ``docs/reference/wire-format.md``.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.wire_twin import frame, identifier
from shieldfl.encryption import opening

# Of the known numbers of so many bits: how far above each the first safe prime is.
_SAFE_PRIMES_ABOVE = {
    1024: (2_073_720, 358_720, 89_668, 186_124),
    1536: (257_856, 4_549_096, 179_956, 900_972),
    2048: (1_605_268, 2_997_068, 2_048_768, 1_643_088),
}

PACKINGS = {"single": 1, "dense": 2}
RANDOMIZERS = {"short-exponent": 1, "classical": 2}


def factors_of(authority: sf.KeyAuthority) -> tuple[int, int]:
    """Return the primes of an authority's key."""
    secret = bytes(authority._decryptor.export_secret())
    half = len(secret) // 2
    return int.from_bytes(secret[:half], "big"), int.from_bytes(secret[half:], "big")


def primes(key_bits: int, which: int = 0) -> tuple[int, int]:
    """Two safe primes with a product of just this length; others for another ``which``, 0 or 1."""
    p, q = (_safe_prime(key_bits // 2, 2 * which + index) for index in range(2))
    return p, q


def _safe_prime(bits: int, index: int) -> int:
    """The first one above the ``index``-th known number, in steps of 4."""
    return _known_number(bits, index) + _SAFE_PRIMES_ABOVE[bits][index]


def _known_number(bits: int, index: int) -> int:
    """Words of the generator SplitMix64, the upper two bits and the lower two set."""
    number, state = 0, bits + index
    for place in range(0, bits, 64):
        state += 0x9E3779B97F4A7C15
        word = state % 2**64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        number |= (word ^ (word >> 31)) << place
    return number | 3 | 3 << (bits - 2)


def _facts_of(parameters: sf.paillier.Parameters | _core.PaillierParameters) -> dict[str, Any]:
    return parameters.facts if isinstance(parameters, _core.PaillierParameters) else parameters._facts


def encode_parameters(parameters: sf.paillier.Parameters | _core.PaillierParameters) -> bytes:
    facts = _facts_of(parameters)
    return struct.pack(
        "<HBBBBBBII",
        facts["key_bits"],
        PACKINGS[facts["packing"]],
        RANDOMIZERS[facts["randomizer"]],
        facts["value_bits"],
        facts["fraction_bits"],
        facts["spare_bits"],
        0,
        facts["max_clients"],
        facts["max_weight"],
    )


def base_for(parameters: sf.paillier.Parameters | _core.PaillierParameters, n: int) -> int:
    """-x^2 modulo n for an x that everybody can see; zero where there is no base."""
    return 0 if _facts_of(parameters)["randomizer"] == "classical" else -((3**500) ** 2) % n


def public_key_frame(
    parameters: sf.paillier.Parameters | _core.PaillierParameters, n: int, base: int | None = None
) -> bytes:
    """Write the frame of a public key, whatever its numbers are."""
    length = _facts_of(parameters)["key_bits"] // 8
    encoded = encode_parameters(parameters)
    h = base_for(parameters, n) if base is None else base
    body = encoded + n.to_bytes(length, "big") + h.to_bytes(length, "big")
    return frame(5, identifier(encoded), identifier(body), body)


def secret_of(p: int, q: int) -> bytes:
    """Encode primes as the authority exports them."""
    length = (p.bit_length() + 7) // 8
    return p.to_bytes(length, "big") + q.to_bytes(length, "big")


@functools.cache
def decryptor_of(public_key: bytes, secret: bytes, engine: str | None = None) -> _core.PaillierDecryptor:
    """Read a secret key, each once: that its primes are safe takes long to find out."""
    key = _core.PaillierPublicKey.from_bytes(public_key, engine)
    return _core.PaillierDecryptor.import_secret(key, secret)


def authority_for(
    parameters: sf.paillier.Parameters, *, engine: str | None = None, min_clients: int = 1, which: int = 0
) -> sf.KeyAuthority:
    """Make an authority with these parameters, without searching for a key."""
    p, q = primes(parameters.key_bits, which)
    decryptor = decryptor_of(public_key_frame(parameters, p * q), secret_of(p, q), engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(opening.DECRYPTORS, _core.PaillierPublicKey, lambda _: decryptor)
        return sf.KeyAuthority(parameters, min_clients, one_total_per_round=False)
