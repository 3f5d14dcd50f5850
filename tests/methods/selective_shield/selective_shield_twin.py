"""One SelectiveShield round in plain NumPy, from the paper's equations alone; what its noise zone uploads, and whether
that is normal noise of the stated deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from methods.method_conformance import SteppedRun
from methods.variants import Variant
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.rounds.plan import GlobalModel


@dataclass(frozen=True)
class TwinRound:
    """What a round came to."""

    parameters: np.ndarray
    """The new global model, float64 (P,)."""
    encrypted: np.ndarray
    """M_enc, bool (P,)."""
    personalised: dict[int, np.ndarray]
    """M_pers of each client, bool (P,)."""


def twin_round(
    parameters: np.ndarray,
    updates: dict[int, np.ndarray],
    masks: dict[int, np.ndarray],
    *,
    uploaders: list[int],
    consensus: float,
    divisor: str = "contributors",
    fraction_bits: int = 20,
    clip_norm: float = np.inf,
) -> TwinRound:
    """Negotiate among all masks, then average what the uploaders send. No noise is added."""
    votes = np.sum(list(masks.values()), axis=0)
    encrypted = votes / len(masks) >= consensus  # eqs. 15 and 16
    total = np.zeros(parameters.size)
    contributors = np.zeros(parameters.size)
    personalised = {}
    for client, mask in masks.items():
        personalised[client] = mask & ~encrypted  # eq. 17
    for client in uploaders:
        noise_zone = ~(encrypted | personalised[client])  # eq. 18
        update = updates[client].astype(np.float64)
        norm = np.sqrt(np.sum(update[noise_zone] ** 2))
        clipped = update * min(1.0, clip_norm / norm if norm else 1.0)  # eq. 20
        quantised = np.rint(update * 2.0**fraction_bits) / 2.0**fraction_bits
        total += np.where(encrypted, quantised, np.where(noise_zone, clipped, 0.0))
        contributors += encrypted | noise_zone
    total = np.where(encrypted, total, total.astype(np.float32))  # as plain sums travel
    counts = np.full(parameters.size, float(len(uploaders))) if divisor == "participants" else contributors
    mean = np.divide(total, counts, out=np.zeros_like(total), where=counts > 0)  # eq. 26
    return TwinRound(parameters + mean, encrypted, personalised)


def twin_merge(own: np.ndarray, shared: np.ndarray, personalised: np.ndarray) -> np.ndarray:
    """Own values on the personalised positions, shared ones elsewhere (eq. 27)."""
    merged = shared.copy()
    for position in np.flatnonzero(personalised):
        merged[position] = own[position]
    return merged


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
