"""What a benchmark of Paillier times: libraries that add numbers exactly, some of them in the clear."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.benchmarks.measurement import StageClock
from shieldfl.benchmarks.scheme import Scheme, Selection, WrongSumError

__all__ = [
    "FRACTION_BITS",
    "VALUE_BITS",
    "PaillierScheme",
    "from_fixed_point",
    "repeat_mixed_sum",
    "to_fixed_point",
]

VALUE_BITS = 24
FRACTION_BITS = 20
_STEP = 2.0**FRACTION_BITS


class PaillierScheme(Scheme):
    """A library at one key size. It is timed on as many values as fill ``ciphertexts`` of its ciphertexts."""

    def __init__(self, name: str, setting: str, ciphertexts: int, values_per_ciphertext: int = 1) -> None:
        self.name = name
        self.setting = setting
        self.ciphertexts = ciphertexts
        self.values_per_ciphertext = values_per_ciphertext

    def sample(self, selection: Selection) -> NDArray[np.float32]:
        """Return the values that this library is timed on."""
        return selection.values[: self.ciphertexts * self.values_per_ciphertext]

    @abstractmethod
    def load(self, frame: Any) -> Any:
        """Turn what travelled into what ``add`` takes."""

    @abstractmethod
    def add_with_clear(self, total: Any, loaded: Any, clear: NDArray[np.float32]) -> None:
        """Add, with each ciphertext, what its client sent in the clear."""

    def check(
        self,
        opened: NDArray[np.float64],
        values: NDArray[np.float32],
        times: int,
        clear: NDArray[np.float32] | None = None,
    ) -> None:
        """Raise unless the sum of the fixed-point numbers is right to the last bit."""
        fixed_point = times * to_fixed_point(values[: self.ciphertexts * self.values_per_ciphertext])
        if clear is not None:
            fixed_point += to_fixed_point(clear)
        if not np.array_equal(opened, fixed_point / _STEP):
            raise WrongSumError(f"{self.name} opened a wrong sum of {fixed_point.size:,} values")


def to_fixed_point(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the integers that are encrypted."""
    return np.rint(values.astype(np.float64) * _STEP).astype(np.int64)


def from_fixed_point(integers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the values that integers stand for."""
    return integers / _STEP


def repeat_mixed_sum(
    scheme: PaillierScheme, selection: Selection, first_frame: Any, clock: StageClock
) -> None:
    """Encrypt, add to two sums that hold ``first_frame``, to one of them with values in the clear; open, check."""
    values = scheme.sample(selection)
    clear = np.ascontiguousarray(values[::-1])
    total, mixed = scheme.start_sum(first_frame), scheme.start_sum(first_frame)
    with clock("encrypt"):
        encrypted = scheme.encrypt(selection)
    with clock("serialise"):
        frame = scheme.serialise(encrypted)
    with clock("load"):
        loaded = scheme.load(frame)
    with clock("add"):
        scheme.add(total, loaded)
    with clock("add with plaintext"):
        scheme.add_with_clear(mixed, loaded, clear)
    with clock("close"):
        closed = scheme.close(total)
    with clock("open"):
        opened = scheme.open(closed)
    scheme.check(opened, values, times=2)
    scheme.check(scheme.open(scheme.close(mixed)), values, times=2, clear=clear)
