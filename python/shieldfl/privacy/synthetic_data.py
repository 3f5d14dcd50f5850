"""Differentially private synthetic data from noised mean embeddings, in the style of DP-MERF.

Source: Harder, Adamczewski, Park, "DP-MERF: differentially private mean embeddings with random features for
practical privacy-preserving data generation" (AISTATS 2021). A sample x of class c contributes the vector
(φ(x), 1) to the sum of its class, φ being random Fourier features of a Gaussian kernel, of norm 1; the 1
counts the class. All sums together are released once, with noise. A small network that turns noise and a
class into a sample is then fitted to the released means. Unlike in the paper, the counts are part of the one
release, neighbours differ in one sample's presence instead of replacing one, and the generator is fully
connected. Its samples keep to a range that the caller names: a kernel cannot tell values that are far too
large from others, and models that train on them diverge.

**What is private.** The unit is a sample. Neighbouring data sets are equal but for one sample, whose
contribution is there or is zero; how many samples there are is public. Replacing a sample by another one is
two such steps: the sensitivity is √2 times as large then, so read the ε of a noise multiplier smaller by
that. The adversary sees the synthetic samples, and may see the released sums. Contributions are rounded to a
grid that follows from ε, δ and ``fourier_features`` alone, the sums are integers, and the noise is a discrete
Gaussian, drawn exactly: under neighbouring data sets the same numbers can come out. The sensitivity includes
the rounding, and a contribution that is longer all the same is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from shieldfl.array_view import as_count
from shieldfl.errors import ArrayTypeError, DataError, ParameterError, RangeError
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.noise import discrete_gaussian_noise


@dataclass(frozen=True)
class SyntheticData:
    """Synthetic samples (N, ...) with labels (N,), and what the real ones paid for the one release: (ε, δ).

    Whatever is done with them costs no more; ε of training on the real data comes on top.
    ``noise_multiplier`` is the same cost for an accountant: one step with this multiplier at a sample rate of
    1.
    """

    features: torch.Tensor
    labels: torch.Tensor
    epsilon: float
    delta: float
    noise_multiplier: float


def check_labelled_samples(
    features: torch.Tensor, labels: torch.Tensor, shape: tuple[int, ...], classes: int
) -> None:
    """Check that samples (N, *shape), float32, and labels (N,), int64, fit a model of so many ``classes``.

    Raises ArrayTypeError for another dtype, ParameterError for another shape or no sample, DataError for a
    feature that is NaN or infinite, or a label out of range.
    """
    if features.dtype != torch.float32 or labels.dtype != torch.int64:
        raise ArrayTypeError(
            f"expected float32 features and int64 labels, got {features.dtype} and {labels.dtype}"
        )
    found, count = tuple(features.shape), len(labels) if labels.dim() == 1 else 0
    if not count or found != (count, *shape):
        raise ParameterError(
            f"expected at least 1 sample of shape {tuple(shape)}, and a label for each: got samples of shape "
            f"{found} and labels of shape {tuple(labels.shape)}"
        )
    if not bool(torch.isfinite(features).all()):
        raise DataError("the features hold NaN or infinity: clean the data set")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise DataError(f"labels must lie in 0 to {classes - 1}: renumber the classes of the data set")


def load_labelled_samples(path: str | Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Read ``features``, float32, and ``labels``, whole numbers, of a file as ``numpy.savez`` writes it.

    Nothing in the file is executed: arrays of Python objects are refused. Whether the samples fit a model,
    :func:`check_labelled_samples` tells. Raises DataError where it cannot be read, is damaged, too large
    for the memory, no such file, or lacks an array, ArrayTypeError for another dtype.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            features, labels = archive["features"], archive["labels"]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    # Headers are parsed as Python: besides NumPy's and zipfile's errors that raises those of the tokenizer,
    # the compiler and of arithmetic; and what is damaged may need more memory than there is.
    except Exception as error:
        raise DataError(
            f"{path} is damaged, or no archive of plain arrays: write it with numpy.savez(file, features=, "
            "labels=)"
        ) from error
    if features.dtype != np.float32 or labels.dtype.kind not in "iu":
        raise ArrayTypeError(
            f"{path} holds {features.dtype} features and {labels.dtype} labels: "
            "write float32 and whole numbers"
        )
    # Labels above int64 become negative, and so stay out of range.
    return torch.from_numpy(features), torch.from_numpy(labels.astype(np.int64))


# A sample's contribution (φ(x), 1) has the norm √2, and a hair more in double precision.
_NORM = math.sqrt(2) * (1 + 1e-9)
# The grid's step is 2^-20, or so much wider that the noise has a deviation of 2^23 steps, where it ends at
# 2^24.
_MOST_FRACTION_BITS = 20
_LOG2_MOST_DEVIATION_STEPS = 23
# Sums of so many are below 2^53 steps with all noise, which double precision holds.
_MOST_SAMPLES = 2**23 - 1
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
    feature_range: tuple[torch.Tensor, torch.Tensor],
    epsilon: float,
    delta: float,
    samples: int,
    seed: int,
    fourier_features: int = 1000,
    steps: int = 400,
) -> SyntheticData:
    """Make so many labelled synthetic samples that protect each real one by (ε, δ)-differential privacy.

    Classes are drawn in proportion to the noised counts; those that the noise hides are left out. The noise
    comes from the core's cryptographic generator, so the result differs from call to call. The quality is
    modest: class means and coarse variations survive, detail does not.

    Parameters
    ----------
    features : real samples, float32 (N, ...), normalised to about unit variance by figures that are public, N
        to 2^23 - 1.
    labels : class of each sample, int64 (N,), 0 to ``classes`` - 1.
    feature_range : lowest and highest value of synthetic samples, of shapes that broadcast to a sample's, as
        (channels, 1, 1) does to an image's. Must not depend on the data: what a pixel can be, not what it
        was.
    samples : at least 1. Must not depend on the data but on N.
    seed : decides the random features, which are no secret, and the generator's start and draws.
    fourier_features : length of φ, even, at least 2.
    steps : of fitting, at least 1.

    Raises ParameterError, ArrayTypeError and DataError for arguments out of range, and as
    :func:`check_labelled_samples`, RangeError where no class has enough samples to stand out of the noise.
    """
    shape = tuple(features.shape[1:])
    check_labelled_samples(features, labels, shape, classes)
    size = math.prod(shape)
    samples, steps = as_count(samples, "samples"), as_count(steps, "steps")
    fourier_features = as_count(fourier_features, "fourier_features", 2)
    if fourier_features % 2:
        raise ParameterError(f"fourier_features must be even, not {fourier_features}")
    lowest, highest = _flat_range(feature_range, shape)
    if len(features) > _MOST_SAMPLES:
        raise ParameterError(f"at most {_MOST_SAMPLES:,} samples can be summed exactly: pass fewer")
    multiplier = noise_multiplier_for(epsilon, delta, 1)
    grid = _Grid.choose(multiplier, fourier_features)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # The kernel tells samples apart that are as far from each other as normalised ones are, on average.
        frequencies = torch.randn(size, fourier_features // 2) / math.sqrt(size)
        sums = _class_sums(features.flatten(1), labels, classes, frequencies, grid)
        deviation = multiplier * grid.sensitivity
        released = torch.ldexp(
            (sums + _noise(sums.shape, deviation, grid)).double(), torch.tensor(-grid.fraction_bits)
        ).float()
        counts = released[:, -1]
        present = torch.nonzero(counts > _PRESENT_DEVIATIONS * deviation).flatten()
        if len(present) == 0:
            raise RangeError(
                "no class has enough samples to stand out of the noise: pool more data or allow a larger "
                "epsilon"
            )
        means = released[present, :-1] / counts[present, None]
        generator = _ClassGenerator(len(present), lowest, highest)
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


@dataclass(frozen=True)
class _Grid:
    """Multiples of 2^-``fraction_bits``, and the sensitivity of sums of contributions rounded to them."""

    fraction_bits: int
    fourier_features: int

    @classmethod
    def choose(cls, multiplier: float, fourier_features: int) -> _Grid:
        """Choose the finest grid on which noise is drawn, from public numbers alone.

        Raises ParameterError.
        """
        wider = math.ceil(math.log2(multiplier * _NORM)) + _MOST_FRACTION_BITS - _LOG2_MOST_DEVIATION_STEPS
        bits = _MOST_FRACTION_BITS - max(wider, 0)
        if bits < 0 or math.sqrt(fourier_features) > 2**bits:
            raise ParameterError("epsilon is so small that the noise drowns every sum: allow a larger one")
        return cls(bits, fourier_features)

    @property
    def sensitivity(self) -> float:
        """L2, in the sums' unit: rounding moves each number of φ by at most half a step, the 1 by nothing."""
        return _NORM + math.sqrt(self.fourier_features) * 2.0 ** -(self.fraction_bits + 1)

    def round(self, contributions: torch.Tensor) -> torch.Tensor:
        """Round to steps, int64, (N, n). Rows that are longer than the sensitivity come out as zeros."""
        # Before they become integers, which hold neither NaN nor what is far too long.
        fits = (contributions.abs() <= self.sensitivity).all(dim=1, keepdim=True)
        kept = torch.where(fits, contributions, torch.zeros_like(contributions))
        steps = torch.ldexp(kept, torch.tensor(self.fraction_bits)).round().long()
        most = math.floor((self.sensitivity * 2.0**self.fraction_bits) ** 2)
        return steps * (steps.square().sum(dim=1, keepdim=True) <= most)


