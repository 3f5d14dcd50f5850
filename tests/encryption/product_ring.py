"""The twin's ring with products that take milliseconds: one product of two long integers, which GMP makes."""

from __future__ import annotations

from collections.abc import Sequence

import gmpy2

from reference import ckks as reference


class ProductRing(reference.Ring):
    """Z_q[X] / (X^N + 1), whose elements are multiplied as their values at a power of two (Kronecker)."""

    def multiply(self, a: Sequence[int], b: Sequence[int]) -> list[int]:
        """Multiply as the ring's definition does; ``test_reference.py`` compares the two."""
        # A coefficient of the product is the sum of N products below q^2.
        width = (2 * self.modulus.bit_length() + self.degree.bit_length() + 7) // 8

        def value(polynomial: Sequence[int]) -> gmpy2.mpz:
            residues = (int(x) % self.modulus for x in polynomial)
            return gmpy2.mpz(
                int.from_bytes(b"".join(x.to_bytes(width, "little") for x in residues), "little")
            )

        product = int(value(a) * value(b)).to_bytes(2 * self.degree * width, "little")
        coefficients = [
            int.from_bytes(product[start : start + width], "little")
            for start in range(0, len(product), width)
        ]
        low, high = coefficients[: self.degree], coefficients[self.degree :]
        return [(x - y) % self.modulus for x, y in zip(low, high, strict=True)]
