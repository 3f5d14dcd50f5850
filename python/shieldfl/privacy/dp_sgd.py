"""DP-SGD on one client's samples: torch.func differentiates, Opacus clips, the core draws the noise.

Source: Abadi et al. (2016), as used by Alt-FL, section III. Three things differ from
``opacus.PrivacyEngine``. Each sample goes through the model alone: hooks of layers miss what a parameter is
used for elsewhere, and take a model's word that it mixes no samples. The noise comes from the core's
cryptographic generator: torch's CPU generator keeps 32 bits of its seed, which can be tried one by one. And a
copy of the model is trained, so that no per-sample gradient is left on the caller's module.
"""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Iterator
from weakref import WeakSet

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import nn

from shieldfl.errors import ParameterError, RangeError
from shieldfl.models.sample_gradients import (
    Loss,
    SampleGradients,
    check_samples_apart,
    gradients_of_samples,
    separate_loss,
)
from shieldfl.privacy.noise import check_norm, gaussian_noise
from shieldfl.settings import TrainingSettings

_DIVERGED = "the loss or a parameter became NaN or infinite: check the features, or lower the learning rate"


def train_privately(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    settings: TrainingSettings,
    *,
    noise_multiplier: float,
    max_grad_norm: float = 4.7,
    loss: Loss | None = None,
) -> tuple[float, int, float]:
    """Train a model in place on one client's samples, by DP-SGD, on the cross-entropy by default.

    An epoch has ⌈N / batch_size⌉ steps, and in each every sample takes part with the same probability,
    independently (Poisson sampling): the sample rate is 1 over the steps of an epoch, as in Opacus.
    Per-sample gradients are clipped to the norm C = ``max_grad_norm``, by default Alt-FL's, summed, noised
    with N(0, (σ C)²) in each coordinate and divided by the expected size of a batch; SGD steps with that.
    Neighbours differ by adding or removing one sample; N is treated as public. A ``noise_multiplier`` σ of 0
    protects nothing.

    Every sample goes through the model as a batch of one, so that the bound holds whatever the model computes
    by torch's own operations. A ``loss`` is asked for each sample alone too: weights that it normalises by
    those of the batch have no effect. Whether the model learns what it would from batches, and whether a
    custom function's own ``vmap`` rule mixes samples, is tried on two and on three samples when it is first
    trained, see :func:`shieldfl.models.sample_gradients.check_samples_apart`.

    Neither batches nor noise are ever seeded: the sample rate lowers ε only against those who cannot tell who
    was drawn.

    Memory holds one gradient for each sample of a batch. Parameters are updated only if the whole training
    succeeds; gradients and the mode of the model stay as they were. Returns the mean loss over the samples
    drawn in the last epoch, or all if none was, which is not private, and what to charge as steps and sample
    rate of :class:`shieldfl.privacy.events.Noise`.

    Raises ParameterError for a setting out of range, no sample or another number of labels, nothing to train,
    a model that mixes samples or keeps something of them, a trained parameter without a gradient, or what
    torch.func cannot differentiate; the message names the parameter, buffer or layer. RangeError where the
    loss or a parameter becomes NaN or infinite.
    """
    if len(features) == 0 or len(features) != len(labels):
        raise ParameterError(
            f"DP-SGD needs samples and a label for each, got {len(features)} and {len(labels)}"
        )
    if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
        raise ParameterError("the noise multiplier must be finite and not negative")
    check_norm(max_grad_norm)
    trained = copy.deepcopy(model).train()
    check_layers(trained)
    if model not in _tried:
        check_samples_apart(trained, features[:3], labels[:3], loss, need_all=True)
        if len(features) >= 3:  # one sample has no other to be mixed with
            _tried.add(model)
    samples = len(features)
    steps_per_epoch = math.ceil(samples / settings.batch_size)
    optimizer = _CoreNoiseOptimizer(
        torch.optim.SGD(
            (parameter for parameter in trained.parameters() if parameter.requires_grad),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        ),
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
        expected_batch_size=samples / steps_per_epoch,
    )
    batches = _poisson_batches(samples, steps_per_epoch)
    gradients = gradients_of_samples(trained, loss)
    loss_sum, drawn = 0.0, 0
    for _ in range(settings.local_epochs):
        loss_sum, drawn = 0.0, 0
        for _ in range(steps_per_epoch):
            batch = next(batches).to(features.device)
            optimizer.zero_grad(set_to_none=True)
            loss_sum += _leave_gradients(trained, gradients, features[batch], labels[batch])
            drawn += len(batch)
            optimizer.step()
    if not all(bool(torch.isfinite(parameter).all()) for parameter in trained.parameters()):
        raise RangeError(_DIVERGED)
    if drawn == 0:
        with torch.no_grad():
            loss_sum, drawn = float(separate_loss(loss, trained(features), labels)), 1
    with torch.no_grad():
        for parameter, result in zip(model.parameters(), trained.parameters(), strict=True):
            parameter.copy_(result)
    return loss_sum / drawn, settings.local_epochs * steps_per_epoch, 1 / steps_per_epoch


class _CoreNoiseOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimizer with the core's noise instead of torch's."""

    def add_noise(self) -> None:
        """Set each parameter's gradient to the clipped sum plus noise."""
        for parameter in self.params:
            clipped_sum = parameter.summed_grad.detach()
            noised = gaussian_noise(
                clipped_sum.reshape(-1).cpu().numpy(), self.noise_multiplier * self.max_grad_norm
            )
            parameter.grad = torch.from_numpy(noised).to(clipped_sum.device).view_as(parameter)


def _poisson_batches(samples: int, steps_per_epoch: int) -> Iterator[torch.Tensor]:
    """Yield batches, as positions, that each sample joins with probability 1 / ``steps_per_epoch``.

    Some batches are empty.
    """
    while True:
        words = np.frombuffer(secrets.token_bytes(8 * samples), dtype=np.uint64)
        yield torch.from_numpy(np.flatnonzero(words <= (2**64 - 1) // steps_per_epoch))


def _leave_gradients(
    model: nn.Module, gradients: SampleGradients, features: torch.Tensor, labels: torch.Tensor
) -> float:
    """Leave each sample's gradient where Opacus looks for it; return the sum of the losses."""
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if len(features) == 0:
        # The step is noised as any other.
        for parameter in parameters.values():
            parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))  # type: ignore[attr-defined]
        return 0.0
    found, losses, _ = gradients(features, labels)
    for name, parameter in parameters.items():
        parameter.grad_sample = found[name]  # type: ignore[attr-defined]
    loss_sum = float(losses.sum())
    if not math.isfinite(loss_sum):
        raise RangeError(_DIVERGED)
    return loss_sum


def check_layers(model: nn.Module) -> None:
    """Raise ParameterError where a model's layers alone say that :func:`train_privately` cannot train it."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ParameterError("the model has no parameter to train")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and (
            isinstance(module, nn.modules.batchnorm._BatchNorm) or module.track_running_stats
        ):
            raise ParameterError(
                f"layer {name!r} ({type(module).__name__}) mixes samples or keeps their statistics, which "
                "DP-SGD cannot protect: replace it by GroupNorm or choose another model"
            )


_tried: WeakSet[nn.Module] = WeakSet()
"""Models that were tried: a trial costs as much as several steps, and simulated clients share a model."""
