"""Differentially private synthetic data from noised mean embeddings, in the style of DP-MERF.

Source: Harder, Adamczewski, Park, "DP-MERF: differentially private mean embeddings with random features for
practical privacy-preserving data generation" (AISTATS 2021). A sample x of class c contributes the vector
(φ(x), 1) to the sum of its class, φ being random Fourier features of a Gaussian kernel, of norm 1; the 1 counts
the class. All sums together are released once, with Gaussian noise. A small network that turns noise and a
class into a sample is then fitted to the released means. Unlike in the paper, the counts are part of the one
release, neighbours differ by adding or removing a sample instead of replacing one, and the generator is fully
connected.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from shieldfl.errors import ParameterError, RangeError
from shieldfl.privacy.gaussian_mechanism import gaussian_noise_multiplier
from shieldfl.privacy.mechanisms import gaussian_noise
from shieldfl.privacy.synthetic_data import SyntheticData, check_labelled_samples

__all__ = ["fit_synthetic_data"]

# A sample's contribution (φ(x), 1) has the norm √2, and a hair more after rounding.
_SENSITIVITY = math.sqrt(2) * (1 + 1e-4)
# Contributions are added as multiples of 2^-40, exactly: rounding must not make the other samples' sum another one.
_LOG2_GRID_STEPS = 40
_MOST_SAMPLES = 2 ** (63 - _LOG2_GRID_STEPS) - 1
# A class whose noised count does not stand out of the noise by this many deviations counts as absent.
_PRESENT_DEVIATIONS = 5.0
_LATENT_SIZE = 10
_HIDDEN_SIZE = 256
_SAMPLES_PER_CLASS = 50
_LEARNING_RATE = 0.01
_CHUNK_SAMPLES = 1000


def fit_synthetic_data(
    features: torch.Tensor,
    labels: torch.Tensor,
    classes: int,
    *,
    epsilon: float,
    delta: float,
    samples: int,
    seed: int,
    kernel_length: float | None = None,
    fourier_features: int = 1000,
    steps: int = 400,
) -> SyntheticData:
    """Make labelled synthetic samples that protect each real one by (ε, δ)-differential privacy.

    Classes are drawn in proportion to the noised counts; those that the noise hides are left out. The noise comes
    from the core's cryptographic generator, so the result differs from call to call. The quality is modest: class
    means and coarse variations survive, detail does not.

    Parameters
    ----------
    features : float32 tensor, shape (N, ...)
        Real samples, normalised to about unit variance by figures that are public, finite, N from 1 to 2^23 - 1.
    labels : int64 tensor, shape (N,)
        Class of each sample, 0 to ``classes`` - 1.
    classes : int
        Number of classes, at least 1.
    epsilon, delta : float
        Privacy of the release: ε positive and finite, δ in (0, 1).
    samples : int
        Synthetic samples to make, at least 1. Must not depend on the data.
    seed : int
        Decides the random features, which are no secret, and the generator's start and draws.
    kernel_length : float, optional
        Distance between samples that the kernel tells apart, positive and finite. Default: the square root of a
        sample's number of values, about the distance of normalised samples. Must not depend on the data.
    fourier_features : int
        Length of φ, even, at least 2.
    steps : int
        Steps of fitting, at least 1.

    Returns
    -------
    SyntheticData
        Samples on the device of ``features``, and the privacy that they cost.

    Raises
    ------
    ParameterError, ArrayTypeError, DataError
        If an argument is out of range, or as :func:`check_labelled_samples` says of the real samples.
    RangeError
        If no class has enough samples to stand out of the noise.
    """
    shape = tuple(features.shape[1:])
    check_labelled_samples(features, labels, shape, classes)
    size = math.prod(shape)
    length = math.sqrt(size) if kernel_length is None else kernel_length
    if not (math.isfinite(length) and length > 0):
        raise ParameterError("the kernel length must be positive and finite")
    if fourier_features < 2 or fourier_features % 2:
        raise ParameterError(f"fourier_features must be even and at least 2, got {fourier_features}")
    if samples < 1 or steps < 1:
        raise ParameterError(f"need at least 1 sample and 1 step, got {samples} and {steps}")
    if len(features) > _MOST_SAMPLES:
        raise ParameterError(f"at most {_MOST_SAMPLES:,} samples can be summed exactly: pass fewer")
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        frequencies = torch.randn(size, fourier_features // 2) / length
        sums = _class_sums(features.flatten(1), labels, classes, frequencies)
        deviation = multiplier * _SENSITIVITY
        # Sums are rounded to float32 once the noise is in them: what is done to a private output costs no privacy.
        noise = gaussian_noise(np.zeros(sums.numel(), dtype=np.float32), deviation)
        released = (sums + torch.from_numpy(noise).view_as(sums)).float()
        counts = released[:, -1]
        present = torch.nonzero(counts > _PRESENT_DEVIATIONS * deviation).flatten()
        if len(present) == 0:
            raise RangeError(
                "no class has enough samples to stand out of the noise: pool more data or allow a larger epsilon"
            )
        means = released[present, :-1] / counts[present, None]
        generator = _ClassGenerator(len(present), size)
        _fit(generator, means, frequencies, steps)
        chosen = torch.multinomial(counts[present], samples, replacement=True)
        with torch.no_grad():
            made = [generator(part) for part in torch.split(chosen, _CHUNK_SAMPLES)]
    return SyntheticData(
        features=torch.cat(made).view(samples, *shape).to(features.device),
        labels=present[chosen].to(features.device),
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=multiplier,
    )


class _ClassGenerator(nn.Module):
    """Turns positions of classes into flat samples, each from fresh noise of torch's global generator."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self._classes = classes
        self._layers = nn.Sequential(
            nn.Linear(_LATENT_SIZE + classes, _HIDDEN_SIZE),
            nn.BatchNorm1d(_HIDDEN_SIZE),
            nn.ReLU(),
            nn.Linear(_HIDDEN_SIZE, _HIDDEN_SIZE),
            nn.BatchNorm1d(_HIDDEN_SIZE),
            nn.ReLU(),
            nn.Linear(_HIDDEN_SIZE, size),
        )

    def forward(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return float32 samples, shape (N, size), for int64 positions of shape (N,)."""
        one_hot = nn.functional.one_hot(chosen, self._classes).float()
        made: torch.Tensor = self._layers(torch.cat([torch.randn(len(chosen), _LATENT_SIZE), one_hot], dim=1))
        return made


def _fourier_features(samples: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Return φ: (N, size) samples to (N, fourier_features) vectors of norm 1."""
    phases = samples @ frequencies
    return torch.cat([phases.cos(), phases.sin()], dim=1) / math.sqrt(frequencies.shape[1])


def _class_sums(
    samples: torch.Tensor, labels: torch.Tensor, classes: int, frequencies: torch.Tensor
) -> torch.Tensor:
    """Return the sums of (φ(x), 1) over each class, float64 on the CPU, (classes, fourier_features + 1)."""
    sums = torch.zeros(classes, 2 * frequencies.shape[1] + 1, dtype=torch.int64)
    for part, part_labels in zip(
        torch.split(samples, _CHUNK_SAMPLES), torch.split(labels, _CHUNK_SAMPLES), strict=True
    ):
        # In double precision, in which a sample's place among the others moves what it adds by a step at most.
        embedded = _fourier_features(part.cpu().double(), frequencies.double())
        contributions = torch.cat([embedded, torch.ones(len(part), 1)], dim=1)
        sums.index_add_(0, part_labels.cpu(), (contributions * 2**_LOG2_GRID_STEPS).round().long())
    return torch.ldexp(sums.double(), torch.tensor(-_LOG2_GRID_STEPS))


def _fit(generator: _ClassGenerator, means: torch.Tensor, frequencies: torch.Tensor, steps: int) -> None:
    """Minimise the squared distance between the generator's mean embeddings and the released ones."""
    classes = len(means)
    chosen = torch.arange(classes).repeat_interleave(_SAMPLES_PER_CLASS)
    optimizer = torch.optim.Adam(generator.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        embedded = _fourier_features(generator(chosen), frequencies)
        loss = (embedded.view(classes, _SAMPLES_PER_CLASS, -1).mean(dim=1) - means).square().sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    generator.eval()
