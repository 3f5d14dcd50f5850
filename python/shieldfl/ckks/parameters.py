"""What a federation agrees on before its first round."""

from __future__ import annotations

from typing import Any

import shieldfl._core as _core
from shieldfl.array_view import as_unsigned
from shieldfl.ckks.plan import GOALS, RingCost, ring_costs
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.scheme.fitted_scale import FittedScale, fit_scale
from shieldfl.scheme.keys import SchemePublicKey
from shieldfl.scheme.parameters import SchemeParameters

__all__ = ["Parameters", "PublicKey"]


class Parameters(SchemeParameters[_core.CkksParameters, "PublicKey"]):
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

    __slots__ = ("_count", "_goal")
    _goal: str | None
    _count: int | None

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
        clients, bits, fraction = (
            min(as_unsigned(value, name), 2**32 - 1)
            for name, value in (
                ("max_clients", max_clients),
                ("value_bits", value_bits),
                ("fraction_bits", fraction_bits),
            )
        )
        degree = None if ring_degree is None else min(as_unsigned(ring_degree, "ring_degree"), 2**32 - 1)
        self._adopt(_core.CkksParameters(packing, clients, bits, fraction, degree))

    def _adopt(
        self,
        handle: _core.CkksParameters,
        fitted: FittedScale | None = None,
        goal: str | None = None,
        count: int | None = None,
    ) -> None:
        super()._adopt(handle, fitted)
        object.__setattr__(self, "_goal", goal)
        object.__setattr__(self, "_count", count)

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
        if goal not in GOALS:
            raise ParameterError(f"goal must be {' or '.join(map(repr, GOALS))}, not {goal!r}")
        number = None if count is None else as_unsigned(count, "count")
        if number == 0:
            raise ParameterError("count must be at least 1, or None for many")
        settings = {"max_clients": max_clients, "value_bits": value_bits, "fraction_bits": fraction_bits}
        # Checks the settings, and fails here when no ring has room.
        smallest = cls(packing=packing, **settings)
        costs = ring_costs(smallest._facts, number)
        if goal == "speed":
            best = min(costs, key=lambda cost: (cost.work / cost.count, cost.ring_degree))
        else:
            best = min(costs, key=lambda cost: (cost.wire_bytes / cost.count, cost.ring_degree))
        planned = cls.__new__(cls)
        planned._adopt(best.core, None, goal, number)
        return planned

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
        least = cls(packing=packing, max_clients=max_clients, value_bits=2, fraction_bits=0)
        scale = fit_scale(
            sample_update,
            guard_bits=int(least._facts["guard_bits"]),
            mask=mask,
            weights=weights,
            relative_error=relative_error,
            headroom=headroom,
        )
        settings = {
            "max_clients": max_clients,
            "value_bits": scale.value_bits,
            "fraction_bits": scale.fraction_bits,
        }
        if goal is None and count is not None:
            raise ParameterError("count is for a goal: give goal='speed' or goal='size' too")
        chosen = (
            cls(packing=packing, **settings)
            if goal is None
            else cls.plan(packing=packing, goal=goal, count=count, **settings)
        )
        chosen._adopt(chosen._handle, scale, chosen._goal, chosen._count)
        return chosen

    def ring_costs(self) -> list[RingCost]:
        """Say what encrypting these values costs in each ring that has room, in the order of ring degrees."""
        return ring_costs(self._facts, self._count)

    def _plan_extent(self) -> str:
        return "for each of many values" if self._count is None else f"for each of {self._count:,} values"

    @property
    def packing(self) -> str:
        """``"exact"`` or ``"slots"``."""
        return str(self._facts["packing"])

    @property
    def ring_degree(self) -> int:
        """N of the ring Z_q[X] / (X^N + 1)."""
        return int(self._facts["ring_degree"])

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
        modulus_bits = " + ".join(str(prime.bit_length()) for prime in facts["primes"])
        lines = [
            f"CKKS, {self.packing} packing, {self.security_bits}-bit security",
            self._describe_values(),
            f"  clients     up to {self.max_clients:,}, {facts['guard_bits']} guard bits for their sum",
            f"  ring        N = {self.ring_degree}, modulus of {modulus_bits} bits",
            f"  ciphertext  {self.values_per_ciphertext:,} values in {facts['ciphertext_bytes']:,} bytes: "
            f"{self.bytes_per_value:.2f} bytes a value",
            f"  left out    the lowest {facts['dropped_bits'][0]} and {facts['dropped_bits'][1]} bits of the two "
            "halves, which carry noise alone",
        ]
        if self.packing == "exact":
            lines.append(
                f"  error       below {self._handle.error_bound:,.0f} in a sum of {self.max_clients} "
                f"(but for a chance of 2^-96 each), rounded away at scale 2^{facts['log2_scale']}"
            )
        else:
            lines.append(
                f"  error       flooded with deviation 2^{facts['log2_flooding']} at scale 2^{facts['log2_scale']}"
            )
        if self._goal is not None:
            lines.append(f"  planned     for {self._goal}; {self._plan_extent()}:")
            for cost in self.ring_costs():
                chosen = "chosen" if cost.ring_degree == self.ring_degree else "instead"
                lines.append(f"    {chosen:<9} {cost.describe()}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        settings = {name: self._facts[name] for name in _SETTINGS}
        return _make_parameters, (settings, self._fitted, self._goal, self._count)

    def __repr__(self) -> str:
        return (
            f"Parameters(packing={self.packing!r}, max_clients={self.max_clients}, "
            f"value_bits={self.value_bits}, fraction_bits={self.fraction_bits}, ring_degree={self.ring_degree})"
        )


_SETTINGS = ("packing", "max_clients", "value_bits", "fraction_bits", "ring_degree")


def _make_parameters(
    settings: dict[str, Any], fitted: FittedScale | None, goal: str | None, count: int | None
) -> Parameters:
    parameters = Parameters(**settings)
    parameters._adopt(parameters._handle, fitted, goal, count)
    return parameters


class PublicKey(SchemePublicKey[_core.CkksPublicKey]):
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    __slots__ = ()
    parameters: Parameters
    _scheme = "ckks"
    _read = staticmethod(_core.CkksPublicKey.from_bytes)
    _parameters_of = staticmethod(Parameters._wrap)
