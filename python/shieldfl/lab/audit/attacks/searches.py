"""Searches for samples with the observed gradient: DLG and iDLG by L-BFGS, inverting gradients by Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, replace_all_batch_norm_modules_, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cosine_similarity, cross_entropy

from shieldfl.lab.audit.attack import Recovered, UpdateAttack
from shieldfl.lab.audit.attacks.labels import Ilrg, last_layer, only_label
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.learning.scores import batches_of

_REACHED = 0.1
"""Distance that searches for batches reach, as a share of the gradient's root mean square.

Noise well below it leaves the weights of positions almost equal.
"""


def _weights(observed: ObservedUpdate) -> Tensor | None:
    """Return weights of the known values (k,), by generalised least squares; None if all noise is equal."""
    noise = observed.gradient_deviation[observed.known].astype(np.float64)
    if noise.max() == noise.min():
        return None
    values = observed.gradient[observed.known].astype(np.float64)
    # Values with more noise do not tell how large gradients are.
    clear = values[noise == noise.min()]
    error = max(_REACHED * float(np.sqrt(np.mean(clear**2))), 1e-30)
    return torch.from_numpy((error / np.hypot(error, noise)).astype(np.float32))


class SimulatedTraining:
    """Repeats a client's SGD, on a copy of the model, on samples of the attacker's choice.

    All steps are simulated, with the client's momentum and weight decay (Geiping et al., 2020, section 6, for
    federated averaging). Nobody else knows the order in which the client drew its samples: here batches are
    taken in the given order, the same in each epoch. BatchNorm uses the statistics of the batch, as in
    training.
    """

    def __init__(self, observed: ObservedUpdate) -> None:
        # Running means are written to, which several runs at once cannot do; training does not need them.
        self._model = replace_all_batch_norm_modules_(deepcopy(observed.model).train())
        # The model is a copy: its own parameters are not moved.
        self._start = dict(self._model.named_parameters())
        self._slopes = grad(
            lambda parameters, batch, target: cross_entropy(
                functional_call(self._model, parameters, (batch,)), target
            )
        )
        self._at_once: bool | None = None
        """Whether the model can run on several batches at once; None until this was tried."""
        self._training = observed.training
        self._known = None if observed.known.all() else torch.from_numpy(np.flatnonzero(observed.known))
        self._gradients_taken = observed.gradients_taken
        self._weights = _weights(observed)
        self.observed = self._seen(torch.from_numpy(observed.gradient))
        """Mean gradient that the update shows at known positions in ascending order, times weights, (k,).

        All weights are 1 unless the noise on some positions is larger than on others.
        """

    def gradient(self, samples: Tensor, targets: Tensor) -> Tensor:
        """Return :attr:`observed` of other samples, with classes (m,) or probabilities (m, classes)."""
        # The fused kernels of attention have no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            return self._mean_gradient(samples, targets)

    def distances(self, samples: Tensor, targets: Tensor) -> Tensor:
        """Return squared distances (B,) of :attr:`observed` from :meth:`gradient` of B batches, all at once.

        Samples are (B, m, *sample_shape), targets (B, m) or (B, m, classes). Batches run one after another if
        the model cannot run on several at once.
        """

        def distance(own: Tensor, target: Tensor) -> Tensor:
            return (self._mean_gradient(own, target) - self.observed).square().sum()

        at_once = vmap(distance, randomness="different")
        with sdpa_kernel(SDPBackend.MATH):
            if self._at_once is None:
                # On one batch: too little memory for all of them is an error, and no property of the model.
                self._at_once = _runs(at_once, samples[:1], targets[:1])
            if self._at_once:
                found: Tensor = at_once(samples, targets)
                return found
            return torch.stack([distance(*one) for one in zip(samples, targets, strict=True)])

    def _mean_gradient(self, samples: Tensor, targets: Tensor) -> Tensor:
        training, current = self._training, self._start
        moved: list[Tensor] = []
        velocities: list[Tensor] = []
        epochs = (batches_of(samples, targets, training.batch_size) for _ in range(training.local_epochs))
        for batch, target in chain.from_iterable(epochs):
            directions = list(self._slopes(current, batch, target).values())
            if training.weight_decay:
                directions = _plus(directions, training.weight_decay, current.values())
            if velocities:
                directions = _plus(directions, training.momentum, velocities)
            velocities = directions
            # Steps are summed apart: a difference of parameters would lose most digits of a small step.
            moved = [a + b for a, b in zip(moved, directions, strict=True)] if moved else directions
            current = dict(
                zip(current, _plus(current.values(), -training.learning_rate, directions), strict=True)
            )
        return self._seen(torch.cat([part.reshape(-1) for part in moved]) / self._gradients_taken)

    def _seen(self, flat: Tensor) -> Tensor:
        known = flat if self._known is None else flat[self._known]
        return known if self._weights is None else known * self._weights


def _plus(values: Iterable[Tensor], factor: float, others: Iterable[Tensor]) -> list[Tensor]:
    return [value + factor * other for value, other in zip(values, others, strict=True)]


def _runs(function: Callable[..., Tensor], *arguments: Tensor) -> bool:
    """Return whether torch.func can run a function on the arguments.

    The trial leaves the state of the random numbers as it was.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            function(*arguments)
        except (RuntimeError, ValueError):
            return False
    return True


