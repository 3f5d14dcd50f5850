"""Labels from the gradient of a classifier's last layer: finding the layer, iLRG, guesses at hidden values.

The guesses are an addition of this project: the best that a party could know. Gradient matching needs none.
It leaves unknown positions out, which is the same as searching for their values too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, lsqr
from scipy.special import softmax
from torch import Tensor, nn

from shieldfl.array_view import FloatVector
from shieldfl.lab.audit.attack import Recovered, UpdateAttack
from shieldfl.lab.audit.views.observed_update import Counts, Flags, Floats, ObservedUpdate
from shieldfl.lab.audit.views.view import KnownChange
from shieldfl.learning.local_trainer import train_locally
from shieldfl.models.torch_bridge import flatten

# One sample's logits may all be positive, so that a ReLU behind them would not show.
_PROBES = 4


@dataclass(frozen=True)
class LastLayer:
    """A Linear whose outputs are the logits.

    Its weight may be computed from other parameters. If W follows from parameters t, such as W0 + D T with a
    small table T, an update shows only J^T G of the weight's gradient G, with the Jacobian J of W. These are
    fewer numbers than G has, unless there are as many directions as classes. This is an addition of this
    project.
    """

    name: str
    bias: str | None
    """Name of the bias; None if the layer has no bias."""
    of: tuple[str, ...]
    """Names of the parameters that the weight is computed from, or the one name of the weight itself."""
    computed: bool

    def weight_gradient(self, observed: ObservedUpdate) -> Floats:
        """Return the mean gradient of the weight (classes, d), or for a computed weight the best fit.

        The fit begins with one h for all classes, as if all features of a batch were the same: each class's
        row is its bias gradient times h. The least change is added that gives the observed gradients of the
        parameters and makes the classes' rows sum to zero, as with softmax and cross-entropy. With as many
        directions as classes, the fit is the gradient itself.
        """
        gradients = observed.tensors(observed.gradient)
        if not self.computed:
            return gradients[self.of[0]].double().numpy()
        assert self.bias is not None
        module = deepcopy(observed.model).double()
        shown = np.concatenate([gradients[name].double().numpy().ravel() for name in self.of])
        biases = gradients[self.bias].double().numpy()
        weight = module.get_submodule(self.name).weight
        assert isinstance(weight, Tensor)
        parameters = dict(module.named_parameters())
        told, back = _told_of(weight, [parameters[name] for name in self.of])
        features = weight.shape[1]

        def solved(
            make: Callable[[Floats], Floats], read: Callable[[Floats], Floats], of: Floats, size: int
        ) -> Floats:
            operator = LinearOperator((of.size, size), matvec=make, rmatvec=read, dtype=np.float64)
            found: Floats = lsqr(operator, of, atol=1e-10, btol=1e-10)[0]
            return found

        target = np.concatenate([shown, np.zeros(features)])
        common = solved(lambda h: told(np.outer(biases, h)), lambda y: biases @ back(y), target, features)
        first = np.outer(biases, common)
        change = solved(
            lambda g: told(g.reshape(first.shape)),
            lambda y: back(y).ravel(),
            target - told(first),
            first.size,
        )
        return first + change.reshape(first.shape)


def only_label(observed: ObservedUpdate) -> int:
    """Return the label of a client's only sample: the row of the last weight gradient with the least sum.

    Row i of a sample's gradient is (p_i - y_i) times the features below. If these are positive, as behind
    ReLU or a sigmoid, the row of the sample's class alone is negative (iDLG, section 3.2).
    """
    layer = last_layer(observed)
    assert layer is not None
    return int(layer.weight_gradient(observed).sum(axis=1).argmin())


def last_layer(observed: ObservedUpdate, *, computed: bool = False) -> LastLayer | None:
    """Find the Linear that returns the logits; None where there is none.

    A layer whose weight is computed is found only if ``computed`` asks for it, and only if it has a bias.
    """
    name = logits_layer(observed)
    if name is None:
        return None
    layer = cast(nn.Linear, observed.model.get_submodule(name))
    parameters = dict(observed.model.named_parameters())
    # The model itself has no name.
    weight, bias = f"{name}.weight".lstrip("."), f"{name}.bias".lstrip(".")
    own_bias = None if layer.bias is None else bias
    if own_bias not in (None, *parameters):
        return None
    if weight in parameters:
        return LastLayer(name, own_bias, (weight,), computed=False)
    if not (computed and own_bias and layer.weight.requires_grad):
        return None
    gradients = torch.autograd.grad(layer.weight.sum(), list(parameters.values()), allow_unused=True)
    of = tuple(one for one, gradient in zip(parameters, gradients, strict=True) if gradient is not None)
    return LastLayer(name, own_bias, of, computed=True)


def logits_layer(observed: ObservedUpdate) -> str | None:
    """Return the name of the Linear whose outputs the model returns on noise, one for each class; else None.

    Any layer behind it, other than a change of shape, would make the equations of the attacks false.
    """
    model = deepcopy(observed.model).eval()
    made: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module.out_features == observed.classes:
            module.register_forward_hook(
                lambda _module, _inputs, output, name=name: made.__setitem__(name, output)
            )
    noise = torch.randn(_PROBES, *observed.sample_shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = model(noise)
    for name, logits in made.items():
        if logits.numel() == outputs.numel() and torch.equal(logits.ravel(), outputs.ravel()):
            return name
    return None


def _told_of(
    weight: Tensor, parameters: list[nn.Parameter]
) -> tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]:
    """Return the map of a gradient (classes, d) to parameters' gradients and sums (d,), and its transpose."""
    # The derivative of a gradient by its own factor is the product with J.
    factor = torch.zeros_like(weight, requires_grad=True)
    gradients = torch.autograd.grad(weight, parameters, factor, create_graph=True)
    flat = torch.cat([one.reshape(-1) for one in gradients])

    def told(gradient: Floats) -> Floats:
        of = torch.from_numpy(np.ascontiguousarray(gradient))
        parts = torch.autograd.grad(weight, parameters, of, retain_graph=True)
        return np.concatenate([*(one.numpy().ravel() for one in parts), gradient.sum(axis=0)])

    def back(values: Floats) -> Floats:
        own = torch.from_numpy(np.ascontiguousarray(values[: flat.numel()]))
        (moved,) = torch.autograd.grad(flat, factor, own, retain_graph=True)
        return np.asarray(moved.numpy() + values[flat.numel() :], dtype=np.float64)

    return told, back


