"""Clients with a few samples that fit linear models by hand: small enough that an attacker solves for what it wants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from methods.variants import Variant
from shieldfl.learning.local_update import LocalUpdate, PrivateSteps, StartingPoint
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings
from shieldfl.rounds.plan import GlobalModel

SIZE = 6
DELTA = 1e-5


def origin(size: int = SIZE) -> GlobalModel:
    """A model of zeros, without buffers."""
    return GlobalModel(np.zeros(size, dtype=np.float32), np.empty(0, dtype=np.float32))


def variant_of(method: str, **changes: object) -> Variant:
    """A method other than SelectiveShield under these settings; delta is given, so that no data set has to be known."""
    return Variant(method, SelectiveShieldSettings(), method).with_others(delta=DELTA, **changes)


class MeanEstimation:
    """Each client looks for the mean of its samples: the gradient of a sample x is w - x, and a round is one step.

    Parameters
    ----------
    samples : by client, float64 (n, P).
    synthetic : the data of synthetic rounds, float64 (n, P).
    seed : of DP-SGD's noise.
    """

    def __init__(
        self,
        samples: Mapping[int, NDArray[np.float64]],
        synthetic: NDArray[np.float64] | None = None,
        seed: int = 0,
    ) -> None:
        self.samples = dict(samples)
        self.synthetic = synthetic
        self._noise = np.random.default_rng(seed)

    def __call__(self, round_number: int, client: int, start: StartingPoint) -> LocalUpdate:
        """Train one step with a learning rate of 0.5."""
        data = self.synthetic if start.synthetic else self.samples[client]
        gradients = start.parameters.astype(np.float64) - data
        if start.noise is None:
            step, done = gradients.mean(axis=0), None
        else:
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            norm = start.noise.max_grad_norm
            total = (gradients * np.minimum(1.0, norm / norms)).sum(axis=0)
            deviation = start.noise.noise_multiplier * norm
            step = (total + self._noise.normal(0.0, deviation, total.size)) / len(data)
            done = PrivateSteps(steps=1, sample_rate=1.0)
        scores = np.abs(gradients.mean(axis=0)).astype(np.float32)
        moved = (start.parameters - 0.5 * step).astype(np.float32)
        return start.trained(moved, start.buffers, scores, done)
