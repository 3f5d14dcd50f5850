"""python-paillier (phe), the library that SenseCrypt encrypts with (section 4.1), with gmpy2 and at its fastest."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.benchmarks.scheme import FRACTION_BITS, Scheme, Selection, from_fixed_point, to_fixed_point
from shieldfl.installing import how_to_install

__all__ = ["HOW_TO_INSTALL", "PACKAGES", "PheBaseline", "phe_baseline"]

PACKAGES = ("phe", "gmpy2")
HOW_TO_INSTALL = f"python-paillier with gmpy2 is not installed: {how_to_install('phe')}"


def phe_baseline(key_bits: int, threads: int, ciphertexts: int) -> PheBaseline:
    """Return phe with a fresh key. Raises ModuleNotFoundError where phe, or the gmpy2 it is fast with, is missing."""
    return PheBaseline(
        importlib.import_module("phe"), importlib.import_module("gmpy2"), key_bits, threads, ciphertexts
    )


class PheBaseline(Scheme):
    """The raw functions on integers, and sums in memory as GMP's numbers.

    ``PaillierPublicKey.encrypt`` takes as long as ``raw_encrypt``, ``EncryptedNumber + EncryptedNumber`` longer than
    ``mulmod`` on GMP's numbers. phe uses one thread; on several, each gets a share of the numbers, while GMP works
    without the interpreter's lock.
    """

    def __init__(self, phe: Any, gmpy2: Any, key_bits: int, threads: int, ciphertexts: int) -> None:
        if not phe.util.HAVE_GMP:
            raise ModuleNotFoundError(HOW_TO_INSTALL, name="gmpy2")
        super().__init__(
            "phe + gmpy2",
            f"phe {phe.__version__} with gmpy2 {gmpy2.version()}, raw_encrypt and mulmod, {key_bits} bits",
            ciphertexts,
            fraction_bits=FRACTION_BITS,
        )
        self._public_key, self._secret_key = phe.generate_paillier_keypair(n_length=key_bits)
        self._mulmod = phe.util.mulmod
        self._mpz = gmpy2.mpz
        self._modulus = gmpy2.mpz(self._public_key.n)
        self._modulus_square = gmpy2.mpz(self._public_key.nsquare)
        self._ciphertext_bytes = key_bits // 4
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, initializer=_work_without_the_lock, initargs=(gmpy2,))

    def _map(self, function: Callable[..., Any], *numbers: Sequence[Any]) -> list[Any]:
        if self._threads == 1:
            return list(map(function, *numbers))
        share = -(-len(numbers[0]) // self._threads)
        starts = range(0, len(numbers[0]), share)
        parts = [[sequence[start : start + share] for sequence in numbers] for start in starts]
        results = self._pool.map(lambda part: list(map(function, *part)), parts)
        return [number for result in results for number in result]

    def encrypt(self, selection: Selection) -> list[int]:
        """Encrypt each value; a negative one is its difference from n."""
        modulus = self._public_key.n
        numbers = [number % modulus for number in to_fixed_point(self.sample(selection)).tolist()]
        return self._map(self._public_key.raw_encrypt, numbers)

    def serialise(self, encrypted: list[int]) -> list[bytes]:
        """Return the ciphertexts' bytes; phe has no format of its own for them."""
        return [number.to_bytes(self._ciphertext_bytes, "big") for number in encrypted]

    def load(self, frame: list[bytes]) -> list[Any]:
        """Return GMP's numbers, which phe adds faster than Python's; nothing is checked."""
        return [self._mpz(int.from_bytes(part, "big")) for part in frame]

    def start_sum(self, frame: list[bytes]) -> list[Any]:
        """Load the first frame."""
        return self.load(frame)

    def add(self, total: list[Any], frame: list[Any]) -> None:
        """Multiply the ciphertexts."""
        modulus_square, mulmod = self._modulus_square, self._mulmod
        total[:] = self._map(lambda left, right: mulmod(left, right, modulus_square), total, frame)

    def add_with_clear(self, total: list[Any], loaded: list[Any], clear: NDArray[np.float32]) -> None:
        """Multiply each ciphertext by 1 + n m, and then the ciphertexts.

        Faster than ``EncryptedNumber + float`` and than ``raw_encrypt(m, r_value=1)``, which inverts where m < 0.
        """
        modulus, modulus_square, mulmod = self._modulus, self._modulus_square, self._mulmod

        def add_both(left: Any, right: Any, number: int) -> Any:
            return mulmod(left, mulmod(right, 1 + modulus * number, modulus_square), modulus_square)

        total[:] = self._map(add_both, total, loaded, to_fixed_point(clear).tolist())

    def open(self, closed: list[Any]) -> NDArray[np.float64]:
        """Decrypt and decode."""
        modulus = self._public_key.n
        plaintexts = self._map(self._secret_key.raw_decrypt, [int(number) for number in closed])
        signed = [number - modulus if number > modulus // 2 else number for number in plaintexts]
        return from_fixed_point(np.array(signed, dtype=np.int64))


def _work_without_the_lock(gmpy2: Any) -> None:
    gmpy2.get_context().allow_release_gil = True
