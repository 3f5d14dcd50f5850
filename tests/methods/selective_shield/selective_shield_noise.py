"""What SelectiveShield's noise zone uploads, and whether it is normal noise of the stated deviation."""

from __future__ import annotations

import math

import numpy as np

from methods.method_conformance import SteppedRun
from methods.variants import Variant
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.rounds.global_model import GlobalModel

SIZE = 20_000

# A standard score beyond 6 comes once in 5e8 honest runs.
SCORE_LIMIT = 6.0


def shield(**settings) -> Variant:
    return Variant("selective-shield", SelectiveShieldSettings(**settings), "selective-shield")


def zeros(size: int = SIZE) -> GlobalModel:
    return GlobalModel(np.zeros(size, dtype=np.float32), np.empty(0, dtype=np.float32))


def values_of(run: SteppedRun, client: int) -> np.ndarray:
    return np.frombuffer(run.sent["update"][client]["values"], dtype=np.float32)


def assert_gaussian(values: np.ndarray, deviation: float) -> None:
    """Mean, variance and fourth moment."""
    count = values.size
    standard = values.astype(np.float64) / deviation
    assert abs(standard.mean()) * math.sqrt(count) < SCORE_LIMIT
    assert abs(np.mean(standard**2) - 1.0) * math.sqrt(count / 2.0) < SCORE_LIMIT
    assert abs(np.mean(standard**4) - 3.0) * math.sqrt(count / 96.0) < SCORE_LIMIT
