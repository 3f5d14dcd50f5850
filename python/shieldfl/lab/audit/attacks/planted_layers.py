"""Linear layers that a server plants in front of a model, and samples out of the gradients of their rows.

A row's weight gradient is the sum of the samples that it passes on, each times what comes back to it, and its
bias gradient the sum of those factors: where there was one sample, their ratio is that sample.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from scipy.sparse.csgraph import connected_components
from scipy.stats import norm
from torch import Tensor, nn

from shieldfl.lab.audit.attack import ModelPlantingAttack, Recovered
from shieldfl.lab.audit.views.observed_update import ObservedUpdate

_ROUNDING = 2.0**-24
_UNCERTAIN = 4.0
"""Roundings, or standard deviations of the noise, by which values that are equal may differ."""
_DROWNED = "nothing stands clear of the noise"
_BY_ACCIDENT = 0.01
"""Probability that noise alone passes for a signal somewhere in a layer."""


@dataclass(frozen=True)
class _PlantedLayer(ModelPlantingAttack):
    """``shrunk``, in (0, 1], is a factor of the planted rows.

    The layer behind them has its inverse, so the model is the same. With small rows a change of float32
    parameters tells the gradient of one step more precisely; with large rows the thresholds stay where they
    are for more steps.
    """

    recovers = "images"
    layer: ClassVar[str]
    rows: int = 1000
    shrunk: float = 1 / 32

    def planted(
        self, model: nn.Module, sample_shape: tuple[int, ...], public: Tensor, seed: int
    ) -> nn.Module:
        samples = public.flatten(1).float()
        rows, thresholds, behind, mean = self._weights(samples, torch.Generator().manual_seed(seed))
        front, back = nn.Linear(samples.shape[1], self.rows), nn.Linear(self.rows, samples.shape[1])
        with torch.no_grad():
            front.weight.copy_(self.shrunk * rows)
            front.bias.copy_(-self.shrunk * thresholds)
            back.weight.copy_(behind / self.shrunk)
            back.bias.copy_(mean)
        parts: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        parts[self.layer] = front
        parts |= {"relu": nn.ReLU(), "back": back, "unflatten": nn.Unflatten(1, sample_shape)}
        parts["model"] = copy.deepcopy(model)
        return nn.Sequential(parts)

    @abstractmethod
    def _weights(self, samples: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return rows (rows, features), their thresholds, and weight and bias of the layer behind them."""

    def lasting(self) -> Self:
        return replace(self, shrunk=1.0)

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        weight = f"{self.layer}.weight"
        if weight not in observed.layout.names:
            return "the client did not train from a model that this attack had planted a layer in"
        if not bool(observed.tensors(observed.known)[weight].any()):
            return "nothing is known of the planted layer's weights"
        return None

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        found = self._read(RowGradients.of(observed, self.layer), observed.value_range)
        hidden = not len(found) and bool(observed.deviation[observed.known].any())
        return Recovered(images=found.reshape(-1, *observed.sample_shape), remark=_DROWNED if hidden else "")

    @abstractmethod
    def _read(self, rows: RowGradients, value_range: tuple[float, float]) -> Tensor:
        """Return the samples (m, features) that rows tell."""