_CLEAR = 2.0
"""Standard deviations of noise that a bias gradient must exceed to be a divisor of the weight's gradient."""


@dataclass(frozen=True)
class Ilrg(UpdateAttack):
    """Counts the labels of a batch from its mean gradient (iLRG).

    In the last layer, row i of the weight's gradient divided by the bias's gradient is h_i: a mean of the
    features below, mostly of class i's samples. p_i = softmax(W h_i + b) stands for the model's output on
    class i. The counts k solve sum_j k_j = K and sum_j k_j p_j[i] - k_i = K g_b,i.

    After several steps of SGD, W and b are those from before them, and the gradient is a mean over all steps.
    If W is computed from other parameters, such as factors, their gradients show its gradient in part, and
    the best fit is taken.
    """

    name = "ilrg"
    recovers = "labels"
    source = (
        "Ma et al., Instance-wise Batch Label Restoration via Gradients in Federated Learning, "
        "ICLR 2023, section 3"
    )
    longest: float | None = 2.0
    """Longest h_i that is used, in median lengths; the mean of the others replaces longer ones.

    This is an addition of this project; None gives the paper's equations. Where the parts of class i's
    samples and of all others' samples in g_b,i almost cancel, the quotient is not the features of a class.
    One such class spoils all counts.
    """

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        layer = last_layer(observed, computed=True)
        if layer is None or layer.bias is None:
            return (
                f"the model's outputs are not those of a Linear with a bias and {observed.classes} outputs, "
                "one for each class"
            )
        return None

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        layer = last_layer(observed, computed=True)
        assert layer is not None
        assert layer.bias is not None
        module = observed.model.get_submodule(layer.name)
        assert isinstance(module, nn.Linear)
        weight, bias = (one.detach().double().numpy() for one in (module.weight, module.bias))
        bias_gradient = observed.tensors(observed.gradient)[layer.bias].double().numpy()
        noise = observed.tensors(observed.gradient_deviation)[layer.bias].double().numpy()
        telling = np.abs(bias_gradient) > _CLEAR * noise
        features = self._class_features(layer.weight_gradient(observed), bias_gradient, telling)
        said = softmax(features @ weight.T + bias, axis=1)
        samples, classes = observed.samples, observed.classes
        coefficients = np.vstack([np.ones((1, classes)), said.T - np.eye(classes)])
        values = np.concatenate([[samples], samples * bias_gradient])
        return Recovered(label_counts=whole_counts(np.linalg.pinv(coefficients) @ values, samples))

    def _class_features(self, weight_gradient: Floats, bias_gradient: Floats, telling: Flags) -> Floats:
        """Return h_i for each class, (C, d); where ``telling`` (C,) is false, the mean of the others."""
        with np.errstate(over="ignore"):
            features: Floats = np.nan_to_num(
                np.divide(
                    weight_gradient,
                    bias_gradient[:, None],
                    out=np.zeros_like(weight_gradient),
                    where=telling[:, None],
                )
            )
        if not telling.any():
            return features
        if self.longest is not None:
            lengths = np.linalg.norm(features, axis=1)
            telling &= lengths <= self.longest * np.median(lengths[telling])
        features[~telling] = features[telling].mean(axis=0)
        return features


