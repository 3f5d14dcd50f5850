"""Samples whose gradient is the observed one, found by L-BFGS on the squared distance: DLG and iDLG."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from shieldfl.audit.attack import Recovered, UpdateAttack
from shieldfl.audit.attacker.last_layer import last_layer
from shieldfl.audit.attacker.simulated_training import SimulatedTraining
from shieldfl.audit.views.observed_update import ObservedUpdate

__all__ = ["Dlg", "Idlg"]


# Squared distances in parts of the gradient's squared length: from where on a start is taken to have found the samples,
# and from where on more steps fit what float32 rounds.
_CONVERGED, _EXACT = 1e-4, 1e-8


@dataclass(frozen=True)
class _Found:
    """Where one start has come nearest."""

    distance: float
    samples: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class _GradientMatching(UpdateAttack):
    """Minimises the squared distance between gradients, over the known positions alone."""

    recovers: ClassVar[Literal["labels", "images"]] = "images"
    iterations: int = 300
    """Calls of L-BFGS, each of up to 20 steps of rate 1 without a line search."""
    starts: int = 4
    """How often it begins from new noise, at most: without a line search a good half of the starts go astray, and the
    distance tells. The papers begin once; they report what converged."""

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Start from Gaussian noise by the seed; return the samples that came nearest, within the value range."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            simulated = SimulatedTraining(observed)
            length = float(simulated.observed.square().sum())
            best = self._start(observed, simulated, length)
            for _ in range(self.starts - 1):
                if best.distance <= _CONVERGED * length:
                    break
                best = min(best, self._start(observed, simulated, length), key=lambda found: found.distance)
        return Recovered(
            label_counts=np.bincount(best.labels.numpy(), minlength=observed.classes).astype(np.int64),
            images=best.samples.clamp(*observed.value_range),
        )

    def _start(self, observed: ObservedUpdate, simulated: SimulatedTraining, length: float) -> _Found:
        samples = torch.randn(observed.samples, *observed.sample_shape)
        logits, targets = self._targets(observed)

        def distance() -> torch.Tensor:
            return (simulated.gradient(samples, targets()) - simulated.observed).square().sum()

        least, (found, *labels) = _least(distance, [samples, *logits], self.iterations, _EXACT * length)
        return _Found(least, found, labels[0].argmax(dim=1) if labels else targets())

    @abstractmethod
    def _targets(self, observed: ObservedUpdate) -> tuple[list[torch.Tensor], Callable[[], torch.Tensor]]:
        """Return what of the targets is searched for, if anything, and what they are at any time."""


@dataclass(frozen=True)
class Dlg(_GradientMatching):
    """Searches for samples and for their labels, as probabilities, at once."""

    name: ClassVar[str] = "dlg"
    source: ClassVar[str] = "Zhu, Liu, Han: Deep Leakage from Gradients, NeurIPS 2019, algorithm 1"

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """There is nothing that it needs but gradients."""
        return None

    def _targets(self, observed: ObservedUpdate) -> tuple[list[torch.Tensor], Callable[[], torch.Tensor]]:
        logits = torch.randn(observed.samples, observed.classes)
        return [logits], lambda: logits.softmax(dim=1)


@dataclass(frozen=True)
class Idlg(_GradientMatching):
    """Reads the label of a single sample off the last layer, and searches for the sample alone."""

    name: ClassVar[str] = "idlg"
    source: ClassVar[str] = "Zhao, Mopuri, Bilen: iDLG, 2020, algorithm 1"

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """Say why it cannot be tried: its rule is for one sample and a last Linear."""
        if observed.samples != 1:
            return f"its rule finds the label of one sample, and the client has {observed.samples}"
        if last_layer(observed) is None:
            return f"the model's outputs are not those of a Linear with one for each of {observed.classes} classes"
        return None

    def _targets(self, observed: ObservedUpdate) -> tuple[list[torch.Tensor], Callable[[], torch.Tensor]]:
        layer = last_layer(observed)
        assert layer is not None
        label = torch.tensor([layer.only_label(observed)])
        return [], lambda: label


def _least(
    distance: Callable[[], torch.Tensor], variables: list[torch.Tensor], iterations: int, enough: float
) -> tuple[float, list[torch.Tensor]]:
    """Return the least finite distance that L-BFGS came by, and copies of the variables there."""
    best = [variable.clone() for variable in variables]
    least = math.inf
    optimizer = torch.optim.LBFGS([variable.requires_grad_() for variable in variables], lr=1.0)

    def closure() -> torch.Tensor:
        nonlocal best, least
        value = distance()
        gradients = torch.autograd.grad(value, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            # L-BFGS takes no other memory format, and models on channels-last memory give such gradients.
            variable.grad = gradient.contiguous()
        value = value.detach()
        if float(value) < least:
            best, least = [variable.detach().clone() for variable in variables], float(value)
        return value

    before = None
    for _ in range(iterations):
        began_at = float(optimizer.step(closure))  # type: ignore[no-untyped-call]
        # It goes nowhere any more once the distance is no number, or the same as before.
        if least <= enough or not math.isfinite(began_at) or began_at == before:
            break
        before = began_at
    return least, best
