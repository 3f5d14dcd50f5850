"""Samples whose gradient points where the observed one does, found by signed steps of Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch.nn.functional import cosine_similarity

from shieldfl.audit.attack import Recovered, UpdateAttack
from shieldfl.audit.attacker.last_layer import last_layer
from shieldfl.audit.attacker.simulated_training import SimulatedTraining
from shieldfl.audit.attacks.ilrg import Ilrg
from shieldfl.audit.views.observed_update import ObservedUpdate

__all__ = ["Inverting", "total_variation"]

_IMAGE_RANK = 3  # channels, height, width


@dataclass(frozen=True)
class Inverting(UpdateAttack):
    """Makes 1 - cos(gradients) + alpha TV(images) small, over the known positions alone.

    Labels come first: of one sample by iDLG's rule, of more by iLRG's counts. The steps that a client took one after
    another are simulated one after another.
    """

    name: ClassVar[str] = "inverting"
    recovers: ClassVar[Literal["labels", "images"]] = "images"
    source: ClassVar[str] = "Geiping et al., Inverting Gradients, NeurIPS 2020, eq. 4"
    iterations: int = 1000
    """Steps of Adam; the paper takes 4,800 and more."""
    step_size: float = 0.1
    """Of a sample's values; a tenth of it from 3/8 of the iterations on, and again from 5/8 and 7/8."""
    smoothness: float = 0.1
    """alpha, the weight of the total variation."""

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        """Say why it cannot be tried: it needs images, and labels from the last layer."""
        if len(observed.sample_shape) != _IMAGE_RANK:
            return f"it searches for images of (channels, height, width), and a sample is {observed.sample_shape}"
        if observed.samples > 1:
            return Ilrg().inapplicable(observed)
        if last_layer(observed) is None:
            return f"the model's outputs are not those of a Linear with one for each of {observed.classes} classes"
        return None

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        """Start from Gaussian noise by the seed; return the images of the least value."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            counts = self._label_counts(observed, seed)
            labels = torch.from_numpy(np.repeat(np.arange(observed.classes), counts))
            # In which batch a label was nobody knows: sorted ones would make batches of one class.
            labels = labels[torch.randperm(len(labels))]
            return Recovered(label_counts=counts, images=self._images(observed, labels))

    def _label_counts(
        self, observed: ObservedUpdate, seed: int
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if observed.samples > 1:
            counts = Ilrg().recover(observed, seed).label_counts
            assert counts is not None
            return counts
        layer = last_layer(observed)
        assert layer is not None
        return np.bincount([layer.only_label(observed)], minlength=observed.classes).astype(np.int64)

    def _images(self, observed: ObservedUpdate, labels: torch.Tensor) -> torch.Tensor:
        simulated = SimulatedTraining(observed)
        images = torch.randn(observed.samples, *observed.sample_shape, requires_grad=True)
        optimizer = torch.optim.Adam([images], lr=self.step_size)
        schedule = torch.optim.lr_scheduler.MultiStepLR(
            optimizer, [self.iterations * eighths // 8 for eighths in (3, 5, 7)], gamma=0.1
        )
        best, least = images.detach().clamp(*observed.value_range), np.inf
        for _ in range(self.iterations):
            gradient = simulated.gradient(images, labels)
            value = 1 - cosine_similarity(gradient, simulated.observed, dim=0)
            value = value + self.smoothness * total_variation(images)
            if value.item() < least:
                best, least = images.detach().clamp(*observed.value_range), value.item()
            (slope,) = torch.autograd.grad(value, images)
            images.grad = slope.sign()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                images.clamp_(*observed.value_range)
        return best


def total_variation(images: torch.Tensor) -> torch.Tensor:
    """Return the mean difference between neighbours down and across, added, of images (m, channels, height, width)."""
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
    across = (images[..., :, 1:] - images[..., :, :-1]).abs().mean()
    return down + across
