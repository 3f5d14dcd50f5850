"""A client of Alt-FL that is attacked: its gradient, clipped and noised, and which positions are encrypted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import normalize

from paper_attacks.gradient_updates import Batch, as_update, gradient_of
from shieldfl.array_view import FloatVector
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.masks import top_k

__all__ = ["CLIP_NORM", "Encrypted", "Pool", "Victim", "random_where_hidden"]

CLIP_NORM = 4.7
"""C of the paper, for each sample's gradient."""


class Encrypted:
    """Which positions of a model S-HE encrypts: the largest by the mean of the clients' gradient magnitudes.

    Parameters
    ----------
    model : that clients begin with; the mask is fixed for a run.
    clients : a batch of each, for its data.
    """

    def __init__(self, model: nn.Module, clients: Sequence[Batch]) -> None:
        self._magnitudes = np.mean([np.abs(gradient_of(model, batch)) for batch in clients], axis=0)
        self._masks: dict[float, NDArray[np.bool_]] = {}

    def share(self, eta: float) -> NDArray[np.bool_]:
        """Return which share eta of the positions is encrypted, (P,)."""
        if eta not in self._masks:
            count = round(eta * self._magnitudes.size)
            self._masks[eta] = top_k(self._magnitudes, count).to_bool()
        return self._masks[eta]


@dataclass
class Victim:
    """One client in one round, for every cell of the matrix: noise is drawn once and scaled.

    Parameters
    ----------
    model : that it trains from.
    batch : of the client.
    encrypted : what is hidden.
    seed : of the noise.
    value_range : of samples.
    """

    model: nn.Module
    batch: Batch
    encrypted: Encrypted
    seed: int
    value_range: tuple[float, float]

    def observed(self, sigma: float, eta: float) -> ObservedUpdate | None:
        """Return what the server has; None where all is encrypted.

        With noise, each sample's gradient is clipped to C and the sum has noise of deviation sigma C, as in DP-SGD;
        without, nothing is clipped.
        """
        known = ~self.encrypted.share(eta)
        if not known.any():
            return None
        size = len(self.batch.labels)
        gradient, deviation = self._plain, 0.0
        if sigma:
            deviation = sigma * CLIP_NORM / size
            gradient = self._clipped + np.float32(deviation) * self._noise
        return as_update(self.model, self.batch, gradient, self.value_range, known, deviation)

    @cached_property
    def _plain(self) -> FloatVector:
        return gradient_of(self.model, self.batch)

    @cached_property
    def _clipped(self) -> FloatVector:
        total = np.zeros_like(self._plain)
        for index in range(len(self.batch.labels)):
            one = slice(index, index + 1)
            gradient = gradient_of(self.model, Batch(self.batch.samples[one], self.batch.labels[one]))
            total += gradient * np.float32(min(1.0, CLIP_NORM / max(float(np.linalg.norm(gradient)), 1e-12)))
        return total / np.float32(len(self.batch.labels))

    @cached_property
    def _noise(self) -> FloatVector:
        return np.random.default_rng(self.seed).standard_normal(self._plain.size, dtype=np.float32)


def random_where_hidden(observed: ObservedUpdate, seed: int) -> ObservedUpdate:
    """Take what is hidden for random values, as large as what is known, and match these as well.

    Alt-FL's attacker cannot tell encrypted values from random ones (section III).
    """
    largest = np.abs(observed.change[observed.known]).max()
    values = np.random.default_rng(seed).normal(0.0, largest, observed.change.size).astype(np.float32)
    return replace(observed.filled(values), known=np.ones(values.size, dtype=np.bool_))


class Pool:
    """Images (n, *sample_shape) among which the nearest to a recovered one is looked for, by correlation.

    It does what :func:`shieldfl.lab.audit.attack.image_outcome` does with that distance, and keeps what is the
    same in thousands of tries.
    """

    def __init__(self, images: torch.Tensor) -> None:
        flat = images.flatten(1)
        self._directions = normalize(flat - flat.mean(dim=1, keepdim=True), dim=1)

    def nearest(self, image: torch.Tensor) -> int:
        """Return the position of the nearest one; of equally near ones the first."""
        flat = image.flatten()
        return int((self._directions @ (flat - flat.mean())).argmax())