_HISTORY = 100
_LEAST_CURVATURE = 1e-10

ValuesAndGradients = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Function of points (B, d) that returns their values (B,) and gradients (B, d)."""


class _Curvature:
    """Estimates each start's second derivatives from its last steps.

    The product of the inverse Hessian with a vector has the compact form of Byrd, Nocedal, Schnabel (1994,
    theorem 2.2). It equals the usual two loops over the history, in a dozen operations for all starts. Pairs
    lie in a window that moves through arrays of twice the length. A pair that a start does not keep is all
    zeros.
    """

    def __init__(self, points: Tensor) -> None:
        starts, size = points.shape
        # Rows lie one after another in memory: each is written at once, and read with its neighbours.
        self._s, self._y = (points.new_zeros(starts, 2 * _HISTORY, size) for _ in range(2))
        self._sy, self._yy = (
            torch.zeros(starts, 2 * _HISTORY, 2 * _HISTORY, dtype=torch.float64) for _ in range(2)
        )
        self._scale = torch.ones(starts, dtype=torch.float64)
        self._begin = self._end = 0

    def keep(self, chosen: Tensor) -> None:
        self._s, self._y, self._sy, self._yy, self._scale = (
            one[chosen] for one in (self._s, self._y, self._sy, self._yy, self._scale)
        )

    def add(self, step: Tensor, change: Tensor) -> None:
        product = _dot(step, change)
        kept = product > _LEAST_CURVATURE
        square = _dot(change, change)
        self._scale = torch.where(kept, product / square.clamp_min(1e-300), self._scale)
        if self._end == 2 * _HISTORY:
            self._move_to_front()
        if self._end - self._begin == _HISTORY:
            self._begin += 1
        at = self._end
        self._end += 1
        window = slice(self._begin, self._end)
        self._s[:, at] = torch.where(kept[:, None], step, 0.0)
        self._y[:, at] = torch.where(kept[:, None], change, 0.0)
        self._sy[:, window, at] = _products(self._s[:, window], self._y[:, at])
        self._sy[:, at, at] += (
            ~kept
        ).double()  # a pair of zeros leaves the triangle solvable, and adds nothing
        across = _products(self._y[:, window], self._y[:, at])
        self._yy[:, window, at] = across
        self._yy[:, at, window] = across

    def _move_to_front(self) -> None:
        window, front = slice(self._begin, self._end), slice(0, self._end - self._begin)
        for one in (self._s, self._y):
            one[:, front] = one[:, window].clone()
        for one in (self._sy, self._yy):
            one[:, front, front] = one[:, window, window].clone()
        self._begin, self._end = 0, front.stop

    def direction(self, gradient: Tensor) -> Tensor:
        window = slice(self._begin, self._end)
        s, y = self._s[:, window], self._y[:, window]
        triangle = self._sy[:, window, window].triu()
        scale = self._scale[:, None]
        along, across = _products(s, gradient), _products(y, gradient)
        solved = torch.linalg.solve_triangular(triangle, along[:, :, None], upper=True)[:, :, 0]
        diagonal = triangle.diagonal(dim1=1, dim2=2)
        both = diagonal * solved + scale * (_products(self._yy[:, window, window], solved) - across)
        back = torch.linalg.solve_triangular(triangle.mT, both[:, :, None], upper=False)[:, :, 0]
        dtype = gradient.dtype
        return (
            -scale.to(dtype) * gradient
            - _sums(s, back.to(dtype))
            + scale.to(dtype) * _sums(y, solved.to(dtype))
        )


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return (one.double() * other.double()).sum(dim=1)


def _products(rows: Tensor, vector: Tensor) -> Tensor:
    """Return the products of rows (B, m, d) with a vector (B, d), float64 (B, m)."""
    return torch.bmm(rows, vector[:, :, None])[:, :, 0].double()


def _sums(rows: Tensor, weights: Tensor) -> Tensor:
    return torch.bmm(weights[:, None, :], rows)[:, 0]


def least_of_many(
    evaluate: ValuesAndGradients,
    points: Tensor,
    steps: int,
    found: float = 0.0,
    exact: float = 0.0,
    patience: int = 10_000,
) -> tuple[Tensor, Tensor, int]:
    """Descend from each point (B, d) by torch's L-BFGS of rate 1 without a line search.

    Returns each start's lowest value (B,) and its point (B, d), and the number of steps. A start is given up
    if it is no longer finite, stands still, or does not fall by a tenth in ``patience`` steps. Once a start
    reaches the value ``found``, it alone continues, until ``exact``, below which nothing is gained.
    """
    least = torch.full((len(points),), math.inf, dtype=torch.float64)
    best = points.clone()
    running = torch.arange(len(points))
    now = points.clone()
    values, gradients = evaluate(now)
    curvature = _Curvature(now)
    mark, marked_at = least.clone(), torch.zeros(len(points), dtype=torch.long)
    taken = 0
    for taken in range(steps + 1):
        value = values.double()
        lower = value < least[running]
        places = running[lower]
        least[places], best[places] = value[lower], now[lower]
        advanced = least[running] < 0.9 * mark[running]
        mark[running] = torch.where(advanced, least[running], mark[running])
        marked_at[running] = torch.where(advanced, taken, marked_at[running])
        going = value.isfinite() & gradients.isfinite().all(dim=1) & (gradients.abs().amax(dim=1) > 0)
        going &= (taken - marked_at[running] < patience) & (least[running] > exact)
        if least.min() <= found:
            going &= running == least.argmin()
        if not going.any() or taken == steps:
            break
        if not going.all():
            running, now, values, gradients = running[going], now[going], values[going], gradients[going]
            curvature.keep(going)
        if taken == 0:
            step = -gradients / gradients.abs().sum(dim=1, keepdim=True).clamp_min(1.0)
        else:
            step = curvature.direction(gradients)
        now = now + step
        before = gradients
        values, gradients = evaluate(now)
        curvature.add(step, gradients - before)
    return least, best, taken


# Squared distances as shares of the gradient's squared length: below the first, a start has found the
# samples; below the second, more steps fit the rounding of float32.
_CONVERGED, _EXACT = 1e-4, 1e-8


_STEPS = 20
_SHARED_MEMORY = 2**24
"""Most numbers in the gradients of all starts that are computed together."""


@dataclass(frozen=True)
class Dlg(UpdateAttack):
    """Minimises the squared distance between gradients, over the known positions alone."""

    name = "dlg"
    source = "Zhu, Liu, Han: Deep Leakage from Gradients, NeurIPS 2019, algorithm 1"
    recovers = "images"
    iterations: int = 300
    """Most calls of L-BFGS, each with 20 steps at rate 1 without a line search."""
    starts: int = 8
    """Number of random starts, which are searched at once.

    Without a line search, a good half of the starts fail, and the distance tells which. The papers use one
    start and report what converged.
    """
    patience: int = 100
    """Number of steps without a decrease by a tenth after which the search gives up a start.

    This is an addition of this project. On batches of several samples, distances stay at some hundredths of
    the gradient's after a few hundred steps.
    """

    def _labels(self, observed: ObservedUpdate) -> Tensor | None:
        """Return the labels; None if they are searched for with the samples."""
        return None

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        simulated = SimulatedTraining(observed)
        labels = self._labels(observed)
        length = float(simulated.observed.square().sum())
        samples, classes = observed.samples, observed.classes
        features = samples * math.prod(observed.sample_shape)
        searched = samples * classes if labels is None else 0
        generator = torch.Generator().manual_seed(seed)
        points = torch.randn(self.starts, features + searched, generator=generator)

        def read(some: Tensor) -> tuple[Tensor, Tensor]:
            found = some[:, :features].reshape(len(some), samples, *observed.sample_shape)
            if labels is not None:
                return found, labels.expand(len(some), -1)
            return found, some[:, features:].reshape(len(some), samples, classes).softmax(dim=2)

        def evaluate(some: Tensor) -> tuple[Tensor, Tensor]:
            values: list[Tensor] = []
            gradients: list[Tensor] = []
            for part in torch.split(some, max(1, _SHARED_MEMORY // simulated.observed.numel())):
                variables = part.detach().requires_grad_()
                value = simulated.distances(*read(variables))
                gradients += torch.autograd.grad(value.sum(), variables)
                values.append(value.detach())
            return torch.cat(values), torch.cat(gradients)

        ends = _STEPS * self.iterations, _CONVERGED * length, _EXACT * length, self.patience
        values, points, _ = least_of_many(evaluate, points, *ends)
        images, targets = read(points[values.argmin()][None])
        certain = targets[0].argmax(dim=1) if searched else targets[0]
        return Recovered(
            label_counts=np.bincount(certain.numpy(), minlength=classes).astype(np.int64),
            images=images[0].clamp(*observed.value_range),
        )


@dataclass(frozen=True)
class Idlg(Dlg):
    name = "idlg"
    source = "Zhao, Mopuri, Bilen: iDLG, 2020, algorithm 1"

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        if observed.samples != 1:
            return f"its rule finds one label, and the client's samples are {observed.samples}"
        return _without_last_layer(observed)

    def _labels(self, observed: ObservedUpdate) -> Tensor:
        return torch.tensor([only_label(observed)])


def _without_last_layer(observed: ObservedUpdate) -> str | None:
    if last_layer(observed) is not None:
        return None
    return f"the model's outputs are not those of a Linear with one for each of {observed.classes} classes"


_IMAGE_RANK = 3  # channels, height, width


@dataclass(frozen=True)
class Inverting(UpdateAttack):
    """Makes 1 - cos(gradients) + alpha TV(images) small, over the known positions alone.

    Labels come first: by iDLG's rule for one sample, by iLRG's counts for more. A client's steps are
    simulated one after another, as it took them.
    """

    name = "inverting"
    recovers = "images"
    source = "Geiping et al., Inverting Gradients, NeurIPS 2020, eq. 4"
    iterations: int = 1000
    step_size: float = 0.1
    """Step of Adam for each value of a sample, divided by 10 after 3/8, 5/8 and 7/8 of the iterations."""
    smoothness: float = 0.1
    """Weight alpha of the total variation."""

    def inapplicable(self, observed: ObservedUpdate) -> str | None:
        if len(observed.sample_shape) != _IMAGE_RANK:
            return (
                "it searches for images of (channels, height, width), and a sample is "
                f"{observed.sample_shape}"
            )
        if observed.samples > 1:
            return Ilrg().inapplicable(observed)
        return _without_last_layer(observed)

    def recover(self, observed: ObservedUpdate, seed: int) -> Recovered:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if observed.samples > 1:
                counts = Ilrg().recover(observed, seed).label_counts
                assert counts is not None
            else:
                counts = np.bincount([only_label(observed)], minlength=observed.classes).astype(np.int64)
            labels = torch.from_numpy(np.repeat(np.arange(observed.classes), counts))
            # Nobody knows the batch of a label: sorted ones would make batches of one class.
            labels = labels[torch.randperm(len(labels))]
            return Recovered(label_counts=counts, images=self._images(observed, labels))

    def _images(self, observed: ObservedUpdate, labels: Tensor) -> Tensor:
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


def total_variation(images: Tensor) -> Tensor:
    """Return the mean neighbour difference down plus that across, of images (m, channels, height, width)."""
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
    across = (images[..., :, 1:] - images[..., :, :-1]).abs().mean()
    return down + across
