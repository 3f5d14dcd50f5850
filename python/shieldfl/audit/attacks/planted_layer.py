"""A linear layer that a server plants in front of a model, and samples out of the gradients of its rows.

A row's weight gradient is the sum of the samples that it passes on, each times what comes back to it, and its bias
gradient the sum of those factors: where there was one sample, their ratio is that sample.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from dataclasses import dataclass

import torch
from scipy.stats import norm
from torch import nn

from shieldfl.audit.attack import Recovered
from shieldfl.audit.views.observed_update import ObservedUpdate

__all__ = ["RowGradients", "in_front", "means_of_known", "missing_layer", "recovered_samples"]

_ROUNDING = 2.0**-24
_UNCERTAIN = 4.0
"""So many roundings, or deviations of the noise, may lie between values that are the same."""
_DROWNED = "nothing stands clear of the noise"
_BY_ACCIDENT = 0.01
"""The chance that noise alone stands clear of itself somewhere in a layer."""


def in_front(
    model: nn.Module, planted: str, front: nn.Linear, back: nn.Linear, sample_shape: tuple[int, ...]
) -> nn.Module:
    """Return a copy of a model behind two linear layers with a ReLU between: samples to numbers, and to samples again.

    ``planted`` is the name of the first one, by which :class:`RowGradients` finds it.
    """
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["flatten"] = nn.Flatten()
    parts[planted] = front
    parts["relu"] = nn.ReLU()
    parts["back"] = back
    parts["unflatten"] = nn.Unflatten(1, sample_shape)
    parts["model"] = copy.deepcopy(model)
    return nn.Sequential(parts)


def missing_layer(observed: ObservedUpdate, planted: str) -> str | None:
    """Say why nothing can be read off a planted layer; None where something can."""
    weight = f"{planted}.weight"
    if weight not in observed.layout.names:
        return "the client did not train from a model that this attack had planted a layer in"
    if not bool(observed.tensors(observed.known)[weight].any()):
        return "nothing is known of the planted layer's weights"
    return None


@dataclass(frozen=True)
class RowGradients:
    """The gradients of a planted layer's rows, or sums and differences of such."""

    weights: torch.Tensor
    """Float32 (rows, features)."""
    weights_known: torch.Tensor
    """Bool (rows, features)."""
    biases: torch.Tensor
    """Float32 (rows,)."""
    biases_known: torch.Tensor
    """Bool (rows,)."""
    weight_errors: torch.Tensor
    """What each weight gradient may be off by, because of rounding or noise, float32 (rows, features)."""
    bias_errors: torch.Tensor
    """Float32 (rows,)."""

    @classmethod
    def of(cls, observed: ObservedUpdate, planted: str) -> RowGradients:
        """Read them off an update of a model from :func:`in_front`."""
        gradients, known = observed.tensors(observed.gradient), observed.tensors(observed.known)
        noise = observed.tensors(observed.gradient_deviation)
        before = dict(observed.model.named_parameters())
        rate = observed.training.learning_rate * observed.gradients_taken

        def errors(name: str, deviations: float) -> torch.Tensor:
            # A change is the difference of two parameters, each rounded to float32; a gradient is a float32 sum.
            largest = float(before[name].detach().abs().max())
            values = gradients[name][known[name]]
            sums = float(values.abs().max()) if values.numel() else 0.0
            return _UNCERTAIN * _ROUNDING * (largest / rate + sums) + deviations * noise[name]

        weight, bias = f"{planted}.weight", f"{planted}.bias"
        return cls(
            gradients[weight],
            known[weight],
            gradients[bias],
            known[bias],
            errors(weight, _UNCERTAIN),
            errors(bias, _farthest(len(gradients[bias]))),
        )

    def equal_rows_as_one(self) -> RowGradients:
        """Return each run of rows that do not differ where both are known as one: known where one of them is.

        Rows of which nothing is known in common are not taken for equal.
        """
        both = self.weights_known[:-1] & self.weights_known[1:]
        squares = torch.where(both, self.weights[:-1] - self.weights[1:], 0.0).square().sum(dim=1)
        errors = torch.where(both, self.weight_errors[:-1] ** 2 + self.weight_errors[1:] ** 2, 0.0)
        alike = both.any(dim=1) & (squares <= errors.sum(dim=1))
        apart = (self.biases[:-1] - self.biases[1:]).abs() > _less_next_errors(self.bias_errors)[:-1]
        alike &= ~(apart & self.biases_known[:-1] & self.biases_known[1:])
        runs = torch.cat([torch.zeros(1, dtype=torch.long), (~alike).cumsum(dim=0)])
        count = int(runs[-1]) + 1
        weights, weights_known = means_of_known(self.weights, self.weights_known, runs, count)
        biases, biases_known = means_of_known(self.biases, self.biases_known, runs, count)
        # Errors of a mean are no larger than the mean error: roundings need not cancel.
        weight_errors, _ = means_of_known(self.weight_errors, self.weights_known, runs, count)
        bias_errors, _ = means_of_known(self.bias_errors, self.biases_known, runs, count)
        return RowGradients(weights, weights_known, biases, biases_known, weight_errors, bias_errors)

    def between_rows(self) -> RowGradients:
        """Return the difference of each row to the next, and the last row as it is."""
        return RowGradients(
            _less_next(self.weights),
            _with_next(self.weights_known),
            _less_next(self.biases),
            _with_next(self.biases_known),
            _less_next_errors(self.weight_errors),
            _less_next_errors(self.bias_errors),
        )

    def samples(self, value_range: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a sample (m, features) of each row that some came through, within ``value_range``, and what is known.

        Where a weight is not known, the sample is 0. A row whose bias is not known has the direction of its sample
        alone: it is taken as long as the range allows.
        """
        weights = torch.where(self.weights_known, self.weights, 0.0)
        by_bias = self.biases_known & (self.biases.abs() > self.bias_errors)
        least = self.weight_errors * max(1.0, _farthest(weights.numel()) / _UNCERTAIN)
        by_range = ~self.biases_known & (weights.abs() > least).any(dim=1)
        used = (by_bias & self.weights_known.any(dim=1)) | by_range
        factors = torch.where(self.biases_known, self.biases, torch.ones(()))
        found = weights / factors[:, None]
        found[by_range] = _stretched(weights[by_range], value_range)
        low, high = value_range
        bounded = torch.where(self.weights_known, found.clamp(low, high), 0.0)
        return bounded[used], self.weights_known[used]


def recovered_samples(found: torch.Tensor, observed: ObservedUpdate) -> Recovered:
    """Return samples (m, features) as images; where there are none, say whether there is noise to hide them."""
    hidden = not len(found) and bool(observed.deviation[observed.known].any())
    return Recovered(images=found.reshape(-1, *observed.sample_shape), remark=_DROWNED if hidden else "")


def means_of_known(
    values: torch.Tensor, known: torch.Tensor, groups: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the means (count, ...) of what is known of each group of rows, 0 where nothing is, and where something is.

    ``groups`` (rows,) says of which group a row is, 0 to count - 1.
    """
    shape = (count, *values.shape[1:])
    known_values = torch.where(known, values, 0.0).double()
    sums = torch.zeros(shape, dtype=torch.float64).index_add_(0, groups, known_values)
    counts = torch.zeros(shape, dtype=torch.float64).index_add_(0, groups, known.double())
    return (sums / counts.clamp_min(1)).float(), counts > 0


def _farthest(count: int) -> float:
    """Return how many deviations from zero none of so many normal values lies, but by such an accident."""
    return float(norm.isf(_BY_ACCIDENT / (2 * count)))


def _less_next(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows[:-1] - rows[1:], rows[-1:]])


def _less_next_errors(errors: torch.Tensor) -> torch.Tensor:
    """Return what differences of rows to the next may be off by, and the last row as it is."""
    return torch.cat([(errors[:-1].square() + errors[1:].square()).sqrt(), errors[-1:]])


def _with_next(known: torch.Tensor) -> torch.Tensor:
    return torch.cat([known[:-1] & known[1:], known[-1:]])


def _stretched(directions: torch.Tensor, value_range: tuple[float, float]) -> torch.Tensor:
    """Scale each row so that its largest value is the top of the range.

    Its sign is not known: taken is the one with which less of it lies below the range.
    """
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
