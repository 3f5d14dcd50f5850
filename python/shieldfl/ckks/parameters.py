"""What a federation agrees on before its first round."""

from __future__ import annotations

from typing import Any

import shieldfl._core as _core
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.scheme.keys import SchemePublicKey
from shieldfl.scheme.ring_parameters import RingParameters, RingWork

__all__ = ["Parameters", "PublicKey"]


class Parameters(RingParameters[_core.CkksParameters, "PublicKey"]):
    """What a federation agrees on before its first round. Immutable; equal when everything is.

    Parameters
    ----------
    packing : "exact" or "slots".
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    ring_degree : 2048 or 4096; by default the smallest ring with room.

    Raises ParameterError when a setting is out of range or no ring of 128-bit security has room.
    """

    __slots__ = ()
    _SETTINGS = ("packing", "max_clients", "value_bits", "fraction_bits", "ring_degree")
    _RING_DEGREES = (2048, 4096)

    def __init__(
        self,
        *,
        packing: str = "exact",
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        ring_degree: int | None = None,
    ) -> None:
        if packing not in ("exact", "slots"):
            raise ParameterError(f"packing must be 'exact' or 'slots', not {packing!r}")
        numbers = self._read_numbers(max_clients, value_bits, fraction_bits, ring_degree)
        self._adopt(_core.CkksParameters(packing, *numbers))

    @classmethod
    def _work_of(cls, ciphertexts: int, primes: int) -> RingWork:
        # Of u, c0 and c1; 1/3 of a byte for a coefficient of u, 16/3 for each of e0 and e1. With two primes at most,
        # digits are quick beside that.
        return RingWork(transforms=3 * ciphertexts, random_bytes=11.0 * ciphertexts)

    @classmethod
    def plan(
        cls,
        *,
        packing: str = "exact",
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        goal: str = "speed",
        count: int | None = None,
    ) -> Parameters:
        """Choose the ring for these values; ``describe()`` then shows what each ring would have cost.

        Parameters
        ----------
        packing, max_clients, value_bits, fraction_bits : as for ``Parameters``.
        goal : ``"speed"`` for the least work at the client, ``"size"`` for the fewest bytes on the wire.
        count : how many values a client encrypts at a time; None for many. A ciphertext is sent whole however
            few values are in it, so a small ring is better for a few hundred.

        Raises ParameterError when a setting is out of range or no ring of 128-bit security has room.
        """
        return cls._plan(
            goal,
            count,
            packing=packing,
            max_clients=max_clients,
            value_bits=value_bits,
            fraction_bits=fraction_bits,
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
        packing: str = "exact",
        max_clients: int = 64,
        goal: str | None = None,
        count: int | None = None,
    ) -> Parameters:
        """Choose value_bits and fraction_bits for updates like a sample, by the error that rounding may have.

        Rounding then moves the mean by at most ``relative_error`` of its length (L2 norm) where clients' updates are
        as long as the sample and do not cancel out. Run it on public or planned data, once: the two numbers go into
        the plan that everybody gets. A scale fitted to a client's update would tell how large that update is.

        Parameters
        ----------
        sample_update : float32 or float64 vector, typical of what a client sends in any round; updates shrink as
            training converges. Values that are zero do not count.
        mask : which positions are encrypted; None for all.
        weights : the smallest and the largest weight that ``encrypt`` gets, above 0 and at most 1; None for none. Best
            divided so that the largest is 1.
        relative_error : above 0 and below 1.
        headroom : how many times the sample's largest value fits. What is larger still is refused with a RangeError, or
            saturated with ``clip=True``.
        packing, max_clients : as for ``Parameters``.
        goal, count : as for ``plan``; None for the smallest ring.

        Raises ArrayTypeError, RangeError for NaN or infinity in the sample, ParameterError for a sample of zeros, a
        setting out of range, and where there is no room: it says which error can be reached.
        """
        return cls._fit(
            sample_update,
            mask=mask,
            weights=weights,
            relative_error=relative_error,
            headroom=headroom,
            goal=goal,
            count=count,
            packing=packing,
            max_clients=max_clients,
        )

    @property
    def packing(self) -> str:
        """``"exact"`` or ``"slots"``."""
        return str(self._facts["packing"])

    @property
    def values_per_coefficient(self) -> int:
        """How many values share a coefficient (exact packing; 0 for slots)."""
        return int(self._facts["values_per_coefficient"])

    @property
    def security_bits(self) -> int:
        """Bits of security, by the homomorphic encryption standard's table."""
        return self._handle.security_bits

    def describe(self) -> str:
        """Say in a few lines what the parameters are and what follows from them."""
        facts = self._facts
        if self.packing == "exact":
            error = (
                f"below {self._handle.error_bound:,.0f} in a sum of {self.max_clients} "
                f"(but for a chance of 2^-96 each), rounded away at scale 2^{facts['log2_scale']}"
            )
        else:
            error = f"flooded with deviation 2^{facts['log2_flooding']} at scale 2^{facts['log2_scale']}"
        return self._describe_as(
            f"CKKS, {self.packing} packing, {self.security_bits}-bit security",
            f"  left out    the lowest {facts['dropped_bits'][0]} and {facts['dropped_bits'][1]} bits of the two "
            "halves, which carry noise alone",
            f"  error       {error}",
        )


class PublicKey(SchemePublicKey[_core.CkksPublicKey]):
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    __slots__ = ()
    parameters: Parameters
    _scheme = "ckks"
    _read = staticmethod(_core.CkksPublicKey.from_bytes)
    _parameters_of = staticmethod(Parameters._wrap)
