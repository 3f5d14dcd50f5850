"""What a client's training would have changed on other samples, as a function that can be differentiated by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy

import numpy as np
import torch
from torch.func import functional_call, grad, replace_all_batch_norm_modules_, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.sensitivity.gradient import batches_of

__all__ = ["SimulatedTraining"]

Parameters = Mapping[str, torch.Tensor]


_REACHED = 0.1
"""Of a gradient's root mean square: as near as searches for batches come. Smaller noise has no say beside that."""


def _weights(observed: ObservedUpdate) -> torch.Tensor | None:
    """Return by how much known values count, float32 (k,): as generalised least squares have it, 1 at most.

    None where noise is alike on all, which changes no distance by more than a factor.
    """
    noise = observed.gradient_deviation[observed.known].astype(np.float64)
    if noise.max() == noise.min():
        return None
    values = observed.gradient[observed.known].astype(np.float64)
    # What noise alone makes large says nothing of how large gradients are.
    clear = values[noise == noise.min()]
    error = max(_REACHED * float(np.sqrt(np.mean(clear**2))), 1e-30)
    return torch.from_numpy((error / np.hypot(error, noise)).astype(np.float32))


class SimulatedTraining:
    """Repeats a client's SGD on samples of the attacker's choice.

    All steps are simulated, with momentum and weight decay as the client has them (Geiping et al., 2020, section 6, for
    federated averaging). In which order it drew its samples nobody else knows: here batches are taken as they stand,
    the same in each epoch. Of BatchNorm the statistics are those of the batch, as in training.

    Parameters
    ----------
    observed : what is attacked; its model is copied.
    """

    def __init__(self, observed: ObservedUpdate) -> None:
        # Running means are written to, which cannot be done for several at once, and are of no use in training.
        self._model = replace_all_batch_norm_modules_(deepcopy(observed.model).train())
        self._start = {
            name: parameter.detach().clone().requires_grad_()
            for name, parameter in self._model.named_parameters()
        }
        self._at_once: bool | None = None
        """Whether the model can be run on several batches at once; None where it was not tried."""
        self._training = observed.training
        self._known = None if observed.known.all() else torch.from_numpy(np.flatnonzero(observed.known))
        self._gradients_taken = observed.gradients_taken
        self._weights = _weights(observed)
        self.observed = self._seen(torch.from_numpy(observed.gradient))
        """The mean gradient that the client's update shows, at the known positions in ascending order, each by its
        weight: 1, but where noise is on some positions more than on others."""

    def gradient(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return what :attr:`observed` would be for these samples (m, *sample_shape).

        ``targets`` are classes (m,), or probabilities (m, classes). Gradients reach both.
        """
        # The fused kernels of attention have no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            return self._mean_gradient(samples, targets, self._taped_gradients)

    def distances(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the squared distances (B,) of :attr:`observed` from :meth:`gradient` of B batches, worked out at once.

        Samples are (B, m, *sample_shape), targets (B, m) or (B, m, classes). One after another where the model cannot
        be run on several at once.
        """

        def distance(own: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return (self._mean_gradient(own, target, self._pure_gradients) - self.observed).square().sum()

        at_once = vmap(distance, randomness="different")
        with sdpa_kernel(SDPBackend.MATH):
            if self._at_once is None:
                # Of one batch: what is out of memory with all of them is an error, and no property of the model.
                self._at_once = _runs(at_once, samples[:1], targets[:1])
            if self._at_once:
                found: torch.Tensor = at_once(samples, targets)
                return found
            return torch.stack(
                [
                    (self._mean_gradient(own, target, self._taped_gradients) - self.observed).square().sum()
                    for own, target in zip(samples, targets, strict=True)
                ]
            )

    def _taped_gradients(
        self, current: Parameters, batch: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        loss = cross_entropy(functional_call(self._model, dict(current), (batch,)), target)
        return torch.autograd.grad(loss, list(current.values()), create_graph=True, materialize_grads=True)

    def _pure_gradients(
        self, current: Parameters, batch: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
            return cross_entropy(functional_call(self._model, parameters, (batch,)), target)

        return tuple(grad(loss)(dict(current)).values())

    def _mean_gradient(
        self,
        samples: torch.Tensor,
        targets: torch.Tensor,
        gradients_of: Callable[[Parameters, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]],
    ) -> torch.Tensor:
        training = self._training
        current: Parameters = self._start
        moved: list[torch.Tensor] = []
        velocities: list[torch.Tensor] = []
        for batch, target in self._batches(samples, targets):
            gradients = gradients_of(current, batch, target)
            directions = [
                gradient + training.weight_decay * value if training.weight_decay else gradient
                for gradient, value in zip(gradients, current.values(), strict=True)
            ]
            if velocities:
                directions = [
                    training.momentum * velocity + direction
                    for velocity, direction in zip(velocities, directions, strict=True)
                ]
            velocities = directions
            # Added up by itself: a difference of parameters would lose most digits of a small step.
            moved = [a + b for a, b in zip(moved, directions, strict=True)] if moved else directions
            current = {
                name: value - training.learning_rate * direction
                for (name, value), direction in zip(current.items(), directions, strict=True)
            }
        flat = torch.cat([part.reshape(-1) for part in moved]) / self._gradients_taken
        return self._seen(flat)

    def _seen(self, flat: torch.Tensor) -> torch.Tensor:
        """Return what of a gradient (P,) is compared."""
        known = flat if self._known is None else flat[self._known]
        return known if self._weights is None else known * self._weights

    def _batches(
        self, samples: torch.Tensor, targets: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        size = self._training.batch_size
        for _ in range(self._training.local_epochs):
            yield from batches_of(samples, targets, size)


def _runs(function: Callable[..., torch.Tensor], *arguments: torch.Tensor) -> bool:
    """Say whether torch.func can do what a function does; random numbers are drawn as if it had not been tried."""
    with torch.random.fork_rng(devices=[]):
        try:
            function(*arguments)
        except (RuntimeError, ValueError):
            return False
    return True