@dataclass(frozen=True)
class RowGradients:
    """A planted layer's row gradients, or their sums or differences: (rows, features + 1), biases last."""

    values: Tensor
    known: Tensor
    errors: Tensor
    """Bound of each value's error from rounding or noise, shaped as ``values``."""

    @classmethod
    def of(cls, observed: ObservedUpdate, planted: str) -> RowGradients:
        gradients, known = observed.tensors(observed.gradient), observed.tensors(observed.known)
        noise = observed.tensors(observed.gradient_deviation)
        before = dict(observed.model.named_parameters())
        rate = observed.training.learning_rate * observed.gradients_taken
        weight, bias = f"{planted}.weight", f"{planted}.bias"

        def errors(name: str, deviations: float) -> Tensor:
            # A change is the difference of two parameters, each rounded to float32; a gradient is a float32
            # sum.
            largest = float(before[name].detach().abs().max())
            values = gradients[name][known[name]]
            sums = float(values.abs().max()) if values.numel() else 0.0
            return _UNCERTAIN * _ROUNDING * (largest / rate + sums) + deviations * noise[name]

        def together(weights: Tensor, biases: Tensor) -> Tensor:
            return torch.cat([weights, biases[:, None]], dim=1)

        off = errors(weight, _UNCERTAIN), errors(bias, _farthest(len(gradients[bias])))
        values, there = (together(one[weight], one[bias]) for one in (gradients, known))
        return cls(values, there, together(*off))

    def equal_rows_as_one(self) -> RowGradients:
        """Merge each run of rows that are equal where both are known; one known value suffices."""
        both = self.known[:-1] & self.known[1:]
        apart = torch.where(both, self.values[:-1] - self.values[1:], 0.0)
        errors = torch.where(both, self.errors[:-1] ** 2 + self.errors[1:] ** 2, 0.0)
        alike = both[:, :-1].any(dim=1) & (apart[:, :-1].square().sum(dim=1) <= errors[:, :-1].sum(dim=1))
        alike &= apart[:, -1].abs() <= errors[:, -1].sqrt()
        runs = torch.cat([torch.zeros(1, dtype=torch.long), (~alike).cumsum(dim=0)])
        count = int(runs[-1]) + 1
        values, known = means_of_known(self.values, self.known, runs, count)
        # Errors of a mean are no larger than the mean error: roundings need not cancel.
        return RowGradients(values, known, means_of_known(self.errors, self.known, runs, count)[0])

    def between_rows(self) -> RowGradients:
        errors = (self.errors[:-1].square() + self.errors[1:].square()).sqrt()
        return RowGradients(
            torch.cat([self.values[:-1] - self.values[1:], self.values[-1:]]),
            torch.cat([self.known[:-1] & self.known[1:], self.known[-1:]]),
            torch.cat([errors, self.errors[-1:]]),
        )

    def samples(self, value_range: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """Return a sample for each row that passed some on, (m, features), and which values are known.

        Unknown values are 0. A row whose bias is not known gives its sample's direction alone, with the
        largest length that the range allows.
        """
        known, biases, biases_known = self.known[:, :-1], self.values[:, -1], self.known[:, -1]
        weights = torch.where(known, self.values[:, :-1], 0.0)
        by_bias = biases_known & (biases.abs() > self.errors[:, -1])
        least = self.errors[:, :-1] * max(1.0, _farthest(weights.numel()) / _UNCERTAIN)
        by_range = ~biases_known & (weights.abs() > least).any(dim=1)
        used = (by_bias & known.any(dim=1)) | by_range
        found = weights / torch.where(biases_known, biases, torch.ones(()))[:, None]
        found[by_range] = _stretched(weights[by_range], value_range)
        bounded = torch.where(known, found.clamp(*value_range), 0.0)
        return bounded[used], known[used]


def means_of_known(values: Tensor, known: Tensor, groups: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the means of each group's known values, (count, ...), and where a group has any."""
    shape = (count, *values.shape[1:])
    known_values = torch.where(known, values, 0.0).double()
    sums = torch.zeros(shape, dtype=torch.float64).index_add_(0, groups, known_values)
    counts = torch.zeros(shape, dtype=torch.float64).index_add_(0, groups, known.double())
    return (sums / counts.clamp_min(1)).float(), counts > 0


def _farthest(count: int) -> float:
    """Return the standard deviations that any of so many normal values exceeds by accident."""
    return float(norm.isf(_BY_ACCIDENT / (2 * count)))


def _stretched(directions: Tensor, value_range: tuple[float, float]) -> Tensor:
    """Scale each row's largest value to the range's top, with the sign that leaves less below the range."""
    low, high = value_range
    best = torch.zeros_like(directions)
    least = torch.full((len(directions),), math.inf)
    for sign in (1.0, -1.0):
        largest = (sign * directions).amax(dim=1, keepdim=True)
        scaled = torch.where(largest > 0, sign * directions * (high / largest.abs().clamp_min(1e-30)), low)
        outside = torch.where(largest[:, 0] > 0, (low - scaled).clamp_min(0).square().sum(dim=1), math.inf)
        better = outside < least
        best[better], least[better] = scaled[better], outside[better]
    return best


@dataclass(frozen=True)
class RobbingTheFed(_PlantedLayer):
    """All rows measure the same quantity of a sample, and each passes on the samples above its threshold.

    The difference of two adjacent rows' gradients comes from the samples between their thresholds. Thresholds
    are quantiles of the server's own samples, so that the bins, one for each of 2 ``rows`` or more, are
    filled alike. The attack is exact after one local step, and approximate after several. ``measured`` is the
    "brightness", the mean of a sample's features, or a "random" linear functional of them.

    It finds one image for each bin that was not empty: the sample, or a mean of the samples in the bin. A bin
    counts as empty if its content does not stand clear of the noise. Rows with no sample between them have
    the same gradients, so hidden values of one are taken from the other.
    """

    name = "robbing-the-fed"
    source = "Fowl, Geiping, Czaja, Goldblum, Goldstein, ICLR 2022, section 4"
    layer = "bins"
    rows: int = 100
    measured: Literal["brightness", "random"] = "brightness"

    def _weights(self, samples: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        features = samples.shape[1]
        row = torch.full((features,), 1 / features)
        if self.measured == "random":
            row = torch.randn(features, generator=generator) / math.sqrt(features)
        values = samples @ row
        thresholds = torch.quantile(values, torch.arange(self.rows) / self.rows)
        thresholds[0] = 2 * values.min() - values.max()  # below all samples that the server has not seen, too
        passed_on = (values[:, None] - thresholds).clamp_min(0).sum(dim=1)
        # With a random pattern, what comes back from all pixels does not cancel.
        pattern = torch.randn(features, generator=generator) * samples.std(dim=0)
        pattern /= passed_on.std().clamp_min(1e-6)
        mean = samples.mean(dim=0) - pattern * passed_on.mean()
        return row.expand(self.rows, -1), thresholds, pattern[:, None].expand(-1, self.rows), mean

    def _read(self, rows: RowGradients, value_range: tuple[float, float]) -> Tensor:
        return rows.equal_rows_as_one().between_rows().samples(value_range)[0]


_FEWEST_IN_COMMON = 16
"""Fewest positions known of both of two images to compare them, since fewer may agree by accident."""
_SAME = 1e-3
"""Largest root mean square distance of copies of one sample, as a share of the range of values."""


@dataclass(frozen=True)
class CuriousAbandonHonesty(_PlantedLayer):
    """Each row weighs a random half of the features against the other half; negative weights are larger.

    Most samples then have a sum below zero, and a row passes on few samples of a batch, often one. Features
    are scaled to [0, 1] by the range of the server's own samples. The attack is exact after one local step.

    The weights of the planted layer's ``rows``, 1 or more, have the ``deviation`` sigma; positive ones are
    smaller than negative ones by the factor ``scale``, s in (0, 1].

    It finds one image for each row that stands clear of the noise; rows with the same image give one.
    """

    name = "curious-abandon-honesty"
    source = "Boenisch et al., EuroS&P 2023, section V, algorithm 1"
    layer = "traps"
    deviation: float = 0.5
    scale: float = 0.95

    def _weights(self, samples: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        low, high = float(samples.min()), float(samples.max())
        features = samples.shape[1]
        rows = trap_rows(self.rows, features, self.deviation, self.scale, generator) / (high - low)
        thresholds = low * rows.sum(dim=1)
        passed_on = (samples @ rows.T - thresholds).clamp_min(0)
        mixture = torch.randn(features, self.rows, generator=generator)
        deviation = (passed_on @ mixture.T).std(correction=0).clamp_min(1e-6)
        mixture *= samples.std(correction=0) / deviation
        return rows, thresholds, mixture, samples.mean(dim=0)

    def _read(self, rows: RowGradients, value_range: tuple[float, float]) -> Tensor:
        """Return the means (k, features) of samples that are the same where both are known."""
        low, high = value_range
        found, known = rows.samples(value_range)
        values, there = found.double(), known.double()
        squares = values.square()
        distances = squares @ there.T + there @ squares.T - 2 * values @ values.T
        common = there @ there.T
        fewest = min(_FEWEST_IN_COMMON, found.shape[1])
        same = (common >= fewest) & (distances < common * (_SAME * (high - low)) ** 2)
        count, groups = connected_components(same.numpy(), directed=False)
        return means_of_known(found, known, torch.from_numpy(groups).long(), count)[0]


def trap_rows(rows: int, features: int, deviation: float, scale: float, generator: torch.Generator) -> Tensor:
    """Return (rows, features): a random half -|N(0, sigma²)|, the other s times the same, permuted."""
    half = features // 2
    magnitudes = deviation * torch.randn(rows, half, generator=generator).abs()
    order = torch.rand(rows, half, generator=generator).argsort(dim=1)
    values = torch.cat([-magnitudes, scale * magnitudes.gather(1, order)], dim=1)
    places = torch.rand(rows, features, generator=generator).argsort(dim=1)[:, : 2 * half]
    return torch.zeros(rows, features).scatter_(1, places, values)
