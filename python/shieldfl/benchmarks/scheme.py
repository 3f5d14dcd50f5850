"""What a benchmark times: the steps that a value goes through, whichever library takes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ShieldError
from shieldfl.masks import Mask

__all__ = ["Peer", "Scheme", "Selection", "WrongSumError", "select"]


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


class Scheme(ABC):
    """One library at one setting. Holds both keys: it plays every role of a round by itself."""

    name: str
    """Short enough for a column of a table."""
    setting: str
    """All that somebody needs to repeat it."""
    own: bool = False
    """Whether it is this library."""

    @abstractmethod
    def encrypt(self, selection: Selection) -> Any:
        """Encrypt the selected values under the public key."""

    @abstractmethod
    def serialise(self, encrypted: Any) -> Any:
        """Turn what ``encrypt`` returned into what travels."""

    @abstractmethod
    def size_bytes(self, frame: Any) -> int:
        """How many bytes travel."""

    @abstractmethod
    def start_sum(self, frame: Any) -> Any:
        """Make a sum that holds one frame. Is not timed."""

    @abstractmethod
    def add(self, total: Any, frame: Any) -> None:
        """Add what travelled: parse, check, add."""

    def close(self, total: Any) -> Any:
        """Turn the sum into what the key holder opens."""
        return total

    @abstractmethod
    def open(self, closed: Any) -> NDArray[np.float64]:
        """Decrypt and decode."""

    @abstractmethod
    def check(self, opened: NDArray[np.float64], values: NDArray[np.float32], times: int) -> None:
        """Raise WrongSumError unless ``opened`` is ``times`` the values, within the scheme's precision."""


class Peer(Scheme):
    """Another library. It gets its values gathered already, and at most ``most_values`` of them."""

    def __init__(self, name: str, setting: str, most_values: int, tolerance: float) -> None:
        self.name = name
        self.setting = setting
        self._most_values = most_values
        self._tolerance = tolerance

    def sample(self, selection: Selection) -> NDArray[np.float32]:
        """Return the values that this peer is timed on; its cost is linear in their number."""
        return selection.values[: self._most_values]

    def check(self, opened: NDArray[np.float64], values: NDArray[np.float32], times: int) -> None:
        """Raise unless each sum is right within the tolerance."""
        error = np.abs(opened - times * values[: opened.size].astype(np.float64)).max(initial=0.0)
        if opened.size != min(values.size, self._most_values) or not error <= times * self._tolerance:
            raise WrongSumError(f"{self.name} opened a wrong sum: off by {error:.2g}")
