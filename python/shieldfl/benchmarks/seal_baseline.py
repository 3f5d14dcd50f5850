"""Microsoft SEAL as its examples use it, timed in C++."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
import shieldfl._seal_baseline as _seal_baseline
from shieldfl.benchmarks.scheme import Scheme, Selection

__all__ = ["SealBaseline", "seal_baselines"]

# Half a step of the default fixed point, 2^-20, is what quantising costs; these two are no worse than that.
_TOLERANCE = 2.0**-21
_SETTINGS: tuple[tuple[int, tuple[int, ...], int], ...] = ((2048, (54,), 40), (4096, (54, 55), 40))


def seal_baselines(threads: int, most_values: int) -> list[SealBaseline]:
    """Return SEAL at the rings of this library: N = 2048 with one prime, N = 4096 with two.

    The second of two primes is kept for key switching, which SEAL's context with several primes always prepares.
    """
    return [SealBaseline(*setting, threads, most_values) for setting in _SETTINGS]


class SealBaseline(Scheme):
    """CKKSEncoder, Encryptor, save, load, Evaluator, Decryptor; the loop over ciphertexts is in C++."""

    def __init__(
        self, degree: int, prime_bits: tuple[int, ...], log2_scale: int, threads: int, most_values: int
    ) -> None:
        primes = ",".join(map(str, prime_bits))
        super().__init__(
            f"SEAL {degree} [{primes}]",
            f"SEAL {_core.seal_version()}, CKKS slots, N = {degree}, primes of [{primes}] bits, scale 2^{log2_scale}, "
            "public key, uncompressed",
            most_values,
            values_per_ciphertext=degree // 2,
            tolerance=_TOLERANCE,
        )
        self._threads = threads
        self._seal = _seal_baseline.SealGeneralPath(degree, prime_bits, log2_scale)

    def encrypt(self, selection: Selection) -> _seal_baseline.SealCiphertexts:
        """Encode and encrypt."""
        return self._seal.encrypt(self.sample(selection), self._threads)

    def serialise(self, encrypted: _seal_baseline.SealCiphertexts) -> _seal_baseline.SealSavedCiphertexts:
        """Save without compression, which is SEAL's fastest."""
        return self._seal.save(encrypted, self._threads)

    def size_bytes(self, frame: _seal_baseline.SealSavedCiphertexts) -> int:
        """Return the bytes of all ciphertexts, their headers included."""
        return frame.nbytes

    def start_sum(self, frame: _seal_baseline.SealSavedCiphertexts) -> _seal_baseline.SealCiphertexts:
        """Load the first frame: an addition to nothing."""
        return self._seal.load(frame, self._threads)

    def add(self, total: _seal_baseline.SealCiphertexts, frame: _seal_baseline.SealSavedCiphertexts) -> None:
        """Load with SEAL's checks, and add."""
        self._seal.load_and_add(frame, total, self._threads)

    def open(self, closed: _seal_baseline.SealCiphertexts) -> NDArray[np.float64]:
        """Decrypt and decode."""
        return self._seal.open(closed, self._threads)
