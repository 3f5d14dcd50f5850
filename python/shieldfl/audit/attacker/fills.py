"""What an attacker puts where an update is hidden: the best that a party could know.

These are additions of this project. Gradient matching needs none for the distance: it leaves unknown positions out,
which is the same as searching for their values too. Rules for labels read them.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from shieldfl.audit.attacker.last_layer import last_layer
from shieldfl.audit.views.observed_update import FloatVector, ObservedUpdate
from shieldfl.errors import ParameterError
from shieldfl.torch_bridge import flatten
from shieldfl.training.sgd import train_locally

__all__ = ["by_class_sums", "with_last_exposed", "with_own_expectation", "with_zeros"]


def with_zeros(observed: ObservedUpdate) -> ObservedUpdate:
    """Take it that nothing changed where nothing is known."""
    return observed.filled(np.zeros_like(observed.change))


def with_last_exposed(observed: ObservedUpdate, exposed: FloatVector) -> ObservedUpdate:
    """Take what the same client showed of a position when it last did.

    ``exposed`` (P,) has a change of an earlier round for each position, scaled to this one's steps where they differ,
    and NaN where there was none: such positions keep what they have.
    """
    if exposed.shape != observed.change.shape:
        raise ParameterError(f"{exposed.size:,} values were exposed of an update of {observed.change.size:,}")
    return observed.filled(np.where(np.isnan(exposed), observed.change, exposed).astype(np.float32))


def with_own_expectation(
    observed: ObservedUpdate, features: torch.Tensor, labels: torch.Tensor, trials: int, seed: int
) -> ObservedUpdate:
    """Take the mean of what training changes on the attacker's own samples.

    Each trial trains from the same model with the client's settings, on as many samples as the client has, drawn
    without replacement from the attacker's (N, *sample_shape) and their labels (N,). Raises ParameterError where these
    are fewer.
    """
    if len(features) < observed.samples or trials < 1:
        raise ParameterError(
            f"an attacker needs {observed.samples} samples for each of at least one trial, and has {len(features)}"
        )
    generator = torch.Generator().manual_seed(seed)
    before = flatten(observed.model).astype(np.float64)
    mean = np.zeros_like(before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for trial in range(trials):
            model = deepcopy(observed.model)
            drawn = torch.randperm(len(features), generator=generator)[: observed.samples]
            train_locally(model, features[drawn], labels[drawn], observed.training, seed + trial)
            mean += (flatten(model) - before) / trials
    return observed.filled(mean.astype(np.float32))


def by_class_sums(observed: ObservedUpdate) -> ObservedUpdate:
    """Make the last layer's gradient sum to zero over the classes, as that of softmax and cross-entropy does.

    This holds for each column of the weight and for the bias, for every batch, and so for what SGD changes, but for
    weight decay, whose part follows from the model. Where one entry of a column is hidden it is the others' negative
    sum, and known from then on if these are exact. Of several hidden ones the guesses are moved by the same amount
    each, which is the nearest point that sums right. Where the others have noise, guesses are moved by less: by the
    best linear estimate, if guesses are off by as much as what is known of the tensor varies without its noise. An
    update without such a layer stays as it is.
    """
    layer = last_layer(observed)
    if layer is None:
        return observed
    change, known = observed.change.astype(np.float64), observed.known.copy()
    decayed = _decayed(observed)
    parameters = dict(observed.model.named_parameters())
    for name, where in observed.layout.slices():
        if name not in (layer.weight, layer.bias):
            continue
        # Views of one tensor, classes by columns: what is written to them is written to the vectors.
        values = change[where].reshape(observed.classes, -1)
        shown = known[where].reshape(observed.classes, -1)
        start = parameters[name].detach().double().numpy().reshape(observed.classes, -1)
        noise = observed.deviation[where].astype(np.float64).reshape(observed.classes, -1)
        _complete(values, shown, decayed * start.sum(axis=0), noise)
    return replace(observed, change=change.astype(np.float32), known=known)


def _complete(
    values: NDArray[np.float64],
    known: NDArray[np.bool_],
    totals: NDArray[np.float64],
    noise: NDArray[np.float64],
) -> None:
    """Move the hidden entries of each column, in place, so that it sums to its total, as far as noise lets that tell.

    ``noise`` is the deviation of what is known.
    """
    hidden = ~known
    count = hidden.sum(axis=0)
    variances = np.where(known, noise**2, 0.0)
    of_sums = variances.sum(axis=0)
    follows = hidden & (count == 1) & (of_sums == 0)
    # What stands at the only hidden entry of a column has no say, and not in the digits either.
    values[follows] = 0.0
    varies = max(0.0, float(np.mean(values[known] ** 2 - variances[known]))) if known.any() else 1.0
    spread = count * varies + of_sums
    shares = np.divide(varies, spread, out=np.zeros_like(totals), where=spread > 0)
    # Without noise a column's sum is what it is, whatever is thought of guesses.
    shares = np.where(of_sums == 0, 1 / np.maximum(count, 1), shares)
    values += hidden * (totals - values.sum(axis=0)) * shares
    known |= follows


def _decayed(observed: ObservedUpdate) -> float:
    """Return by which share weight decay alone changes what no gradient moves, over all of the client's steps."""
    training = observed.training
    value, velocity = 1.0, 0.0
    for _ in range(observed.steps):
        velocity = training.momentum * velocity + training.weight_decay * value
        value -= training.learning_rate * velocity
    return value - 1.0
