"""What models of one run are measured by on the test set: each model once, however many clients have it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from shieldfl.torch_bridge import FloatVector, load_flat, load_flat_buffers
from shieldfl.training.local_update import StartingPoint
from shieldfl.training.objective import Objective

__all__ = ["Evaluation"]

_Figures = dict[str, float]


class Evaluation:
    """Measures models on a test set; those of a round that the round before had too are not measured again.

    Parameters
    ----------
    model : a module that is overwritten.
    objective : what is measured.
    features, targets : of the test set, on the model's device.
    """

    def __init__(
        self, model: nn.Module, objective: Objective, features: torch.Tensor, targets: torch.Tensor
    ) -> None:
        self._model = model
        self._objective = objective
        self._test = features, targets
        self._known: dict[bytes, _Figures] = {}
        """By the digest of a model: those of this round and the one before."""

    def means(self, *groups: Sequence[StartingPoint]) -> list[_Figures]:
        """Return of each group of one round's models every figure as a mean over them; none for a group without any."""
        # A model that all clients have is read once, by its address: the groups keep the memory as long as this runs.
        digests: dict[tuple[int, int], bytes] = {}
        found: dict[bytes, _Figures] = {}
        means = []
        for points in groups:
            figures = []
            for point in points:
                place = _address(point.parameters), _address(point.buffers)
                if place not in digests:
                    digests[place] = _digest(point)
                figures.append(self._measured(digests[place], point, found))
            names = self._objective.names if figures else ()
            means.append({name: float(np.mean([one[name] for one in figures])) for name in names})
        self._known = found
        return means

    def _measured(self, digest: bytes, point: StartingPoint, found: dict[bytes, _Figures]) -> _Figures:
        if digest not in found:
            if digest not in self._known:
                load_flat(self._model, point.parameters)
                load_flat_buffers(self._model, point.buffers)
                self._known[digest] = self._objective.measured(self._model, *self._test)
            found[digest] = self._known[digest]
        return found[digest]


def _address(vector: FloatVector) -> int:
    return int(vector.__array_interface__["data"][0])


def _digest(point: StartingPoint) -> bytes:
    """Return what two models have in common only where they are the same: their sizes are the run's."""
    digest = hashlib.sha256(np.ascontiguousarray(point.parameters).data)
    digest.update(np.ascontiguousarray(point.buffers).data)
    return digest.digest()
