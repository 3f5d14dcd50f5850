"""Parameters of schemes over a ring Z_q[X] / (X^N + 1): which N to choose, and what each would cost."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.scheme.core import CoreParameters
from shieldfl.scheme.fitted_scale import FittedScale, fit_scale
from shieldfl.scheme.parameters import SchemeParameters, check_count_has_goal, checked_goal

__all__ = ["RingCost", "RingParameters", "RingWork"]

Core = TypeVar("Core", bound=CoreParameters)
Key = TypeVar("Key")

_MOST = 2**32 - 1


@dataclass(frozen=True)
class RingWork:
    """What encrypting takes a client, apart from the ring's degree."""

    transforms: int
    """Number-theoretic ones, for each prime."""
    random_bytes: float
    """Of key stream, on average, for each coefficient of a polynomial."""
    digit_work: int = 0
    """Of turning residues into digits, for each coefficient of a polynomial, in butterflies that take as long."""


@dataclass(frozen=True)
class RingCost:
    """What encrypting ``count`` values costs in one ring."""

    core: CoreParameters
    count: int
    ciphertexts: int
    wire_bytes: int
    butterflies: int
    """Of the number-theoretic transforms."""
    random_bytes: float
    """Of key stream, on average."""
    digit_work: int
    """Of turning residues into digits, in butterflies that take as long, where a scheme counts it."""

    @property
    def work(self) -> float:
        """All of it: a butterfly or a random byte takes about as long on a processor with vectors."""
        return self.butterflies + self.random_bytes + self.digit_work

    @property
    def ring_degree(self) -> int:
        """N of the ring."""
        return int(self.core.facts["ring_degree"])

    def describe(self) -> str:
        """Say what it costs, each figure for one value."""
        digits = f", {self.digit_work / self.count:.1f} for digits" if self.digit_work else ""
        return (
            f"N = {self.ring_degree}: {self.wire_bytes / self.count:.2f} bytes, "
            f"{self.butterflies / self.count:.1f} butterflies, {self.random_bytes / self.count:.1f} random bytes"
            f"{digits}"
        )


