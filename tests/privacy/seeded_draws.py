"""Noise that can be repeated, in the place of what a federation draws: what a test finds, it finds every time."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shieldfl import _core, _testing
from shieldfl.privacy import noise
from shieldfl.privacy.noise import noise_table

__all__ = ["SeededDraws", "noise_from_seeds", "seed_noise"]


class SeededDraws:
    """The functions that draw: ``seed_of`` gives each vector's seed, ``factor`` enlarges noise."""

    def __init__(self, seed_of: Callable[[np.ndarray], int], factor: Fraction = Fraction(1)) -> None:
        self._seed_of, self._factor = seed_of, factor

    def add_gaussian(self, values: np.ndarray, deviation: float, threads: int) -> None:
        scaled = deviation * float(self._factor)
        _testing.add_gaussian_insecure(values, scaled, self._seed_of(values), threads)

    def clip_and_add_gaussian(self, values: np.ndarray, norm: float, deviation: float, threads: int) -> tuple:
        scaled = deviation * float(self._factor)
        return _testing.clip_and_add_gaussian_insecure(values, norm, scaled, self._seed_of(values), threads)

    def clip_and_add_discrete_gaussian_vartime(self, values: np.ndarray, *numbers: Any) -> tuple:
        *grid, numerator, denominator, threads = numbers
        variance = Fraction(numerator, denominator) * self._factor**2
        drawn = *grid, variance.numerator, variance.denominator, self._seed_of(values), threads
        return _testing.clip_and_add_discrete_gaussian_insecure(values, *drawn)

    def noise_share_vartime(self, values: np.ndarray, clip_norm: float, *numbers: Any) -> tuple:
        *bounds, asked, _ = numbers
        table = noise_table(asked.distribution, asked.variance * self._factor**2)
        columns = [table.high, table.low], table.others
        share, tries = _testing.noise_share_insecure(
            values, clip_norm, *bounds, *columns, self._seed_of(values)
        )
        norm = float(np.linalg.norm(values.astype(np.float64)))
        return share, norm, norm > clip_norm, tries

    def rotation_seed(self, session: bytes, round_number: int) -> bytes:
        return bytes([round_number % 256]) * 32

    def take_place(self, patch: pytest.MonkeyPatch) -> None:
        """Draw by these from now on, whatever is drawn."""
        patch.setattr(noise, "rotation_seed", self.rotation_seed)
        for name in (one for one in vars(SeededDraws) if hasattr(_core, one) and not one.startswith("_")):
            patch.setattr(_core, name, getattr(self, name))


@contextlib.contextmanager
def noise_from_seeds() -> Iterator[None]:
    """Within it, noise is drawn from a seed that its vector gives, and a round's rotation is that of its number."""

    def seed_of(values: np.ndarray) -> int:
        return int.from_bytes(hashlib.sha256(values.tobytes()).digest()[:8], "little")

    with pytest.MonkeyPatch.context() as patch:
        SeededDraws(seed_of).take_place(patch)
        yield


def seed_noise(patch: pytest.MonkeyPatch, factor: float = 1.0) -> None:
    """Draw from a seed for each vector in turn, ``factor`` times as much noise as there should be."""
    seeds = itertools.count(1)
    SeededDraws(lambda values: next(seeds), Fraction(factor)).take_place(patch)