def _noise(shape: torch.Size, deviation: float, grid: _Grid) -> torch.Tensor:
    """Draw discrete Gaussian noise, in the grid's steps, int64; never with a smaller deviation."""
    zeros = np.zeros(math.prod(shape), dtype=np.float32)
    # Zeros are not clipped: the norm has only to be in the range that the sampler takes.
    norm = max(math.sqrt(zeros.size), 1.0)
    drawn, _, _ = discrete_gaussian_noise(zeros, norm, deviation, grid.fraction_bits)
    return torch.ldexp(torch.from_numpy(drawn), torch.tensor(grid.fraction_bits)).long().view(shape)


class _ClassGenerator(nn.Module):
    """Turns positions of classes into flat samples, each from fresh noise of torch's global generator."""

    def __init__(self, classes: int, lowest: torch.Tensor, highest: torch.Tensor) -> None:
        super().__init__()
        self._classes = classes
        self._lowest = lowest
        self._highest = highest
        self._layers = nn.Sequential(
            nn.Linear(_LATENT_SIZE + classes, _HIDDEN_SIZE),
            nn.BatchNorm1d(_HIDDEN_SIZE),
            nn.ReLU(),
            nn.Linear(_HIDDEN_SIZE, _HIDDEN_SIZE),
            nn.BatchNorm1d(_HIDDEN_SIZE),
            nn.ReLU(),
            nn.Linear(_HIDDEN_SIZE, len(lowest)),
            nn.Sigmoid(),
        )

    def forward(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return float32 samples, shape (N, size), for int64 positions of shape (N,)."""
        one_hot = nn.functional.one_hot(chosen, self._classes).float()
        made: torch.Tensor = self._layers(torch.cat([torch.randn(len(chosen), _LATENT_SIZE), one_hot], dim=1))
        return torch.lerp(self._lowest, self._highest, made)


def _flat_range(
    feature_range: tuple[torch.Tensor, torch.Tensor], shape: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return lowest and highest value of each of a sample's numbers, float32, shape (size,).

    Raises ParameterError.
    """
    try:
        lowest, highest = (bound.cpu().float().expand(shape).flatten() for bound in feature_range)
    except RuntimeError as error:
        raise ParameterError(
            f"feature_range must broadcast to a sample of shape {shape}: pass two tensors of the same length"
        ) from error
    if not bool(torch.isfinite(highest - lowest).all() and (lowest < highest).all()):
        raise ParameterError("feature_range must be finite, as must be its width, and lowest below highest")
    return lowest, highest


def _fourier_features(samples: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Return φ: (N, size) samples to (N, fourier_features) vectors of norm 1."""
    phases = samples @ frequencies
    return torch.cat([phases.cos(), phases.sin()], dim=1) / math.sqrt(frequencies.shape[1])


def _class_sums(
    samples: torch.Tensor, labels: torch.Tensor, classes: int, frequencies: torch.Tensor, grid: _Grid
) -> torch.Tensor:
    """Return each class's sums of (φ(x), 1) in the grid's steps, int64, (classes, fourier_features + 1)."""
    sums = torch.zeros(classes, 2 * frequencies.shape[1] + 1, dtype=torch.int64)
    # A product may round a sample differently at another place: where one is zeroed, the others keep theirs.
    matrix = frequencies.double()
    for part, part_labels in zip(
        torch.split(samples, _CHUNK_SAMPLES), torch.split(labels, _CHUNK_SAMPLES), strict=True
    ):
        embedded = _fourier_features(part.cpu().double(), matrix)
        contributions = torch.cat([embedded, torch.ones(len(part), 1)], dim=1)
        sums.index_add_(0, part_labels.cpu(), grid.round(contributions))
    return sums


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
