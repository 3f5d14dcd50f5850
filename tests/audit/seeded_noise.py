"""Noise that can be repeated, in the place of the core's: what a test finds, it finds every time."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest

from shieldfl import _testing
from shieldfl.methods.distributed_noise import shares
from shieldfl.privacy import mechanisms
from shieldfl.privacy.noise_table import NoiseTable

__all__ = ["seed_noise"]


class _SeededCore:
    def __init__(self, core: Any, factor: float) -> None:
        self._core, self._factor = core, factor
        self._generator = np.random.default_rng(5)

    def add_gaussian(self, values: np.ndarray, deviation: float, threads: int | None) -> None:
        values += self._generator.normal(0, deviation * self._factor, values.size).astype(np.float32)

    def clip_and_add_gaussian(
        self, values: np.ndarray, norm: float, deviation: float, threads: int | None
    ) -> tuple[np.ndarray, float, bool]:
        clipped, original_norm, was_clipped = self._core.clip_and_add_gaussian(values, norm, 0.0, threads)
        if deviation > 0:
            self.add_gaussian(clipped, deviation, threads)
        return clipped, original_norm, was_clipped


def seed_noise(patch: pytest.MonkeyPatch, factor: float = 1.0) -> None:
    """Draw clients' noise from generators with seeds, ``factor`` times as large as it should be."""
    patch.setattr(mechanisms, "_core", _SeededCore(mechanisms._core, factor))
    seeds = count(1)

    def noise_share(update: np.ndarray, *, table: NoiseTable, threads: int | None, **numbers: Any) -> tuple:
        make = NoiseTable.skellam if table.distribution == "skellam" else NoiseTable.discrete_gaussian
        drawn = make(table.variance * Fraction(factor) ** 2)
        columns = [drawn.high, drawn.low]
        return _testing.noise_share_insecure(
            update, **numbers, thresholds=columns, others=drawn.others, seed=next(seeds)
        )

    patch.setattr(shares, "noise_share", noise_share)
