"""A linear layer that a server plants in front of a model, and samples out of the gradients of its rows.

A row's weight gradient is the sum of the samples that it passes on, each times what comes back to it, and its bias
gradient the sum of those factors: where there was one sample, their ratio is that sample.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from dataclasses import dataclass, replace

import torch
from torch import nn

from shieldfl.audit.views.observed_update import ObservedUpdate

__all__ = ["RowGradients", "in_front", "means_of_known", "missing_layer"]

_ROUNDING = 2.0**-24
_UNCERTAIN = 4.0
"""So many roundings, or deviations of the noise, may pass for a factor that is zero."""


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
    weight_error: float
    """What a weight gradient may be off by, because of rounding or noise."""
    bias_error: float

    @classmethod
    def of(cls, observed: ObservedUpdate, planted: str) -> RowGradients:
        """Read them off an update of a model from :func:`in_front`."""
        gradients, known = observed.tensors(observed.gradient), observed.tensors(observed.known)
        before = dict(observed.model.named_parameters())
        rate = observed.training.learning_rate * observed.gradients_taken

        def error(name: str) -> float:
            # A change is the difference of two parameters, each rounded to float32; a gradient is a float32 sum.
            largest = float(before[name].detach().abs().max())
            values = gradients[name][known[name]]
            sums = float(values.abs().max()) if values.numel() else 0.0
            return _UNCERTAIN * (_ROUNDING * (largest / rate + sums) + observed.noise_deviation / rate)

        weight, bias = f"{planted}.weight", f"{planted}.bias"
        return cls(gradients[weight], known[weight], gradients[bias], known[bias], error(weight), error(bias))

    def equal_rows_as_one(self) -> RowGradients:
        """Return each run of rows that do not differ where both are known as one: known where one of them is.

        Rows of which nothing is known in common are not taken for equal.
        """
        both = self.weights_known[:-1] & self.weights_known[1:]
        squares = torch.where(both, self.weights[:-1] - self.weights[1:], 0.0).square().sum(dim=1)
        common = both.sum(dim=1)
        alike = (common > 0) & (squares <= common * (math.sqrt(2) * self.weight_error) ** 2)
        apart = (self.biases[:-1] - self.biases[1:]).abs() > math.sqrt(2) * self.bias_error
        alike &= ~(apart & self.biases_known[:-1] & self.biases_known[1:])
        runs = torch.cat([torch.zeros(1, dtype=torch.long), (~alike).cumsum(dim=0)])
        count = int(runs[-1]) + 1
        weights, weights_known = means_of_known(self.weights, self.weights_known, runs, count)
        biases, biases_known = means_of_known(self.biases, self.biases_known, runs, count)
        return replace(
            self, weights=weights, weights_known=weights_known, biases=biases, biases_known=biases_known
        )

    def between_rows(self) -> RowGradients:
        """Return the difference of each row to the next, and the last row as it is."""
        return RowGradients(
            _less_next(self.weights),
            _with_next(self.weights_known),
            _less_next(self.biases),
            _with_next(self.biases_known),
            math.sqrt(2) * self.weight_error,
            math.sqrt(2) * self.bias_error,
        )

    def samples(self, value_range: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a sample (m, features) of each row that some came through, within ``value_range``, and what is known.

        Where a weight is not known, the sample is 0. A row whose bias is not known has the direction of its sample
        alone: it is taken as long as the range allows.
        """
        weights = torch.where(self.weights_known, self.weights, 0.0)
        strongest = weights.abs().amax(dim=1)
        by_bias = self.biases_known & (self.biases.abs() > self.bias_error)
        by_range = ~self.biases_known & (strongest > self.weight_error)
        used = (by_bias & self.weights_known.any(dim=1)) | by_range
        factors = torch.where(self.biases_known, self.biases, torch.ones(()))
        found = weights / factors[:, None]
        found[by_range] = _stretched(weights[by_range], value_range)
        low, high = value_range
        bounded = torch.where(self.weights_known, found.clamp(low, high), 0.0)
        return bounded[used], self.weights_known[used]


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


def _less_next(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows[:-1] - rows[1:], rows[-1:]])


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
