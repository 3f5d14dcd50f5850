"""What a benchmark times: the steps that a value goes through, whichever library takes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ShieldError
from shieldfl.masks import Mask

VALUE_BITS = 24
FRACTION_BITS = 20
"""Of the numbers that Paillier's libraries encrypt."""


class WrongSumError(ShieldError):
    """A scheme opened something else than the sum of what went in: its times mean nothing."""


@dataclass(frozen=True)
class Selection:
    """An update and the positions of it that are encrypted."""

    update: NDArray[np.float32]
    mask: Mask | None
    """None for all positions."""
    values: NDArray[np.float32]
    """The update's values at these positions."""


def select(size: int, share: float) -> Selection:
    """Make an update of ``size`` values like a model's and choose a random ``share`` of its positions."""
    rng = np.random.default_rng(0)
    update = rng.standard_normal(size, dtype=np.float32)
    update *= np.float32(0.05)
    if share >= 1.0:
        return Selection(update, None, update)
    chosen = rng.random(size, dtype=np.float32) < share
    chosen[0] = True  # so that even a small share of few values is not empty
    return Selection(update, Mask.from_bool(chosen), update[chosen])


def to_fixed_point(values: NDArray[np.float32], fraction_bits: int = FRACTION_BITS) -> NDArray[np.int64]:
    """Return the integers that are encrypted."""
    return np.rint(values.astype(np.float64) * 2.0**fraction_bits).astype(np.int64)


def from_fixed_point(integers: NDArray[np.int64], fraction_bits: int = FRACTION_BITS) -> NDArray[np.float64]:
    """Return the values that integers stand for."""
    return integers / 2.0**fraction_bits


class Scheme(ABC):
    """One library at one setting. Holds both keys: it plays every role of a round by itself.

    Parameters
    ----------
    name : short enough for a column of a table.
    setting : all that somebody needs to repeat it.
    most_values : how many values it is timed on at most, gathered already, since its cost is linear; None for the
        whole update, the mask included.
    values_per_ciphertext : how many of them one ciphertext holds.
    fraction_bits : of numbers whose sums must be right to the last bit; None where they are not exact.
    tolerance : how far off a value may be then.
    """

    own: bool = False
    """Whether it is this library."""
    untimed: frozenset[str] = frozenset({"close"})
    """Stages whose time would say nothing: there is nothing to do, or other roles do it in a round."""

    def __init__(
        self,
        name: str,
        setting: str,
        most_values: int | None = None,
        *,
        values_per_ciphertext: int = 1,
        fraction_bits: int | None = None,
        tolerance: float = 0.0,
    ) -> None:
        self.name, self.setting = name, setting
        self.most_values, self.values_per_ciphertext = most_values, values_per_ciphertext
        self._fraction_bits, self._tolerance = fraction_bits, tolerance

    def sample(self, selection: Selection) -> NDArray[np.float32]:
        """Return the values that it is timed on."""
        return selection.values[: self.most_values]

    @abstractmethod
    def encrypt(self, selection: Selection) -> Any:
        """Encrypt the selected values as a client does."""

    @abstractmethod
    def serialise(self, encrypted: Any) -> Any:
        """Turn what ``encrypt`` returned into what travels."""

    def size_bytes(self, frame: Any) -> int:
        """How many bytes travel."""
        return sum(map(len, frame)) if isinstance(frame, list) else len(frame)

    def load(self, frame: Any) -> Any:
        """Turn what travelled into what ``add`` takes; most do that in ``add``."""
        return frame

    @abstractmethod
    def start_sum(self, frame: Any) -> Any:
        """Make a sum that holds one frame. Is not timed."""

    @abstractmethod
    def add(self, total: Any, frame: Any) -> None:
        """Add what travelled: parse, check, add."""

    def add_with_clear(self, total: Any, loaded: Any, clear: NDArray[np.float32]) -> None:
        """Add, with each ciphertext, what its client sent in the clear, where the library can."""
        raise NotImplementedError

    def close(self, total: Any) -> Any:
        """Turn the sum into what leaves the aggregator: what the key holder opens, or what an authority is asked."""
        return total

    def answer(self, closed: Any) -> Any:
        """Have an authority that does not open sums answer what it is asked; the result is what ``open`` takes.

        Is not timed here: it costs by the clients, not by the values.
        """
        return closed

    @abstractmethod
    def open(self, closed: Any) -> NDArray[np.float64]:
        """Decrypt and decode."""

    def check(
        self,
        opened: NDArray[np.float64],
        values: NDArray[np.float32],
        times: int,
        clear: NDArray[np.float32] | None = None,
    ) -> None:
        """Raise WrongSumError unless ``opened`` is ``times`` the values and once the ``clear`` ones."""
        parts = [(times, values[: self.most_values])] + ([] if clear is None else [(1, clear)])
        expected: NDArray[np.float64] = sum(count * self._encoded(part) for count, part in parts)  # type: ignore[assignment]
        error = np.abs(opened - expected).max(initial=0.0) if opened.size == expected.size else np.inf
        if not error <= times * self._tolerance:
            raise WrongSumError(
                f"{self.name} opened a wrong sum of {expected.size:,} values: off by {error:.2g}"
            )

    def _encoded(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        if self._fraction_bits is None:
            return values.astype(np.float64)
        return from_fixed_point(to_fixed_point(values, self._fraction_bits), self._fraction_bits)
