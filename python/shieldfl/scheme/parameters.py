"""Parameters of any scheme: derived once by the core, then immutable."""

from __future__ import annotations

import math
from typing import Any, Generic, Self, TypeVar

from shieldfl.array_view import as_count, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.scheme.core import CoreParameters
from shieldfl.scheme.fitted_scale import FittedScale

__all__ = ["SchemeParameters", "check_count_has_goal", "checked_goal", "read_sum_bits"]

_GOALS = ("speed", "size")

Core = TypeVar("Core", bound=CoreParameters)
Key = TypeVar("Key")


def checked_goal(goal: str, count: int | None) -> int | None:
    """Return the count of values of a plan; raise ParameterError for a goal or a count that none has."""
    if goal not in _GOALS:
        raise ParameterError(f"goal must be {' or '.join(map(repr, _GOALS))}, not {goal!r}")
    return None if count is None else as_count(count, "count")


def check_count_has_goal(goal: str | None, count: int | None) -> None:
    """Raise ParameterError for a count without the goal that it is for."""
    if goal is None and count is not None:
        raise ParameterError("count is for a goal: give goal='speed' or goal='size' too")


def read_sum_bits(sum_bits: int | None) -> int | None:
    """Return the number as the core takes it: beyond 32 bits all are as far out of range. Raises ParameterError."""
    return None if sum_bits is None else min(as_unsigned(sum_bits, "sum_bits"), 2**32 - 1)


class SchemeParameters(Generic[Core, Key]):
    """Immutable; equal when they make the same frames, however they were chosen. What ``Parameters`` have in common.

    ``Key`` is the scheme's public key, so that type checkers know what a key authority of these parameters has.
    """

    __slots__ = ("_facts", "_fitted", "_handle")
    _fitted: FittedScale | None
    _facts: dict[str, Any]
    _handle: Core

    def _adopt(self, handle: Core, fitted: FittedScale | None = None) -> None:
        object.__setattr__(self, "_handle", handle)
        object.__setattr__(self, "_facts", handle.facts)
        object.__setattr__(self, "_fitted", fitted)

    @classmethod
    def _wrap(cls, core: Core) -> Self:
        parameters = cls.__new__(cls)
        parameters._adopt(core)
        return parameters

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Parameters are immutable: make new ones")

    @property
    def packing(self) -> str:
        """How values are put into ciphertexts."""
        return str(self._facts["packing"])

    @property
    def max_clients(self) -> int:
        """The most updates that a total can hold."""
        return int(self._facts["max_clients"])

    @property
    def value_bits(self) -> int:
        """Bits of a quantised value, sign included."""
        return int(self._facts["value_bits"])

    @property
    def fraction_bits(self) -> int:
        """Bits behind the binary point."""
        return int(self._facts["fraction_bits"])

    @property
    def values_per_ciphertext(self) -> int:
        """How many values a full ciphertext holds."""
        return int(self._facts["values_per_ciphertext"])

    @property
    def value_limit(self) -> float:
        """The largest magnitude that a value, times its weight, may have."""
        return self._handle.value_limit

    @property
    def weight_step(self) -> float:
        """What a weight that is encrypted beside values is rounded to a multiple of.

        2**-fraction_bits, or 2**-(value_bits - 2) where that is more, so that a weight of 1 fits.
        """
        return self._handle.weight_step

    @property
    def bytes_per_value(self) -> float:
        """Bytes on the wire for each value of a full ciphertext, frame header excluded."""
        return self._handle.bytes_per_value

    @property
    def security_bits(self) -> int:
        """Bits of security, by the table that the scheme's parameters are chosen from."""
        return self._handle.security_bits

    @property
    def id(self) -> bytes:
        """16 bytes that identify these parameters in every frame."""
        return self._handle.id

    def _describe_values(self) -> str:
        values = (
            f"  values      {self.value_bits} bits, {self.fraction_bits} behind the point: "
            f"|value| <= {_rounded_down(self.value_limit):.6g} in steps of 2^-{self.fraction_bits}"
        )
        return values if self._fitted is None else f"{values}\n  fitted      {self._fitted.describe()}"

    def _describe_clients(self, more: str = "") -> str:
        bits = int(self._facts["guard_bits"])
        guard_bits = "1 guard bit" if bits == 1 else f"{bits} guard bits"
        return f"  clients     up to {self.max_clients:,}{more}, {guard_bits} for their sum"

    def _describe_narrow_sums(self) -> list[str]:
        """Say what clients have to see to where not every sum fits: a line, or none."""
        bits, full = int(self._facts["sum_bits"]), self.value_bits + (self.max_clients - 1).bit_length()
        if bits == full:
            return []
        return [
            f"              every sum below 2^{bits - 1} steps, which clients see to: any sum would take {full} bits, "
            f"not {bits}"
        ]

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, SchemeParameters) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)


def _rounded_down(limit: float) -> float:
    """Return six digits of a limit, which are themselves allowed."""
    digits = 10.0 ** (5 - math.floor(math.log10(limit)))
    return math.floor(limit * digits) / digits