class RingParameters(SchemeParameters[Core, Key], abc.ABC):
    """What ``Parameters`` over a ring have in common. Immutable; equal when everything is, but for how chosen."""

    __slots__ = ("_count", "_goal")
    _goal: str | None
    _count: int | None

    _SETTINGS: ClassVar[tuple[str, ...]]
    """Names of the keywords that make them, ``ring_degree`` among them, as the core's facts have them."""
    _RING_DEGREES: ClassVar[tuple[int, ...]]
    _CIPHERTEXTS_OF_MANY: ClassVar[int] = 1
    """Full ones that stand for many, where what they share is shared by as many as can."""

    @abc.abstractmethod
    def __init__(self, **settings: Any) -> None:
        """Derive the parameters. Raises ParameterError."""

    @classmethod
    @abc.abstractmethod
    def _work_of(cls, ciphertexts: int, primes: int) -> RingWork:
        """Return what a client does for so many ciphertexts."""

    @staticmethod
    def _read_numbers(
        max_clients: int, value_bits: int, fraction_bits: int, ring_degree: int | None
    ) -> tuple[int, int, int, int | None]:
        """Return them as the core takes them: beyond 32 bits all are as far out of range. Raises ParameterError."""
        return (
            min(as_unsigned(max_clients, "max_clients"), _MOST),
            min(as_unsigned(value_bits, "value_bits"), _MOST),
            min(as_unsigned(fraction_bits, "fraction_bits"), _MOST),
            None if ring_degree is None else min(as_unsigned(ring_degree, "ring_degree"), _MOST),
        )

    def _adopt(
        self,
        handle: Core,
        fitted: FittedScale | None = None,
        goal: str | None = None,
        count: int | None = None,
    ) -> None:
        super()._adopt(handle, fitted)
        object.__setattr__(self, "_goal", goal)
        object.__setattr__(self, "_count", count)

    @classmethod
    def _plan(cls, goal: str, count: int | None, **settings: Any) -> Self:
        """Choose the ring that is best at a goal; see the schemes' ``plan``."""
        number = checked_goal(goal, count)
        # Checks the settings, and fails here when no ring has room.
        rings = cls(**settings)._rings(number)
        if goal == "speed":
            best, _ = min(rings, key=lambda ring: (ring[1].work / ring[1].count, ring[1].ring_degree))
        else:
            best, _ = min(rings, key=lambda ring: (ring[1].wire_bytes / ring[1].count, ring[1].ring_degree))
        best._adopt(best._handle, None, goal, number)
        return best

    @classmethod
    def _fit(
        cls,
        sample_update: Any,
        *,
        mask: Mask | None,
        weights: tuple[float, float] | None,
        relative_error: float,
        headroom: float,
        goal: str | None,
        count: int | None,
        **settings: Any,
    ) -> Self:
        """Choose bits for updates like a sample; see the schemes' ``fit``."""
        scale = fit_scale(
            sample_update,
            guard_bits=int(cls(value_bits=2, fraction_bits=0, **settings)._facts["guard_bits"]),
            mask=mask,
            weights=weights,
            relative_error=relative_error,
            headroom=headroom,
        )
        check_count_has_goal(goal, count)
        settings |= {"value_bits": scale.value_bits, "fraction_bits": scale.fraction_bits}
        chosen = cls(**settings) if goal is None else cls._plan(goal, count, **settings)
        chosen._adopt(chosen._handle, scale, chosen._goal, chosen._count)
        return chosen

    def ring_costs(self) -> list[RingCost]:
        """Say what encrypting these values costs in each ring that has room, in the order of ring degrees."""
        return [cost for _, cost in self._rings(self._count)]

    def _rings(self, count: int | None) -> list[tuple[Self, RingCost]]:
        """Return the parameters in each ring that has room, and what encrypting ``count`` values costs there."""
        settings = {name: self._facts[name] for name in self._SETTINGS}
        rings = []
        for degree in self._RING_DEGREES:
            try:
                parameters = type(self)(**settings | {"ring_degree": degree})
            except ParameterError:  # no room
                continue
            rings.append((parameters, parameters._cost(count)))
        return rings

    def _cost(self, count: int | None) -> RingCost:
        in_one, primes, degree = self.values_per_ciphertext, len(self._facts["primes"]), self.ring_degree
        ciphertexts = self._CIPHERTEXTS_OF_MANY if count is None else math.ceil(count / in_one)
        work = self._work_of(ciphertexts, primes)
        return RingCost(
            core=self._handle,
            count=ciphertexts * in_one if count is None else count,
            ciphertexts=ciphertexts,
            wire_bytes=ciphertexts * int(self._facts["ciphertext_bytes"]),
            butterflies=work.transforms * primes * (degree // 2) * int(math.log2(degree)),
            random_bytes=work.random_bytes * degree,
            digit_work=work.digit_work * degree,
        )

    @property
    def ring_degree(self) -> int:
        """N of the ring Z_q[X] / (X^N + 1)."""
        return int(self._facts["ring_degree"])

    def _modulus_bits(self) -> list[int]:
        return [prime.bit_length() for prime in self._facts["primes"]]

    def _describe_as(self, scheme: str, *more: str) -> str:
        """Say what the scheme is, what its parameters have in common with others', and more; each in a line."""
        facts = self._facts
        lines = [
            scheme,
            self._describe_values(),
            self._describe_clients(),
            f"  ring        N = {self.ring_degree}, modulus of {' + '.join(map(str, self._modulus_bits()))} bits",
            f"  ciphertext  {self.values_per_ciphertext:,} values in {facts['ciphertext_bytes']:,} bytes: "
            f"{self.bytes_per_value:.2f} bytes a value",
            *more,
        ]
        if self._goal is not None:
            extent = "many values" if self._count is None else f"{self._count:,} values"
            lines.append(f"  planned     for {self._goal}; for each of {extent}:")
            for cost in self.ring_costs():
                chosen = "chosen" if cost.ring_degree == self.ring_degree else "instead"
                lines.append(f"    {chosen:<9} {cost.describe()}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        settings = {name: self._facts[name] for name in self._SETTINGS}
        return _make, (type(self), settings, self._fitted, self._goal, self._count)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{name}={self._facts[name]!r}' for name in self._SETTINGS)})"


def _make(
    kind: type[RingParameters[Any, Any]],
    settings: dict[str, Any],
    fitted: FittedScale | None,
    goal: str | None,
    count: int | None,
) -> RingParameters[Any, Any]:
    parameters = kind(**settings)
    parameters._adopt(parameters._handle, fitted, goal, count)
    return parameters
