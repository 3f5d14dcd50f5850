"""Samples whose gradient is the observed one, found by L-BFGS on the squared distance: DLG and iDLG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from shieldfl.audit.attack import Recovered, UpdateAttack
from shieldfl.audit.attacker.last_layer import last_layer
from shieldfl.audit.attacker.many_starts import Descent, least_of_many
from shieldfl.audit.attacker.simulated_training import SimulatedTraining
from shieldfl.audit.views.observed_update import ObservedUpdate

__all__ = ["Dlg", "Idlg"]


# Squared distances in parts of the gradient's squared length: from where on a start is taken to have found the samples,
# and from where on more steps fit what float32 rounds.
_CONVERGED, _EXACT = 1e-4, 1e-8


_STEPS = 20
"""Of one call of L-BFGS, as torch has it."""
_SHARED_MEMORY = 2**24
"""Numbers of one gradient, of all starts that are worked out at once."""


@dataclass(frozen=True)
class _GradientMatching(UpdateAttack):
    """Minimises the squared distance between gradients, over the known positions alone.

    Positions count by how little noise they have (:class:`SimulatedTraining`).
    """

    recovers: ClassVar[Literal["labels", "images"]] = "images"
    iterations: int = 300
    """Calls of L-BFGS at most, each of 20 steps of rate 1 without a line search."""
    starts: int = 8
    """From so many draws of noise at once: without a line search a good half of the starts go astray, and the distance
    tells. The papers begin once; they report what converged."""
    patience: int = 100
    """A start is left that has not come lower by a tenth in so many steps. An addition of ours: on batches of several
    samples distances stay at some hundredths of the gradient's after a few hundred steps, whatever follows."""

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Start from Gaussian noise by the seed; return the samples that came nearest, within the value range."""
        simulated = SimulatedTraining(observed)
        length = float(simulated.observed.square().sum())
        samples, classes = observed.samples, observed.classes
        features = samples * math.prod(observed.sample_shape)
        searched = samples * classes if self._searches_labels else 0
        generator = torch.Generator().manual_seed(seed)
        points = torch.randn(self.starts, features + searched, generator=generator)

        def read(some: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = some[:, :features].reshape(len(some), samples, *observed.sample_shape)
            if not searched:
                return found, self._labels(observed).expand(len(some), -1)
            return found, some[:, features:].reshape(len(some), samples, classes).softmax(dim=2)

        def evaluate(some: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            values: list[torch.Tensor] = []
            gradients: list[torch.Tensor] = []
            for part in torch.split(some, max(1, _SHARED_MEMORY // simulated.observed.numel())):
                variables = part.detach().requires_grad_()
                value = simulated.distances(*read(variables))
                gradients += torch.autograd.grad(value.sum(), variables)
                values.append(value.detach())
            return torch.cat(values), torch.cat(gradients)

        descent = Descent(_STEPS * self.iterations, _CONVERGED * length, _EXACT * length, self.patience)
        least = least_of_many(evaluate, points, descent)
        images, targets = read(least.points[least.values.argmin()][None])
        labels = targets[0].argmax(dim=1) if searched else targets[0]
        return Recovered(
            label_counts=np.bincount(labels.numpy(), minlength=classes).astype(np.int64),
            images=images[0].clamp(*observed.value_range),
        )

    _searches_labels: ClassVar[bool]

    def _labels(self, observed: ObservedUpdate) -> torch.Tensor:
        """Return the labels (m,), where they are not searched for."""
        raise NotImplementedError


@dataclass(frozen=True)
class Dlg(_GradientMatching):
    """Searches for samples and for their labels, as probabilities, at once."""

    name: ClassVar[str] = "dlg"
    source: ClassVar[str] = "Zhu, Liu, Han: Deep Leakage from Gradients, NeurIPS 2019, algorithm 1"
    _searches_labels: ClassVar[bool] = True

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """There is nothing that it needs but gradients."""
        return None


@dataclass(frozen=True)
class Idlg(_GradientMatching):
    """Reads the label of a single sample off the last layer, and searches for the sample alone."""

    name: ClassVar[str] = "idlg"
    source: ClassVar[str] = "Zhao, Mopuri, Bilen: iDLG, 2020, algorithm 1"
    _searches_labels: ClassVar[bool] = False

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """Say why it cannot be tried: its rule is for one sample and a last Linear."""
        if observed.samples != 1:
            return f"its rule finds the label of one sample, and the client has {observed.samples}"
        if last_layer(observed) is None:
            return f"the model's outputs are not those of a Linear with one for each of {observed.classes} classes"
        return None

    def _labels(self, observed: ObservedUpdate) -> torch.Tensor:
        layer = last_layer(observed)
        assert layer is not None
        return torch.tensor([layer.only_label(observed)])
