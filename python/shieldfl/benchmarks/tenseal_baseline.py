"""TenSEAL, a library of CKKS for Python that Alt-FL names (section II), used the fastest way that it offers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.benchmarks.scheme import Scheme, Selection
from shieldfl.installing import how_to_install

__all__ = ["HOW_TO_INSTALL", "PACKAGES", "TensealBaseline", "tenseal_baselines"]

PACKAGES = ("tenseal",)
HOW_TO_INSTALL = f"TenSEAL is not installed: {how_to_install('tenseal')}"

# Degree, primes, scale, and how far off a value may be. The example of its documentation; the leanest one that keeps
# 24-bit values (half a step of 2^-20) and room for 64 clients' sum; the leanest one at all, which keeps 16-bit values
# (half a step of 2^-12). TenSEAL always makes key-switching keys, so one prime alone is refused.
_SETTINGS: tuple[tuple[int, tuple[int, ...], int, float], ...] = (
    (8192, (60, 40, 40, 60), 40, 2.0**-21),
    (4096, (46, 20), 36, 2.0**-21),
    (2048, (38, 16), 28, 2.0**-13),
)


def tenseal_baselines(threads: int, most_values: int) -> list[TensealBaseline]:
    """Return TenSEAL at three settings. Raises ModuleNotFoundError where it is not installed."""
    tenseal = importlib.import_module("tenseal")
    return [TensealBaseline(tenseal, *setting, threads, most_values) for setting in _SETTINGS]


class TensealBaseline(Scheme):
    """One CKKSVector for each ciphertext, made from a NumPy slice.

    Lists, one long vector and batched tensors were tried: none is faster.
    """

    def __init__(
        self,
        tenseal: Any,
        degree: int,
        prime_bits: tuple[int, ...],
        log2_scale: int,
        tolerance: float,
        threads: int,
        most_values: int,
    ) -> None:
        primes = ",".join(map(str, prime_bits))
        super().__init__(
            f"TenSEAL {degree} [{primes}]",
            f"TenSEAL {tenseal.__version__}, CKKS, poly_modulus_degree {degree}, coeff_mod_bit_sizes [{primes}], "
            f"global_scale 2^{log2_scale}, public key",
            most_values,
            values_per_ciphertext=degree // 2,
            tolerance=tolerance,
        )
        self._tenseal = tenseal
        self._slots = degree // 2
        self._context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=list(prime_bits), n_threads=threads
        )
        self._context.global_scale = 2.0**log2_scale

    def encrypt(self, selection: Selection) -> list[Any]:
        """Encode and encrypt."""
        values = self.sample(selection)
        vector, context, slots = self._tenseal.ckks_vector, self._context, self._slots
        return [vector(context, values[start : start + slots]) for start in range(0, values.size, slots)]

    def serialise(self, encrypted: list[Any]) -> list[bytes]:
        """Serialise; TenSEAL compresses, and cannot be told not to."""
        return [vector.serialize() for vector in encrypted]

    def start_sum(self, frame: list[bytes]) -> list[Any]:
        """Load the first frame."""
        return [self._tenseal.ckks_vector_from(self._context, part) for part in frame]

    def add(self, total: list[Any], frame: list[bytes]) -> None:
        """Load and add."""
        for vector, part in zip(total, frame, strict=True):
            vector.add_(self._tenseal.ckks_vector_from(self._context, part))

    def open(self, closed: list[Any]) -> NDArray[np.float64]:
        """Decrypt and decode."""
        return np.concatenate([np.asarray(vector.decrypt(), dtype=np.float64) for vector in closed])
