"""What a session agrees on before its first round."""

from __future__ import annotations

import math
from typing import Any

import shieldfl._core as _core
from shieldfl.kahe.attack_costs import ATTACK_COSTS, AttackCosts
from shieldfl.masks import Mask
from shieldfl.scheme.enrolled_key import EnrolledPublicKey
from shieldfl.scheme.parameters import read_sum_bits
from shieldfl.scheme.ring_parameters import RingParameters, RingWork

__all__ = ["Parameters", "PublicKey"]


class Parameters(RingParameters[_core.KaheParameters, "PublicKey"]):
    """What a session agrees on before its first round. Immutable; equal when everything is.

    Parameters
    ----------
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    ring_degree : 2048, 4096 or 8192; by default 4096. The largest takes the fewest bytes for many values, the smallest
        for a few.
    sum_bits : bits of a sum, sign included; by default as many as hold any sum of ``max_clients`` values. Fewer
        make ciphertexts shorter, and are for sums that are known to be small, as noise is: one of 2**(sum_bits - 1) or
        more opens wrongly, and others with it. Weights cannot travel encrypted beside.

    Raises ParameterError when a setting is out of range or the ring has no room at 128-bit security.
    """

    __slots__ = ()
    _SETTINGS = ("max_clients", "value_bits", "fraction_bits", "ring_degree", "sum_bits")
    _RING_DEGREES = (2048, 4096, 8192)
    _CIPHERTEXTS_OF_MANY = _core.KaheParameters.ciphertexts_per_secret

    def __init__(
        self,
        *,
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        ring_degree: int | None = None,
        sum_bits: int | None = None,
    ) -> None:
        numbers = self._read_numbers(max_clients, value_bits, fraction_bits, ring_degree)
        self._adopt(_core.KaheParameters(*numbers, read_sum_bits(sum_bits)))

    @classmethod
    def _work_of(cls, ciphertexts: int, primes: int) -> RingWork:
        # A ciphertext's product and each secret are transformed; 32/3 of a byte is drawn for a coefficient of an error
        # or a secret. One residue of each pair goes into the other's digit: with all that more primes bring, that takes
        # as long as six butterflies, with any instruction set.
        polynomials = ciphertexts + math.ceil(ciphertexts / _core.KaheParameters.ciphertexts_per_secret)
        return RingWork(
            transforms=polynomials,
            random_bytes=polynomials * 32 / 3,
            digit_work=6 * math.comb(primes, 2) * ciphertexts,
        )

    @classmethod
    def plan(
        cls,
        *,
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        goal: str = "speed",
        count: int | None = None,
        sum_bits: int | None = None,
    ) -> Parameters:
        """Choose the ring for these values; ``describe()`` then shows what each ring would have cost.

        Parameters
        ----------
        max_clients, value_bits, fraction_bits : as for ``Parameters``.
        goal : ``"speed"`` for the least work at the client, ``"size"`` for the fewest bytes on the wire.
        count : how many values a client encrypts at a time; None for many. A ciphertext is sent whole however
            few values are in it, so a small ring is better for a few thousand.
        sum_bits : as for ``Parameters``.

        Raises ParameterError when a setting is out of range.
        """
        return cls._plan(
            goal,
            count,
            max_clients=max_clients,
            value_bits=value_bits,
            fraction_bits=fraction_bits,
            sum_bits=sum_bits,
        )

    @classmethod
    def fit(
        cls,
        sample_update: Any,
        *,
        mask: Mask | None = None,
        weights: tuple[float, float] | None = None,
        relative_error: float = 1e-3,
        headroom: float = 4.0,
        max_clients: int = 64,
        goal: str | None = None,
        count: int | None = None,
    ) -> Parameters:
        """Choose value_bits and fraction_bits for updates like a sample, by the error that rounding may have.

        Everything is as for ``ckks.Parameters.fit``: run it on public or planned data, once. ``max_clients`` is as for
        ``Parameters``, ``goal`` and ``count`` are as for ``plan``; without a goal, the default ring.
        """
        return cls._fit(
            sample_update,
            mask=mask,
            weights=weights,
            relative_error=relative_error,
            headroom=headroom,
            goal=goal,
            count=count,
            max_clients=max_clients,
        )

    @property
    def packing(self) -> str:
        """Values are fixed-point integers in coefficients; sums are exact."""
        return "exact"

    @property
    def values_per_coefficient(self) -> int:
        """How many values share a coefficient."""
        return int(self._facts["values_per_coefficient"])

    @property
    def security_bits(self) -> int:
        """Bits of security, by the homomorphic encryption standard's table; ``attack_costs`` counts otherwise."""
        return self._handle.security_bits

    @property
    def attack_costs(self) -> AttackCosts:
        """What known attacks cost at least: computed for the longest modulus of this ring, and so lower bounds."""
        return ATTACK_COSTS[self.ring_degree]

    @property
    def failure_bits(self) -> float:
        """-log2 of the probability, at least, that a coefficient of an honest sum of max_clients opens wrongly."""
        return self._handle.failure_bits

    def describe(self) -> str:
        """Say in a few lines what the parameters are, what follows from them, and what their security rests on."""
        facts = self._facts
        return self._describe_as(
            f"key-additive encryption, {self.security_bits}-bit security by the homomorphic encryption standard's "
            "table",
            f"  left out    the lowest {facts['dropped_bits']} bits, which carry noise alone",
            f"  error       rounded away at scale 2^{facts['log2_scale']} in a sum of {self.max_clients}, but for "
            f"a chance of 2^-{self.failure_bits:.0f} for each coefficient",
            f"  attacks     at least {self.attack_costs.describe()}",
            "  rests on    hint-RLWE with public widths (docs/kahe.md): our argument, which awaits outside review;",
            "              at least two honest clients in every sum",
            *self._describe_narrow_sums(),
        )


class PublicKey(EnrolledPublicKey[_core.KahePublicKey]):
    """What is public of a session: parameters, the digest of its manifest, authority and epoch. There is no key in it.

    The uniform polynomials of the ring are drawn from it, and so are never anybody's choice.
    """

    __slots__ = ()
    parameters: Parameters
    _scheme = "kahe"
    _read = staticmethod(_core.KahePublicKey.from_bytes)
    _parameters_of = staticmethod(Parameters._wrap)
    _parameters_class = Parameters
    _core_class = _core.KahePublicKey
    _core_request = _core.KaheSumRequest