def whole_counts(counts: Floats, total: int) -> Counts:
    """Round counts (C,) to whole numbers from 0 on whose sum is the total, by largest remainders."""
    shares = np.clip(counts, 0.0, None)
    if shares.sum() == 0.0:
        shares = np.ones_like(shares)
    exact = shares * (total / shares.sum())
    whole: Counts = np.floor(exact).astype(np.int64)
    # Among equal remainders the first class is rounded up, on every machine.
    rounded_up = np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]
    whole[rounded_up] += 1
    return whole


def with_own_expectation(
    observed: ObservedUpdate, features: Tensor, labels: Tensor, trials: int, seed: int
) -> ObservedUpdate:
    """Fill in the mean change by training as the client does, on drawn samples of the attacker's own."""
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
    """Make the last layer's gradient sum to zero over the classes, as with softmax and cross-entropy.

    The sum is zero for each column of the weight and for the bias, for every batch. It is zero for SGD's
    change too, except weight decay, whose part follows from the model. A column's only hidden entry is the
    negative sum of the others, and counts as known if these are exact. Several hidden guesses are moved by
    the same amount each, to the nearest point with the right sum. If the others have noise, guesses are moved
    by less: by the best linear estimate, for guesses that are as wrong as the tensor's known values vary
    without noise. An update without such a layer stays as it is.
    """
    layer = last_layer(observed)
    if layer is None:
        return observed
    change, known = observed.change.astype(np.float64), observed.known.copy()
    decayed = _decayed(observed)
    parameters = dict(observed.model.named_parameters())
    for name, where in observed.layout.slices():
        if name not in (*layer.of, layer.bias):
            continue
        # Views of one tensor, classes by columns: what is written to them is written to the vectors.
        values = change[where].reshape(observed.classes, -1)
        shown = known[where].reshape(observed.classes, -1)
        start = parameters[name].detach().double().numpy().reshape(observed.classes, -1)
        noise = observed.deviation[where].astype(np.float64).reshape(observed.classes, -1)
        _complete(values, shown, decayed * start.sum(axis=0), noise)
    return replace(observed, change=change.astype(np.float32), known=known)


def _complete(
    values: Floats,
    known: Flags,
    totals: Floats,
    noise: Floats,
) -> None:
    """Move hidden entries in place so that each column sums to its total, as far as the noise allows.

    ``noise`` is the standard deviation of known entries.
    """
    hidden = ~known
    count = hidden.sum(axis=0)
    variances = np.where(known, noise**2, 0.0)
    of_sums = variances.sum(axis=0)
    follows = hidden & (count == 1) & (of_sums == 0)
    # The guess at a column's only hidden entry has no effect, not even in the last digits.
    values[follows] = 0.0
    varies = max(0.0, float(np.mean(values[known] ** 2 - variances[known]))) if known.any() else 1.0
    spread = count * varies + of_sums
    shares = np.divide(varies, spread, out=np.zeros_like(totals), where=spread > 0)
    # Without noise a column's sum is exact, however wrong the guesses are taken to be.
    shares = np.where(of_sums == 0, 1 / np.maximum(count, 1), shares)
    values += hidden * (totals - values.sum(axis=0)) * shares
    known |= follows


def _decayed(observed: ObservedUpdate) -> float:
    """Return the relative change of a parameter by weight decay alone, without gradients, over all steps."""
    training = observed.training
    value, velocity = 1.0, 0.0
    for _ in range(observed.steps):
        velocity = training.momentum * velocity + training.weight_decay * value
        value -= training.learning_rate * velocity
    return value - 1.0


_EXPECTED_OVER = 4


def exposed_elsewhere(known: KnownChange, others: Sequence[KnownChange]) -> FloatVector | None:
    """Return the change (P,) that the clients exposed in the nearest round, else NaN; None if all are NaN."""
    exposed = np.full(known.change.size, np.nan, dtype=np.float32)
    for one in sorted(others, key=lambda other: -abs(other.round - known.round)):
        if one.clients == known.clients and one.round != known.round:
            exposed[one.known] = one.change[one.known]
    return None if np.isnan(exposed).all() else exposed


def guesses(
    observed: ObservedUpdate,
    exposed: FloatVector | None,
    public: tuple[Tensor, Tensor],
    seed: int,
) -> Iterator[tuple[str, ObservedUpdate]]:
    """Yield an update with its hidden positions filled in by each way to guess, after the way's name."""
    if observed.known.all():
        yield "nothing hidden", observed
        return
    zeros = observed.filled(np.zeros_like(observed.change))
    yield "zeros", zeros
    yield "class sums", by_class_sums(zeros)
    if len(public[0]) >= observed.samples:
        expected = with_own_expectation(observed, *public, trials=_EXPECTED_OVER, seed=seed)
        yield "own expectation and class sums", by_class_sums(expected)
    if exposed is not None:
        yield "other rounds and class sums", by_class_sums(observed.filled(np.nan_to_num(exposed)))
